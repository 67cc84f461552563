"""The gates: each refuses with its code and evidence, sends nothing, and changes nothing that it does not have to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from flows.stage import USER, MakeStage, Stage, action_of, pack_with, profile_of
from pushlink.adapters.policy import CallableAuthority, HostAnswer
from pushlink.errors import Code, PackError
from pushlink.flows.outcomes import Outcome, Queued, Refused, Reserved
from pushlink.packs.loader import load_pack_text
from pushlink.protocol.snapshots import digest_bytes
from pushlink.testing import verbs

ADA = {"name": "Ada", "email": "ada@example.com"}


def refused(stage: Stage, code: Code, evidence: Mapping[str, object] | None = None, **save: Any) -> Refused:
    """Save, and see that the gate says no with this evidence, that nothing was sent and nothing but a slot was made."""
    before, sends = _without_slots(stage), stage.sends
    outcome: Outcome = stage.save_all(1, **save)[0]
    assert isinstance(outcome, Refused)
    assert outcome.code is code
    assert outcome.message.endswith(".")
    for key, value in (evidence or {}).items():
        assert outcome.evidence[key] == value
    assert _without_slots(stage) == before
    assert outcome.wanted_version is None
    stage.drain()
    assert stage.sends == sends
    return outcome


def _without_slots(stage: Stage) -> dict[str, Any]:
    census = stage.census()
    slots = census.pop("pushlink_push_slot")
    columns = [c.name for c in stage_columns()]
    kept = [dict(zip(columns, row, strict=True)) for row in slots]
    wanted = [(row["link_key"], row["wanted_version"], row["wanted_values"]) for row in kept if row["wanted_version"]]
    return {**census, "wanted": wanted}


def stage_columns() -> list[Any]:
    from pushlink.store.tables import push_slot

    return list(push_slot.columns)


def bump(stage: Stage, statement: str, **parameters: Any) -> None:
    """Change the catalogue behind everybody's back, so that processes read it anew."""
    stage.sql(statement, **parameters)
    stage.sql("UPDATE pushlink_deployment SET catalog_revision = catalog_revision + 1")


# --------------------------------------------------------------------------------------- the catalogue


@pytest.mark.rule("GT-01", "ID-03")
def test_an_object_without_an_action_is_refused(make_stage: MakeStage) -> None:
    """No installed pack owns an action for it; the object's name says nothing."""
    stage = make_stage(pack=None)
    stage.put(1, **ADA)
    refused(stage, Code.SLOT_UNRESOLVED)


@pytest.mark.rule("GT-01", "GT-02", "ID-03", "ID-05", "ID-07", "RR-09")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("SET status = 'dropped' WHERE kind = 'action'", Code.SLOT_UNRESOLVED),
        ("SET status = 'dropped' WHERE kind = 'destination'", Code.OWNER_UNRESOLVED),
        ("SET connector_owner_key = 'owner-2' WHERE kind = 'action'", Code.OWNER_UNRESOLVED),
        ("SET connector_owner_key = 'owner-2' WHERE kind = 'destination'", Code.OWNER_UNRESOLVED),
    ],
)
def test_slots_that_do_not_resolve_are_refused_whatever_their_names(stage: Stage, change: str, code: Code) -> None:
    """Owner, action slot and destination slot come from trusted metadata; the pack's names are no fallback."""
    stage.put(1, **ADA)
    bump(stage, f"UPDATE pushlink_connector_slot {change}")
    refused(stage, code)
    assert stage.rows("push_slot") == []


