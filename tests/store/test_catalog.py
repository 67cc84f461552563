"""Installs, the slot registry, lineage, and the catalogue that flows see."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.operations.verifying import verify
from pushlink.packs.loader import load_pack_text
from pushlink.packs.model import Pack
from pushlink.protocol.snapshots import Slots, digest_bytes
from pushlink.protocol.states import BLOCKING, AttemptStatus
from pushlink.store import audit, catalog
from pushlink.store.active import ActiveCatalog, CatalogReader
from pushlink.store.catalog import AppliedPack
from pushlink.store.registry import RegisteredSlot, SlotKind, SlotStatus, read_registry
from pushlink.store.tables import connector_slot, operator_action, pack_install, push_attempt, push_slot, remote_link
from support.levels import as_operators

START = dt.datetime(2024, 1, 1, 12, 0, 0, 500, tzinfo=dt.UTC)
WHO: dict[str, str] = {"reason": "a test", "actor": "tester"}


def pack(actions: dict[str, str] | None = None, *, owner: str = "owner", version: str = "1.0.0", **given: Any) -> Pack:
    """A pack that pushes `Thing`: action slot -> destination slot. `given` replaces parts of the document."""
    wanted = {"A1": "D1"} if actions is None else actions
    document: dict[str, Any] = {
        "pack": f"pack of {owner}",
        "version": version,
        "connector_owner_key": owner,
        "namespace": "space",
        "profiles": {"main": {"base_url": "https://api.example.com", "credential_ref": "env:TOKEN"}},
        "destinations": [
            {"destination_slot_id": slot, "target_object": f"target-{slot}", "profile": "main"}
            for slot in sorted(set(wanted.values()))
        ],
        "flows": [{"flow": "Flow", "version": 1, "actions": [action(*pair) for pair in wanted.items()]}],
    } | given
    return load_pack_text(json.dumps(document))


def action(slot: str, destination: str, source_object: str = "Thing") -> dict[str, Any]:
    return {
        "action": f"push-{slot}",
        "action_slot_id": slot,
        "source_object": source_object,
        "destination": destination,
        "create": {"path": "/things", "response": {"id": [{"from": "$response.body#/id"}]}},
        "update": {"path": "/things/{remote_id}"},
        "mappings": [{"source": "name", "target": "/name"}],
    }


class Catalog:
    """A database whose clock goes on by a minute with each change, and whose incarnations are I1, I2, ..."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.now = START
        self._ids = (f"I{number}" for number in itertools.count(1))

    def apply(self, given: Pack, *, tenant: str = "") -> AppliedPack:
        self.now += dt.timedelta(minutes=1)
        with self.engine.begin() as conn:
            ids = lambda: next(self._ids)  # noqa: E731
            return catalog.apply_pack(conn, given, tenant=tenant, install_ids=ids, now=self.now, **WHO)

    def uninstall(self, owner: str = "owner", *, tenant: str = "") -> None:
        self.now += dt.timedelta(minutes=1)
        with self.engine.begin() as conn:
            catalog.uninstall_pack(conn, tenant=tenant, connector_owner_key=owner, now=self.now, **WHO)

    def declare_independent(self, slot: str) -> None:
        self.now += dt.timedelta(minutes=1)
        with self.engine.begin() as conn:
            catalog.declare_independent(conn, tenant="", action_slot_id=slot, now=self.now, **WHO)

    def read(self) -> ActiveCatalog:
        with self.engine.begin() as conn:
            return CatalogReader().read(conn)

    def registry(self) -> dict[str, RegisteredSlot]:
        with self.engine.begin() as conn:
            return {slot.slot_id: slot for slot in read_registry(conn)}

    def revision(self) -> int:
        with self.engine.begin() as conn:
            return catalog.catalog_revision(conn)

    def unresolved(self, *slots: Slots) -> list[tuple[str, ...]]:
        with self.engine.begin() as conn:
            return catalog.read_unresolved_slots(conn, slots)

    def own(self, slots: Slots, *, record: str = "1", link: str | None = None, attempt: str | None = None) -> None:
        """Rows under some slots: a push slot, and a link or a create attempt in a status."""
        key = f"{slots.tenant}/{slots.action_slot_id}/{slots.destination_slot_id}/{record}"
        identity = {name: getattr(slots, name) for name in Slots.__slots__}
        with self.engine.begin() as conn:
            conn.execute(
                push_slot.insert(), {"link_key": key, "source_record_id": record, "created_at": START, **identity}
            )
            if link is not None:
                texts = {c.name: "x" for c in remote_link.columns if isinstance(c.type, sa.Text) and not c.nullable}
                is_live = link != "retired"
                row = texts | identity | {"id": key, "link_key": key, "slot_key": key, "source_record_id": record}
                row |= {"status": link, "mirror_status": "none", "locator_key": key if is_live else None}
                conn.execute(remote_link.insert(), row | {"finalized_at": START, "updated_at": START})
            if attempt is not None:
                claim = {"claim_token": "t", "lease_until": START} if attempt in {"processing", "post_sent"} else {}
                row = {"id": key, "link_key": key, "tenant": slots.tenant, "operation": "create", "status": attempt}
                row |= {"destination_slot_id": slots.destination_slot_id, "not_before": START} | claim
                row |= {"create_key": None if attempt == "superseded" else key}
                conn.execute(push_attempt.insert(), row | {"created_at": START, "updated_at": START})


