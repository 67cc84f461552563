"""The mutants: one operator, condition, truth value or number of one line, changed.

What is no decision of the protocol is left out, by three rules:

    types and decorators    annotations, `NAME: TypeAlias = ...`, what `isinstance` asks for, `@dataclass(frozen=True)`
    texts                   docstrings, messages, formats
    numbers with a name     `LINE_BYTES_MAX: Final = 65_536`: tests ask for the limit by its name, whatever it is
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any, Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
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
_COUNTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
#: The fields of a node that hold types or declarations.
_DECLARED: Final = frozenset({"annotation", "returns", "decorator_list", "type_params"})

_SIGNS: Final = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.And: "and", ast.Or: "or",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One mutant: where it is, what it does, and how to make it.

    `at` counts the places of the module; `is_static` means that it acts while the module is imported, and no function
    holds it. `change` is unique within the line: a second one of its kind there ends with `(2nd)`.
    """

    module: str
    digest: str  # of the module's source
    at: int
    line: int
    last_line: int
    text: str  # of the first line, without its indent
    change: str
    is_static: bool

    @property
    def key(self) -> str:
        """What tells this mutant from all others, of this source alone."""
        return f"{self.module}:{self.digest}:{self.at}"


@dataclass(frozen=True, slots=True)
class _Place:
    node: ast.AST
    change: str
    is_static: bool
    make: Callable[[], None]


def changes_of(path: Path) -> list[Change]:
    """Every mutant of one file, in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    lines = source.splitlines()
    found = []
    for at, place in enumerate(_places(ast.parse(source))):
        node: Any = place.node
        text = lines[node.lineno - 1].strip()
        found.append(
            Change(path.stem, digest, at, node.lineno, node.end_lineno, text, place.change, is_static=place.is_static)
        )
    seen: Counter[tuple[int, str]] = Counter()
    for index, one in enumerate(found):
        seen[one.line, one.change] += 1
        if (count := seen[one.line, one.change]) > 1:
            found[index] = replace(one, change=f"{one.change} ({count}{ {2: 'nd', 3: 'rd'}.get(count, 'th') })")
    return sorted(found, key=lambda one: one.line)


def changed(source: str, at: int) -> ast.Module:
    """The tree of a module with one of its places changed; its lines stay where they are."""
    tree = ast.parse(source)
    next(place for index, place in enumerate(_places(tree)) if index == at).make()
    return ast.fix_missing_locations(tree)


def functions_changed(source: str, filename: str, at: int) -> list[tuple[CodeType, CodeType]]:
    """The code of the functions that a change is in, outermost first, as it is and as it becomes."""
    return list(_pairs(compiled(ast.parse(source), filename), compiled(changed(source, at), filename)))


def compiled(tree: ast.Module, filename: str) -> CodeType:
    """As the import would compile it."""
    return compile(tree, filename, "exec", dont_inherit=True)


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
    for was, becomes in zip(*inner, strict=True):
        if was != becomes:
            yield was, becomes
            yield from _pairs(was, becomes)


def _places(node: ast.AST, *, is_static: bool = True) -> Iterator[_Place]:
    if _is_type(node) or _is_named_number(node):
        return
    yield from (_Place(place, change, is_static, make) for place, change, make in _changes(node))
    holds_code = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    asks_type = isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
    for name, value in ast.iter_fields(node):
        if name in _DECLARED:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (asks_type and child is node.args[1]):
                yield from _places(child, is_static=is_static and not (holds_code and name == "body"))


def _is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"


def _is_named_number(node: ast.AST) -> bool:
    """`NAME: Final = 86_400_000`, or a product of numbers, or some of them in brackets."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    is_name = isinstance(target, ast.Name) and target.id.isupper()
    held = (ast.Constant, ast.BinOp, ast.Tuple, ast.operator, ast.expr_context)
    return is_name and all(isinstance(one, held) and not _is_text(one) for one in ast.walk(node.value))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, Callable[[], None]]]:
    """Each way to change this node itself: the node that is shown, what is changed, and how."""
    yield from _of_value(node)
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                other = _COMPARED[type(op)]
                yield (
                    node,
                    _said(type(op), other),
                    lambda index=index, other=other: node.ops.__setitem__(index, other()),
                )
        case ast.BoolOp():
            other_bool = ast.And if isinstance(node.op, ast.Or) else ast.Or
            yield node, _said(type(node.op), other_bool), lambda: setattr(node, "op", other_bool())
        case ast.BinOp(op=op) if type(op) in _COUNTED and not (_is_text(node.left) or _is_text(node.right)):
            other_op = _COUNTED[type(op)]
            yield node, _said(type(op), other_op), lambda: setattr(node, "op", other_op())
        case ast.AugAssign() if type(node.op) in _COUNTED:
            other_step = _COUNTED[type(node.op)]
            said = f"{_SIGNS[type(node.op)]}= -> {_SIGNS[other_step]}="
            yield node, said, lambda: setattr(node, "op", other_step())
        case ast.If() | ast.IfExp() | ast.While() if _is_bare(node.test):
            negated = ast.UnaryOp(op=ast.Not(), operand=node.test)
            yield node.test, "if x -> if not x", lambda: setattr(node, "test", negated)
        case ast.comprehension():
            for index, test in enumerate(node.ifs):
                if _is_bare(test):
                    other_test = ast.UnaryOp(op=ast.Not(), operand=test)
                    yield test, "if x -> if not x", lambda i=index, other=other_test: node.ifs.__setitem__(i, other)


def _of_value(node: ast.AST) -> Iterator[tuple[ast.AST, str, Callable[[], None]]]:
    match node:
        case ast.Constant(value=bool() as truth):
            yield node, f"{truth} -> {not truth}", lambda: setattr(node, "value", not truth)
        case ast.Constant(value=int() as number):
            yield node, f"{number} -> {number + 1}", lambda: setattr(node, "value", number + 1)
        case ast.UnaryOp(op=ast.Not()):
            doubled = ast.UnaryOp(op=ast.Not(), operand=node.operand)
            yield node, "not x -> x", lambda: setattr(node, "operand", doubled)


def _is_bare(test: ast.expr) -> bool:
    """Whether nothing else changes this condition as a whole."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.Constant) and not (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _said(was: type[ast.AST], becomes: type[ast.AST]) -> str:
    return f"{_SIGNS[was]} -> {_SIGNS[becomes]}"
