"""What declared rules make of answers: every capability of the response side, and every override that is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import action, answer, failure, profile
from pushlink.errors import Code
from pushlink.protocol.contracts import Criterion
from pushlink.protocol.criteria import holds
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.outcome import History, Verdict, create_event, interpret, update_event
from pushlink.protocol.replies import BY_STATUS, UNLISTED, Disposition, Effect
from pushlink.protocol.states import CreateEvent, Hold, Operation, UpdateEvent

CREATE, UPDATE = Operation.CREATE, Operation.UPDATE
PROVEN = History(credential_proven=True)
CODE = {"pointer": "/error/code", "equals": "busy"}
BUSY = '{"error": {"code": "busy"}}'


def rule(**more: Any) -> dict[str, Any]:
    return {"when": [{"status": [400]}], "effect": "not_applied", "disposition": "retry_at", "because": "p. 4"} | more


def judge(
    reply: StoredReply,
    operation: Operation = CREATE,
    history: History = PROVEN,
    remote: dict[str, Any] | None = None,
    **made: Any,
) -> Verdict:
    return interpret(operation, action(**made), profile(**(remote or {})), reply, history)


def body(document: object) -> str:
    return json.dumps(document)


def criterion(**parts: Any) -> Criterion:
    return Criterion.model_validate_json(json.dumps(parts))


# ----------------------------------------------------------------------------------------------------- criteria


@pytest.mark.parametrize(
    ("parts", "document", "expected"),
    [
        ({"pointer": "/a"}, {"a": 0}, True),
        ({"pointer": "/a"}, {"a": False}, True),
        ({"pointer": "/a"}, {"a": None}, False),
        ({"pointer": "/a", "present": True}, {"a": []}, False),
        ({"pointer": "/a", "present": False}, {}, True),
        ({"pointer": "/a", "absent": True}, {"a": {}}, True),
        ({"pointer": "/a", "absent": True}, {"a": ""}, True),
        ({"pointer": "/a", "absent": True}, {"a": False}, False),
        ({"pointer": "/a", "absent": False}, {"a": 0}, True),
        ({"pointer": "/a", "equals": 5}, {"a": 5}, True),
        ({"pointer": "/a", "equals": 5}, {"a": "5"}, False),
        ({"pointer": "/a", "equals": "5"}, {"a": 5}, True),
        ({"pointer": "/a", "equals": "1.50"}, {"a": 1.5}, False),
        ({"pointer": "/a", "equals": 1}, {"a": True}, False),
        ({"pointer": "/a", "equals": True}, {"a": True}, True),
        ({"pointer": "/a", "equals": False}, {"a": False}, True),
        ({"pointer": "/a", "in": ["x", 7]}, {"a": 7}, True),
        ({"pointer": "/a", "in": ["x", 7]}, {"a": "y"}, False),
        ({"pointer": "/a", "regex": "^dup.*$"}, {"a": "duplicate"}, True),
        ({"pointer": "/a", "regex": "^dup$"}, {"a": "duplicate"}, False),
        ({"pointer": "/a", "regex": "^.*$"}, {"a": ["x"]}, False),
        ({"pointer": "/a/0/b", "equals": "x"}, {"a": [{"b": "x"}]}, True),
        ({"status": [400], "pointer": "/a"}, {"a": 1}, True),
        ({"status": [409], "pointer": "/a"}, {"a": 1}, False),
        ({"header": "X-Code", "equals": "7"}, {}, True),
        ({"header": "x-code"}, {}, True),
        ({"header": "X-Other", "absent": True}, {}, True),
        ({"header": "X-Other"}, {}, False),
    ],
)
def test_a_criterion_is_a_closed_test(parts: dict[str, Any], document: object, expected: bool) -> None:
    """One row for each kind of test; nothing converts, and null counts as nothing."""
    reply = answer(400, body(document), headers=(("x-code", "7"),))
    assert holds(criterion(**parts), reply) is expected


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize("data", [b'{"a": 1', b"<html>", b'{"a": 1, "a": 1}', b"\xff"])
@pytest.mark.parametrize("test", [{"absent": True}, {"present": False}, {}, {"equals": 1}])
def test_nothing_holds_about_a_body_that_cannot_be_read(data: bytes, test: dict[str, Any]) -> None:
    """A cut or broken body neither shows something nor shows that it is absent."""
    assert not holds(criterion(pointer="/a", **test), answer(400, data))
    assert not holds(criterion(pointer="/a", **test), answer(400, b'{"a": 1}', body_complete=False))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"equals": "x"},
        {"status": []},
        {"header": "A", "pointer": "/a"},
        {"pointer": "/a", "absent": True, "present": False},
        {"pointer": "/a", "regex": "(a+)+"},
    ],
)
def test_a_criterion_that_says_nothing_clear_never_holds(parts: dict[str, Any]) -> None:
    """Lint refuses it, and an older or hand-made document with it claims nothing."""
    assert not holds(criterion(**parts), answer(400, b'{"a": "aa"}', headers=(("a", "x"),)))


# ------------------------------------------------------------------------------------------------------- errors


def test_the_first_declared_rule_that_fits_decides_and_the_table_decides_without_one() -> None:
    """Order counts: the action's rules in order, then the profile's, then the built-in row."""
    mine = [
        rule(when=[{"status": [400], **CODE}], wait="90s"),
        rule(when=[{"status": [400]}], disposition="conflict", because="later"),
    ]
    remote = {"errors": [rule(when=[{"status": [422]}], disposition="conflict", because="of the remote")]}
    verdict = judge(answer(400, BUSY), errors=mine, remote=remote)
    assert (verdict.effect, verdict.disposition, verdict.retry_after_ms) == (
        Effect.NOT_APPLIED,
        Disposition.RETRY_AT,
        90_000,
    )
    assert verdict.row == "action errors 1"
    assert verdict.evidence["because"] == "p. 4"
    assert judge(answer(400, "{}"), errors=mine, remote=remote).code is Code.REMOTE_CONFLICT
    assert judge(answer(422, "{}"), errors=mine, remote=remote).row == "profile errors 1"
    assert judge(answer(415, "{}"), errors=mine, remote=remote).row == "refused before execution"


@pytest.mark.rule("C-028")
def test_a_409_that_nobody_knows_is_terminal_and_a_known_lock_may_be_declared() -> None:
    """Fail closed on an unknown body; a documented marker is sent again."""
    lock = [rule(when=[{"status": [409]}, {"pointer": "/code", "equals": "concurrent_write"}])]
    unknown = judge(answer(409, '{"code": "other"}'), errors=lock)
    assert create_event(unknown, has_mirror=False) is CreateEvent.REJECT
    known = judge(answer(409, '{"code": "concurrent_write"}'), errors=lock)
    assert create_event(known, has_mirror=False) is CreateEvent.NOT_APPLIED


@pytest.mark.rule("PO-07", "C-006", "C-007")
@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 300, 301, 499, 200, 204, 299])
def test_an_unsure_status_is_not_applied_only_together_with_its_body(status: int) -> None:
    """Section 5.4: status and body criterion; the status alone, or a header with it, is not used."""
    claims = {
        "status alone": [{"status": [status]}],
        "with a header": [{"status": [status]}, {"header": "Retry-After"}],
        "with an absence": [{"status": [status]}, {"pointer": "/other", "absent": True}],
        "body alone": [CODE],
    }
    reply = answer(status, BUSY, headers=(("retry-after", "30"),))
    for name, when in claims.items():
        assert judge(reply, errors=[rule(when=when)]).effect is not Effect.NOT_APPLIED, name
    proved = judge(reply, errors=[rule(when=[{"status": [status]}, CODE])])
    assert (proved.effect, proved.disposition) == (Effect.NOT_APPLIED, Disposition.RETRY_AT)
    other = judge(answer(status, '{"error": {"code": "else"}}'), errors=[rule(when=[{"status": [status]}, CODE])])
    assert other.effect is not Effect.NOT_APPLIED


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize(
    ("test", "shows"),
    [
        ({"pointer": "/error/code"}, False),
        ({"pointer": "/error/code", "present": True}, True),
        ({"pointer": "/error/code", "absent": False}, False),
        ({"pointer": "/error/code", "in": ["busy"]}, True),
        ({"pointer": "/error/code", "regex": "^busy$"}, True),
        ({"pointer": "/other", "present": False}, False),
        ({"pointer": "/other", "absent": True}, False),
        ({"pointer": "/other", "absent": True, "in": [None]}, False),
        ({"pointer": "/other", "present": False, "in": [None]}, False),
        ({"header": "Retry-After", "equals": "30"}, False),
    ],
)
def test_what_stands_in_the_body_is_told_apart_from_what_is_missing_there(test: dict[str, Any], shows: bool) -> None:
    """A 503 is not applied when its body shows something; a header, or nothing at a place, may be anybody's."""
    reply = answer(503, BUSY, headers=(("retry-after", "30"),))
    claimed = judge(reply, errors=[rule(when=[{"status": [503]}, test])])
    assert (claimed.effect is Effect.NOT_APPLIED) is shows
    assert holds(criterion(**test), reply)


