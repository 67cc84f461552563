"""The project's own bans, as tests over its source.

A ban is a row of BANS: where it holds, how an offence is found, an offending snippet that proves the ban can fail, and
an innocent one that proves it does not cry wolf. An exception is listed with its reason, never a comment in the code.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = "src/pushlink/"
LINES_MAX = 500

# Products with an API, in whole words; those that are plain English as well (square, close, notion) are left out.
VENDORS = (
    "activecampaign|airtable|asana|attio|bigcommerce|braintree|brevo|datasette|dataverse|directus|erpnext|freshdesk"
    "|freshsales|gitea|gitlab|hubspot|intercom|jira|kinto|klaviyo|mailchimp|marketo|netsuite|nocodb|odoo|pipedrive"
    "|pocketbase|quickbooks|salesforce|sendgrid|servicenow|shopify|stripe|twilio|woocommerce|workday|xero|zendesk|zoho"
)
TENANTS = "acme|contoso|globex|initech"
# Objects that a business keeps: banned as a word of any name or text.
BUSINESS_WORDS = frozenset(
    word + plural
    for word, plural in itertools.product(["contact", "customer", "employee", "invoice", "lineitem"], ["", "s"])
) | {"company", "companies", "opportunity", "opportunities"}
# These also mean something to a programmer (order by, a service account): only a text that says nothing else is banned.
BUSINESS_TEXTS = frozenset(
    word + plural
    for word, plural in itertools.product(["account", "deal", "lead", "order", "product", "ticket"], ["", "s"])
)

STATUS_ENUMS = {"AttemptStatus", "LinkStatus", "MirrorStatus"}


# --------------------------------------------------------------------------------------- what is looked at


@dataclass(frozen=True)
class Source:
    """One file: its path from the project's root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def docstrings(self) -> frozenset[int]:
        """The identities of the constants that are docstrings, or other texts that stand alone as a comment does."""
        return frozenset(
            id(node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )

    def texts(self) -> Iterator[tuple[int, str]]:
        """Every string of the code that is no docstring, f-strings' fixed parts included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docstrings:
                yield node.lineno, node.value

    def names(self) -> Iterator[tuple[int, str]]:
        """Every identifier: names, attributes, arguments, keywords, definitions, imports."""
        for node in ast.walk(self.tree):
            line = getattr(node, "lineno", 0)
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    yield line, name
                case ast.keyword(arg=str(name)):
                    yield line, name
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    yield line, name
        for line, module in self.imports():
            yield line, module

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every imported module, and every name imported from one, with dots."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.lineno, f"{node.module or ''}.{alias.name}") for alias in node.names)

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Every call with the last word of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, _last_name(node.func)


Offences = Iterator[tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class Ban:
    name: str
    holds: Callable[[str], bool]
    find: Callable[[Source], Offences]
    offending: str
    innocent: str
    at: str = f"{SRC}flows/sample.py"
    rules: tuple[str, ...] = ()
    excused: Mapping[str, str] = field(default_factory=dict)

    def offences(self, source: Source) -> list[str]:
        if not self.holds(source.path) or source.path in self.excused:
            return []
        return [f"{source.path}:{line}: {what}" for line, what in self.find(source)]


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _words(name: str) -> list[str]:
    """The words of an identifier or a text in lower case: remoteLink, remote_link and "remote link" alike."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _lines(text: str, pattern: re.Pattern[str]) -> Offences:
    for number, line in enumerate(text.splitlines(), 1):
        for found in pattern.finditer(line):
            yield number, found.group()


# --------------------------------------------------------------------------------------- where a ban holds


def in_src(path: str) -> bool:
    return path.startswith(SRC) and path.endswith(".py")


def in_src_of_any_kind(path: str) -> bool:
    return path.startswith(SRC)


def in_protocol(path: str) -> bool:
    return path.startswith(f"{SRC}protocol/") and path.endswith(".py")


def in_src_outside(*rooms: str) -> Callable[[str], bool]:
    places = tuple(f"{SRC}{room}" for room in rooms)
    return lambda path: in_src(path) and not path.startswith(places)


def in_rooms(*rooms: str) -> Callable[[str], bool]:
    places = tuple(f"{SRC}{room}" for room in rooms)
    return lambda path: in_src(path) and path.startswith(places)


def in_tests(path: str) -> bool:
    return path.startswith("tests/") and path.endswith(".py")


def in_python(path: str) -> bool:
    return path.endswith(".py")


def everywhere(path: str) -> bool:
    return True


# --------------------------------------------------------------------------------------- how an offence is found


def names_a_vendor(source: Source) -> Offences:
    yield from _lines(source.text, re.compile(rf"(?i)(?<![a-z])(?:{VENDORS}|{TENANTS})(?![a-z])"))


def names_a_business_object(source: Source) -> Offences:
    for line, name in source.names():
        if not BUSINESS_WORDS.isdisjoint(_words(name)):
            yield line, name
    for line, text in source.texts():
        if not BUSINESS_WORDS.isdisjoint(_words(text)) or text.strip().lower() in BUSINESS_TEXTS:
            yield line, repr(text)


def names_a_dialect(source: Source) -> Offences:
    dialect = re.compile(r"(?i)sqlite|postgres|psycopg|mysql")
    for line, text in (*source.texts(), *source.names()):
        if dialect.search(text):
            yield line, text
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(attr="name" | "driver", value=ast.Attribute(attr="dialect") | ast.Name(id="dialect")):
                yield node.lineno, ast.unparse(node)


def writes_a_status(source: Source) -> Offences:
    for call, name in source.calls():
        if name == "values" and (table := _updated_table(call)) and not _keeps_no_machine(table):
            columns = [keyword.arg or "" for keyword in call.keywords] + _keys(call.args)
        elif name == "on_conflict_do_update":
            columns = _keys(keyword.value for keyword in call.keywords if keyword.arg == "set_")
        else:
            continue
        if "status" in columns:
            yield call.lineno, "an update of status"
    statement = re.compile(r"(?is)\bupdate\b.*\bset\b.*(?<![\w.])\"?status\"?\s*=")
    yield from ((line, "an UPDATE of status") for line, text in source.texts() if statement.search(text))


def _keys(nodes: Iterable[ast.expr]) -> list[str]:
    """The columns that dictionaries name, as text ("status") or as columns (table.c.status)."""
    keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if key]
    return [str(key.value) if isinstance(key, ast.Constant) else _last_name(key) for key in keys]


