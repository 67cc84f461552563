"""Plain mutation testing finds what no test asks for, and takes nothing else for that."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.figures import ROOT
from proof.plain.book import Book, Entry
from proof.plain.changes import changed, changes_of
from proof.plain.equivalent import Equivalent, reason, stale

#: What stands behind the status, and whether the limit itself is old, no test asks; it asks everything else.
PLANTED = """
STATUSES = {200: True}

def is_old(age, limit):
    return age > limit

def count_down(number):
    while number > 0:
        number -= 1
    return number
"""
TESTS = """
from planted.rules import STATUSES, count_down, is_old

def test_statuses():
    assert 200 in STATUSES

def test_age():
    assert is_old(5, 4)
    assert not is_old(3, 4)

def test_count():
    assert count_down(3) == 0
"""
SURVIVORS = {("> -> >=", "return age > limit"), ("True -> False", "STATUSES = {200: True}")}
RUN = """
import sys
from pathlib import Path
from proof.plain.__main__ import Run
from proof.plain.trials import Place
place = Place(Path("planted").resolve(), "planted")
Run(5, place=place, near=["test_near.py"], far=[sys.argv[1]], figures=Path("raw.json")).go_on()
"""


def write(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "rules.py"
    path.write_text(source)
    return path


def test_one_operator_is_changed_at_a_time(tmp_path: Path) -> None:
    source = "def f(a, b):\n    if a < b and not a:\n        return 3 + a\n    return [True for x in a if x]\n"
    changes = (
        ("<", "<="), ("and", "or"), ("not a", "not not a"), ("3", "4"), ("+", "-"), ("True", "False"),
        ("if x", "if not x"),
    )  # fmt: skip
    expected = {ast.unparse(ast.parse(source.replace(*change))) for change in changes}
    found = changes_of(write(tmp_path, source))
    assert {ast.unparse(changed(source, change.at)) for change in found} == expected
    assert len(found) == len(expected)
    assert not any(change.is_static for change in found)


def test_types_decorators_texts_and_numbers_with_a_name_are_left_alone(tmp_path: Path) -> None:
    source = '''"""1 of 2"""
@dataclass(frozen=True)
class Rule:
    bound: Annotated[int, Field(ge=1)]
Some: TypeAlias = int | str
LIMIT_MAX: Final = 65_536
_TIMES: Final = 2 * 60_000
def f(value: int | None) -> int | None:
    """2 of 2"""
    return isinstance(value, int | str)
'''
    assert changes_of(write(tmp_path, source)) == []
    acting = "RETRIES: Final = {1: True}\nclass Rule:\n    is_kept: bool = False\ndef f(*, first=1): ...\n"
    found = changes_of(write(tmp_path, acting))
    assert {change.change for change in found} == {"1 -> 2", "True -> False", "False -> True"}
    assert all(change.is_static for change in found)


@pytest.mark.timeout(600)
def test_a_planted_survivor_is_reported_and_a_killed_one_is_not(tmp_path: Path) -> None:
    """Inside a function and at import; what the near tests miss, the far ones may kill; a run goes on."""
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "rules.py").write_text(PLANTED)
    (tmp_path / "planted" / "__init__.py").write_text("")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_near.py").write_text(TESTS)
    far = "from planted.rules import is_old\ndef test_far():\n    assert is_old(4, 4) in {}\n"
    for place in ("idle/other", "idle/two"):  # a fixture of all tests is set up with those of another directory
        (tmp_path / place).mkdir(parents=True)
    for name in ("first", "second"):
        shared = f"def test_{name}(tmp_path_factory):\n    assert tmp_path_factory\n"
        (tmp_path / "idle" / "other" / f"test_{name}.py").write_text(shared)
    (tmp_path / "idle" / "two" / "test_idle.py").write_text(far.format("(False, True)"))
    (tmp_path / "test_keen.py").write_text(far.format("(False,)"))
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tests"), str(ROOT / "src")])

    def survivors(far: str) -> set[tuple[str, str]]:
        run = [sys.executable, "-c", RUN, far]
        env = os.environ | {"PYTHONPATH": paths}
        done = subprocess.run(run, check=False, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        entries = [Entry(**one) for one in json.loads((tmp_path / "raw.json").read_text())]
        assert len(entries) == len(changes_of(tmp_path / "planted" / "rules.py"))
        return {(entry.change, entry.text) for entry in entries if entry.killed_by is None}

    assert survivors("idle") == SURVIVORS
    assert survivors("test_keen.py") == SURVIVORS - {("> -> >=", "return age > limit")}


def test_a_changed_source_is_untried_and_a_survivor_meets_new_tests(tmp_path: Path) -> None:
    figures = tmp_path / "raw.json"
    path = write(tmp_path, "def f(a):\n    return a > 1\n")
    book = Book(changes_of(path), "tests of today", path=figures)
    above, one = book.changes
    book.write(above, None, 4)
    book.write(one, "test_f", 1)
    book.save()
    assert Book(changes_of(path), "tests of today", path=figures).untried() == []
    assert Book(changes_of(path), "tests of tomorrow", path=figures).untried() == [above]
    assert Book(changes_of(path), "a few tests", "tests of today", path=figures).untried() == []
    path.write_text("def f(a):\n    return a > 1  # but not much\n")
    assert len(Book(changes_of(path), "tests of today", path=figures).untried()) == 2


def test_an_explanation_is_of_one_survivor_and_goes_stale_without_it(tmp_path: Path) -> None:
    book = Book(changes_of(write(tmp_path, "def f(a):\n    return a > 1\n")), "tests", path=tmp_path / "raw.json")
    entry = book.write(book.changes[0], None, 4)
    known = Equivalent("rules", "return a > 1", "> -> >=", "nobody asks for one")
    other = Equivalent("rules", "return a > 1", "1 -> 2", "nobody asks for two")
    assert reason(entry, [other, known]) == "nobody asks for one"
    assert reason(entry, [other]) is None
    assert stale([entry], [known, other]) == [other]
