"""Plain mutation testing, in a small way: one operator of one line changed at a time, and the tests of its room run.

A mutant swaps a comparison, an `and` for an `or`, a truth value, or a number. It lives in a copy of `src`; what its
module says is tried by the tests that are named beside it. A mutant that they do not kill is shown with its line, so
that somebody can say whether the line or the test is at fault.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from proof.figures import BUILD, ROOT

#: Modules of the protocol and the tests that try them.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "states": ("tests/protocol/test_states.py",),
    "recovery": ("tests/protocol/test_recovery.py",),
    "outcome": ("tests/protocol/test_outcome.py", "tests/protocol/test_declarations.py"),
    "gates": ("tests/protocol/test_gates.py",),
    "drift": ("tests/protocol/test_drift.py",),
    "verbs": ("tests/protocol/test_verbs.py",),
}
FIGURES: Final = BUILD / "plain_mutants.json"

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
    for node in ast.walk(tree):
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


def examine_modules(names: Sequence[str], *, minutes: float) -> int:
    """Mutate these modules until the time is over; writes and prints what survived."""
    until = time.monotonic() + 60 * minutes
    known: dict[str, object] = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    for name in names:
        known[name] = _examine(name, until)
        sys.stderr.write(f"{name}: {json.dumps(known[name])}\n")
    BUILD.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return 0


def _examine(name: str, until: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home) / "src"
        shutil.copytree(ROOT / "src", copy)
        module = copy / "pushlink" / "protocol" / f"{name}.py"
        source = module.read_text("utf-8")
        lines = source.splitlines()
        found = list(mutants_of(source))
        tried, survived = 0, []
        for line, text in found:
            if time.monotonic() > until:
                break
            module.write_text(text, encoding="utf-8")
            tried += 1
            if _passes(copy, MODULES[name]):
                survived.append({"line": line, "text": lines[line - 1].strip()})
    return {"mutants": len(found), "tried": tried, "killed": tried - len(survived), "survived": survived}


def _passes(copy: Path, tests: Sequence[str]) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{copy}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0