@pytest.mark.parametrize(
    "more",
    [
        {"effect": "unknown", "disposition": "retry_at"},
        {"effect": "unknown", "disposition": "reconcile", "wait": "5s"},
        {"disposition": "reconcile"},
        {"disposition": "terminal", "wait": "5s"},
    ],
    ids=["unknown and sent again", "unknown with a wait", "not applied and reconciled", "terminal with a wait"],
)
def test_a_rule_whose_parts_do_not_go_together_is_not_used(more: dict[str, Any]) -> None:
    """What is unknown is reconciled, and only what is sent again waits."""
    assert judge(answer(400, BUSY), errors=[rule(**more)]).row == "refused as invalid"


@pytest.mark.parametrize(
    ("disposition", "create", "update"),
    [
        ("retry_at", (Disposition.RETRY_AT, Code.NOT_APPLIED), (Disposition.RETRY_AT, Code.NOT_APPLIED)),
        ("terminal", (Disposition.TERMINAL, Code.REMOTE_REJECTED), (Disposition.TERMINAL, Code.REMOTE_REJECTED)),
        ("conflict", (Disposition.TERMINAL, Code.REMOTE_CONFLICT), (Disposition.CONFLICT, Code.REMOTE_CONFLICT)),
        ("gone", (Disposition.TERMINAL, Code.REMOTE_REJECTED), (Disposition.GONE, Code.REMOTE_GONE)),
    ],
)
def test_a_rule_says_of_a_create_and_of_an_update_what_either_can_come_to(
    disposition: str, create: tuple[Disposition, Code], update: tuple[Disposition, Code]
) -> None:
    """Only an update can find that its record is gone, and only a create that somebody made one already."""
    said = [
        judge(answer(400, BUSY), operation, errors=[rule(disposition=disposition)]) for operation in (CREATE, UPDATE)
    ]
    assert [verdict.effect for verdict in said] == [Effect.NOT_APPLIED] * 2
    assert [(verdict.disposition, verdict.code) for verdict in said] == [create, update]


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize("operation", list(Operation))
def test_a_401_is_read_by_no_rule(operation: Operation) -> None:
    """Neither more nor less cautious: it was not applied, and the credential is refreshed once."""
    remote = {
        "errors": [
            rule(when=[{"status": [401, 400]}, CODE]),
            rule(when=[CODE], effect="unknown", disposition="reconcile"),
        ],
        "rate_limit": {"detect": [{"status": [401], **CODE}]},
    }
    made: dict[str, Any] = {
        "create": {"conflict": [{"when": [{"status": [401]}]}]},
        "update": {"deleted": [{"status": [401]}]},
    }
    verdict = judge(answer(401, BUSY), operation, remote=remote, **made)
    assert (verdict.effect, verdict.disposition) == (Effect.NOT_APPLIED, Disposition.REAUTH_ONCE)


