"""What manifests did to a record stands in its history, with everything else that happened to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.stage import Stage
from migration import adoptions, moves, slots
from pushlink.operations.reads import Moment, Page, history


def lines(stage: Stage, record_id: str = "1", limit: int = 200) -> list[Moment]:
    """The whole history of a person, read `limit` rows at a time."""
    found: list[Moment] = []
    page = None
    with stage.engine.begin() as conn:
        while True:
            part: Page[Moment] = history(conn, "Person", record_id, page=page, limit=limit)
            found += part.rows
            page = part.next_page
            if page is None:
                return found


@pytest.mark.rule("AT-11", "MG-07", "RV-09")
def test_adoption_mapping_and_rebind_are_rows_of_one_history(stage: Stage, tmp_path: Path) -> None:
    """Adopted, taken back, adopted again, mapped anew, moved to another slot: in that order, with who and why."""
    adoptions.adopted(stage, tmp_path, 1, 2)
    stage.fixed.advance(seconds=1)
    adoptions.roll_back(stage)
    stage.fixed.advance(seconds=1)
    adoptions.plan(stage, tmp_path, "op-2")
    adoptions.apply(stage, tmp_path / "op-2")
    stage.fixed.advance(seconds=1)
    stage.apply(moves.mapping_named("/full_name"))
    usable = sorted(link["link_key"] for link in stage.links() if link["status"] == "finalized")
    moves.apply(stage, moves.manifest_of(stage, usable))
    stage.fixed.advance(seconds=1)
    stage.apply(slots.renamed())
    slots.apply(stage, slots.planned(stage, operation_id="move-1"))
    found = lines(stage)
    told = [(m.subject, m.event, m.id, m.actor, m.reason) for m in found if m.kind == "receipt"]
    assert told == [
        ("adoption", "adopt", "op-1", adoptions.ACTOR, adoptions.REASON),
        ("adoption", "roll_back", "op-1", adoptions.ACTOR, "a mistake"),
        ("adoption", "adopt", "op-2", adoptions.ACTOR, adoptions.REASON),
        ("mapping", "revalidate", "op-1", moves.ACTOR, "the field was renamed"),
        ("slot", "rebind", "move-1", slots.ACTOR, "the slot got another id"),
    ]
    assert [m.at for m in found] == sorted(m.at for m in found)
    assert {m.kind for m in found} == {"event", "receipt"}
    for limit in (1, 2, 3):
        assert lines(stage, limit=limit) == found
    adopted = next(m for m in found if m.kind == "receipt")
    assert adopted.evidence["remote_id"] == "r1"
    assert adopted.evidence["manifest_digest"]