@pytest.fixture
def cat(engine: sa.Engine) -> Catalog:
    return Catalog(engine)


def at(action_slot: str, destination: str, *, owner: str = "owner", tenant: str = "", obj: str = "Thing") -> Slots:
    return Slots(
        tenant=tenant,
        connector_owner_key=owner,
        action_slot_id=action_slot,
        destination_slot_id=destination,
        source_object=obj,
    )


# ------------------------------------------------------------------------------------------------ installs


@pytest.mark.rule("ID-06", "D-29")
def test_applying_the_same_lineage_keeps_the_incarnation(cat: Catalog) -> None:
    """The install keeps its id, its revision and the catalogue's go up, and the newest document is the active one."""
    first = cat.apply(pack())
    second = cat.apply(pack(version="2.0.0", namespace="renamed"))
    assert (first.install_id, first.revision, first.is_new_incarnation) == ("I1", 1, True)
    assert (second.install_id, second.revision, second.is_new_incarnation) == ("I1", 2, False)
    assert second.catalog_revision == first.catalog_revision + 1 == cat.revision()
    with cat.engine.begin() as conn:
        (install,) = catalog.load_installs(conn)
    assert (install.version, install.namespace, install.installed_at) == (
        "2.0.0",
        "renamed",
        START + dt.timedelta(minutes=1),
    )
    assert Pack.read(install.document).version == "2.0.0"


def test_applying_the_very_same_pack_changes_nothing(cat: Catalog) -> None:
    """No revision moves, so no process reads the catalogue again for it, and the audit has nothing to tell."""
    first = cat.apply(pack())
    again = cat.apply(pack())
    assert (first.is_changed, again.is_changed) == (True, False)
    assert (again.install_id, again.revision, again.catalog_revision) == ("I1", 1, first.catalog_revision)
    with cat.engine.begin() as conn:
        assert conn.execute(sa.select(sa.func.count()).select_from(operator_action)).scalar_one() == 1


@pytest.mark.rule("ID-06")
def test_after_an_uninstall_the_next_apply_is_another_incarnation(cat: Catalog) -> None:
    """The old install stays as a row that is not active; the slots come back under the new one."""
    cat.apply(pack())
    cat.uninstall()
    assert cat.read().actions_for("", "Thing") == ()
    assert cat.registry()["A1"].status is SlotStatus.DROPPED
    again = cat.apply(pack())
    assert (again.install_id, again.is_new_incarnation, again.returned) == ("I2", True, ("A1", "D1"))
    assert cat.registry()["A1"].install_id == "I2"
    with cat.engine.begin() as conn:
        rows = conn.execute(sa.select(pack_install.c.id, pack_install.c.status).order_by(pack_install.c.id)).all()
    assert [tuple(row) for row in rows] == [("I1", "uninstalled"), ("I2", "active")]