@pytest.mark.rule("PO-07")
def test_a_rule_about_a_whole_class_is_not_used() -> None:
    """`5xx: not_applied` is no reading of an answer, whatever else it names."""
    wide = [rule(when=[{"status": list(range(500, 600))}, CODE])]
    assert judge(answer(503, BUSY), errors=wide).effect is Effect.UNKNOWN
    for count, effect in ((8, Effect.NOT_APPLIED), (9, Effect.UNKNOWN)):
        named = [rule(when=[{"status": [422, 503, *range(520, 519 + count)]}, CODE])]
        assert judge(answer(503, BUSY), errors=named).effect is effect


@pytest.mark.rule("PO-07", "C-001")
@pytest.mark.parametrize(
    "reply",
    [
        failure(WireError.READ, WireTrace(connected=True, request_started=True, request_sent=True)),
        failure(WireError.DEADLINE, WireTrace(connected=True, request_started=True, request_sent=True)),
        failure(WireError.WRITE, WireTrace(connected=True, request_started=True)),
        failure(WireError.MALFORMED, WireTrace(connected=True, request_started=True, response_started=True)),
    ],
    ids=lambda reply: reply.error.value,
)
def test_no_rule_is_asked_about_a_send_without_an_answer(reply: StoredReply) -> None:
    """A read timeout, a reset or cut headers stay unknown, whatever a pack says about anything."""
    everything = [rule(when=[{"status": [code]}]) for code in (400, 500, 503)]
    verdict = judge(reply, errors=everything, remote={"rate_limit": {"detect": [{"status": [429]}]}})
    assert (verdict.effect, verdict.disposition) == (Effect.UNKNOWN, Disposition.RECONCILE)


def test_more_caution_is_always_free() -> None:
    """A refusal, and even a success, may be declared unknown."""
    half = rule(when=[{"pointer": "/partial", "equals": True}], effect="unknown", disposition="reconcile")
    for status in (201, 400, 422, 429, 409):
        verdict = judge(answer(status, '{"id": "7", "partial": true}'), errors=[half])
        assert (verdict.effect, verdict.disposition) == (Effect.UNKNOWN, Disposition.RECONCILE)
        assert verdict.remote_id is None
        assert verdict.candidates == ("7",)


