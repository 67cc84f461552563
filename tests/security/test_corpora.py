"""Corpora of hostile texts, in bulk: ids in routes, texts in headers and bodies, templates and SQL that stay data.

Each of these is proved by a reason elsewhere, a few values at a time. Here the numbers are large and the texts are what
attackers write, so that a gap between two reasons shows.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import random
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import pytest
import sqlalchemy as sa

from protocol.examples import action, mapping, profile, values
from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy, build_url, parse_origin
from pushlink.adapters.objects import ObjectDeclaration
from pushlink.adapters.records import SqlRecordStore
from pushlink.adapters.wire import HEADER_VALUE_BYTES_MAX, check_request
from pushlink.errors import Code, ConfigurationError, PushlinkError
from pushlink.ports import RecordRef, WireRequest
from pushlink.protocol import jsontext
from pushlink.protocol.contracts import Auth, ProfileContract, Timeouts
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.paths import render_path
from pushlink.protocol.render import render_create, render_update
from pushlink.protocol.snapshots import FrozenRequest, SourceValue
from pushlink.protocol.values import Omitted, encode_value
from pushlink.testing.conformance import CanaryCredentials
from pushlink.testing.conformance_cases import OK
from pushlink.testing.wire import FaultyServer, Peer

SEED: Final = 7

#: What changes a route, a header, a line or a host where it is not one value among others.
PIECES: Final = (
    *("", ".", "..", "...", "/", "//", "\\", "?", "#", "%", "%2e", "%2E%2e", "%2f", "%252e", "%00", "&", "=", ";", ":"),
    *("@", "a", "\r", "\n", "\r\n", "\t", "\x00", "\x1f", "\x7f", "\x85", "\u2028", "\u2044", "\uff0e", "\uff0f"),
    *("\ud800", "\u202e", "{remote_id}", "*", "|", "'", '"', "<", ">", "`", "^", "~", " "),
)
HAND_MADE: Final = (
    *(f"{one}{other}" for one, other in itertools.product(("..", "/", "a", "%2e", "\r\n"), PIECES[:20])),
    *(
        "../../admin",
        "..;/admin",
        "//evil.test/x",
        "https://evil.test/",
        "a@evil.test",
        "a?admin=1",
        "a#b",
        "/..",
        "a/..",
    ),
    *("a\r\nHost: evil.test", "a HTTP/1.1\r\n\r\nDELETE /x", "x" * 300, "\u0131/..", "file:///etc/passwd", ".\u200b."),
    *("0x7f000001", "%c0%ae%c0%ae", "%uff0e", "....//", "a;b=c", "a:443/x", "[::1]", "%0d%0aX: y", "C:\\x", "~root"),
)
TEMPLATES: Final = (
    "/things/{remote_id}",
    "/{remote_id}",
    "/things/{remote_id}/details",
    "/things/id-{remote_id}",
    "/odata/Things({remote_id})?api-version=9.2",
)
BASE: Final = "https://api.example.com/v1"

#: What a template engine, a shell, a formatter or a deserializer would act on.
TEMPLATE_TEXTS: Final = (
    *("{{7*7}}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "${{7*7}}", "{7*7}", "*{7*7}", "@(7*7)", "{{=7*7}}", "[[${7*7}]]"),
    *("{{config}}", "{{self}}", "{{request}}", "{{''.__class__}}", "{{''.__class__.__mro__[1].__subclasses__()}}"),
    *("{{cycler.__init__.__globals__.os.popen('id').read()}}", "{% for x in (1,) %}{{x}}{% endfor %}", "{# note #}"),
    *("{0}", "{}", "{name}", "{name!r}", "{0.__class__}", "{name.__init__.__globals__}", "%s", "%(name)s", "%d", "%n"),
    *(
        "$name",
        "${name}",
        "$(id)",
        "`id`",
        "${IFS}",
        "$((1+1))",
        "{{constructor.constructor('alert(1)')()}}",
        "{{7*'7'}}",
    ),
    *(
        "__import__('os').system('id')",
        "eval('1')",
        "!!python/object/apply:os.system ['id']",
        "!ruby/object:Gem",
        "&a *a",
    ),
    *("<script>alert(1)</script>", "<!ENTITY x SYSTEM 'file:///etc/passwd'>", "<?php echo 1 ?>", "<#assign x=1>"),
    *("{remote_id}", "{stamp}", "{client_id}", "{link_version}", "{tenant}", "{remote_id:integer}", "{{remote_id}}"),
    *(
        "$response.body#/id",
        "$.id",
        "jsonpath:$..*",
        "\\u007b\\u007b7*7\\u007d\\u007d",
        "{{'a'*5000000}}",
        "{% raw %}{{x}}",
        "{{ x | safe }}",
        "#set($x=7*7)$x",
        "{php}echo 1{/php}",
        "=cmd|' /C calc'!A0",
    ),
)

SQL_TEXTS: Final = (
    *("'; DROP TABLE note; --", '"; DROP TABLE note; --', "1' OR '1'='1", "1) OR (1=1", "' UNION SELECT 1,2,3 --"),
    *(
        "\\'; DROP TABLE note; --",
        "'||(SELECT 1)||'",
        "1; SELECT pg_sleep(5)",
        "') OR 1=1 --",
        "x' AND 1=0 --",
        "\u02bc OR 1=1",
    ),
    *(
        "\u2019; --",
        ":id",
        "%(id)s",
        "?",
        "$1",
        "E'\\\\''",
        "$$; --$$",
        "/* */",
        "--",
        "\uff07 OR 1=1",
        'a"b',
        "a'b",
        "`x`",
    ),
    *(
        "[x]",
        "select",
        "SELECT",
        "order",
        "user",
        "group",
        "table",
        "_",
        "%",
        "\\",
        "a;b",
        "a\tb",
        "a\nb",
        "a" * 64,
        "\u0430dmin",
    ),
)


def ids() -> Iterator[str]:
    """Two thousand of them, always the same: those above, and texts of pieces and of any character."""
    yield from HAND_MADE
    dice = random.Random(SEED)
    for number in range(2_000 - len(HAND_MADE)):
        if number % 2:
            yield "".join(dice.choice(PIECES) for _ in range(dice.randint(1, 6)))
        else:
            yield "".join(chr(dice.choice((0x20, 0x80, 0x800, 0x10000)) + dice.randrange(95)) for _ in range(9))


def test_two_thousand_ids_in_five_routes_reach_their_own_record_or_nothing() -> None:
    """A route that is rendered has the template's segments, the id in its place once; the URL that is asked is it."""
    origin, rendered = parse_origin(BASE), 0
    for text, template in itertools.product(ids(), TEMPLATES):
        path = render_path(template, {"remote_id": text}, base_url=BASE)
        if isinstance(path, RenderFailure):
            assert path.code is Code.ROUTE_UNSAFE, text
            continue
        rendered += 1
        route, _, query = template.partition("?")
        found, _, asked = path.partition("?")
        assert [unquote(part) for part in found.split("/")] == [
            part.replace("{remote_id}", text) for part in route.split("/")
        ], text
        assert asked == query
        assert build_url(origin, path).raw_path_qs == f"/v1{path}"
    assert 2_000 < rendered < 8_000  # neither is everything refused, nor is nothing