@pytest.mark.rule("D-40")
def test_two_tenants_have_installs_of_their_own(cat: Catalog) -> None:
    """The same pack for two tenants is two installs, two registries and two sets of actions."""
    cat.apply(pack(), tenant="north")
    cat.apply(pack(), tenant="south")
    catalogue = cat.read()
    assert {a.slots.tenant: a.install_id for a in catalogue.all_actions()} == {"north": "I1", "south": "I2"}
    cat.uninstall(tenant="north")
    catalogue = cat.read()
    assert catalogue.find(at("A1", "D1", tenant="north")) is None
    assert catalogue.find(at("A1", "D1", tenant="south")) is not None


def test_what_is_not_installed_cannot_be_uninstalled(cat: Catalog) -> None:
    """It is the caller's mistake, and it says so."""
    with pytest.raises(CallerError, match="No pack of the owner 'owner'"):
        cat.uninstall()


def test_one_of_two_applies_at_once_waits_for_the_other(cat: Catalog) -> None:
    """Two processes that install the same owner make one incarnation between them."""
    engine = as_operators(cat.engine)
    barrier = threading.Barrier(4)
    results: list[AppliedPack | Exception] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            with engine.begin() as conn:
                applied = catalog.apply_pack(
                    conn, pack(version=f"{number}.0.0"), tenant="", install_ids=lambda: f"I{number}", now=START, **WHO
                )
            results.append(applied)
        except Exception as error:  # noqa: BLE001 - the test shows whatever it was
            results.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    applied = [result for result in results if isinstance(result, AppliedPack)]
    assert len(applied) == 4, results
    assert len({result.install_id for result in applied}) == 1
    assert sorted(result.revision for result in applied) == [1, 2, 3, 4]


# ------------------------------------------------------------------------------------------------ registry


@pytest.mark.rule("D-29")
def test_every_slot_ever_seen_is_kept(cat: Catalog) -> None:
    """A slot that its pack drops keeps its owner and its last install, and says since when it is not used."""
    cat.apply(pack({"A1": "D1", "A2": "D2"}))
    applied = cat.apply(pack({"A1": "D1"}, version="2.0.0"))
    assert (applied.added, applied.dropped, applied.moved) == ((), ("A2", "D2"), ())
    kept = cat.registry()
    assert {slot_id: slot.status.value for slot_id, slot in kept.items()} == {
        "A1": "active", "A2": "dropped", "D1": "active", "D2": "dropped",
    }  # fmt: skip
    assert (kept["A2"].connector_owner_key, kept["A2"].install_id, kept["A2"].source_object) == ("owner", "I1", "Thing")
    assert kept["A2"].stays[0].until == cat.now
    back = cat.apply(pack({"A1": "D1", "A2": "D2"}, version="3.0.0"))
    assert back.returned == ("A2", "D2")
    assert cat.registry()["A2"].first_seen_at == kept["A2"].first_seen_at


@pytest.mark.rule("D-29", "ID-07")
@pytest.mark.parametrize("state", ["active", "dropped", "uninstalled"])
def test_a_slot_of_another_owner_is_refused(cat: Catalog, state: str) -> None:
    """Whether the owner still uses it or not: nothing is adopted because a pack says so, and nothing is written."""
    cat.apply(pack({"A1": "D1", "A2": "D2"}))
    if state == "dropped":
        cat.apply(pack({"A1": "D1"}, version="2.0.0"))
    elif state == "uninstalled":
        cat.uninstall()
    before, revision = cat.registry(), cat.revision()
    with pytest.raises(ConfigurationError, match="belongs to another owner, 'owner'") as caught:
        cat.apply(pack({"A3": "D3", "A2": "D2"}, owner="other"))
    assert caught.value.code is Code.PACK_INVALID
    assert len(caught.value.evidence["slots"]) == 2  # type: ignore[arg-type]
    assert (cat.registry(), cat.revision()) == (before, revision)


def test_a_slot_keeps_its_source_object(cat: Catalog) -> None:
    """The object is part of every key under a slot, so another object needs another slot."""
    cat.apply(pack())
    flows = [{"flow": "Flow", "version": 1, "actions": [action("A1", "D1", "Other")]}]
    with pytest.raises(ConfigurationError, match="a slot keeps its object"):
        cat.apply(pack(version="2.0.0", flows=flows))


