from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest

from protocol.examples import NAMES
from pushlink.errors import Code
from pushlink.protocol.drift import ROW_OF, AttemptVerdict, Hit, LinkVerdict
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.gates import BEFORE_CREATE, BEFORE_UPDATE, Facts, Gate, Refusal, first_refusal
from pushlink.protocol.states import BLOCKING, AttemptStatus, LinkStatus
from pushlink.protocol.surfaces import Surface

#: Facts that every gate before a create lets through.
FREE = Facts(
    slot_resolved=True,
    owner_resolved=True,
    destination_resolved=True,
    authority_produced=True,
    row_readable=True,
    denied_fields=(),
    usable_installs=1,
    mapping_problems=(),
    path_problems=(),
    source_exists=True,
    link_status=None,
    slot_closed=False,
    create_status=None,
    update_ambiguous=False,
    version_refused=False,
    unresolved_slots=(),
    freeze_problems=(),
    render_failure=None,
    drift=(),
)

#: The same before an update.
LINKED = replace(FREE, link_status=LinkStatus.FINALIZED)

HIT = Hit(row=ROW_OF[Surface.MAPPING], link=LinkVerdict.REFUSE, create=AttemptVerdict.FROZEN, frozen="a", current="b")


def failed(code: Code) -> dict[str, Any]:
    return {"render_failure": RenderFailure(code=code, message="It does not render.", evidence={"field": "f"})}


#: Every way in which a fact can refuse a create: gate's rule and code, the change, and whether the save is kept.
TARGET_ROWS = (
    ("AU-04", Code.ASSOCIATION_DENIED, {"denied_associations": ("company",)}, False),
    ("DL-16", Code.ASSOCIATION_MISSING, {"missing_associations": ("company",), "missing_records": ({},)}, False),
)

CREATE_ROWS: list[tuple[str, Code, dict[str, Any], bool]] = [
    ("GT-01", Code.SLOT_UNRESOLVED, {"slot_resolved": False}, False),
    ("GT-02", Code.OWNER_UNRESOLVED, {"owner_resolved": False}, False),
    ("GT-02", Code.OWNER_UNRESOLVED, {"destination_resolved": False}, False),
    ("GT-03", Code.AUTHORITY_UNAVAILABLE, {"authority_produced": False}, False),
    ("GT-04", Code.INSTALL_UNUSABLE, {"usable_installs": 0}, False),
    ("GT-04", Code.INSTALL_UNUSABLE, {"usable_installs": 2}, False),
    ("GT-05", Code.MAPPING_UNUSABLE, {"mapping_problems": ("customized",)}, False),
    ("GT-05", Code.MAPPING_UNUSABLE, failed(Code.MAPPING_UNUSABLE), False),
    ("GT-06", Code.PATH_UNUSABLE, {"path_problems": ("missing",)}, False),
    ("GT-06", Code.PATH_UNUSABLE, failed(Code.PATH_UNUSABLE), False),
    ("GT-07", Code.READ_DENIED, {"row_readable": False}, False),
    ("GT-07", Code.READ_DENIED, {"denied_fields": ("salary",)}, False),
    ("GT-08", Code.SOURCE_GONE, {"source_exists": False}, False),
    ("GT-09", Code.LINK_EXISTS, {"link_status": LinkStatus.FINALIZED}, True),
    ("GT-09", Code.LINK_SUSPENDED, {"link_status": LinkStatus.SUSPENDED_DRIFT}, True),
    ("GT-15", Code.LINK_RETIRED, {"link_status": LinkStatus.RETIRED, "slot_closed": True}, False),
    *(
        ("GT-10", Code.CREATE_ACTIVE, {"create_status": status}, True)
        for status in sorted(BLOCKING - {AttemptStatus.AMBIGUOUS_REMOTE_EFFECT, AttemptStatus.TERMINAL_FAILED})
    ),
    ("GT-10", Code.CREATE_AMBIGUOUS, {"create_status": AttemptStatus.AMBIGUOUS_REMOTE_EFFECT}, True),
    ("GT-11", Code.CREATE_TERMINAL, {"create_status": AttemptStatus.TERMINAL_FAILED}, True),
    ("GT-12", Code.LINEAGE_UNRESOLVED, {"unresolved_slots": ("slot-0",)}, False),
    ("GT-13", Code.FREEZE_FAILED, {"freeze_problems": ("credential",)}, False),
    ("GT-13", Code.FREEZE_FAILED, failed(Code.FREEZE_FAILED), False),
    ("GT-14", Code.ROUTE_UNSAFE, failed(Code.ROUTE_UNSAFE), False),
    ("GT-05", Code.VALUE_UNSENDABLE, failed(Code.VALUE_UNSENDABLE), False),
    ("GT-13", Code.BODY_TOO_LARGE, failed(Code.BODY_TOO_LARGE), False),
    ("DR-15", Code.DRIFT, {"drift": (HIT,)}, False),
    *TARGET_ROWS,
    ("DL-17", Code.ASSOCIATION_CYCLE, {"association_cycle": ("a", "b")}, False),
    ("D-36", Code.RECOVERY_MODE, {"recovery_mode": True}, False),
]