@pytest.mark.rule("D-06", "PO-08")
def test_no_declared_reading_clears_an_earlier_doubt() -> None:
    """What a rule says is about this send; the first one may have been applied."""
    doubt = History(in_doubt=True, credential_proven=True)
    for disposition in ("retry_at", "terminal", "conflict", "gone"):
        verdict = judge(answer(400, BUSY), history=doubt, errors=[rule(disposition=disposition)])
        assert (verdict.effect, verdict.disposition) == (Effect.UNKNOWN, Disposition.RECONCILE)


@pytest.mark.rule("PO-07")
@given(
    status=st.sampled_from([*range(200, 600)]),
    named=st.lists(st.integers(200, 599), max_size=12).map(tuple),
    has_body=st.booleans(),
    document=st.sampled_from([BUSY, "{}", "", '{"id": 5}', '{"id": 5, "error": {"code": "busy"}}', "<html>"]),
    operation=st.sampled_from(list(Operation)),
)
def test_no_rule_makes_not_applied_of_an_unsure_answer_without_its_body(
    status: int, named: tuple[int, ...], has_body: bool, document: str, operation: Operation
) -> None:
    """For any rule: applied only with an id, not applied only by the table or with the body that was named."""
    when = [{"status": list(named)}, *([CODE] if has_body else [])]
    claim = rule(when=when)
    remote = {"rate_limit": {"detect": [{"status": list(named), **(CODE if has_body else {})}]}}
    made: dict[str, Any] = {
        "create": {"conflict": [{"when": when}]},
        "update": {"deleted": [{"status": list(named), **(CODE if has_body else {})}]},
        "errors": [claim],
    }
    verdict = judge(answer(status, document), operation, remote=remote, **made)
    built_in = BY_STATUS.get(status, UNLISTED)
    meaning = built_in.create if operation is CREATE else built_in.update
    if verdict.effect is Effect.NOT_APPLIED and meaning.effect is not Effect.NOT_APPLIED:
        assert has_body
        assert document.endswith(BUSY[1:])
    if operation is CREATE and verdict.effect is Effect.APPLIED:
        assert verdict.remote_id == "5"


# ----------------------------------------------------------------------------------------------- success, asserts


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize("operation", list(Operation))
def test_a_success_that_does_not_show_what_it_must_is_unknown_or_what_a_rule_says(operation: Operation) -> None:
    """A 200 with a fault in it: declared ones are read, any other parks."""
    asserts = {"success": {"status": [200], "assert": [{"pointer": "/Fault", "absent": True}]}}
    faults = [rule(when=[{"status": [200]}, {"pointer": "/Fault/code", "in": ["6240"]}], disposition="conflict")]
    made: dict[str, Any] = {"create": asserts, "update": asserts, "errors": faults}
    known = judge(answer(200, body({"Fault": {"code": "6240"}})), operation, **made)
    assert (known.effect, known.code) == (Effect.NOT_APPLIED, Code.REMOTE_CONFLICT)
    other = judge(answer(200, body({"Fault": {"code": "9"}})), operation, **made)
    assert (other.effect, other.disposition) == (Effect.UNKNOWN, Disposition.RECONCILE)
    cut = judge(answer(200, b'{"id": "7"', body_complete=False), operation, **made)
    assert cut.effect is Effect.UNKNOWN
    assert judge(answer(200, body({"id": "7"})), operation, **made).effect is Effect.APPLIED


def test_every_assertion_must_hold() -> None:
    """One that does not is enough, in whichever place."""
    asserts = [{"pointer": "/success", "equals": True}, {"pointer": "/errors", "absent": True}]
    made = {"success": {"status": [200], "assert": asserts}}
    for success, errors in itertools.product((True, False), ([], ["x"])):
        verdict = judge(answer(200, body({"id": "7", "success": success, "errors": errors})), create=made)
        assert (verdict.effect is Effect.APPLIED) is (success and not errors)


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize("asserts", [[], [{"pointer": "/errors", "absent": True}]])
def test_graphql_data_together_with_errors_is_unknown_whatever_is_declared(asserts: list[Any]) -> None:
    """Some of it may be done; a rule that knows the error code does not know the rest."""
    made: dict[str, Any] = {
        "create": {
            "body": {"encoding": "graphql", "graphql": {"document": "mutation M { m }"}},
            "success": {"status": [200], "assert": asserts},
            "response": {"id": [{"from": "$response.body#/data/make/id"}]},
        },
        "errors": [rule(when=[{"status": [200]}, {"pointer": "/errors/0/code", "equals": "THROTTLED"}])],
    }
    errors = [{"code": "THROTTLED"}]
    partial = judge(answer(200, body({"data": {"make": {"id": "7"}}, "errors": errors})), **made)
    assert (partial.effect, partial.disposition, partial.candidates) == (
        Effect.UNKNOWN,
        Disposition.RECONCILE,
        ("7",),
    )
    unnamed = judge(answer(200, body({"data": {"make": None, "note": {"id": "9"}}, "errors": errors})), **made)
    assert (unnamed.effect, unnamed.disposition) == (Effect.UNKNOWN, Disposition.RECONCILE)
    refused = judge(answer(400, body({"data": {"make": {"id": "7"}}, "errors": errors})), **made)
    assert refused.effect is Effect.NOT_APPLIED
    nothing = judge(answer(200, body({"data": {"make": None}, "errors": errors})), **made)
    assert (nothing.effect, nothing.disposition) == (Effect.NOT_APPLIED, Disposition.RETRY_AT)
    done = judge(answer(200, body({"data": {"make": {"id": "7"}}, "errors": []})), **made)
    assert (done.effect, done.remote_id) == (Effect.APPLIED, "7")


