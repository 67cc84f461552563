"""How answers look: JSON for scripts on standard output, tables and sentences for people, errors in both.

With `--json` standard output holds exactly one document, the error included; everything that is said to people goes to
standard error. Text from databases and remotes is untrusted: control characters are shown as escapes, never sent to a
terminal, and no markup in it is obeyed.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pushlink.errors import PushlinkError

#: Columns where nobody looks at a terminal: tables are then not squeezed.
WIDTH_PIPED: Final = 240

#: The form of an instant in every document: UTC with microseconds, always of one width.
_INSTANT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"

#: Controls of terminals, and of the direction of text.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Output:
    """Where one command writes to."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def document(self, value: object) -> None:
        """The one JSON document of a command."""
        ascii_only = not self.out.encoding.lower().startswith("utf")
        text = json.dumps(plain(value), indent=2, ensure_ascii=ascii_only)
        self.out.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def say(self, *lines: str, style: str | None = None) -> None:
        """Sentences for people."""
        for line in lines:
            self.out.print(Text(shown(line), style=style or ""), soft_wrap=True)

    def note(self, line: str) -> None:
        """A sentence beside the answer: on standard error, so that pipes stay clean."""
        self.err.print(Text(shown(line)), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table for people."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(shown(_cell(value))) for value in row))
        self.out.print(table)

    def error(self, error: PushlinkError) -> None:
        """An expected error: what, evidence, what to do next; never a traceback."""
        if self.as_json:
            self.document(error_document(error))
            return
        self.err.print(Text(f"{error.code.value}: ", style="bold red") + Text(shown(error.message)), soft_wrap=True)
        for name, value in plain_object(error.evidence).items():
            for line in _lines(name, value):
                self.err.print(Text(shown(line)), soft_wrap=True)
        if error.next_step:
            self.err.print(Text("next: ", style="bold") + Text(shown(error.next_step)), soft_wrap=True)


def error_document(error: PushlinkError) -> dict[str, object]:
    """The JSON shape of every error."""
    return {
        "error": {
            "code": error.code.value,
            "message": error.message,
            "evidence": plain_object(error.evidence),
            "next": error.next_step,
        }
    }


def plain(value: object) -> object:
    """Dataclasses, enumerations and times as what JSON has. Ids stay text, digit for digit."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return plain(value.value)
        case str():
            return str(value)
        case dt.datetime():
            return value.astimezone(dt.UTC).strftime(_INSTANT)
        case Mapping():
            return {str(plain(name)): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted(str(plain(item)) for item in value)
        case PurePath():
            return str(value)
        case _:
            return str(value)


def plain_object(value: Mapping[str, object]) -> dict[str, object]:
    """A mapping as a JSON object."""
    return {str(name): plain(item) for name, item in value.items()}


def shown(text: str) -> str:
    """Text that cannot steer a terminal."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def time_shown(moment: dt.datetime | None) -> str:
    """A time for people: UTC, to the second."""
    return "" if moment is None else moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def inline_json(value: object) -> str:
    """A value in one line, for people."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def _lines(name: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [f"  {name}: {inline_json(item)}" for item in value]
    return [f"  {name}: {inline_json(value)}"]


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case dt.datetime():
            return time_shown(value)
        case bool():
            return "yes" if value else ""
        case _:
            return str(value)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_PIPED
    return console
