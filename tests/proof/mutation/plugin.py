"""A plugin of pytest (`-p proof.mutation.plugin`): one rule is off from before any test is imported.

How the test failed is told on a line of its own: an assertion is what a mutant is to be caught by, and so is an error
that pushlink says by name, or a test that unpacks another number of rows than it expects. Any other exception means
that the mutant itself is broken, and proves nothing.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from proof.mutation import MUTANTS
from pushlink.errors import PushlinkError

VARIABLE: Final = "PUSHLINK_MUTANT"
NOTICED: Final = "the mutant was noticed: "
CRASHED: Final = "the mutant crashed: "

_said: list[str] = []
_NOTICES: Final = (AssertionError, PushlinkError, pytest.fail.Exception)


def pytest_configure() -> None:
    """Switch off what the environment names."""
    _said.clear()
    name = os.environ.get(VARIABLE)
    if name:
        MUTANTS[name].off()


def pytest_exception_interact(node: Any, call: Any) -> None:
    """Note why a test failed."""
    error = call.excinfo.value
    is_count = isinstance(error, ValueError) and "to unpack" in str(error)  # `[row] = ...`, in the test itself
    is_said = isinstance(error, _NOTICES) or (is_count and call.excinfo.traceback[-1].path == node.path)
    mark = NOTICED if is_said else CRASHED
    said = (str(error).splitlines() or [""])[0]
    _said.append(f"{mark}{type(error).__name__}: {said} ({node.name})")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell it to whoever reads the output."""
    for line in _said:
        terminalreporter.write_line(line)