@pytest.mark.rule("GT-04")
@pytest.mark.parametrize("how", ["inactive", "none", "two"])
def test_not_exactly_one_usable_install_is_refused(stage: Stage, how: str) -> None:
    """An inactive profile, an uninstalled pack, or two active installs of the same slots."""
    stage.put(1, **ADA)
    if how == "inactive":
        stage.apply(pack_with(lambda d: profile_of(d).update(active=False)))
    elif how == "none":
        stage.uninstall()
    else:
        row = stage.rows("pack_install")[0]
        columns = ", ".join(name for name in row if name not in {"id", "active_key"})
        bump(
            stage,
            f"INSERT INTO pushlink_pack_install (id, active_key, {columns})"
            f" SELECT 'another', 'another key', {columns} FROM pushlink_pack_install",
        )
    outcome = refused(stage, Code.INSTALL_UNUSABLE)
    assert outcome.evidence["usable_installs"] == (2 if how == "two" else 0)


@pytest.mark.rule("GT-05")
def test_mappings_that_produce_no_body_are_refused(make_stage: MakeStage) -> None:
    """Every value is empty and every mapping leaves an empty value out: there is nothing to say."""

    def leave_out(document: dict[str, Any]) -> None:
        for mapping in action_of(document)["mappings"]:
            mapping["clear"] = "omit"

    stage = make_stage(pack=pack_with(leave_out))
    stage.put(1, name=None, email=None)
    refused(stage, Code.MAPPING_UNUSABLE)


@pytest.mark.rule("GT-05")
def test_a_value_that_cannot_be_said_exactly_is_refused(make_stage: MakeStage) -> None:
    """A text where the mapping wants a decimal is refused at the save, by the field's name and without its value."""
    encode = {"source": "salary", "target": "/salary", "encode": {"decimal_string": 2}}
    stage = make_stage(pack=pack_with(lambda d: action_of(d)["mappings"].append(encode)))
    stage.put(1, **ADA, salary="a secret lot")
    outcome = refused(stage, Code.VALUE_UNSENDABLE)
    assert "salary" in json.dumps(dict(outcome.evidence))
    assert "secret lot" not in json.dumps([outcome.message, dict(outcome.evidence)])


@pytest.mark.rule("GT-06", "SY-02")
@pytest.mark.parametrize("path", ["/people/{name}", "/people/{remote_id}", "/{email}"])
def test_a_path_that_a_record_field_could_set_is_refused(stage: Stage, path: str) -> None:
    """Lint refuses such a pack; one that came into the database some other way refuses every save."""
    document = pack_with(lambda d: action_of(d)["create"].update(path=path))
    with pytest.raises(PackError, match="path"):
        load_pack_text(json.dumps(document))
    stage.put(1, name="/evil", email="../admin")
    changed = stage.rows("pack_install")[0]["document"].replace('"path":"/people"', f'"path":"{path}"')
    assert path in changed
    bump(
        stage,
        "UPDATE pushlink_pack_install SET document = :text, document_digest = :digest",
        text=changed,
        digest=digest_bytes(changed.encode()),
    )
    refused(stage, Code.PATH_UNUSABLE)


@pytest.mark.rule("GT-06")
def test_an_action_without_an_update_path_refuses_updates(make_stage: MakeStage) -> None:
    """The create works; a changed record is refused, since its pack declares no route for it."""
    stage = make_stage(pack=pack_with(lambda d: action_of(d).pop("update")))
    stage.linked(1)
    refused(stage, Code.PATH_UNUSABLE, name="Changed")


# --------------------------------------------------------------------------------------- authority and the record


def authority(answer: HostAnswer | None) -> CallableAuthority:
    return CallableAuthority(
        lambda _, asked: [answer for _ in asked], lambda _, users: [True for _ in users], version="1"
    )


@pytest.mark.rule("GT-03")
@pytest.mark.parametrize(
    "answer", [None, HostAnswer(active=False, readable=True, fields=None)], ids=["unknown", "left"]
)
def test_without_an_authority_of_the_user_nothing_is_reserved(make_stage: MakeStage, answer: HostAnswer | None) -> None:
    """A user whom nobody knows, or who was deactivated, pushes nothing."""
    stage = make_stage(authority=authority(answer))
    stage.put(1, **ADA)
    refused(stage, Code.AUTHORITY_UNAVAILABLE)


