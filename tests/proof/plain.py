"""`make mutants MUTANTS=--plain`: plain mutation testing, in a small way.

One operator of one line is changed at a time, and the tests of its module run. A mutant swaps a comparison, an `and`
for an `or`, a truth value, or a number; it lives in a copy of `src`. Mutants of all modules are taken in one shuffled
order, so that what a run had time for is a fair sample of everything. One that survives is shown with its line, so that
somebody can say whether the line or the test is at fault.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from proof.figures import BUILD, ROOT, table, write_section

PROTOCOL: Final = ROOT / "src" / "pushlink" / "protocol"

#: Tests of a module beside `tests/protocol/test_MODULE.py`; what survives those meets all of `tests/protocol` as well.
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "adoption": ("tests/migration/test_adopt.py",),
    "manifest": ("tests/migration/test_revalidate.py",),
    "outcome": ("tests/protocol/test_declarations.py",),
    "rebinding": ("tests/migration/test_rebind.py",),
    "receipts": ("tests/migration/test_revalidate.py",),
}

#: What every test imports and no mutant changes: loaded once, before the processes are forked.
WARM: Final = ("sqlalchemy", "pydantic", "psycopg", "aiohttp", "cryptography")

#: The order in which mutants are taken.
SHUFFLED: Final = 7

_COMPARED: Final = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def mutants_of(source: str) -> Iterator[tuple[int, str]]:
    """Each changed source with the number of the line that was changed."""
    count = sum(1 for _ in _places(ast.parse(source)))
    for wanted in range(count):
        tree = ast.parse(source)
        node = next(node for at, node in enumerate(_places(tree)) if at == wanted)
        _change(node)
        yield node.lineno, ast.unparse(tree)


def _places(tree: ast.AST) -> Iterator[ast.Compare | ast.BoolOp | ast.Constant | ast.UnaryOp]:
    declared = {
        id(node) for one in ast.walk(tree) for mark in getattr(one, "decorator_list", ()) for node in ast.walk(mark)
    }
    for node in ast.walk(tree):
        if id(node) in declared:
            continue  # `frozen=True` of a class is no decision
        is_truth = isinstance(node, ast.Constant) and isinstance(node.value, bool | int)
        if is_truth or isinstance(node, ast.Compare | ast.BoolOp) or _negates(node):
            yield node  # type: ignore[misc]


def _negates(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _change(node: ast.Compare | ast.BoolOp | ast.Constant | ast.UnaryOp) -> None:
    match node:
        case ast.Compare():
            node.ops[0] = _COMPARED[type(node.ops[0])]()
        case ast.BoolOp():
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case ast.UnaryOp():
            node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
        case ast.Constant(value=bool() as said):
            node.value = not said
        case ast.Constant(value=int() as number):
            node.value = number + 1


@dataclass(frozen=True, slots=True)
class Change:
    """One mutant: the module, the line that it changes, and the whole changed source."""

    module: str
    line: int
    text: str


@dataclass(slots=True)
class Examined:
    """What came of one module. `survived`: the lines that may be changed without a test that fails."""

    module: str
    mutants: int
    tried: int
    survived: list[dict[str, Any]]


def examine_modules(names: Sequence[str], *, minutes: float) -> int:
    """Mutate these modules until the time is over; writes and prints what survived."""
    until = time.monotonic() + 60 * minutes
    sources = {name: (PROTOCOL / f"{name}.py").read_text("utf-8") for name in names}
    changes = [Change(name, *mutant) for name, source in sources.items() for mutant in mutants_of(source)]
    found = {name: Examined(name, sum(c.module == name for c in changes), 0, []) for name in names}
    random.Random(SHUFFLED).shuffle(changes)
    for name in WARM:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home) / "src"
        shutil.copytree(ROOT / "src", copy)
        if not _passes(copy, [test for name in names for test in tests_of(name)]):
            raise RuntimeError("some tests fail before anything was changed")
        for change in changes:
            if time.monotonic() > until:
                break
            module = copy / "pushlink" / "protocol" / f"{change.module}.py"
            module.write_text(change.text, encoding="utf-8")
            examined = found[change.module]
            examined.tried += 1
            if _passes(copy, tests_of(change.module)) and _passes(copy, ["tests/protocol"]):
                line = sources[change.module].splitlines()[change.line - 1].strip()
                examined.survived.append({"line": change.line, "text": line})
                sys.stderr.write(f"{change.module}.py:{change.line} survived: {line}\n")
            module.write_text(sources[change.module], encoding="utf-8")
    done = [one for one in found.values() if one.mutants]
    BUILD.mkdir(exist_ok=True)
    found_text = json.dumps([asdict(one) for one in done], indent=1)
    (BUILD / "plain_mutants.json").write_text(found_text + "\n", encoding="utf-8")
    write_section("plain", summary(done))
    sys.stdout.write(summary(done) + "\n")
    return 0


def tests_of(name: str) -> list[str]:
    """The tests that a module's mutants meet first."""
    own = f"tests/protocol/test_{name}.py"
    return [*TESTS.get(name, ()), *([own] if (ROOT / own).exists() else [])]


def summary(found: Sequence[Examined]) -> str:
    """The figures as the page shows them."""
    mutants, tried = sum(one.mutants for one in found), sum(one.tried for one in found)
    lived = sum(len(one.survived) for one in found)
    head = (
        f"{tried:,} of the {mutants:,} mutants of {len(found)} modules were tried, taken in a shuffled order: "
        f"{tried - lived:,} were killed ({100 * (tried - lived) / max(tried, 1):.1f} %), {lived} survived."
    )
    rows = [
        (f"`{one.module}.py:{survivor['line']}`", f"`{survivor['text'].replace('|', '/')}`")
        for one in found
        for survivor in one.survived
    ]
    return f"{head}\n\n{table(('survived', 'line'), rows)}"


def _passes(copy: Path, tests: Sequence[str]) -> bool:
    """Whether these tests pass with what is in the copy; a process of its own runs them."""
    if not tests:
        return True
    child = os.fork()
    if child == 0:
        try:
            os._exit(_run(copy, tests))
        finally:
            os._exit(1)  # whatever was raised, this process goes no further
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _run(copy: Path, tests: Sequence[str]) -> int:
    sys.path[:0] = [str(copy), str(ROOT / "tests")]
    sys.dont_write_bytecode = True
    os.chdir(ROOT)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    quick = ("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql", "--timeout", "120")
    return int(pytest.main([*quick, *tests]))


if __name__ == "__main__":
    given, *chosen = sys.argv[1:]
    sys.exit(examine_modules(chosen or sorted(path.stem for path in PROTOCOL.glob("*.py")), minutes=float(given)))