#: The same for an update, from a finalized link.
UPDATE_ROWS: list[tuple[str, Code, dict[str, Any], bool]] = [
    *(
        row
        for row in CREATE_ROWS
        if row[0] in {f"GT-0{number}" for number in range(1, 7)} and row[1] is not Code.VALUE_UNSENDABLE
    ),
    ("PA-06", Code.READ_DENIED, {"row_readable": False}, False),
    ("PA-06", Code.READ_DENIED, {"denied_fields": ("salary",)}, False),
    ("GT-08", Code.SOURCE_GONE, {"source_exists": False}, False),
    ("PA-02", Code.LINK_MISSING, {"link_status": None}, False),
    ("PA-05", Code.LINK_SUSPENDED, {"link_status": LinkStatus.SUSPENDED_DRIFT}, True),
    ("PA-05", Code.LINK_RETIRED, {"link_status": LinkStatus.RETIRED, "slot_closed": True}, False),
    ("PA-05", Code.LINK_RETIRED, {"link_status": LinkStatus.RETIRED, "slot_closed": False}, False),
    *(
        ("PA-03", Code.CREATE_ACTIVE, {"create_status": status}, True)
        for status in sorted(BLOCKING - {AttemptStatus.WRITEBACK_PENDING, AttemptStatus.WRITEBACK_COMMIT_PENDING})
    ),
    ("GT-13", Code.FREEZE_FAILED, failed(Code.FREEZE_FAILED), False),
    ("PA-07", Code.ROUTE_UNSAFE, failed(Code.ROUTE_UNSAFE), False),
    ("GT-05", Code.VALUE_UNSENDABLE, failed(Code.VALUE_UNSENDABLE), False),
    ("GT-13", Code.BODY_TOO_LARGE, failed(Code.BODY_TOO_LARGE), False),
    ("PA-04", Code.DRIFT, {"drift": (HIT,)}, False),
    *TARGET_ROWS,
    ("D-20", Code.UPDATE_AMBIGUOUS, {"update_ambiguous": True}, True),
    ("D-19", Code.VERSION_REFUSED, {"version_refused": True}, False),
    ("D-36", Code.RECOVERY_MODE, {"recovery_mode": True}, False),
]


def marked(gates: tuple[Gate, ...], start: Facts, row: tuple[str, Code, dict[str, Any], bool]) -> Any:
    """A row as a parameter; the contract's own gate rules are named by the test that reaches them."""
    rule, code, change, _ = row
    marks = [pytest.mark.rule(rule)] if rule.startswith(("GT-", "PA-")) else []
    return pytest.param(gates, start, row, marks=marks, id=f"{rule}-{code}-{'-'.join(change)}")


BOTH = [marked(BEFORE_CREATE, FREE, row) for row in CREATE_ROWS]
BOTH += [marked(BEFORE_UPDATE, LINKED, row) for row in UPDATE_ROWS]


def test_a_save_with_nothing_wrong_is_let_through() -> None:
    """Every gate looks, none refuses."""
    assert first_refusal(BEFORE_CREATE, FREE) is None
    assert first_refusal(BEFORE_UPDATE, LINKED) is None
    assert first_refusal(BEFORE_CREATE, replace(FREE, link_status=LinkStatus.RETIRED)) is None


@pytest.mark.parametrize(("gates", "start", "row"), BOTH)
def test_each_gate_refuses_for_its_reason_with_its_stable_code(
    gates: tuple[Gate, ...], start: Facts, row: tuple[str, Code, dict[str, Any], bool]
) -> None:
    """One wrong fact, one answer: rule, code, a sentence, and whether the save is kept as the wanted version."""
    rule, code, change, records_wanted = row
    refusal = first_refusal(gates, replace(start, **change))
    assert isinstance(refusal, Refusal)
    assert (refusal.rule, refusal.code, refusal.records_wanted) == (rule, code, records_wanted)
    assert refusal.message.endswith(".")