@pytest.mark.rule("GT-07", "AU-01")
def test_a_row_or_a_field_that_the_user_may_not_read_is_refused(make_stage: MakeStage) -> None:
    """The evidence names the fields, and says of a row only that it may not be read."""
    stage = make_stage(authority=authority(HostAnswer(active=True, readable=True, fields=("name",))))
    stage.put(1, **ADA)
    refused(stage, Code.READ_DENIED, {"row_readable": True, "denied_fields": ["email"]})
    stage = make_stage(pack=None, authority=authority(HostAnswer(active=True, readable=False, fields=None)))
    refused(stage, Code.READ_DENIED, {"row_readable": False})


@pytest.mark.rule("GT-08")
def test_a_record_that_is_not_there_is_refused(stage: Stage) -> None:
    """Nothing is reserved for an id without a row."""
    refused(stage, Code.SOURCE_GONE)


@pytest.mark.rule("GT-13")
def test_a_credential_that_cannot_be_found_is_refused(stage: Stage) -> None:
    """The profile's snapshot needs the credential's generation."""
    stage.put(1, **ADA)
    stage.credentials.current = None
    refused(stage, Code.FREEZE_FAILED)


@pytest.mark.rule("GT-13", "C-058")
def test_a_body_over_the_profiles_limit_is_refused_before_it_is_reserved(make_stage: MakeStage) -> None:
    """Six megabytes never become an attempt; another record is pushed as ever."""
    stage = make_stage()
    stage.put(1, name="x" * 6_000_000)
    refused(stage, Code.BODY_TOO_LARGE)
    assert stage.linked(2)["status"] == "finalized"


@pytest.mark.rule("GT-14", "PA-07")
@pytest.mark.parametrize("remote_id", ["a/b", "..", "a?b", "a#b", "a%2fb", "a\\b"])
def test_a_remote_id_that_would_change_the_route_is_refused(stage: Stage, remote_id: str) -> None:
    """The update's path does not render from it, so the save is refused and nothing waits."""
    stage.linked(1)
    stage.sql("UPDATE pushlink_remote_link SET remote_id = :id", id=remote_id)
    refused(stage, Code.ROUTE_UNSAFE, name="Changed")


@pytest.mark.rule("D-36")
def test_a_deployment_in_recovery_refuses_saves(stage: Stage) -> None:
    """Nobody has confirmed that this is the right database."""
    stage.put(1, **ADA)
    stage.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    refused(stage, Code.RECOVERY_MODE)


# --------------------------------------------------------------------------------------- links and attempts


@pytest.mark.rule("GT-09", "LK-01", "PA-01")
@pytest.mark.parametrize("mirror", [None, "", "another", "7"])
def test_a_linked_record_is_updated_whatever_its_mirror_says(stage: Stage, mirror: str | None) -> None:
    """Clearing, changing or swapping the remote-id field hides no link, allows no create, and moves no route."""
    stage.linked(1)
    stage.put(1, remote_id=mirror, remote_source=None)
    outcome = stage.save(1, name="Changed")
    assert isinstance(outcome, Queued)
    stage.drain()
    assert [(request.method, request.path) for request in stage.remote.sent] == [
        ("POST", "/people"),
        ("PATCH", "/people/1"),
    ]
    assert stage.remote.api.creates == 1


@pytest.mark.rule("GT-09", "PA-05")
def test_a_suspended_link_refuses_and_keeps_what_is_wanted(stage: Stage) -> None:
    """Nothing is sent until somebody revalidates or retires it; the newest values wait."""
    stage.linked(1)
    stage.sql("UPDATE pushlink_remote_link SET status = 'suspended_drift'")
    outcome = stage.save(1, name="Changed")
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.wanted_version) == (Code.LINK_SUSPENDED, 2)
    stage.drain()
    assert stage.sends == 1
    assert len(stage.attempts()) == 1