def _updated_table(call: ast.Call) -> str:
    """The table of `update(table)...values()` or `table.update()...`, as written; empty for any other statement."""
    node: ast.AST = call.func
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Call) and _last_name(node.func) == "update":
            if node.args:
                return ast.unparse(node.args[0])
            return ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else "?"
        node = node.func if isinstance(node, ast.Call) else node.value
    return ""


def _keeps_no_machine(table: str) -> bool:
    """Installs, slots and receipts have statuses of their own; only attempts and links have a machine."""
    return bool(re.search(r"install|slot|receipt|action", table)) and not re.search(r"attempt|link", table)


def compares_a_status(source: Source) -> Offences:
    for node in ast.walk(source.tree):
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                # `table.c.status == ...` builds SQL: it is the WHERE of a compare-and-set, not a decision.
                builds_sql = any(re.search(r"\.c\.|\bexcluded\b", ast.unparse(side)) for side in sides)
                if not builds_sql and any(_is_status(part) for side in sides for part in _parts(side)):
                    yield node.lineno, ast.unparse(node)
            case ast.MatchValue(value=value) if _is_status(value):
                yield node.lineno, f"case {ast.unparse(value)}"


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]


def _is_status(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and _last_name(node.value) in STATUS_ENUMS


def asserts(source: Source) -> Offences:
    yield from ((node.lineno, "assert") for node in ast.walk(source.tree) if isinstance(node, ast.Assert))


def prints(source: Source) -> Offences:
    yield from ((call.lineno, "print") for call, _ in source.calls() if ast.unparse(call.func) == "print")


def imports_any(*modules: str) -> Callable[[Source], Offences]:
    def find(source: Source) -> Offences:
        for line, module in source.imports():
            if any(module == banned or module.startswith(f"{banned}.") for banned in modules):
                yield line, module

    return find


def builds_sql_from_text(source: Source) -> Offences:
    for call, name in source.calls():
        if name in {"text", "exec_driver_sql", "literal_column", "DDL"} and call.args and _is_assembled(call.args[0]):
            yield call.lineno, ast.unparse(call)[:80]


def _is_assembled(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.FormattedValue) for value in values)
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "join")):
            return True
        case _:
            return False


def names_a_machine(source: Source) -> Offences:
    # Put together from pieces, so that this file does not offend itself.
    hosts = ["pypi" + r"\.org", "python" + r"hosted\.org", "registry" + r"\.npmjs", "index" + "-url", "find" + "-links"]
    hosts += ["trusted" + "-host"]
    paths = [rf"(?<![\w.$}}~-])/{top}/[\w.-]" for top in ("work", "root", "home", "opt", "Users")]
    yield from _lines(source.text, re.compile("|".join(hosts + paths)))


