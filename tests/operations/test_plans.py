"""`pack plan` says what `pack apply` then does: plans are made, applied, and compared with what claims and saves do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import PACK, MakeStage, Stage, action_of, pack_with, profile_of
from pushlink.errors import ConfigurationError
from pushlink.flows.outcomes import Refused, Reserved
from pushlink.operations import plans
from pushlink.operations.plans import FateCount, PlanView, SurfaceView
from pushlink.testing import verbs
from pushlink.testing.messages import creating


def planned(stage: Stage, home: Path, document: Any, *, tenant: str = "", samples: int = 5) -> PlanView:
    path = home / "pack.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    with stage.engine.begin() as conn:
        return plans.plan(conn, path, tenant=tenant, world=stage.world, now=stage.clock.now(conn), samples=samples)


def fates(counts: tuple[FateCount, ...]) -> dict[str, int]:
    """After the apply, without what is 0."""
    return {count.fate: count.after for count in counts if count.after}


def surfaces(plan: PlanView) -> dict[str, SurfaceView]:
    return {view.surface: view for view in plan.surfaces}


def everything(stage: Stage) -> None:
    """Two links (one with an update that waits), a create that never sent, one in doubt that nobody may send again."""
    stage.linked(1)
    stage.linked(2)
    stage.remote.script.next(verbs.close_after_read(), when=creating)
    stage.save(3, name="Doubtful", email="c@example.com")
    stage.drain()
    stage.save(4, name="Waiting", email="d@example.com")
    stage.save(2, name="Changed", email="b@example.com")


#: A change of the pack, and what it makes of links, creates and updates.
CHANGES: list[tuple[str, Callable[[dict[str, Any]], object], dict[str, int], dict[str, int], dict[str, int]]] = [
    (
        "flow version",
        lambda document: document["flows"][0].update(version=2),
        {"usable": 2},
        {"goes_on": 1, "parked": 1},
        {"goes_on": 1},
    ),
    (
        "flow name",
        lambda document: document["flows"][0].update(flow="Another name"),
        {"names_refreshed": 2},
        {"goes_on": 1, "parked": 1},
        {"goes_on": 1},
    ),
    (
        "mapping",
        lambda document: action_of(document)["mappings"].append({"source": "born", "target": "/born"}),
        {"refused": 2},
        {"goes_on": 1, "parked": 1},
        {"held": 1},
    ),
    (
        "endpoint",
        lambda document: profile_of(document).update(base_url="https://elsewhere.example.com/v2"),
        {"refused": 2},
        {"held": 1, "parked": 1},
        {"held": 1},
    ),
    (
        "credential",
        lambda document: profile_of(document).update(credential_ref="env:OTHER_TOKEN"),
        {"refused": 2},
        {"held": 1, "parked": 1},
        {"held": 1},
    ),
    (
        "create path",
        lambda document: action_of(document)["create"].update(path="/persons"),
        {"usable": 2},
        {"goes_on": 1, "parked": 1},
        {"goes_on": 1},
    ),
    (
        "mirror",
        lambda document: action_of(document)["mirror"].update(provenance_value="others"),
        {"mirror_blocked": 2},
        {"goes_on": 1, "parked": 1},
        {"goes_on": 1},
    ),
    (
        "action slot",
        lambda document: action_of(document).update(action_slot_id="act-2"),
        {"suspends": 2},
        {"held": 1, "parked": 1},
        {"ended": 1},
    ),
    (
        "destination slot",
        lambda document: (
            document["destinations"][0].update(destination_slot_id="dest-2"),
            action_of(document).update(destination="dest-2"),
        ),
        {"suspends": 2},
        {"held": 1, "parked": 1},
        {"ended": 1},
    ),
]


@pytest.mark.rule("DR-01", "DR-02", "DR-03", "DR-09", "DR-10", "DR-13", "DR-15", "DR-18", "DR-20", "D-11", "D-29")
@pytest.mark.parametrize(
    ("change", "links", "creates", "updates"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_an_apply_does_what_the_plan_said(
    make_stage: MakeStage,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
    links: dict[str, int],
    creates: dict[str, int],
    updates: dict[str, int],
) -> None:
    """The plan's counts, then the apply, and what the worker makes of each row and a save of a new record."""
    stage = make_stage()
    everything(stage)
    document = pack_with(change)
    before = stage.census()
    plan = planned(stage, tmp_path, document)
    assert stage.census() == before, "a plan writes nothing"
    assert (fates(plan.links), fates(plan.creates), fates(plan.updates)) == (links, creates, updates)

    applied = stage.apply(document)
    assert applied.is_changed is plan.is_changed
    assert (applied.added, applied.returned) == (plan.added_slots, plan.returned_slots)
    assert (applied.dropped, applied.moved) == (plan.dropped_slots, plan.moved_slots)
    assert applied.revision == plan.revision
    stage.drain()
    assert observed_creates(stage) == creates
    assert observed_updates(stage) == updates
    assert observed_links(stage, plan) == links
    stage.put(5, name="New", email="e@example.com")
    outcome = stage.save(5)
    assert isinstance(outcome, Refused) is bool(plan.creates_blocked)
    assert plan.creates_blocked or isinstance(outcome, Reserved)


