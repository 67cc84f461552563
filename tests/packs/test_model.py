from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from pushlink.packs.lint import lint
from pushlink.packs.loader import PackDocument, load_pack, read_pack_text
from pushlink.packs.model import Action, ActionSlots, Pack
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.snapshots import ActionSnapshot, Names, ProfileSnapshot, Slots
from pushlink.protocol.surfaces import written_fields

EXAMPLES = Path(__file__).parents[2] / "examples" / "packs"
Document = dict[str, Any]
Reader = Callable[[Document], PackDocument]


def test_an_action_comes_with_all_that_a_runtime_needs() -> None:
    person, organisation = load_pack(EXAMPLES / "crm.yaml").actions()
    assert person.slots == ActionSlots(
        connector_owner_key="2f6f3a52-9c1e-4a0b-8f55-0d6a1f6d8f10",
        action_slot_id="b8f3b9d4-3c55-4f0e-9a41-7c1d5a2e6a01",
        destination_slot_id="6a0a3c1e-5f0e-4c6e-b7a6-4a4f0d8c1b01",
        source_object="Person",
    )
    assert person.names == Names(
        namespace="crm-example",
        flow="People and organisations",
        flow_version="1",
        action="push_person",
        target_object="people",
        profile="main",
    )
    assert person.profile.base_url == "http://127.0.0.1:8731"
    assert type(person.contract) is ActionContract
    assert [condition.field for condition in person.when] == ["status"]
    assert organisation.when == ()
    assert organisation.slots.source_object == "Organisation"


def test_slots_take_their_tenant_at_install() -> None:
    slots = ActionSlots(connector_owner_key="o", action_slot_id="a", destination_slot_id="d", source_object="Thing")
    assert slots.in_tenant("t1") == Slots(
        tenant="t1", connector_owner_key="o", action_slot_id="a", destination_slot_id="d", source_object="Thing"
    )


def test_what_is_frozen_of_an_action_has_every_field_of_the_contract_and_no_name(good: Document, read: Reader) -> None:
    """Renaming an action, its flow, its profile or its target object leaves the frozen configuration as it was."""
    assert set(Action.model_fields) > set(ActionContract.model_fields)
    (before,) = read(good).pack.actions()
    good["flows"][0] |= {"flow": "Renamed", "version": 2}
    good["flows"][0]["actions"][0]["action"] = "renamed"
    good["destinations"][0] |= {"target_object": "renamed", "profile": "renamed"}
    good["profiles"]["renamed"] = good["profiles"].pop("main")
    good["namespace"] = "renamed"
    (after,) = read(good).pack.actions()
    assert after.slots == before.slots
    assert after.contract == before.contract
    assert after.profile == before.profile
    assert after.names != before.names


def test_a_pack_is_immutable(good: Document, read: Reader) -> None:
    pack = read(good).pack
    with pytest.raises(ValidationError):
        pack.namespace = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        pack.flows[0].actions[0].create.path = "/other"  # type: ignore[misc]


def test_asking_an_unlinted_pack_for_its_actions_fails_loudly(good: Document, read: Reader) -> None:
    good["destinations"][0]["profile"] = "nowhere"
    with pytest.raises(KeyError, match="nowhere"):
        read(good).pack.actions()


@pytest.mark.parametrize("name", ["crm", "geo-kinto"])
def test_a_frozen_pack_is_read_back_equal(name: str) -> None:
    pack = load_pack(EXAMPLES / f"{name}.yaml")
    again = Pack.read(pack.document().text)
    assert again == pack
    assert again.document() == pack.document()
    assert again.actions() == pack.actions()
    assert lint(again) == ()


def test_a_long_duration_survives_freezing(good: Document, read: Reader) -> None:
    good["profiles"]["main"]["expires_after"] = "366d"
    pack = read(good).pack
    assert pack.profiles["main"].expires_after_ms == 366 * 86_400_000
    assert Pack.read(pack.document().text) == pack


def test_a_condition_means_the_same_after_freezing(good: Document, read: Reader) -> None:
    """A part that was not written is none, before and after: nothing hangs on which keys were in the file."""
    good["flows"][0]["actions"][0]["when"] = [{"field": "a", "present": True}]
    pack = read(good).pack
    (again,) = Pack.read(pack.document().text).flows[0].actions[0].when
    assert again == pack.flows[0].actions[0].when[0]
    assert lint(Pack.read(pack.document().text)) == ()


def test_a_pack_of_another_shape_is_not_read_back(good: Document, read: Reader) -> None:
    text = read(good).pack.document().text
    with pytest.raises(ValidationError):
        Pack.read(text.replace('"namespace":', '"nmespace":'))


# Golden: the digests that links and attempts of a deployment refer to.