def opens_without_docstring(source: Source) -> Offences:
    if not (ast.get_docstring(source.tree) or "").strip():
        yield 1, "no docstring"


def is_long(source: Source) -> Offences:
    if (lines := source.text.count("\n")) > LINES_MAX:
        yield lines, f"{lines} lines"


def is_unfinished(source: Source) -> Offences:
    yield from _lines(source.text, re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b"))


def skips_without_reason(source: Source) -> Offences:
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="skip" | "skipif" | "xfail" as verb, value=of)):
                said = [keyword.value for keyword in node.keywords if keyword.arg in {"reason", "msg"}]
                said += node.args[:1] if verb != "skipif" and _last_name(of) == "pytest" else []
                said += node.args[:1] if verb == "skip" else []
                if not any(ast.unparse(value).strip("'\" ") for value in said):
                    yield node.lineno, f"{verb} without a reason"
    called = {id(call.func) for call, _ in source.calls()}
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(attr="skip" | "xfail" as verb, value=of) if _last_name(of) == "mark":
                if id(node) not in called:
                    yield node.lineno, f"{verb} without a reason"


def sleeps(source: Source) -> Offences:
    yield from ((call.lineno, "time.sleep") for call, _ in source.calls() if ast.unparse(call.func) == "time.sleep")
    yield from imports_any("time.sleep")(source)


# --------------------------------------------------------------------------------------- the bans