@pytest.mark.rule("PO-07")
def test_an_answer_that_shows_an_id_is_never_not_applied() -> None:
    """Whatever a rule claims about a 2xx: with an id in it, a second create would be a duplicate."""
    made: dict[str, Any] = {"errors": [rule(when=[{"status": [200]}, {"pointer": "/status", "equals": "error"}])]}
    verdict = judge(answer(200, body({"id": "7", "status": "error"})), **made)
    assert (verdict.effect, verdict.candidates) == (Effect.UNKNOWN, ("7",))


# ------------------------------------------------------------------------------- duplicates, deletions, mergers

NAMED = [{"from": "$response.body#/message", "regex": "^.*Existing ID: ([0-9]+)$"}]


@pytest.mark.rule("C-026", "D-27", "PO-07")
def test_a_duplicate_that_is_named_in_a_sentence_is_a_candidate_and_adopted_by_nobody() -> None:
    """Terminal with the id as evidence."""
    made = {"conflict": [{"when": [{"status": [409]}], "existing_id": NAMED}]}
    verdict = judge(answer(409, body({"message": "Contact already exists. Existing ID: 6001"})), create=made)
    assert (verdict.effect, verdict.code, verdict.remote_id) == (Effect.NOT_APPLIED, Code.REMOTE_CONFLICT, None)
    assert verdict.candidates == ("6001",)
    assert create_event(verdict, has_mirror=True) is CreateEvent.REJECT


@pytest.mark.rule("C-029", "D-27")
@pytest.mark.parametrize("ids", [[], ["1"], ["1", "2", "3"]])
def test_a_fuzzy_duplicate_has_as_many_candidates_as_it_names(ids: list[str]) -> None:
    """None, one or three; nobody picks."""
    made = {
        "conflict": [
            {
                "when": [{"status": [400]}, {"pointer": "/code", "equals": "DUPLICATES_DETECTED"}],
                "existing_id": [{"from": "$response.body#/matches"}],
            }
        ]
    }
    verdict = judge(answer(400, body({"code": "DUPLICATES_DETECTED", "matches": ids})), create=made)
    assert verdict.candidates == tuple(ids)
    assert create_event(verdict, has_mirror=False) is CreateEvent.REJECT


@pytest.mark.rule("D-27")
def test_a_duplicate_says_whether_the_record_is_live_or_archived() -> None:
    """The same status and another sentence: evidence for the person who decides."""
    archived = {"pointer": "/message", "regex": "^An archived .*$"}
    made = {
        "conflict": [
            {"when": [{"status": [409]}, archived], "existing_id": NAMED, "variant": "archived"},
            {"when": [{"status": [409]}], "existing_id": NAMED},
        ]
    }
    for said, variant in (("An archived contact", "archived"), ("A contact", "live")):
        verdict = judge(answer(409, body({"message": f"{said}. Existing ID: 5"})), create=made)
        assert verdict.evidence["variant"] == variant


@pytest.mark.rule("D-27")
@pytest.mark.parametrize(
    ("policy", "finds_stamp", "in_doubt", "asks"),
    [
        ("adopt_if_stamp", True, False, True),
        ("adopt_if_stamp", False, False, False),
        ("adopt_if_stamp", True, True, False),
        ("park", True, False, False),
    ],
)
def test_whose_a_duplicate_is_is_asked_only_where_a_look_up_can_tell(
    policy: str, finds_stamp: bool, in_doubt: bool, asks: bool
) -> None:
    """By the stamp of this very create, before anything is in doubt; an answer that is no duplicate asks nothing."""
    made = {"conflict": [{"when": [{"status": [409]}, CODE], "existing_id": NAMED, "policy": policy}]}
    history = History(credential_proven=True, finds_stamp=finds_stamp, in_doubt=in_doubt)
    verdict = judge(answer(409, BUSY), history=history, create=made)
    assert verdict.row == "declared duplicate 1"
    assert (verdict.disposition is Disposition.LOOK_UP) is asks
    assert create_event(verdict, has_mirror=False) is (
        CreateEvent.ANSWER_STORED if asks else CreateEvent.UNKNOWN if in_doubt else CreateEvent.REJECT
    )
    assert judge(answer(409, "{}"), history=history, create=made).disposition is not Disposition.LOOK_UP


