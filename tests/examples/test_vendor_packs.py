"""The packs of vendors: each is fit for use, and reads the answers that its vendor documents as its cases say."""

from pathlib import Path

import pytest

from pushlink.operations import pack_tests
from pushlink.packs.cases import read_cases
from pushlink.packs.loader import load_pack, read_pack
from pushlink.protocol.replies import Effect

VENDORS = Path(__file__).resolve().parents[2] / "examples" / "packs" / "vendors"
PACKS = sorted(path.stem for path in VENDORS.glob("*.yaml"))


def test_there_are_packs_for_ten_vendors_and_cases_for_each() -> None:
    """A file of cases without a pack, or a pack without cases, is a mistake."""
    assert len(PACKS) >= 10
    assert sorted(path.stem for path in (VENDORS / "cases").glob("*.yaml")) == PACKS


@pytest.mark.parametrize("name", PACKS)
def test_a_vendors_pack_has_no_finding(name: str) -> None:
    """Neither an error nor a warning, and the words that say what must be verified."""
    path = VENDORS / f"{name}.yaml"
    assert [str(finding) for finding in read_pack(path).findings] == []
    assert "nothing of it was tried against" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PACKS)
def test_recorded_replies_are_read_as_their_cases_say(name: str) -> None:
    """Requests and verdicts are those of the cases, without a network."""
    ran = pack_tests.run(VENDORS / f"{name}.yaml")
    assert {case.name: case.differences for case in ran.cases if not case.passed} == {}
    assert ran.passed


@pytest.mark.parametrize("name", PACKS)
def test_cases_cover_what_happens_to_every_remote(name: str) -> None:
    """A success and a refusal of each operation are there, as is an answer that proves nothing or is a throttle."""
    document = read_cases(VENDORS / "cases" / f"{name}.yaml", load_pack(VENDORS / f"{name}.yaml"))
    seen = {
        (placed.case.operation, placed.case.expect.verdict.effect)
        for placed in document.cases
        if placed.case.expect.verdict is not None
    }
    assert {("create", Effect.APPLIED), ("create", Effect.NOT_APPLIED), ("update", Effect.APPLIED)} <= seen
    assert any(placed.case.operation == "update" and placed.case.expect.request for placed in document.cases)