def observed_creates(stage: Stage) -> dict[str, int]:
    """What the worker made of the creates of records 3 (in doubt) and 4 (never sent)."""
    states = {row["link_key"]: row for row in stage.attempts(operation="create")}
    doubtful, waiting = states[stage.slot(3)["link_key"]], states[stage.slot(4)["link_key"]]
    assert doubtful["status"] == "ambiguous_remote_effect"
    went_on = waiting["status"] == "finalized"
    assert went_on or (waiting["status"], waiting["hold_code"]) == ("pending", "drift")
    return {"goes_on": 1, "parked": 1} if went_on else {"held": 1, "parked": 1}


def observed_updates(stage: Stage) -> dict[str, int]:
    """What the worker made of the update of record 2."""
    [row] = stage.attempts(operation="update", link_key=stage.slot(2)["link_key"])
    said = {("finalized", None): "goes_on", ("pending", "drift"): "held", ("superseded", None): "ended"}
    return {said[row["status"], row["hold_code"]]: 1}


def observed_links(stage: Stage, plan: PlanView) -> dict[str, int]:
    """What the links are good for: record 2's was touched by its update, record 1's by nothing."""
    touched = stage.link(2)
    update = observed_updates(stage)
    [fate] = fates(plan.links)
    if touched["status"] == "suspended_drift":
        return {"suspends": 2}
    if "held" in update:
        return {"refused": 2}
    assert fate in {"usable", "names_refreshed", "mirror_blocked"}
    return {fate: 2}


def test_a_plan_names_surfaces_rules_and_samples(stage: Stage, tmp_path: Path) -> None:
    """Each row of the matrix that is hit, with counts and some of the records behind it."""
    everything(stage)
    plan = planned(stage, tmp_path, pack_with(CHANGES[3][1]))
    view = surfaces(plan)["endpoint"]
    assert (view.rule, view.links, view.links_before, view.creates, view.decides) == ("DR-10", 2, 0, 2, 2)
    assert (view.link_verdict, view.create_verdict) == ("refuse", "hold")
    assert {sample.record_id for sample in view.samples} == {"1", "2", "3", "4"}
    assert {sample.remote_id for sample in view.samples if sample.record_id in "12"} == {
        stage.link(1)["remote_id"],
        stage.link(2)["remote_id"],
    }
    assert len(surfaces(planned(stage, tmp_path, pack_with(CHANGES[3][1]), samples=1))["endpoint"].samples) == 1
    assert plan.stops_something