@pytest.mark.rule("GT-15", "PA-05", "D-35")
def test_a_retired_link_with_a_closed_slot_refuses_every_save(stage: Stage) -> None:
    """The slot stays taken: no update, no new create."""
    stage.linked(1)
    stage.sql("UPDATE pushlink_remote_link SET status = 'retired', locator_key = NULL")
    refused(stage, Code.LINK_RETIRED, name="Changed")


@pytest.mark.rule("GT-10", "AT-01", "AT-07", "RR-02")
def test_an_active_create_observes_and_sends_nothing_more(stage: Stage) -> None:
    """Changed values wait as one wanted version; equal ones are wanted already."""
    stage.save(1, **ADA)
    census = stage.census()
    outcome = stage.save(1)
    assert type(outcome).__name__ == "Unchanged"
    assert stage.census() == census
    outcome = stage.save(1, name="Ada L.")
    assert isinstance(outcome, Queued)
    assert (outcome.attempt_id, outcome.waits_for, outcome.version) == (None, Code.CREATE_ACTIVE, 2)
    assert len(stage.attempts()) == 1


@pytest.mark.rule("GT-11", "AT-02")
def test_an_unsuperseded_terminal_attempt_refuses_equal_and_changed_values(stage: Stage) -> None:
    """It is not active any more, and still takes the slot."""
    stage.remote.script.next(verbs.answer(400))
    stage.save(1, **ADA)
    stage.drain()
    for values in ({}, {"name": "Ada L."}):
        outcome = stage.save(1, **values)
        assert isinstance(outcome, Refused)
        assert (outcome.code, outcome.evidence["create_status"]) == (Code.CREATE_TERMINAL, "terminal_failed")
    assert len(stage.attempts()) == 1


def with_new_slots(document: dict[str, Any]) -> None:
    action_of(document).update(action_slot_id="act-2", destination="dest-2")
    document["destinations"] = [{"destination_slot_id": "dest-2", "target_object": "people", "profile": "main"}]


@pytest.mark.rule("GT-12", "ID-04", "ID-05", "C-053", "D-29", "RR-09")
@pytest.mark.parametrize("holder", ["link", "attempt"])
def test_new_slots_reserve_nothing_while_old_ones_own_something(stage: Stage, holder: str) -> None:
    """The same names under new slot ids are another lineage: no create for any record until the old one is resolved."""
    stage.save(1, **ADA)
    if holder == "link":
        stage.drain()
    stage.apply(pack_with(with_new_slots))
    if holder == "link":
        stage.save(1)  # the first touch suspends a link that has lost its slot
        assert stage.link()["status"] == "suspended_drift"
    refused(stage, Code.LINEAGE_UNRESOLVED, {"unresolved_slots": ["act-1 -> dest-1"]}, name="Changed")
    outcome = stage.save(2, name="Bea", email="b@example.com")
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.LINEAGE_UNRESOLVED
    assert len(stage.links()) + len(stage.attempts(status="pending")) == 1


@pytest.mark.rule("ID-02", "ID-06", "DR-02", "DR-07", "LK-04")
def test_renames_leave_the_key_as_it_was(stage: Stage) -> None:
    """Namespace, flow, action, target object and profile get other names: the link is found, nothing is created."""
    key = stage.linked(1)["link_key"]

    def rename(document: dict[str, Any]) -> None:
        document.update(pack="renamed", namespace="renamed", version="2.0.0")
        document["profiles"] = {"other": document["profiles"]["main"]}
        document["destinations"][0].update(profile="other")
        document["flows"][0].update(flow="Other", version=2)
        action_of(document).update(action="other_action")
        action_of(document)["mirror"].update(provenance_value="people")

    stage.apply(pack_with(rename))
    outcome = stage.save(1, name="Changed")
    assert outcome.about.link_key == key
    assert isinstance(outcome, Queued)
    stage.drain()
    assert stage.remote.api.creates == 1
    assert stage.remote.api.records[0].document["name"] == "Changed"


