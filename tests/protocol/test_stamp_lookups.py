"""What the answer to a look-up by our own stamp shows, and when finding nothing proves something."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from protocol.examples import action, answer, failure, profile
from pushlink.protocol.contracts import ActionContract, StampLookUp
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.lookup_verdicts import interpret_lookup
from pushlink.protocol.lookups import LookUpRequest, Shown
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.stamp_lookups import (
    last_look,
    mark_of,
    proves_absence_from,
    read_stamped,
    render_stamp_lookup,
)

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"
MARK = "pl-0b4c6f0e7c5d8a3b9e213f1d2c4b5a69"
ID = [{"from": "$response.body#/id"}]


def looking(**more: Any) -> tuple[ActionContract, StampLookUp]:
    lookup = {"path": "/find", "query": {"s": "{stamp}"}, "items": "/found", "match": "/stamp", "id": ID, **more}
    made = action(create={"stamp": {"format": "token", "prefix": "pl-"}, "lookup": lookup})
    assert made.create.lookup is not None
    return made, made.create.lookup


def item(**more: Any) -> dict[str, Any]:
    return {"stamp": MARK, "id": 7, **more}


def found(*items: Any) -> StoredReply:
    return answer(200, json.dumps({"found": list(items)}))


@pytest.mark.rule("D-08", "D-27")
@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (found(item()), Shown.RECORD),
        (found({"stamp": "other", "id": 6}, item()), Shown.RECORD),
        (found(item(stamp=MARK.upper())), Shown.RECORD),
        (found(item(), item(id=8)), Shown.SEVERAL),
        (found(), Shown.NOTHING),
        (found({"stamp": "other", "id": 6}), Shown.NOTHING),
        (found({"stamp": None}, {"id": 6}, "text", None), Shown.NOTHING),
        (found(item(id=None)), Shown.NO_ID),
        (found(item(id="")), Shown.NO_ID),
        (found(item(id=1.5)), Shown.NO_ID),
        (found(item(id=[7])), Shown.NO_ID),
        (answer(200, '{"found": {}}'), Shown.NOT_YET),
        (answer(200, "{}"), Shown.NOT_YET),
        (answer(200, '{"found": ['), Shown.NOT_YET),
        (answer(200, '{"found": []}', body_complete=False), Shown.NOT_YET),
        (answer(404, '{"found": []}'), Shown.NOT_YET),
        (answer(200, '{"found": [], "partial": true}'), Shown.NOT_YET),
        (answer(200, '{"found": [], "none": true, "partial": false}'), Shown.NOTHING),
        (answer(404, '{"none": true}'), Shown.NOTHING),
        (answer(200, '{"found": [], "error": "index"}'), Shown.NOT_YET),
        (answer(200, '{"found": []}', trace=WireTrace()), Shown.NOT_YET),
        (failure(WireError.CONNECT), Shown.NOT_YET),
    ],
)
def test_only_one_item_with_our_stamp_is_our_record(reply: StoredReply, shown: Shown) -> None:
    """Each item is read for itself; what is not whole, or not an answer, shows nothing yet."""
    made, lookup = looking(
        done=[{"pointer": "/partial", "absent": True}]
        if b"partial" in reply.body and b"none" not in reply.body
        else [],
        none=[{"pointer": "/none", "equals": True}],
        failed=[{"pointer": "/error"}],
    )
    seen = read_stamped(made, lookup, reply, MARK)
    assert seen.shown is shown
    assert (seen.remote_id, seen.canonical_id) == (("7", "7") if shown is Shown.RECORD else (None, None))
    verdict = interpret_lookup(made, profile(), "lookup", reply, send_ordinal=1, mark=MARK)
    expected = {
        Shown.RECORD: (Effect.APPLIED, Disposition.FINALIZE),
        Shown.SEVERAL: (Effect.UNKNOWN, Disposition.PARK),
        Shown.NO_ID: (Effect.APPLIED_UNIDENTIFIED, Disposition.PARK),
    }
    assert (verdict.effect, verdict.disposition) == expected.get(shown, (Effect.UNKNOWN, Disposition.LOOK_UP))
    assert read_stamped(made, lookup, reply, None).shown is Shown.NOT_YET


def test_the_whole_answer_may_be_the_one_item_and_its_id_part_of_a_text() -> None:
    """Where the pack names no list; a header of the answer is no place of an item."""
    id_places = [{"from": "$response.header.Location"}, {"from": "$response.body#/url", "regex": "^/things/([0-9]+)$"}]
    made, lookup = looking(items=None, id=id_places)
    told = answer(200, json.dumps({"stamp": MARK, "url": "/things/9"}), headers=(("location", "8"),))
    assert read_stamped(made, lookup, told, MARK).remote_id == "9"
    other = answer(200, json.dumps({"stamp": MARK, "url": "/others/9"}))
    assert read_stamped(made, lookup, other, MARK).shown is Shown.NO_ID
    assert read_stamped(made, lookup, answer(200, "[]"), MARK).shown is Shown.NOT_YET
    nowhere, no_place = looking(items=None, id=[{"from": "nowhere"}])
    assert read_stamped(nowhere, no_place, told, MARK).shown is Shown.NO_ID
    assert read_stamped(made, lookup, answer(200, '{"stamp": 5}'), MARK).shown is Shown.NOTHING


def test_a_look_up_asks_with_the_stamp_the_id_that_was_given_and_a_value_of_the_body() -> None:
    """Filled from what was frozen with the create."""
    made, lookup = looking(query={"s": "{stamp}", "k": "{key}", "c": "{client_id}"}, key="/mail")
    asked = render_stamp_lookup(
        lookup, made.create, profile(), idempotency_key=KEY, client_id="c-1", body=b'{"mail": "a@example.com"}'
    )
    assert isinstance(asked, LookUpRequest)
    assert asked.path == f"/find?s={MARK}&k=a%40example.com&c=c-1"
    for body, client_id in ((b"{}", "c-1"), (b'{"mail": "a"}', None)):
        refused = render_stamp_lookup(
            lookup, made.create, profile(), idempotency_key=KEY, client_id=client_id, body=body
        )
        assert not isinstance(refused, LookUpRequest)
    assert mark_of(made.create, KEY, "c-1") == MARK
    assert mark_of(action().create, KEY, "c-1") == "c-1"
    assert mark_of(action().create, KEY, None) is None


@pytest.mark.rule("D-08")
def test_finding_nothing_proves_something_only_where_it_is_said_and_after_the_index_s_lag() -> None:
    """It is looked for at least as long as that takes."""
    _, plain = looking(timeout="10m")
    assert proves_absence_from(plain, NOW) is None
    assert last_look(plain, NOW, None) == NOW + dt.timedelta(minutes=10)
    _, proof = looking(timeout="10m", absence_is_proof=True, lag="90s", misses_min=2, every="60s")
    settled = NOW + dt.timedelta(minutes=5)
    proof_from = proves_absence_from(proof, settled)
    assert proof_from == settled + dt.timedelta(seconds=90)
    assert last_look(proof, NOW, proof_from) == NOW + dt.timedelta(minutes=10)
    late = NOW + dt.timedelta(minutes=9)
    assert last_look(proof, NOW, late) == late + dt.timedelta(minutes=3)
