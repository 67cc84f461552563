"""What counts as caught when a rule is switched off, and that every rule names a test that is there."""

from __future__ import annotations

import pytest

from proof.figures import ROOT
from proof.mutants import Caught
from proof.mutation import MUTANTS, Mutant
from proof.mutation.plugin import CRASHED, NOTICED

NOTICES = ("assert 1 == 2", "[row] = []", "pytest.fail('nobody refused')", "raise CallerError('refused by name')")
CRASHES = ("None.status", "int('')", "unpack(*[])")


def test_a_mutant_is_noticed_by_what_a_test_asserts_and_by_no_crash(pytester: pytest.Pytester) -> None:
    """A row too few is what a test asserts too; a type error is the mutant's own, and proves nothing."""
    head = "import pytest\nfrom pushlink.errors import CallerError\ndef unpack(one): ...\n"
    tests = [f"def test_{at}():\n    {line}\n" for at, line in enumerate((*NOTICES, *CRASHES))]
    pytester.makepyfile(head + "".join(tests))
    done = pytester.runpytest_inprocess("-p", "proof.mutation.plugin", "-p", "no:cacheprovider")
    marks = [mark for said in done.outlines for mark in (NOTICED, CRASHED) if said.startswith(mark)]
    assert marks == [NOTICED] * len(NOTICES) + [CRASHED] * len(CRASHES)


@pytest.mark.parametrize(
    ("rule", "more", "is_caught"),
    [
        ("FENCE", {}, True),
        ("FENCE", {"failed": ""}, False),
        ("FENCE", {"seed": None, "broke": ""}, False),
        ("FENCE", {"crashed": "seed 4: TypeError"}, False),
        ("ORDER", {"seed": None, "broke": ""}, True),
        ("ORDER", {"seed": None, "broke": "", "failed": ""}, False),
    ],
)
def test_a_rule_is_caught_by_its_test_and_by_the_simulation_that_can_see_it(
    rule: str, more: dict[str, object], is_caught: bool
) -> None:
    """ORDER is one that the simulation cannot see."""
    found = {"seed": 3, "seeds": 3, "broke": "two creates", "crashed": "", "failed": "AssertionError", **more}
    assert Caught(rule=rule, **found).is_caught is is_caught  # type: ignore[arg-type]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_each_rule_is_said_in_a_sentence_and_names_a_test(mutant: Mutant) -> None:
    file, _, name = mutant.test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text("utf-8")
    assert "\n" not in mutant.rule
    assert len(mutant.rule) > 10