GOLDEN_PACKS = {
    "crm": "sha256:0cfcbc89f95e816f520ee8b89f3ed01a83c38fd126ce3ab05bbcaf6e04bc7c7c",
    "geo-kinto": "sha256:5bbaa12988a598cc6b35a8d5639a6dd53aa9bba8743b096778e02dbe7b90e415",
    "answers": "sha256:15c6d532f59478475bb0a8a3093e6f71f6fd74162c0c45b52b522d962ccccf75",
}

GOLDEN = Path(__file__).parent / "golden"


def written_pack(name: str) -> Path:
    """The file that a golden pack was read from: an example, or one beside its golden document."""
    example = EXAMPLES / f"{name}.yaml"
    return example if example.exists() else GOLDEN / f"{name}.yaml"


@pytest.mark.parametrize("name", GOLDEN_PACKS)
def test_a_pack_that_an_earlier_release_froze_is_read_as_what_it_was(name: str) -> None:
    """The file is never written again; a later format gets a file of its own beside it."""
    frozen = (GOLDEN / f"{name}-1.json").read_text(encoding="utf-8")
    assert Pack.read(frozen) == load_pack(written_pack(name))


@pytest.mark.parametrize("name", GOLDEN_PACKS)
def test_an_example_freezes_to_the_digest_that_it_always_had(name: str) -> None:
    """A change here changes what every deployment of the same pack compares itself with: it needs a reason."""
    assert load_pack(written_pack(name)).document().digest == GOLDEN_PACKS[name]


#: What the golden pack of answers is there for.
OF_ANSWERS = {
    "action.create.success.assert[].pointer",
    "action.create.response.id[].none",
    "action.create.response.id_rule.mutable",
    "action.create.response.candidates[].from",
    "action.create.response.created[].equals",
    "action.create.response.version[].from",
    "action.create.conflict[].variant",
    "action.create.conflict[].existing_id[].regex",
    "action.create.followup.method",
    "action.create.followup.body",
    "action.create.async.done[].pointer",
    "action.create.async.failed[].in",
    "action.update.deleted[].status",
    "action.update.merged.successor[].from",
    "action.update.precondition.on_fail[].equals",
    "action.errors[].on",
    "profile.errors[].wait",
    "profile.session.prefetch.expired[].header",
    "profile.rate_limit.detect[].header",
    "profile.rate_limit.wait[].when[].equals",
}


def test_the_golden_pack_of_answers_has_every_kind_of_declaration_about_them() -> None:
    """Otherwise its digest would hold nothing of them still."""
    [action] = load_pack(written_pack("answers")).actions()
    said = {path for path, _, _ in written_fields("action", action.contract)}
    said |= {path for path, _, _ in written_fields("profile", action.profile)}
    assert said >= OF_ANSWERS


def test_style_comments_and_order_of_a_file_leave_no_trace_in_a_digest() -> None:
    text = (EXAMPLES / "crm.yaml").read_text(encoding="utf-8")
    plain = YAML(typ="safe", pure=True).load(text)
    restyled = json.dumps(plain, sort_keys=True)
    first, second = read_pack_text(text).pack, read_pack_text(restyled).pack
    assert first.document() == second.document()
    for one, other in zip(first.actions(), second.actions(), strict=True):
        assert ActionSnapshot(contract=one.contract).document() == ActionSnapshot(contract=other.contract).document()
        profiles = [ProfileSnapshot(contract=each.profile, credential_generation="g1") for each in (one, other)]
        assert profiles[0].document() == profiles[1].document()


def test_writing_a_default_out_changes_no_digest(good: Document, read: Reader) -> None:
    before = read(good).pack.document()
    good["profiles"]["main"] |= {"timeouts": {"total": "30s"}, "retry": {"backoff": {"cap": "10m"}}, "active": True}
    good["flows"][0]["actions"][0]["create"]["method"] = "POST"
    good["flows"][0]["actions"][0]["when"] = []
    assert read(good).pack.document() == before
    good["profiles"]["main"]["timeouts"]["total"] = "30000ms"
    assert read(good).pack.document() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda action: action["create"].update(path="/others"),
        lambda action: action["update"].update(method="PUT"),
        lambda action: action["mappings"].append({"constant": 1, "target": "/n"}),
        lambda action: action["mappings"][0].update(clear="omit"),
        lambda action: action["create"]["response"]["id"].append({"from": "$response.header.X-Id"}),
        lambda action: action.update(mirror={"remote_id_field": "r"}),
    ],
)
def test_a_change_of_configuration_changes_the_digest(
    change: Callable[[Document], None], good: Document, read: Reader
) -> None:
    (before,) = read(good).pack.actions()
    change(good["flows"][0]["actions"][0])
    (after,) = read(good).pack.actions()
    assert ActionSnapshot(contract=after.contract).document() != ActionSnapshot(contract=before.contract).document()