def test_a_throttle_is_what_the_profile_says_too() -> None:
    """It burns no retry; what it does not describe is what the table says."""
    remote = {"rate_limit": {"detect": [{"status": [418]}, {"status": [403], "header": "X-Left", "equals": "0"}]}}
    for operation in Operation:
        told = judge(answer(403, "{}", headers=(("x-left", "0"),)), operation, remote=remote)
        assert (told.row, told.code, told.burns_retry) == ("declared throttle 2", Code.THROTTLED, False)
        assert judge(answer(403, "{}", headers=(("x-left", "1"),)), operation, remote=remote).row == "forbidden"


@pytest.mark.rule("D-27")
def test_a_success_that_matched_an_existing_record_adopts_nothing() -> None:
    """`created` says who made the record; one that was there before waits for a person, with its id."""
    made = {
        "success": {"status": [200, 201]},
        "response": {"id": [{"from": "$response.body#/id"}], "created": [{"status": [201]}]},
    }
    assert judge(answer(201, body({"id": "7"})), create=made).remote_id == "7"
    matched = judge(answer(200, body({"id": "7"})), create=made)
    assert (matched.effect, matched.code, matched.remote_id, matched.candidates) == (
        Effect.APPLIED_UNIDENTIFIED,
        Code.REMOTE_CONFLICT,
        None,
        ("7",),
    )
    assert create_event(matched, has_mirror=False) is CreateEvent.UNKNOWN


@pytest.mark.rule("D-23")
@pytest.mark.parametrize(
    ("reply", "needs_proof"),
    [
        (answer(404), True),
        (answer(410), True),
        (answer(400, body({"code": "ENTITY_IS_DELETED"})), True),
        (answer(300, body({"code": "HAS_SEVERAL"})), True),
        (answer(200, body({"id": "7", "deleted": True})), False),
        (answer(299, body({"id": "7", "deleted": True})), False),
    ],
    ids=["404", "410", "400 with a code", "300 with a code", "200 with a flag", "299 with a flag"],
)
def test_gone_is_what_the_pack_says_and_needs_a_proven_credential(reply: StoredReply, needs_proof: bool) -> None:
    """A refusal proves nothing of a credential that was never accepted; a 200 does."""
    gone = [
        {"status": [404, 410]},
        {"status": [400], "pointer": "/code", "equals": "ENTITY_IS_DELETED"},
        {"status": [300], "pointer": "/code", "equals": "HAS_SEVERAL"},
        {"status": [200, 299], "pointer": "/deleted", "equals": True},
    ]
    known = judge(reply, UPDATE, History(credential_proven=True, canonical_id="7"), update={"deleted": gone})
    assert update_event(known) is UpdateEvent.REMOTE_GONE
    assert (
        known.row == f"declared deletion {next(at for at, one in enumerate(gone, 1) if holds(criterion(**one), reply))}"
    )
    assert known.code is Code.REMOTE_GONE
    unproven = judge(reply, UPDATE, History(canonical_id="7"), update={"deleted": gone})
    assert (unproven.hold is Hold.CREDENTIAL) is needs_proof
    assert (update_event(unproven) is UpdateEvent.REMOTE_GONE) is not needs_proof


@pytest.mark.rule("PO-07")
def test_a_merged_record_is_a_candidate_on_a_link_that_suspends() -> None:
    """The successor is named, the link is not moved to it."""
    merged = {"merged": {"successor": [{"from": "$response.body#/merged_into"}, {"from": "$response.header.Location"}]}}
    history = History(credential_proven=True, canonical_id="7")
    verdict = judge(answer(200, body({"id": "7", "merged_into": "8"})), UPDATE, history, update=merged)
    assert update_event(verdict) is UpdateEvent.REMOTE_CONFLICT
    assert (verdict.candidates, verdict.evidence["successor"]) == (("8",), "8")
    gone = judge(answer(404, body({"merged_into": "8"})), UPDATE, history, update=merged)
    assert (update_event(gone), gone.candidates) == (UpdateEvent.REMOTE_GONE, ("8",))
    same = judge(answer(200, body({"id": "7", "merged_into": "7"})), UPDATE, history, update=merged)
    assert update_event(same) is UpdateEvent.APPLIED