def test_what_is_rendered_is_what_stands_in_the_request_line() -> None:
    """A hundred of them over a socket: the first line is the frozen path, byte by byte, and no other path is asked."""
    paths = [
        path
        for text in itertools.islice(ids(), len(HAND_MADE), len(HAND_MADE) + 400)
        if isinstance(path := render_path(TEMPLATES[0], {"remote_id": text}, base_url=BASE), str)
    ][:100]
    assert len(paths) == 100

    def answer_all(peer: Peer) -> None:
        for _ in paths:
            peer.read_request()
            peer.send(OK)

    async def send_all(base_url: str) -> None:
        plain = ProfileContract(
            base_url=base_url,
            auth=Auth.model_construct(kind="none"),
            timeouts=Timeouts.model_construct(connect_ms=2_000, total_ms=5_000),
        )
        async with AiohttpTransport(CanaryCredentials(), egress=EgressPolicy(allow_loopback=True)) as wire:
            for path in paths:
                asked = WireRequest(
                    profile=plain, tenant="", method="PATCH", path=path, headers=(), body=b"{}", fresh_connection=False
                )
                assert (await wire.send(asked)).status == 201

    with FaultyServer(answer_all) as server:
        asyncio.run(send_all(server.base_url))
        lines = [request.partition(b"\r\n")[0].decode("ascii") for request in server.requests()]
    assert lines == [f"PATCH {path} HTTP/1.1" for path in paths]