def test_a_slot_that_was_rebound_is_refused(cat: Catalog) -> None:
    """Its links stand under the successor; a pack of before that brings it back would create them again."""
    cat.apply(pack({"A1": "D1", "A2": "D1"}))
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    with cat.engine.begin() as conn:
        rebound = {"status": "rebound", "successor_slot_id": "A2"}
        conn.execute(sa.update(connector_slot).where(connector_slot.c.slot_id == "A1").values(rebound))
    with pytest.raises(ConfigurationError, match="was rebound to 'A2'"):
        cat.apply(pack({"A1": "D1", "A2": "D1"}))


@pytest.mark.rule("ID-02")
def test_names_may_change_while_slots_stay(cat: Catalog) -> None:
    """A pack under other names for everything is the same lineage: its slots are neither new nor dropped."""
    cat.apply(pack())
    renamed = pack(version="2.0.0").model_dump(mode="json", by_alias=True)
    renamed |= {"pack": "another name", "namespace": "elsewhere"}
    renamed["profiles"] = {"renamed": renamed["profiles"]["main"]}
    renamed["destinations"] = [{**d, "target_object": "renamed", "profile": "renamed"} for d in renamed["destinations"]]
    renamed["flows"][0]["flow"] = renamed["flows"][0]["actions"][0]["action"] = "renamed"
    applied = cat.apply(Pack.model_validate_json(json.dumps(renamed), by_alias=True, by_name=False))
    assert (applied.install_id, applied.added, applied.dropped, applied.moved) == ("I1", (), (), ())
    found = cat.read().find(at("A1", "D1"))
    assert found is not None
    assert (found.names.action, found.names.profile) == ("renamed", "renamed")


# ------------------------------------------------------------------------------------------------ lineage


@pytest.mark.rule("D-29", "ID-04", "GT-12")
@pytest.mark.parametrize("status", ["finalized", "suspended_drift"])
def test_a_new_slot_reserves_nothing_while_a_link_of_the_old_one_lives(cat: Catalog, status: str) -> None:
    """The answer names the old slots; the same question about the old ones finds nothing in their way."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), link=status)
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    assert cat.unresolved(at("A2", "D1"), at("A1", "D1")) == [("A1 -> D1",), ()]


@pytest.mark.rule("D-29", "ID-04", "GT-12")
@pytest.mark.parametrize("status", [status.value for status in AttemptStatus])
def test_a_new_slot_reserves_nothing_while_a_create_of_the_old_one_blocks(cat: Catalog, status: str) -> None:
    """Blocking is the protocol's word: what is finalized, superseded or an update does not count."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), attempt=status)
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    assert bool(cat.unresolved(at("A2", "D1"))[0]) is (status in BLOCKING)


@pytest.mark.rule("D-29", "ID-04")
def test_retiring_what_the_old_slot_owned_resolves_its_lineage(cat: Catalog) -> None:
    """A retired link and a superseded attempt are what an operator made of them."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), record="1", link="retired")
    cat.own(at("A1", "D1"), record="2", attempt="superseded")
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    assert cat.unresolved(at("A2", "D1")) == [()]


@pytest.mark.rule("D-29")
def test_a_slot_that_is_declared_independent_waits_for_nobody(cat: Catalog) -> None:
    """An operator says so, with a reason that stays; applying the pack again does not forget it."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), link="finalized")
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    cat.declare_independent("A2")
    cat.apply(pack({"A2": "D1"}, version="3.0.0"))
    assert cat.unresolved(at("A2", "D1")) == [()]
    assert cat.read().find(at("A2", "D1")) is not None
    with cat.engine.begin() as conn:
        verbs = list(conn.execute(sa.select(operator_action.c.verb).order_by(operator_action.c.id)).scalars())
    assert verbs == ["pack_apply", "pack_apply", "declare_independent", "pack_apply"]


def test_a_slot_that_is_not_in_use_cannot_be_independent(cat: Catalog) -> None:
    """There is nothing that it could reserve."""
    cat.apply(pack({"A1": "D1"}))
    with pytest.raises(CallerError, match="not in use"):
        cat.declare_independent("A9")


@pytest.mark.rule("D-29")
def test_what_stood_beside_the_old_slot_is_not_its_replacement(cat: Catalog) -> None:
    """A second action of the same object that was there before goes on creating when its neighbour is dropped."""
    cat.apply(pack({"A1": "D1", "A2": "D2"}))
    cat.own(at("A1", "D1"), link="finalized")
    cat.apply(pack({"A2": "D2"}, version="2.0.0"))
    assert cat.unresolved(at("A2", "D2")) == [()]