@pytest.mark.rule("ID-06", "PA-04", "DR-06")
def test_after_a_reinstall_the_link_is_found_and_refuses(stage: Stage) -> None:
    """Another incarnation of the pack: nothing is created again, and nothing is updated until somebody revalidates."""
    key = stage.linked(1)["link_key"]
    stage.uninstall()
    stage.apply(pack_with())
    outcome = refused(stage, Code.DRIFT, name="Changed")
    assert outcome.about.link_key == key
    assert {hit["rule"] for hit in outcome.evidence["drift"]} == {"DR-06"}  # type: ignore[attr-defined]


@pytest.mark.rule("PA-04", "DR-13")
def test_a_changed_mapping_refuses_updates_until_it_is_revalidated(stage: Stage) -> None:
    """The link was validated with other mappings; undoing the change heals it."""
    stage.linked(1)
    stage.apply(pack_with(lambda d: action_of(d)["mappings"].append({"source": "owner", "target": "/owner"})))
    refused(stage, Code.DRIFT, name="Changed")
    stage.apply(pack_with())
    assert isinstance(stage.save(1), Queued)


@pytest.mark.rule("PA-02", "PA-03", "PO-05")
def test_an_unfinished_create_is_never_patched(stage: Stage) -> None:
    """Without a finalized link there is no update, whatever stands in the record's mirror field."""
    stage.remote.script.next(verbs.store_then_close())
    stage.save(1, **ADA)
    stage.drain()
    stage.put(1, remote_id="1", remote_source="people")
    outcome = stage.save(1, name="Changed")
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.CREATE_AMBIGUOUS
    stage.drain()
    assert [request.method for request in stage.remote.sent] == ["POST"]


@pytest.mark.rule("LK-01", "AT-13", "MG-08")
def test_a_filled_mirror_is_no_proof_of_a_link(stage: Stage) -> None:
    """A record that comes with a remote id in its mirror fields is created: nothing is inferred from the record."""
    outcome = stage.save(1, **ADA, remote_id="legacy-7", remote_source="people")
    assert isinstance(outcome, Reserved)
    stage.drain()
    assert stage.remote.api.creates == 1
    assert stage.link()["remote_id"] == "1"


@pytest.mark.rule("GT-10")
def test_every_action_of_an_object_has_an_outcome_of_its_own(make_stage: MakeStage) -> None:
    """Two actions, two attempts, two remote records; one's refusal does not touch the other."""

    def second(document: dict[str, Any]) -> None:
        document["destinations"].append({"destination_slot_id": "dest-2", "target_object": "humans", "profile": "main"})
        other = json.loads(json.dumps(action_of(document)))
        other.update(action="push_human", action_slot_id="act-2", destination="dest-2")
        other["create"]["path"], other["update"]["path"] = "/humans", "/humans/{remote_id}"
        other.pop("mirror")
        document["flows"][0]["actions"].append(other)

    stage = make_stage(pack=pack_with(second))
    stage.remote.script.next(verbs.answer(400), when=lambda asked: asked.segments[0] == "humans")
    outcomes = stage.save_all(1, **ADA)
    assert [outcome.about.action for outcome in outcomes] == ["push_person", "push_human"]
    stage.drain()
    assert sorted(row["status"] for row in stage.attempts()) == ["finalized", "terminal_failed"]
    changed = stage.save_all(1, name="Changed")
    assert [type(outcome) for outcome in changed] == [Queued, Refused]


@pytest.mark.rule("GT-03")
def test_an_action_whose_condition_does_not_hold_is_no_candidate(make_stage: MakeStage) -> None:
    """`when:` on a source field; a record that comes to fulfil it is created by its next save."""
    condition = [{"field": "owner", "in": ["sales"]}]
    stage = make_stage(pack=pack_with(lambda d: action_of(d).update(when=condition)))
    assert stage.save_all(1, **ADA, owner="nobody") == []
    assert stage.rows("push_slot") == []
    assert isinstance(stage.save(1, owner="sales", user=USER), Reserved)
