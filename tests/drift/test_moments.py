"""Moments that need more than one look: before another create, right after a finalization, at a first touch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.stage import PACK, Stage, action_of, pack_with, profile_of
from operations.operators import ADA, decide, failed_create, refused
from protocol.examples import NAMES, action, profile
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued, Refused, Reserved
from pushlink.protocol.contracts import Waivers
from pushlink.protocol.drift import (
    AttemptVerdict,
    DriftFacts,
    LinkVerdict,
    blocks_new_create,
    classify,
    holds_create,
    stops_update,
    strictest,
    suspends_link,
)
from pushlink.protocol.fingerprints import FINGERPRINTED, fingerprints
from pushlink.protocol.snapshots import Digest
from pushlink.protocol.surfaces import Surface
from pushlink.protocol.verbs import Verb


def other_path(document: dict[str, Any]) -> None:
    action_of(document)["create"]["path"] = "/persons"


def freed(stage: Stage, how: str) -> None:
    """A key whose create is over and that may have another one."""
    if how == "supersede":
        decide(stage, Verb.SUPERSEDE, failed_create(stage))
    else:
        link = stage.linked(1, **ADA)
        decide(stage, Verb.RETIRE, link, release=True)


# ------------------------------------------------------------------------------------------------ another create


@pytest.mark.rule("DR-15", "AT-03", "D-35")
@pytest.mark.parametrize("how", ["supersede", "release"])
def test_a_create_path_that_changes_after_the_decision_blocks_the_next_create_and_heals(stage: Stage, how: str) -> None:
    """Nobody has seen the new path beside the old one; with the old one back the key is free."""
    freed(stage, how)
    stage.clock_forward(minutes=1)
    stage.apply(pack_with(other_path))
    before = stage.sends
    outcome = stage.save(1, name="again")
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.wanted_version) == (Code.DRIFT, None)
    [hit] = outcome.evidence["drift"]  # type: ignore[misc]
    assert (hit["rule"], hit["surface"]) == ("DR-15", "create_path")
    assert isinstance(stage.save(2, name="Bea", email="b@example.com"), Reserved)  # it never had a create
    stage.apply(PACK)
    assert isinstance(stage.save(1, name="again"), Reserved)
    stage.drain()
    assert stage.sends == before + 2


@pytest.mark.rule("DR-15", "AT-03", "D-35")
@pytest.mark.parametrize("how", ["supersede", "release"])
def test_a_create_path_that_was_there_at_the_decision_is_validated_by_it(stage: Stage, how: str) -> None:
    """Whoever freed the key saw the path of now; what a pack changes besides does not matter."""
    if how == "supersede":
        ended = failed_create(stage)
        stage.apply(pack_with(other_path))
        decide(stage, Verb.SUPERSEDE, ended)
        stage.apply(pack_with(lambda d: (other_path(d), profile_of(d).update(retry={"attempts": 3}))))
    else:
        link = stage.linked(1, **ADA)
        stage.apply(pack_with(other_path))
        stage.clock_forward(minutes=1)
        decide(stage, Verb.RETIRE, link, release=True)
    assert isinstance(stage.save(1, name="again"), Reserved)
    stage.drain()
    assert stage.remote.sent[-1].path == "/persons"


@pytest.mark.rule("DR-15", "AT-03", "SY-03")
@pytest.mark.parametrize("how", ["supersede", "release"])
def test_a_blocked_create_flows_once_somebody_has_validated_its_path(stage: Stage, how: str) -> None:
    """The decision names the create of before, shows both paths, and holds until the path changes once more."""
    freed(stage, how)
    stage.clock_forward(minutes=1)
    stage.apply(pack_with(other_path))
    assert isinstance(refused_save := stage.save(1, name="again"), Refused)
    assert refused_save.next_verbs == ("validate-create",)
    [before] = stage.attempts(operation="create")
    decide(stage, Verb.VALIDATE_CREATE, before)
    [action] = stage.rows("operator_action", "id", verb="validate-create")
    shown = json.loads(action["evidence"])["create_path"]
    assert (shown["frozen"], shown["current"]) == ("/people", "/persons")
    refused(stage, Verb.VALIDATE_CREATE, before)  # nothing waits for it any more
    stage.clock_forward(minutes=1)
    stage.apply(pack_with(lambda d: (other_path(d), action_of(d)["create"].update(query={"v": "2"}))))
    assert isinstance(stage.save(1, name="again"), Refused)
    decide(stage, Verb.VALIDATE_CREATE, before)
    assert isinstance(stage.save(1, name="again"), Reserved)
    refused(stage, Verb.VALIDATE_CREATE, before)  # another create stands there
    stage.drain()
    assert stage.remote.sent[-1].path.startswith("/persons")


@pytest.mark.rule("DR-15", "D-35", "AT-11")
@pytest.mark.parametrize("how", ["release-slot", "retire --release"])
def test_a_released_slot_keeps_the_create_path_that_was_shown(stage: Stage, how: str) -> None:
    """The path of then beside the one of now; with the path of the decision back, no create waits."""
    link = stage.linked(1, **ADA)
    stage.apply(pack_with(other_path))
    stage.clock_forward(minutes=1)
    if how == "release-slot":
        decide(stage, Verb.RETIRE, link)
        decide(stage, Verb.RELEASE_SLOT, stage.link())
    else:
        decide(stage, Verb.RETIRE, link, release=True)
    action = stage.rows("operator_action", "id")[-1]
    shown = json.loads(action["evidence"])["create_path"]
    assert (shown["frozen"], shown["current"]) == ("/people", "/persons")
    stage.clock_forward(minutes=1)
    stage.apply(pack_with(lambda d: action_of(d)["create"].update(path="/third")))
    assert isinstance(stage.save(1, name="again"), Refused)
    stage.clock_forward(minutes=1)
    stage.apply(pack_with(other_path))
    assert isinstance(stage.save(1, name="again"), Reserved)


# ------------------------------------------------------------------------------------------------ after a finalization


@pytest.mark.rule("DR-16", "D-21", "PA-04")
def test_an_update_path_that_changed_while_the_create_was_on_the_wire_is_checked_right_after(stage: Stage) -> None:
    """The link is finalized as it was frozen; the update that a save left is held, and the next save refused."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    stage.save(1, name="Ada L.")
    flow.step()
    stage.apply(pack_with(lambda d: action_of(d)["update"].update(path="/persons/{remote_id}")))
    flow.finish()
    stage.drain()
    assert stage.link()["status"] == "finalized"
    update = stage.attempt(operation="update")
    assert (update["status"], update["hold_code"]) == ("pending", "drift")
    outcome = stage.save(1, name="Ada Lovelace")
    assert isinstance(outcome, Refused)
    assert {hit["rule"] for hit in outcome.evidence["drift"]} == {"DR-16"}  # type: ignore[attr-defined]
    stage.apply(PACK)
    stage.drain()
    assert stage.attempt(operation="update")["status"] == "finalized"