@pytest.mark.parametrize(
    ("gates", "rows", "start"), [(BEFORE_CREATE, CREATE_ROWS, FREE), (BEFORE_UPDATE, UPDATE_ROWS, LINKED)]
)
def test_the_first_gate_that_refuses_decides(
    gates: tuple[Gate, ...], rows: list[tuple[str, Code, dict[str, Any], bool]], start: Facts
) -> None:
    """With two wrong facts the answer is the earlier gate's, in the order of the contract."""
    order = [gate.code for gate in gates]
    assert len(set(order)) == len(order)
    for (_, one, left, _), (_, two, right, _) in itertools.combinations(rows, 2):
        if not left.keys() & right.keys():
            refusal = first_refusal(gates, replace(start, **left, **right))
            assert refusal is not None
            assert order.index(refusal.code) == min(order.index(one), order.index(two))


def test_every_gate_is_taken_by_a_row_and_every_fact_by_a_gate() -> None:
    """No gate is dead and no fact is gathered for nothing."""
    for gates, rows in ((BEFORE_CREATE, CREATE_ROWS), (BEFORE_UPDATE, UPDATE_ROWS)):
        assert [(gate.rule, gate.code) for gate in gates] == list(
            dict.fromkeys((rule, code) for rule, code, *_ in rows)
        )
    asked = {name for _, _, change, _ in (*CREATE_ROWS, *UPDATE_ROWS) for name in change}
    assert asked == {field.name for field in fields(Facts)}


@pytest.mark.parametrize("status", [AttemptStatus.FINALIZED, AttemptStatus.SUPERSEDED])
def test_an_attempt_that_ended_well_refuses_nothing_by_itself(status: AttemptStatus) -> None:
    """A finalized create is stopped by its link, a superseded one by nothing."""
    assert first_refusal(BEFORE_CREATE, replace(FREE, create_status=status)) is None
    assert first_refusal(BEFORE_UPDATE, replace(LINKED, create_status=status)) is None


@pytest.mark.parametrize("status", [AttemptStatus.WRITEBACK_COMMIT_PENDING, AttemptStatus.WRITEBACK_PENDING])
def test_a_create_that_only_waits_for_its_mirror_does_not_stop_updates(status: AttemptStatus) -> None:
    """Its link is finalized; the mirror is nobody's authority."""
    assert first_refusal(BEFORE_UPDATE, replace(LINKED, create_status=status)) is None


def test_a_rendering_failure_speaks_for_itself() -> None:
    """Its sentence and evidence are more precise than the gate's."""
    refusal = first_refusal(BEFORE_CREATE, replace(FREE, **failed(Code.VALUE_UNSENDABLE)))
    assert refusal is not None
    assert (refusal.message, dict(refusal.evidence)) == ("It does not render.", {"field": "f"})
    plain = first_refusal(BEFORE_CREATE, replace(FREE, mapping_problems=("customized",), **failed(Code.ROUTE_UNSAFE)))
    assert plain is not None
    assert plain.message != "It does not render."


def test_a_denied_read_names_fields_and_holds_no_value() -> None:
    """The facts have no place for a value, so no refusal can hold one."""
    refusal = first_refusal(BEFORE_CREATE, replace(FREE, denied_fields=("salary", "iban")))
    assert refusal is not None
    assert refusal.evidence == {"row_readable": True, "denied_fields": ["iban", "salary"]}


def test_drift_is_refused_with_what_differed() -> None:
    """Rule, surface and both digests, so that a person can see what to undo or revalidate."""
    refusal = first_refusal(BEFORE_UPDATE, replace(LINKED, drift=(HIT,)))
    assert refusal is not None
    assert refusal.evidence == {"drift": [{"rule": "DR-13", "surface": "mapping", "frozen": "a", "current": "b"}]}
    assert "revalidate" in refusal.next_verbs


@pytest.mark.rule("ID-03", "ID-05")
def test_no_gate_looks_at_a_name() -> None:
    """Names of flows, profiles or namespaces are not among the facts: they allow nothing."""
    assert not {field.name for field in fields(Facts)} & {field.name for field in fields(NAMES)}