@pytest.mark.rule("D-29", "DR-03")
def test_a_plan_says_which_creates_are_blocked(stage: Stage, tmp_path: Path) -> None:
    """A slot that replaces one with links reserves nothing; the old slot's rows are counted and shown."""
    everything(stage)
    plan = planned(stage, tmp_path, pack_with(CHANGES[7][1]))
    [blocked] = plan.creates_blocked
    assert (blocked.action_slot_id, blocked.replaced) == ("act-2", ("act-1 -> dest-1",))
    assert (blocked.links, blocked.creates) == (2, 2)
    assert (plan.added_slots, plan.dropped_slots) == (("act-2",), ("act-1",))


def test_what_drifted_before_is_told_from_what_the_pack_does(stage: Stage, tmp_path: Path) -> None:
    """A rotated credential refuses already: a plan of the same pack shows it on both sides."""
    stage.linked(1)
    stage.credentials.current = "generation-2"
    plan = planned(stage, tmp_path, PACK)
    assert (plan.is_changed, plan.revision) == (False, 1)
    assert plan.links == (FateCount(fate="refused", before=1, after=1),)
    view = surfaces(plan)["credential_generation"]
    assert (view.links_before, view.links) == (1, 1)
    assert not plan.stops_something


def test_a_plan_shows_what_would_heal(stage: Stage, tmp_path: Path) -> None:
    """Undoing a change heals what it refused."""
    everything(stage)
    stage.apply(pack_with(CHANGES[3][1]))
    stage.drain()
    plan = planned(stage, tmp_path, PACK)
    assert plan.links == (FateCount(fate="usable", before=0, after=2), FateCount(fate="refused", before=2, after=0))
    assert FateCount(fate="held", before=1, after=0) in plan.creates
    stage.apply(PACK)
    stage.drain()
    assert observed_creates(stage) == {"goes_on": 1, "parked": 1}


@pytest.mark.rule("DR-06", "D-40")
def test_a_plan_of_a_first_install_and_of_another_tenant(make_stage: MakeStage, tmp_path: Path) -> None:
    """Another tenant's links are not in it; after an uninstall the next install is another incarnation."""
    stage = make_stage()
    stage.linked(1)
    other = planned(stage, tmp_path, PACK, tenant="north")
    assert (other.is_new_incarnation, other.links, other.added_slots) == (True, (), ("act-1", "dest-1"))
    stage.uninstall()
    again = planned(stage, tmp_path, PACK)
    assert again.is_new_incarnation
    assert again.returned_slots == ("act-1", "dest-1")
    assert fates(again.links) == {"refused": 1}
    assert all(count.fate not in {"usable", "names_refreshed"} for count in again.links), "it fails closed meanwhile"
    assert "pack_install" in surfaces(again)


def test_a_pack_that_an_apply_refuses_is_refused_by_its_plan(stage: Stage, tmp_path: Path) -> None:
    """With the same error."""
    document = pack_with(lambda document: document.update(connector_owner_key="other"))
    with pytest.raises(ConfigurationError) as planning:
        planned(stage, tmp_path, document)
    with pytest.raises(ConfigurationError) as applying:
        stage.apply(document)
    assert planning.value.message == applying.value.message
    assert planning.value.evidence == applying.value.evidence


def test_many_links_of_one_snapshot_are_one_comparison(
    stage: Stage, tmp_path: Path, count_statements: Callable[[], list[str]]
) -> None:
    """The number of statements does not depend on the number of links."""
    stage.linked(1)
    seen = count_statements()
    planned(stage, tmp_path, pack_with(CHANGES[3][1]))
    few = len(seen)
    for number in range(2, 22):
        stage.linked(number)
    seen.clear()
    plan = planned(stage, tmp_path, pack_with(CHANGES[3][1]))
    assert len(seen) == few
    assert fates(plan.links) == {"refused": 21}


@pytest.fixture
def count_statements(engine: sa.Engine) -> Callable[[], list[str]]:
    """A function that lists the statements that are sent from now on."""

    def start() -> list[str]:
        seen: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", lambda *said: seen.append(said[2]))
        return seen

    return start