@pytest.mark.rule("DR-18", "PO-06")
def test_another_pair_of_mirror_fields_is_written_by_creates_alone(stage: Stage) -> None:
    """The link's own pair keeps what it has; its updates write neither the old nor the new pair."""
    stage.linked(1, **ADA)
    stage.save(2, name="Bea", email="b@example.com")
    stage.apply(pack_with(lambda d: action_of(d)["mirror"].update(remote_id_field="salary")))
    stage.save(1, name="Ada L.")
    stage.save(3, name="Cid", email="c@example.com")
    stage.drain()
    shown = {number: stage.person(number) or {} for number in (1, 2, 3)}
    written = {number: (row["remote_id"], row["salary"]) for number, row in shown.items()}
    ids = {number: stage.link(number)["remote_id"] for number in shown}
    assert written == {1: (ids[1], None), 2: (ids[2], None), 3: (None, ids[3])}
    assert stage.link(1)["mirror_remote_id_field"] == "remote_id"


@pytest.mark.rule("DR-02", "DR-04", "DR-07", "LK-04")
def test_names_are_refreshed_by_an_update_that_was_applied_and_move_nothing_else(stage: Stage) -> None:
    """The link shows the names of now; its row version, snapshots and fingerprints are what they were."""
    link = stage.linked(1, **ADA)
    stage.apply(pack_with(lambda d: (d.update(namespace="persons"), d["flows"][0].update(flow="Persons", version=2))))
    stage.save(1, name="Ada L.")
    assert stage.link() == link
    stage.drain()
    after = stage.link()
    names = json.loads(after["names"])
    assert '"Persons"' in json.dumps(names)
    changed = {column for column, value in after.items() if value != link[column]}
    assert changed <= {"names", "updated_at"}
    assert isinstance(stage.save(1, name="Ada Lovelace"), Queued)


