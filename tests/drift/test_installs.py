"""Installs: one for each tenant, another incarnation, another owner, and one that somebody changed in the database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.stage import PACK, Stage, action_of, pack_with, profile_of
from pushlink.errors import Code
from pushlink.flows.outcomes import Outcome, Queued, Refused, Reserved
from pushlink.protocol.snapshots import digest_bytes
from pushlink.store import catalog
from pushlink.testing import verbs
from pushlink.testing.messages import creating

ADA = {"name": "Ada", "email": "ada@example.com"}


def code_of(outcome: Outcome) -> Code:
    assert isinstance(outcome, Refused)
    return outcome.code


def of_tenant(stage: Stage, tenant: str, table: str = "push_attempt") -> list[dict[str, Any]]:
    return stage.rows(table, tenant=tenant)


def other_owner(document: dict[str, Any]) -> None:
    document["connector_owner_key"] = "owner-2"
    document["destinations"][0]["destination_slot_id"] = "dest-9"
    action_of(document).update(action_slot_id="act-9", destination="dest-9")


# ------------------------------------------------------------------------------------------------ tenants


@pytest.mark.rule("D-40", "LK-02", "LK-03")
def test_two_tenants_with_one_pack_and_the_same_records_share_nothing(stage: Stage) -> None:
    """One record id, one remote id even: two keys, two creates, two links, and each follows its own saves."""
    for tenant in ("north", "south"):
        stage.apply(PACK, tenant=tenant)
    stage.remote.script.always(verbs.answer(201, {"id": 7}), when=creating)
    stage.put(1, **ADA)
    for tenant in ("north", "south"):
        assert isinstance(stage.save(1, tenant=tenant), Reserved)
    stage.drain()
    links = stage.links()
    assert [link["remote_id"] for link in links] == ["7", "7"]
    for unique in ("link_key", "locator_key", "slot_key", "tenant", "validated_install_id"):
        assert len({link[unique] for link in links}) == 2
    assert len({request["idempotency_key"] for request in stage.rows("push_request")}) == 2
    assert sorted(request.tenant for request in stage.remote.sent) == ["north", "south"]
    stage.save(1, tenant="north", name="Ada L.")
    assert [slot["wanted_version"] for slot in stage.rows("push_slot", "tenant")] == [2, 1]


@pytest.mark.rule("D-40", "DR-06", "DR-10")
def test_what_happens_to_the_install_of_one_tenant_is_nothing_to_another(stage: Stage) -> None:
    """One tenant's pack is uninstalled, another's is moved; the third goes on as before."""
    tenants = ("north", "south", "")
    for tenant in ("north", "south"):
        stage.apply(PACK, tenant=tenant)
    stage.put(1, **ADA)
    for tenant in tenants:
        stage.save(1, tenant=tenant)
    stage.drain()
    stage.uninstall(tenant="north")
    stage.apply(pack_with(lambda d: profile_of(d).update(endpoint_class="sandbox")), tenant="south")
    stage.put(1, name="Ada L.")
    said = {tenant: stage.save(1, tenant=tenant) for tenant in tenants}
    assert code_of(said["north"]) is Code.INSTALL_UNUSABLE
    assert code_of(said["south"]) is Code.DRIFT
    assert isinstance(said[""], Queued)
    stage.drain()
    assert [row["status"] for row in of_tenant(stage, "") if row["operation"] == "update"] == ["finalized"]
    assert {link["status"] for link in stage.links()} == {"finalized"}
    assert stage.sends == 4


# ------------------------------------------------------------------------------------------------ owners


@pytest.mark.rule("DR-06", "ID-06", "GT-09")
def test_a_pack_that_is_installed_again_finds_its_links_and_creates_nothing_anew(stage: Stage) -> None:
    """Refused until somebody validates it; the link stays finalized, and the create that never went stays held."""
    link = stage.linked(1, **ADA)
    stage.save(2, name="Bea", email="b@example.com")
    stage.uninstall()
    assert code_of(stage.save(1, name="Ada L.")) is Code.INSTALL_UNUSABLE
    stage.apply(PACK)
    outcome = stage.save(1)
    assert isinstance(outcome, Refused)
    assert {hit["rule"] for hit in outcome.evidence["drift"]} == {"DR-06"}  # type: ignore[attr-defined]
    assert outcome.about.link_key == link["link_key"]
    stage.drain()
    assert stage.link() == link
    [unsent] = stage.attempts(link_key=stage.slot(2)["link_key"])
    assert (unsent["status"], unsent["hold_code"]) == ("pending", "drift")
    assert stage.sends == 1


@pytest.mark.rule("ID-07", "ID-05", "GT-12", "DR-05")
def test_a_new_owner_under_an_old_namespace_creates_nothing_until_somebody_says_so(stage: Stage) -> None:
    """Its name moves no link to it; it stops the second create, until its slot is declared independent."""
    link = stage.linked(1, **ADA)
    stage.uninstall()
    stage.apply(pack_with(other_owner))
    outcome = stage.save(1)
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.LINEAGE_UNRESOLVED
    assert outcome.evidence["unresolved_slots"] == ["act-1 -> dest-1"]
    suspended = stage.link()
    assert (suspended["link_key"], suspended["status"]) == (link["link_key"], "suspended_drift")
    assert json.loads(suspended["evidence"])["rules"] == ["DR-05"]
    with stage.engine.begin() as conn:
        catalog.declare_independent(
            conn, tenant="", action_slot_id="act-9", reason="another system", actor="olga", now=stage.clock.now(conn)
        )
    assert isinstance(stage.save(1), Reserved)


@pytest.mark.rule("ID-05", "D-29")
def test_an_owner_with_a_namespace_of_its_own_stands_in_nobody_s_way(stage: Stage) -> None:
    """Only the shared name is evidence; the link of the owner that went is untouched."""
    link = stage.linked(1, **ADA)
    stage.uninstall()
    stage.apply(pack_with(lambda d: (other_owner(d), d.update(namespace="elsewhere"))))
    assert isinstance(stage.save(1), Reserved)
    assert stage.links()[0] == link


# ------------------------------------------------------------------------------------------------ changed documents


@pytest.mark.rule("GT-05", "DR-06")
def test_an_installed_document_that_somebody_changed_is_refused_and_heals(stage: Stage) -> None:
    """Another mapping straight in the table: saves are refused as customized, what waits is held, no link is lost."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.save(2, name="Bea", email="b@example.com")
    [install] = stage.rows("pack_install")
    customized = install["document"].replace('"target":"/email"', '"target":"/mail"')
    assert digest_bytes(customized.encode()) != install["document_digest"]
    _write(stage, customized)
    outcome = stage.save(3, name="Cid", email="c@example.com")
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.evidence["problems"]) == (Code.MAPPING_UNUSABLE, ["customized"])
    stage.drain()
    assert {row["hold_code"] for row in stage.attempts(status="pending")} == {"drift"}
    assert (stage.link()["status"], stage.sends) == ("finalized", 1)
    _write(stage, install["document"])
    stage.drain()
    assert stage.attempts(status="pending") == []
    assert stage.sends == 3


def _write(stage: Stage, document: str) -> None:
    stage.sql("UPDATE pushlink_pack_install SET document = :text", text=document)
    stage.sql("UPDATE pushlink_deployment SET catalog_revision = catalog_revision + 1")