@pytest.mark.rule("D-29", "DR-20")
def test_an_action_that_moves_to_another_destination_replaces_itself(cat: Catalog) -> None:
    """The action slot is the same, the key is not: until the links at the old destination are resolved it waits."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), link="finalized")
    moved = cat.apply(pack({"A1": "D2"}, version="2.0.0"))
    assert (moved.moved, moved.added, moved.dropped) == (("A1",), ("D2",), ("D1",))
    assert cat.unresolved(at("A1", "D2")) == [("A1 -> D1",)]
    cat.apply(pack({"A1": "D1"}, version="3.0.0"))
    assert cat.unresolved(at("A1", "D1")) == [()]


@pytest.mark.rule("D-29")
def test_actions_that_swap_their_destinations_both_wait(cat: Catalog) -> None:
    """Every slot is still in use, and still both keys are new."""
    cat.apply(pack({"A1": "D1", "A2": "D2"}))
    cat.own(at("A1", "D1"), link="finalized")
    cat.own(at("A2", "D2"), attempt="ambiguous_remote_effect")
    cat.apply(pack({"A1": "D2", "A2": "D1"}, version="2.0.0"))
    assert cat.unresolved(at("A1", "D2"), at("A2", "D1")) == [("A1 -> D1", "A2 -> D2")] * 2


@pytest.mark.rule("D-29")
def test_a_slot_that_comes_back_waits_for_what_replaced_it(cat: Catalog) -> None:
    """Old and new change places: what the second one created meanwhile is not created again by the first."""
    cat.apply(pack({"A1": "D1"}))
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    cat.own(at("A2", "D1"), link="finalized")
    cat.apply(pack({"A1": "D1"}, version="3.0.0"))
    assert cat.unresolved(at("A1", "D1")) == [("A2 -> D1",)]


@pytest.mark.rule("D-29")
def test_lineage_is_told_after_an_uninstall_too(cat: Catalog) -> None:
    """Another incarnation with new slots meets the links of the one before."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), link="finalized")
    cat.uninstall()
    cat.apply(pack({"A2": "D2"}))
    assert cat.unresolved(at("A2", "D2")) == [("A1 -> D1",)]


@pytest.mark.rule("D-29", "D-40")
def test_lineage_is_one_owner_s_one_tenant_s_and_one_object_s(cat: Catalog) -> None:
    """Links of another owner, of another tenant or of another object stand in nobody's way."""
    flows = [{"flow": "F", "version": 1, "actions": [action("A1", "D1"), action("B1", "D1", "Other")]}]
    cat.apply(pack(flows=flows))
    cat.own(at("B1", "D1", obj="Other"), link="finalized")
    cat.apply(pack({"C1": "E1"}, owner="second"))
    cat.own(at("C1", "E1", owner="second"), link="finalized")
    cat.uninstall("second")
    cat.apply(pack({"A1": "D1"}), tenant="north")
    cat.own(at("A1", "D1", tenant="north"), link="finalized")
    cat.apply(pack({"A2": "D1"}, version="2.0.0"), tenant="north")
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    assert cat.unresolved(at("A2", "D1"), at("A2", "D1", tenant="north")) == [(), ("A1 -> D1",)]


