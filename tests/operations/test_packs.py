"""Packs from files: checked without a database, applied whole or not at all, listed with their past."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.stage import PACK, Stage, action_of, pack_with
from pushlink.errors import ConfigurationError, PackError
from pushlink.operations import packs


def written(tmp_path: Path, document: object, name: str = "pack.yaml") -> Path:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def applied(stage: Stage, path: Path, *, tenant: str = "") -> packs.AppliedView:
    with stage.engine.begin() as conn:
        return packs.apply(
            conn,
            path,
            tenant=tenant,
            install_ids=stage.world.ids.fresh,
            actor="tester",
            now=stage.clock.now(conn),
        )


def test_a_check_says_of_each_file_whether_it_can_be_used(tmp_path: Path) -> None:
    """One good file, one that lint refuses, one that is no pack, one that is not there."""
    broken = pack_with(lambda document: action_of(document).update(destination="nowhere"))
    good, bad, wrong = packs.check(
        [written(tmp_path, PACK), written(tmp_path, broken, "bad.yaml"), written(tmp_path, "pack: 1", "wrong.yaml")]
    )
    [missing] = packs.check([tmp_path / "missing.yaml"])
    assert (good.is_usable, good.pack, good.actions) == (True, "people", 1)
    assert (bad.is_usable, wrong.is_usable, missing.is_usable) == (False, False, False)
    assert "unknown-destination" in [finding.rule for finding in bad.findings]
    assert wrong.findings[0].rule is None
    assert wrong.findings[0].line > 0


@pytest.mark.rule("D-29")
def test_applying_again_changes_nothing_and_a_change_keeps_the_incarnation(stage: Stage, tmp_path: Path) -> None:
    """The install id stays, its revision grows with each change."""
    again = applied(stage, written(tmp_path, PACK))
    assert (again.is_changed, again.install_revision) == (False, 1)
    changed = applied(stage, written(tmp_path, pack_with(lambda document: document.update(version="1.1.0"))))
    assert (changed.is_changed, changed.is_new_incarnation, changed.install_revision) == (True, False, 2)
    assert changed.install_id == again.install_id


def test_what_cannot_be_used_is_not_applied(stage: Stage, tmp_path: Path) -> None:
    """Neither a pack with an error, nor one whose slots belong to somebody else; nothing is written."""
    before = stage.census()
    with pytest.raises(PackError):
        applied(stage, written(tmp_path, "pack: 1"))
    with pytest.raises(ConfigurationError):
        applied(stage, written(tmp_path, pack_with(lambda document: document.update(connector_owner_key="other"))))
    assert stage.census() == before


@pytest.mark.rule("D-40")
def test_installs_are_listed_by_tenant_ended_ones_too(stage: Stage) -> None:
    """An uninstalled pack stays in the list, and another tenant's is not in it."""
    stage.apply(PACK, tenant="north")
    stage.uninstall()
    with stage.engine.begin() as conn:
        assert [install.status for install in packs.installs(conn)] == ["uninstalled"]
        assert [install.status for install in packs.installs(conn, tenant="north")] == ["active"]


def test_the_schema_is_the_packs_room_own() -> None:
    """It is published as it is."""
    assert packs.schema()["$id"] == "urn:pushlink:schema:pack:1"