@pytest.mark.parametrize(
    ("on", "operation", "is_used"),
    [
        ([], CREATE, True),
        ([], UPDATE, True),
        (["create"], CREATE, True),
        (["create"], UPDATE, False),
        (["update"], CREATE, False),
        (["update", "lookup"], UPDATE, True),
        (["lookup"], CREATE, False),
        (["lookup"], UPDATE, False),
    ],
)
@pytest.mark.parametrize("owner", ["action", "profile"])
def test_a_rule_reads_the_answers_of_its_operations_alone(
    owner: str, on: list[str], operation: Operation, is_used: bool
) -> None:
    """Without `on` it is one about creates and updates; a 400 that no rule reads is a plain rejection."""
    rules = {"errors": [rule(on=on)]}
    made, remote = (rules, None) if owner == "action" else ({}, rules)
    verdict = judge(answer(400, "{}"), operation, remote=remote, **made)
    assert (verdict.disposition is Disposition.RETRY_AT) is is_used
    assert verdict.row == (f"{owner} errors 1" if is_used else "refused as invalid")


@pytest.mark.rule("D-27")
def test_errors_are_asked_before_duplicates() -> None:
    """The page says so: an error rule that fits hides a declared duplicate, and one that says `conflict` names it."""
    conflict = {
        "conflict": [{"when": [{"status": [400]}, CODE], "existing_id": [{"from": "$response.body#/error/id"}]}]
    }
    told = answer(400, body({"error": {"code": "busy", "id": 7}}))
    assert judge(told, create=conflict).row == "declared duplicate 1"
    hidden = judge(told, create=conflict, remote={"errors": [rule(disposition="terminal")]})
    assert (hidden.row, hidden.code, hidden.candidates) == ("profile errors 1", Code.REMOTE_REJECTED, ())
    named = judge(told, create=conflict, errors=[rule(disposition="conflict")])
    assert (named.row, named.code, named.candidates) == ("action errors 1", Code.REMOTE_CONFLICT, ("7",))


@pytest.mark.rule("D-25")
@pytest.mark.parametrize(
    ("reply", "event", "remote_id", "candidates"),
    [
        (answer(200, body({"id": "8"})), UpdateEvent.APPLIED, "8", ()),
        (answer(202, body({"id": "8"})), UpdateEvent.APPLIED, "8", ()),
        (answer(200, body({"id": "7"})), UpdateEvent.APPLIED, None, ()),
        (answer(204), UpdateEvent.APPLIED, None, ()),
        (answer(200, body({"id": True})), UpdateEvent.REMOTE_CONFLICT, None, ()),
        (answer(200, body({"id": "things"})), UpdateEvent.REMOTE_CONFLICT, None, ("things",)),
        (answer(200, body({"id": "8", "merged_into": "9"})), UpdateEvent.REMOTE_CONFLICT, None, ("9", "8")),
    ],
    ids=["new", "any success", "the same", "no body", "no id", "the collection", "merged"],
)
def test_an_id_that_may_change_is_read_from_every_answer_to_an_update(
    reply: StoredReply, event: UpdateEvent, remote_id: str | None, candidates: tuple[str, ...]
) -> None:
    """A new id comes with the verdict; one that cannot be used, or a merged record, is left to a person."""
    merged = {"merged": {"successor": [{"from": "$response.body#/merged_into"}]}}
    history = History(credential_proven=True, canonical_id="7")
    create = {"response": {"id": [{"from": "$response.body#/id"}], "id_rule": {"mutable": True}}}
    verdict = judge(reply, UPDATE, history, update=merged, create=create)
    assert (update_event(verdict), verdict.remote_id, verdict.candidates) == (event, remote_id, candidates)


# ------------------------------------------------------------------------------------- sessions, preconditions


def test_a_session_is_over_when_the_remote_says_so_and_is_opened_anew_once() -> None:
    """By what the profile declares; a rule that may claim nothing about an answer says nothing here either."""
    over = {"pointer": "/code", "equals": "SESSION"}

    def remote(*expired: dict[str, Any]) -> dict[str, Any]:
        return {"session": {"prefetch": {"path": "/token", "capture": "X-Token", "expired": list(expired)}}}

    told = answer(403, body({"code": "SESSION"}))
    declared = remote({"status": [403], **over})
    assert judge(told, remote=declared).disposition is Disposition.REAUTH_ONCE
    assert judge(told, remote=declared).row == "session is over"
    assert judge(answer(403, "{}"), remote=declared).row == "forbidden"
    assert judge(told, remote=remote(over)).row == "forbidden"
    again = History(credential_proven=True, reauthenticated=True)
    assert judge(told, remote=declared, history=again).disposition is Disposition.PARK