# ------------------------------------------------------------------------------------------------ first touch


@pytest.mark.rule("DR-03", "DR-20", "LK-05")
def test_the_first_touch_suspends_the_saved_record_s_link_alone_and_is_told(stage: Stage) -> None:
    """Its neighbours are untouched until somebody saves them; a rolled back save has touched nothing."""
    stage.linked(1, **ADA)
    stage.linked(2)
    stage.apply(pack_with(lambda d: action_of(d).update(action_slot_id="act-2")))
    with stage.engine.connect() as conn, conn.begin() as transaction:
        stage.runtime.save(conn, "Person", 1, user="ann")
        transaction.rollback()
    assert {link["status"] for link in stage.links()} == {"finalized"}
    stage.save(1, name="Ada L.")
    assert [link["status"] for link in stage.links()] == ["suspended_drift", "finalized"]
    evidence = json.loads(stage.link(1)["evidence"])
    assert (evidence["rules"], evidence["surfaces"]) == (["DR-03"], ["action_slot"])
    assert [e["actor"] for e in stage.events(event="suspend")] == ["user:ann"]
    stage.save(1, name="Ada Lovelace")
    assert len(stage.events(event="suspend")) == 1


# ------------------------------------------------------------------------------------------------ combined changes

FROZEN = DriftFacts(
    owner_key="owner",
    action_slot_id="action-1",
    destination_slot_id="destination-1",
    install_id="install-1",
    names=NAMES,
    profile_active=True,
    credential_generation="1",
    fingerprints=fingerprints(action(), profile()),
    address=("https://api.example.com/v1", "/things/{remote_id}"),
)

#: Single changes, each as the fields of the facts that it replaces; no two of them are about the same thing.
PLAIN: dict[str, dict[str, Any]] = {
    "owner": {"owner_key": "other"},
    "action slot": {"action_slot_id": None},
    "destination slot": {"destination_slot_id": "destination-2"},
    "install": {"install_id": "install-2"},
    "profile inactive": {"profile_active": False},
    "generation": {"credential_generation": "2"},
}
NAMED = ("namespace", "flow", "flow_version", "action", "target_object", "profile")
SEEN = (Surface.PERMISSION, Surface.USER_DEACTIVATED, Surface.REMOTE_GONE, Surface.LOCATOR_CONFLICT, Surface.UNMAPPED)
ALL = (*PLAIN, *NAMED, *FINGERPRINTED, *SEEN)


def changed(names: frozenset[str]) -> DriftFacts:
    """The facts after all of these changes."""
    plain = {field: value for name in names & PLAIN.keys() for field, value in PLAIN[name].items()}
    shown = replace(NAMES, **dict.fromkeys(names & set(NAMED), "other"))
    printed = {surface: Digest("other1:0") for surface in FINGERPRINTED if surface in names}
    seen = frozenset(surface for surface in SEEN if surface in names)
    return replace(FROZEN, **plain, names=shown, fingerprints={**FROZEN.fingerprints, **printed}, seen=seen)


@pytest.mark.rule("DR-28")
@settings(max_examples=60, deadline=None)
@given(
    fewer=st.frozensets(st.sampled_from(ALL), max_size=4),
    more=st.frozensets(st.sampled_from(ALL), max_size=4),
    waived=st.frozensets(st.sampled_from(sorted(Waivers.model_fields)), max_size=4),
)
def test_another_change_never_softens_a_verdict(
    fewer: frozenset[str], more: frozenset[str], waived: frozenset[str]
) -> None:
    """Whatever stops, suspends, holds or blocks goes on doing so when more is changed besides."""
    waivers = Waivers(**dict.fromkeys(waived, True))
    before = classify(FROZEN, changed(fewer), waivers)
    after = classify(FROZEN, changed(fewer | more), waivers)
    links, attempts = list(LinkVerdict), list(AttemptVerdict)
    assert links.index(strictest(after).link) >= links.index(strictest(before).link)
    assert attempts.index(strictest(after).create) >= attempts.index(strictest(before).create)
    for judged in (stops_update, suspends_link, holds_create, blocks_new_create):
        assert bool(judged(after)) >= bool(judged(before))