BANS = [
    Ban(
        name="no vendor and no tenant is named in src, not even in a comment",
        rules=("SY-06", "PA-09"),
        holds=in_src_of_any_kind,
        find=names_a_vendor,
        offending="# as Hub" + "Spot does",
        innocent="restrict_zone = 'a pipeline drives'",
    ),
    Ban(
        name="no business object is named in src",
        rules=("SY-06", "PA-09"),
        holds=in_src,
        find=names_a_business_object,
        offending="if source_object == 'Contact': push_contact()",
        innocent="'''For example a contact.'''\nstatement.order_by(column)\naccount_for(lead_time)",
    ),
    Ban(
        name="only the dialect room of the store names a dialect",
        holds=in_src_outside("store/dialect.py", "store/dialect/"),
        find=names_a_dialect,
        offending="if engine.dialect.name == wanted: pass",
        innocent="'''SQLite and PostgreSQL alike.'''\nfrom pushlink.store import dialect\nrow.name",
    ),
    Ban(
        name="only the dialect room of the store gives an option to one dialect",
        holds=in_src_outside("store/dialect.py", "store/dialect/"),
        find=names_a_dialect,
        offending="Index('i', column, sqlite_where=column.is_(None))",
        innocent="partial_index('i', column, where=column.is_(None))",
    ),
    Ban(
        name="only store/lifecycle/ changes the status of an attempt or a link",
        holds=in_src_outside("store/lifecycle/"),
        excused={"src/pushlink/store/credential_states.py": "the status of a credential, which has no machine"},
        find=writes_a_status,
        offending="update(push_attempt).where(push_attempt.c.id == i).values(status=after, at=now)",
        innocent="update(pack_install).values(status=after)\nupdate(push_attempt).values(mirror_status=s)\ninsert(t).values(status=s)",
    ),
    Ban(
        name="only store/lifecycle/ changes a status in a statement of its own",
        holds=in_src_outside("store/lifecycle/"),
        excused={"src/pushlink/store/credential_states.py": "the status of a credential, which has no machine"},
        find=writes_a_status,
        offending="text('UPDATE push_attempt SET at = now(), status = :s WHERE id = :i')",
        innocent="text('UPDATE push_attempt SET at = now() FROM x WHERE x.id = :i')",
    ),
    Ban(
        name="a status is decided upon in protocol/ alone",
        holds=in_src_outside("protocol/", "testing/"),
        find=compares_a_status,
        offending="if attempt.status == AttemptStatus.PENDING: pass",
        innocent="select(t).where(t.c.status == AttemptStatus.PENDING)\nif attempt.status in OCCUPYING: pass",
    ),
    Ban(
        name="a status is matched in protocol/ alone",
        holds=in_src_outside("protocol/", "testing/"),
        find=compares_a_status,
        offending="match link.status:\n    case LinkStatus.RETIRED: pass",
        innocent="match operation:\n    case Operation.CREATE: pass",
    ),
    Ban(
        name="src states invariants with invariant(), which no switch of the interpreter turns off",
        holds=in_src,
        find=asserts,
        offending="assert x",
        innocent="invariant(x, 'x holds')",
    ),
    Ban(
        name="nothing prints outside the surfaces",
        holds=in_src_outside("surfaces/"),
        find=prints,
        offending="print('hello')",
        innocent="console.print('hello')",
    ),
    Ban(
        name="the protocol has no clock, no randomness, no input and no output",
        holds=in_protocol,
        find=imports_any(
            "aiohttp",
            "asyncio",
            "logging",
            "os",
            "pathlib",
            "random",
            "secrets",
            "socket",
            "sqlalchemy",
            "structlog",
            "time",
        ),
        at=f"{SRC}protocol/sample.py",
        offending="from time import monotonic",
        innocent="from datetime import datetime\nimport timeit_of_ours",
    ),
    Ban(
        name="the protocol draws no ids",
        holds=in_protocol,
        find=imports_any("uuid.uuid1", "uuid.uuid4", "uuid"),
        at=f"{SRC}protocol/sample.py",
        offending="import uuid",
        innocent="import hashlib",
    ),
    Ban(
        name="operations and surfaces speak no SQL",
        holds=in_rooms("operations/", "surfaces/"),
        find=imports_any("sqlalchemy"),
        at=f"{SRC}operations/__init__.py",
        offending="from sqlalchemy import select",
        innocent="from pushlink.store import links",
    ),
    Ban(
        name="nothing in src needs what users test with",
        holds=in_src_outside("testing/"),
        find=imports_any("pushlink.testing"),
        offending="from pushlink.testing import remote",
        innocent="from pushlink import errors",
    ),
    Ban(
        name="only a mapping manifest asks for receipts, and no update does",
        rules=("RV-11",),
        holds=in_rooms("flows/", "adapters/", "operations/", "worker.py", "orm.py", "bootstrap.py"),
        find=imports_any(
            "pushlink.protocol.receipts",
            "pushlink.store.revalidation",
            "pushlink.store.tables.revalidation_receipt",
        ),
        offending="from pushlink.store.tables import revalidation_receipt",
        innocent="from pushlink.store.tables import remote_link",
    ),
    Ban(
        name="only migrations adopt: no flow, no worker and no save looks at what an older integration left",
        rules=("MG-08", "MG-05"),
        # store/chains.py reads receipts for `pushlink verify`, store/history.py for `pushlink history`, and nothing
        # that acts imports either; for the first see tests/migration/test_bounds.py.
        holds=in_src_outside(
            "migration/",
            "surfaces/",
            "protocol/adoption",
            "store/adoption",
            "store/tables.py",
            "store/chains.py",
            "store/history.py",
            "operations/reads.py",
        ),
        find=imports_any(
            "pushlink.migration",
            "pushlink.store.history",
            "pushlink.protocol.adoption",
            "pushlink.protocol.adoption_manifest",
            "pushlink.protocol.adoption_receipts",
            "pushlink.store.adoption",
            "pushlink.store.adoption_tables",
            "pushlink.store.tables.adoption_receipt",
        ),
        offending="from pushlink.protocol import adoption",
        innocent="from pushlink.protocol import remoteids",
    ),
    Ban(
        name="a mapping manifest knows no remote, no record and no attempt",
        rules=("RV-10",),
        holds=in_rooms(
            "migration/revalidate.py", "store/revalidation.py", "protocol/manifest.py", "protocol/receipts.py"
        ),
        find=imports_any(
            "pushlink.adapters",
            "pushlink.flows",
            "pushlink.ports",
            "pushlink.store.attempts",
            "pushlink.store.events",
            "pushlink.store.lifecycle",
            "pushlink.store.requests",
            "pushlink.store.slots",
        ),
        at=f"{SRC}migration/revalidate.py",
        offending="from pushlink.store import lifecycle",
        innocent="from pushlink.store import revalidation",
    ),
    Ban(
        name="the judge believes nothing of ours",
        holds=lambda path: path.startswith("tests/proof/judge/"),
        find=imports_any("pushlink", "support", "flows", "plugins"),
        at="tests/proof/judge/sample.py",
        offending="from pushlink.protocol import states",
        innocent="from proof.judge import arrows",
    ),
    Ban(
        name="SQL is never assembled from text",
        holds=in_python,
        excused={"tests/store/test_rules_of_rows.py": "EXPLAIN stands before the very text that the store sent"},
        find=builds_sql_from_text,
        offending="connection.execute(text(f'SELECT * FROM {table}'))",
        innocent="connection.execute(text('SELECT * FROM t WHERE id = :id'))\nPath(p).read_text(f'{x}')",
    ),
    Ban(
        name="no file names a package registry or a place on one machine",
        holds=everywhere,
        find=names_a_machine,
        offending="cd /" + "work/project",
        innocent="curl https://example.com/root/x ; cat ./home/x ../opt/y $HOME/opt/z",
    ),
    Ban(
        name="every file of src opens with a docstring",
        holds=in_src,
        find=opens_without_docstring,
        offending="import re",
        innocent="'''Owns the sample.'''\nimport re",
    ),
    Ban(
        name=f"no file of src has more than {LINES_MAX} lines",
        holds=in_src,
        find=is_long,
        offending="x = 1\n" * (LINES_MAX + 1),
        innocent="x = 1\n" * LINES_MAX,
    ),
    Ban(
        name="src is finished",
        holds=in_src_of_any_kind,
        find=is_unfinished,
        offending="x = 1  # TO" + "DO",
        innocent="todo_list = 'a fixme-free text'",
    ),
    Ban(
        name="a skipped test says why",
        holds=in_tests,
        find=skips_without_reason,
        at="tests/test_sample.py",
        offending="@pytest.mark.skip\ndef test(): pass",
        innocent="@pytest.mark.skipif(x, reason='no y')\ndef test(): pytest.skip('no z')",
    ),
    Ban(
        name="a test that is skipped on a condition says why",
        holds=in_tests,
        find=skips_without_reason,
        at="tests/test_sample.py",
        offending="@pytest.mark.skipif(x)\ndef test(): pass",
        innocent="@pytest.mark.xfail(reason='no y')\ndef test(): pass",
    ),
    Ban(
        name="tests do not wait for the clock",
        holds=in_tests,
        find=sleeps,
        at="tests/test_sample.py",
        offending="time.sleep(1)",
        innocent="clock.advance(1)",
        excused={
            "tests/plugins/postgres.py": "waits for a process of its own to start or end",
            "tests/proof/chaos/__main__.py": "strikes real processes in real time",
            "tests/proof/chaos/host.py": "saves at a pace, and rests when its database is away",
            "tests/proof/chaos/site.py": "waits for real processes",
            "tests/proof/upgrade/host.py": "rests when a transaction has failed",
            "tests/proof/chaos/troubles.py": "holds a lock, or watches that nothing is sent, for a while",
        },
    ),
    Ban(
        name="tests mock none of our own code",
        holds=in_tests,
        find=imports_any("unittest.mock", "mock", "pytest_mock"),
        at="tests/test_sample.py",
        offending="from unittest.mock import patch",
        innocent="import unittest",
    ),
]