def test_lineage_of_many_saves_is_one_question(cat: Catalog) -> None:
    """The number of statements does not grow with the number of saves."""
    cat.apply(pack({"A1": "D1"}))
    cat.own(at("A1", "D1"), link="finalized")
    cat.apply(pack({"A2": "D1"}, version="2.0.0"))
    statements: list[str] = []
    sa.event.listen(cat.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert cat.unresolved(*[at("A2", "D1")] * 500) == [("A1 -> D1",)] * 500
    assert len([statement for statement in statements if statement.startswith("SELECT")]) == 3


@pytest.mark.rule("D-29")
def test_what_owns_nothing_any_more_is_asked_about_no_longer(cat: Catalog) -> None:
    """The next apply forgets the destinations that are resolved, and keeps those that are not."""
    cat.apply(pack({"A1": "D1", "A2": "D2"}))
    cat.own(at("A1", "D1"), link="retired")
    cat.own(at("A2", "D2"), link="finalized")
    cat.apply(pack({"A3": "D3"}, version="2.0.0"))
    assert [len(cat.registry()[slot].stays) for slot in ("A1", "A2")] == [1, 1]
    cat.apply(pack({"A3": "D3"}, version="3.0.0"))
    assert [len(cat.registry()[slot].stays) for slot in ("A1", "A2")] == [0, 1]
    assert cat.unresolved(at("A3", "D3")) == [("A2 -> D2",)]


# ------------------------------------------------------------------------------------------------ what flows see


def test_an_active_action_has_all_that_flows_need(cat: Catalog) -> None:
    """Identity, names, contracts, conditions, the frozen action, its digest and its fingerprints."""
    conditional = action("A1", "D1") | {"when": [{"field": "state", "equals": "ready"}]}
    given = pack(flows=[{"flow": "Flow", "version": 7, "actions": [conditional]}])
    cat.apply(given)
    (found,) = cat.read().actions_for("", "Thing")
    (written,) = given.actions()
    assert (found.install_id, found.slots, found.names) == ("I1", at("A1", "D1"), written.names)
    assert (found.contract, found.profile, found.conditions) == (written.contract, written.profile, written.when)
    assert found.document.digest.startswith("sha256:")
    assert found.mapping_fingerprint.startswith("mapping1:")
    assert found.body_fingerprint.startswith("body1:")
    assert cat.read().find(found.slots) == found


def test_the_catalogue_is_built_once_for_a_revision(cat: Catalog) -> None:
    """Reading it again costs one statement, from any connection; a change is seen by the next reader."""
    reader = CatalogReader()
    cat.apply(pack())
    with cat.engine.begin() as conn:
        first = reader.read(conn)
    statements: list[str] = []
    sa.event.listen(cat.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with cat.engine.begin() as conn:
        assert reader.read(conn) is first
    assert len([statement for statement in statements if statement.startswith("SELECT")]) == 1
    cat.apply(pack({"A1": "D1", "A2": "D1"}, version="2.0.0"))
    with cat.engine.begin() as conn:
        second = reader.read(conn)
    assert second.revision == first.revision + 1
    assert len(second.actions_for("", "Thing")) == 2


def test_a_change_that_was_rolled_back_is_not_remembered(cat: Catalog) -> None:
    """Who reads inside such a transaction sees it, and nobody sees it afterwards, whatever revision comes next."""
    reader = CatalogReader()
    cat.apply(pack())
    with cat.engine.connect() as conn:
        catalog.apply_pack(conn, pack(version="9.0.0", namespace="lost"), tenant="", install_ids=str, now=START, **WHO)
        assert reader.read(conn).actions_for("", "Thing")[0].names.namespace == "lost"
        conn.rollback()
    cat.apply(pack(version="2.0.0", namespace="kept"))
    with cat.engine.begin() as conn:
        assert reader.read(conn).actions_for("", "Thing")[0].names.namespace == "kept"


@pytest.mark.rule("GT-01", "ID-03")
def test_an_object_that_no_pack_pushes_has_a_problem(cat: Catalog) -> None:
    """No action slot resolves, and the former slots are evidence, not a fallback."""
    cat.apply(pack({"A1": "D1"}))
    flows = [{"flow": "F", "version": 1, "actions": [action("B1", "D1", "Other")]}]
    cat.apply(pack(version="2.0.0", flows=flows))
    (problem,) = cat.read().problems_for("", "Thing")
    assert (problem.slot_resolved, problem.usable_installs) == (False, 0)
    assert problem.evidence == {"former_slots": {"A1": "dropped"}}
    assert cat.read().actions_for("", "Thing") == ()
    (unknown,) = cat.read().problems_for("", "Nothing")
    assert not unknown.slot_resolved
    assert cat.read().problems_for("", "Other") == ()


@pytest.mark.rule("GT-04")
def test_an_object_whose_pack_was_uninstalled_has_no_usable_install(cat: Catalog) -> None:
    """The slot is known, the incarnation is gone."""
    cat.apply(pack())
    cat.uninstall()
    (problem,) = cat.read().problems_for("", "Thing")
    assert (problem.slot_resolved, problem.usable_installs) == (True, 0)
    assert not cat.read().has_owner("", "owner")


@pytest.mark.rule("GT-04")
def test_an_inactive_profile_is_not_usable(cat: Catalog) -> None:
    """Its actions reserve nothing, but a comparison still finds them and can say what is inactive (DR-08)."""
    profile = {"base_url": "https://api.example.com", "credential_ref": "env:TOKEN", "active": False}
    cat.apply(pack(profiles={"main": profile}))
    catalogue = cat.read()
    assert catalogue.actions_for("", "Thing") == ()
    (problem,) = catalogue.problems_for("", "Thing")
    assert (problem.action, problem.usable_installs) == ("push-A1", 0)
    found = catalogue.find(at("A1", "D1"))
    assert found is not None
    assert not found.profile.active


@pytest.mark.rule("GT-04")
def test_two_active_installs_of_one_action_are_not_usable(cat: Catalog) -> None:
    """The database keeps one active install of an owner; if it ever had two, neither would be taken."""
    cat.apply(pack())
    with cat.engine.begin() as conn:
        (install,) = catalog.load_installs(conn)
        registered = read_registry(conn)
    catalogue = ActiveCatalog(1, [install, replace(install, id=type(install.id)("I2"))], registered)
    assert catalogue.actions_for("", "Thing") == ()
    assert catalogue.find(at("A1", "D1")) is None
    assert [problem.usable_installs for problem in catalogue.problems_for("", "Thing")] == [2, 2]
    with cat.engine.begin() as conn:
        row = dict(conn.execute(sa.select(pack_install)).mappings().one())
    with pytest.raises(sa.exc.IntegrityError), cat.engine.begin() as conn:
        conn.execute(pack_install.insert(), row | {"id": "I2"})


@pytest.mark.rule("GT-02", "ID-03")
@pytest.mark.parametrize(
    ("kind", "damage", "said"),
    [
        (SlotKind.ACTION, "DELETE FROM pushlink_connector_slot WHERE slot_id = 'A1'", "not in the registry"),
        (SlotKind.DESTINATION, "DELETE FROM pushlink_connector_slot WHERE slot_id = 'D1'", "not in the registry"),
        (
            SlotKind.ACTION,
            "UPDATE pushlink_connector_slot SET connector_owner_key = 'x' WHERE slot_id = 'A1'",
            "another owner",
        ),
        (
            SlotKind.DESTINATION,
            "UPDATE pushlink_connector_slot SET status = 'rebound' WHERE slot_id = 'D1'",
            "is rebound",
        ),
    ],
)
def test_a_slot_that_the_registry_does_not_confirm_does_not_resolve(
    cat: Catalog, kind: SlotKind, damage: str, said: str
) -> None:
    """What a pack says about its slots is not enough: the registry must know them as this owner's, in use."""
    cat.apply(pack())
    with cat.engine.begin() as conn:
        conn.exec_driver_sql(damage)
    catalogue = cat.read()
    assert (catalogue.actions_for("", "Thing"), catalogue.find(at("A1", "D1"))) == ((), None)
    (problem,) = catalogue.problems_for("", "Thing")
    assert said in problem.message
    assert problem.evidence["kind"] == kind
    assert not (problem.slot_resolved and problem.owner_resolved and problem.destination_resolved)


@pytest.mark.rule("D-43", "GT-04")
def test_a_pack_of_a_later_release_is_not_usable_and_its_neighbour_is(cat: Catalog) -> None:
    """A worker of the release before leaves alone what it cannot read, and goes on with the rest."""
    cat.apply(pack())
    cat.apply(
        pack(
            {"B1": "E1"}, owner="second", flows=[{"flow": "F", "version": 1, "actions": [action("B1", "E1", "Other")]}]
        )
    )
    with cat.engine.begin() as conn:
        later = json.dumps({"kind": "pack", "format": 99, "content": {}})
        written = {"document": later, "document_digest": digest_bytes(later.encode())}
        conn.execute(sa.update(pack_install).where(pack_install.c.id == "I1").values(written))
    catalogue = cat.read()
    (problem,) = catalogue.problems_for("", "Thing")
    assert "cannot read" in problem.message
    assert problem.usable_installs == 0
    assert len(catalogue.actions_for("", "Other")) == 1


# ------------------------------------------------------------------------------------------------ deployment and audit


def test_the_general_worker_is_switched_for_all_processes(cat: Catalog) -> None:
    """The switch is in the database, and every turn of it is in the audit."""
    for on, changed, word in ((False, True, "off"), (False, False, "off"), (True, True, "on")):
        with cat.engine.begin() as conn:
            assert catalog.set_general_worker(conn, on=on, now=START, **WHO) is changed
            assert catalog.read_deployment(conn).general_worker == word
    with cat.engine.begin() as conn:
        rows = conn.execute(sa.select(operator_action.c.verb, operator_action.c.before, operator_action.c.after)).all()
    assert [tuple(row) for row in rows] == [
        ("general_worker", '{"was": "on"}', '{"is": "off"}'),
        ("general_worker", '{"was": "off"}', '{"is": "on"}'),
    ]


def test_a_database_without_its_deployment_is_refused(cat: Catalog) -> None:
    """Without its identity a database is nobody's."""
    with cat.engine.begin() as conn:
        conn.exec_driver_sql("DELETE FROM pushlink_deployment")
        with pytest.raises(ConfigurationError, match="no deployment"):
            catalog.read_deployment(conn)


def test_a_checkpoint_keeps_the_catalogue_as_it_read_it(pg_url: str, open_engine: Callable[[str], sa.Engine]) -> None:
    """Whoever shares the revision is not overtaken: a change waits, and then counts on."""
    engine = open_engine(pg_url)
    cat, reader, done = Catalog(engine), CatalogReader(), threading.Event()

    def change() -> None:
        cat.apply(pack())
        done.set()

    with engine.begin() as conn:
        revision = reader.share_revision(conn)
        with engine.begin() as other:
            assert reader.share_revision(other) == revision
        thread = threading.Thread(target=change)
        thread.start()
        assert not done.wait(0.2)
        assert catalog.catalog_revision(conn) == revision
    thread.join(10)
    assert done.is_set()
    assert cat.revision() == revision + 1


@pytest.mark.rule("SY-03")
def test_every_change_of_the_catalogue_has_an_actor_and_a_reason(cat: Catalog) -> None:
    """Without one of them nothing happens at all."""
    for who in ({"actor": " ", "reason": "why"}, {"actor": "who", "reason": ""}):
        with pytest.raises(CallerError, match="needs an actor and a reason"), cat.engine.begin() as conn:
            catalog.apply_pack(conn, pack(), tenant="", install_ids=lambda: "I1", now=START, **who)
    assert cat.registry() == {}


@pytest.mark.rule("SY-03")
def test_the_audit_is_one_chain_and_shows_where_it_was_broken(cat: Catalog) -> None:
    """Each action seals the one before, across transactions; a row that was changed or taken out is told."""
    for number in range(1, 5):
        cat.apply(pack(version=f"{number}.0.0"))
    with cat.engine.begin() as conn:
        assert verify(conn).broken == ()
        hashes = conn.execute(
            sa.select(operator_action.c.previous_hash, operator_action.c.hash).order_by(operator_action.c.id)
        ).all()
    assert [row[0] for row in hashes] == [audit.GENESIS, *(row[1] for row in hashes[:-1])]
    forge(cat.engine, "UPDATE pushlink_operator_action SET reason = 'forged' WHERE id = 2")
    with cat.engine.begin() as conn:
        assert [(one.place, one.kind.value) for one in verify(conn).broken] == [(2, "edited")]
    forge(cat.engine, "DELETE FROM pushlink_operator_action WHERE id = 2")
    with cat.engine.begin() as conn:
        assert [(one.place, one.kind.value) for one in verify(conn).broken] == [(2, "missing")]


def forge(engine: sa.Engine, statement: str) -> None:
    """What only the owner of the tables can do: take the guards away first."""
    with engine.begin() as conn:
        if engine.dialect.name == "postgresql":
            conn.exec_driver_sql("ALTER TABLE pushlink_operator_action DISABLE TRIGGER ALL")
        else:
            conn.exec_driver_sql("DROP TRIGGER IF EXISTS pushlink_operator_action_keeps_values")
            conn.exec_driver_sql("DROP TRIGGER IF EXISTS pushlink_operator_action_keeps_rows")
        conn.exec_driver_sql(statement)