@pytest.mark.rule("D-24")
@pytest.mark.parametrize(
    ("kind", "status", "event"),
    [
        ("if_match_star", 412, UpdateEvent.REMOTE_GONE),
        ("if_match_star", 428, UpdateEvent.REJECT),
        ("etag", 412, UpdateEvent.REMOTE_CONFLICT),
        ("etag", 428, UpdateEvent.REMOTE_CONFLICT),
    ],
)
def test_a_precondition_that_does_not_hold_says_that_the_record_is_gone_or_changed(
    kind: str, status: int, event: UpdateEvent
) -> None:
    """By its status, or by what the pack says beside it; a create has none, whatever its update asks for."""
    on_fail = [{"status": [400], **CODE}]
    update = {"precondition": {"kind": kind, "on_fail": on_fail}}
    assert update_event(judge(answer(status), UPDATE, update=update)) is event
    failed = UpdateEvent.REMOTE_GONE if kind == "if_match_star" else UpdateEvent.REMOTE_CONFLICT
    declared = judge(answer(400, BUSY), UPDATE, update=update)
    assert (update_event(declared), declared.row) == (failed, "precondition did not hold")
    assert judge(answer(400, "{}"), UPDATE, update=update).row == "refused as invalid"
    assert judge(answer(400, BUSY), CREATE, update=update).row == "refused as invalid"
    assert judge(answer(412), CREATE, update=update).row == "precondition failed"


@pytest.mark.parametrize(
    ("refetch_once", "refetched", "event"),
    [
        (True, False, UpdateEvent.NOT_APPLIED),
        (True, True, UpdateEvent.REMOTE_CONFLICT),
        (False, False, UpdateEvent.REMOTE_CONFLICT),
    ],
)
def test_a_stale_version_is_read_again_once_where_the_pack_allows_it(
    refetch_once: bool, refetched: bool, event: UpdateEvent
) -> None:
    """Then it was changed by somebody else; another refusal is no stale version."""
    update = {"precondition": {"kind": "etag", "source": "fresh_get", "refetch_once": refetch_once}}
    history = History(credential_proven=True, canonical_id="7", refetched=refetched)
    assert update_event(judge(answer(412), UPDATE, history, update=update)) is event
    assert update_event(judge(answer(422), UPDATE, history, update=update)) is UpdateEvent.REJECT
    assert update_event(judge(answer(409), UPDATE, history, update=update)) is UpdateEvent.REMOTE_CONFLICT


# ------------------------------------------------------------------------------------------- versions, composites


def test_a_version_is_a_header_or_a_place_and_keeps_its_digits() -> None:
    """As it stands there; without one there is none."""
    made = {
        "response": {
            "id": [{"from": "$response.body#/id"}],
            "version": [{"from": "$response.header.ETag"}, {"from": "$response.body#/version"}],
        }
    }
    tagged = answer(201, body({"id": "7", "version": 3}), headers=(("etag", 'W/"1"'),))
    assert judge(tagged, create=made).remote_version == 'W/"1"'
    assert judge(answer(201, '{"id": "7", "version": 9007199254740993}'), create=made).remote_version == (
        "9007199254740993"
    )
    assert judge(answer(201, body({"id": "7"})), create=made).remote_version is None
    assert judge(answer(409, body({"version": 3})), create=made).remote_version is None
    updated = judge(answer(200, body({"version": 4})), UPDATE, create=made)
    assert (updated.effect, updated.remote_version) == (Effect.APPLIED, "4")


PARTS = {"parts": [{"from": "$response.body#/a"}, {"from": "$response.header.X-B"}], "separator": "/"}


@pytest.mark.rule("C-040", "D-25")
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [("1", "2", "1/2"), (12, "0", "12/0"), ("1/2", "3", None), ("1", "", None), ("", "2", None), (None, "2", None)],
)
def test_a_composite_id_has_all_its_parts_and_no_other_reading(a: object, b: str, expected: str | None) -> None:
    """A part with the separator in it would make two ids one."""
    verdict = judge(answer(201, body({"a": a}), headers=(("x-b", b),)), create={"response": {"composite": PARTS}})
    assert verdict.remote_id == expected
    assert verdict.effect is (Effect.APPLIED if expected else Effect.APPLIED_UNIDENTIFIED)


# --------------------------------------------------------------------------------------------------- explaining


def test_evidence_has_the_transport_s_own_words() -> None:
    """`explain` names what refused the connection, and the setting that would allow it."""
    refused = StoredReply(trace=WireTrace(), error=WireError.BEFORE_CONNECT, error_text="Egress: 10.0.0.1 is private")
    assert judge(refused).evidence["error_text"] == "Egress: 10.0.0.1 is private"
    assert "error_text" not in judge(answer(201, '{"id": 1}')).evidence