def is_sendable(text: str) -> bool:
    """Whether a text may stand in a header (RFC 9110, section 5.5), ASCII only."""
    return (
        text != ""
        and text == text.strip()
        and len(text) <= HEADER_VALUE_BYTES_MAX
        and text.isascii()
        and text.isprintable()
    )


def headers() -> Iterator[str]:
    """Five hundred texts around everything that ends or continues a header."""
    ends = (
        "\r\n",
        "\n",
        "\r",
        "\x00",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x7f",
        "\x85",
        "\u2028",
        "\u560d\u560a",
        "\ud800",
        "\t",
        " ",
        "",
    )
    lines = (
        "X: y",
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
        "Host: evil.test",
        "",
        " folded",
        "GET / HTTP/1.1",
    )
    places = ("{end}{line}", "a{end}{line}", "a{end}{line}{end}", "{line}{end}", '"{line}{end}"')
    yield from (place.format(end=end, line=line) for place, end, line in itertools.product(places, ends, lines))


def test_five_hundred_texts_stay_one_header_or_are_refused_when_they_are_frozen() -> None:
    """As a version in `If-Match` and as a variable of the profile: what is frozen is sendable, and nothing else is."""
    precondition = {"kind": "if_unmodified_since"}
    versioned = action(update={"precondition": precondition})
    named = action(create={"headers": {"X-Realm": "{realm}"}})
    texts = list(headers())
    assert len(texts) >= 500
    for text in texts:
        update = render_update(versioned, profile(), values(name="x"), "1", remote_version=text)
        try:
            variables = profile(variables={"realm": text})
        except ValueError:
            variables = None
        create = (
            RenderFailure(code=Code.FREEZE_FAILED, message="")
            if variables is None
            else render_create(named, variables, values(name="x"))
        )
        for request in (update, create):
            if isinstance(request, RenderFailure):
                continue
            assert is_sendable(text), text
            check_request(request.method, request.headers)
            assert text in dict(request.headers).values()


ENCODINGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"encoding": "form"},
    {"encoding": "graphql", "graphql": {"document": "mutation M($name: String) { m(name: $name) }"}},
)


@pytest.mark.parametrize("body", ENCODINGS, ids=["json", "form", "graphql"])
def test_sixty_templates_are_data(body: dict[str, Any]) -> None:
    """What an engine would evaluate arrives as it was written: from a field, and from a constant of the pack."""
    assert len(TEMPLATE_TEXTS) >= 60
    for text in (*TEMPLATE_TEXTS, *SQL_TEXTS):
        mapped = [{"source": "name", "target": "/name"}, {"constant": text, "target": "/fixed"}]
        contract = action(create={"body": body}, mappings=mapped)
        request = render_create(contract, profile(), values(name=text))
        assert isinstance(request, FrozenRequest), text
        if body.get("encoding") == "form":
            assert sorted(parse_qsl(request.body.decode("ascii"))) == [("fixed", text), ("name", text)]
            continue
        sent = json.loads(request.body)
        sent = sent.get("variables", sent)
        assert (sent["name"], sent["fixed"]) == (text, text)