@cache
def tracked() -> tuple[Source, ...]:
    """Every text file that git knows or would add; a file that vanished meanwhile is no offence."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    sources = []
    for path in sorted({name for name in listing.stdout.decode().split("\0") if name}):
        try:
            sources.append(Source(str(PurePosixPath(path)), (ROOT / path).read_text(encoding="utf-8")))
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
            continue
    return tuple(sources)


def each_ban() -> list[object]:
    return [pytest.param(ban, id=ban.name, marks=[pytest.mark.rule(*ban.rules)] if ban.rules else []) for ban in BANS]


@pytest.mark.parametrize("ban", each_ban())
def test_the_source_offends_no_ban(ban: Ban) -> None:
    """No tracked file does what is banned, but for the exceptions that are listed with a reason."""
    offences = [offence for source in tracked() for offence in ban.offences(source)]
    assert not offences, f"{ban.name}:\n" + "\n".join(offences)


@pytest.mark.parametrize("ban", each_ban())
def test_the_ban_catches_an_offence_and_nothing_else(ban: Ban) -> None:
    """A snippet that offends is caught where the ban holds, and its innocent neighbour is not."""
    assert ban.offences(Source(ban.at, ban.offending))
    assert not ban.offences(Source(ban.at, ban.innocent))


def test_every_exception_names_a_file_that_is_there_and_needs_it() -> None:
    """An exception that nothing needs any more is removed."""
    files = {source.path: source for source in tracked()}
    for ban in BANS:
        for path in ban.excused:
            assert path in files, f"{ban.name}: {path} is gone"
            assert list(ban.find(files[path])), f"{ban.name}: {path} no longer needs its exception"