CONVERSIONS: Final[tuple[dict[str, Any], ...]] = (
    *({}, {"string": True}, {"decimal_string": 2}, {"minor_units": 2}, {"date": "%Y-%m-%d"}, {"datetime": "rfc3339"}),
    *({"epoch": "s"}, {"epoch": "ms"}, {"ms_date": True}, {"enum_map": {"a": 1}}, {"join": ","}),
    *({"bool_map": {"true": 1, "false": 0}}, {"join": ";", "truncate": 3}, {"wrap": "value"}, {"json_string": True}),
    *({"string": True, "lower_trim": True, "md5_hex": True}, {"lower_trim": True, "truncate": 5}),
    {"wrap": "a", "json_string": True},
)


def any_value(dice: random.Random) -> SourceValue:
    """A value of any kind that a record store reads, odd ones among them."""
    texts = (*TEMPLATE_TEXTS, *SQL_TEXTS, *PIECES)
    kinds: tuple[SourceValue, ...] = (
        None,
        dice.random() < 0.5,
        dice.choice((0, -1, 2**53, 2**64, -(10**40))),
        Decimal(dice.choice(("0", "-0.0", "1E+30", "1E-30", "NaN", "Infinity", "19.990", "123456789.123456789"))),
        dice.choice(texts),
        "x" * dice.choice((1, 255, 10_000)),
        dt.datetime(dice.randint(1, 9999), 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 29, 2, 30),  # noqa: DTZ001 - a moment without a zone is refused
        dt.date(dice.randint(1, 9999), 12, 31),
        dt.time(23, 59, 59),
        tuple(dice.choice(texts) for _ in range(dice.randint(0, 5))),
    )
    return dice.choice(kinds)


@pytest.mark.timeout(120)
def test_ten_thousand_mappings_end_in_a_value_or_a_refusal_at_once() -> None:
    """Nothing raises, nothing takes more than 10 ms of the processor, nothing grows beyond a megabyte."""
    dice = random.Random(SEED)
    declared = [mapping(encode=encode) for encode in CONVERSIONS]
    sent = 0
    for _ in range(10_000):
        chosen, value = dice.choice(declared), any_value(dice)
        spent = 1.0
        for _ in range(3):  # a collection of garbage may fall into one of them
            begun = time.thread_time()
            result = encode_value(chosen, values(f=value))
            spent = min(spent, time.thread_time() - begun)
            if spent <= 0.01:
                break
        assert spent <= 0.01, (chosen.encode, value)
        if isinstance(result, RenderFailure):
            assert result.code in {Code.VALUE_UNSENDABLE, Code.MAPPING_UNUSABLE}
        elif not isinstance(result, Omitted) and jsontext.problem(result) is None:
            sent += 1
            assert len(jsontext.write(result)) <= 1_000_000
    assert sent > 2_000


@pytest.mark.rule("D-42")
def test_sql_in_ids_values_and_names_is_data_or_refused(engine: sa.Engine) -> None:
    """Text keys and values come back as they are; a name that is no table is said so; the table is there afterwards."""
    texts = [text for text in SQL_TEXTS if "\x00" not in text]
    note = sa.Table("note", sa.MetaData(), sa.Column("code", sa.Text, primary_key=True), sa.Column("title", sa.Text))
    with engine.begin() as conn:
        note.create(conn)
        conn.execute(sa.insert(note), [{"code": text, "title": text} for text in texts])
    store = SqlRecordStore([declared("note")])
    refs = [RecordRef(source_object="Note", record_id=text) for text in texts]
    with engine.begin() as conn:
        found = store.read_records(conn, refs, [("title",)] * len(refs))
        assert found == [{"title": text} for text in texts]
    for text in texts:
        try:
            odd = SqlRecordStore([declared(text)])
        except ValueError:
            continue  # no name that a declaration takes
        with engine.connect() as conn, pytest.raises((ConfigurationError, PushlinkError)):
            odd.read_records(conn, [RecordRef(source_object="Note", record_id="1")], [("title",)])
    with engine.begin() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(note)) == len(texts)
        note.drop(conn)


def declared(table: str) -> ObjectDeclaration:
    """An object whose records are the rows of a table with that name."""
    return ObjectDeclaration.model_validate(
        {"name": "Note", "table": table, "key": [{"column": "code", "type": "text"}]}
    )
