"""YAML 1.2 text as a tree of plain values that remember where they stand.

Only what JSON can say is let through: mappings with text keys, lists, text, whole numbers, true, false and null. What
makes YAML surprising is refused by name and place, never guessed: anchors and aliases (a few lines of them make
gigabytes), merge keys, tags, directives, several documents, duplicate keys, numbers with a fraction or a leading zero,
and the other spellings of true, false and null. The tree is built from parser events on a stack of its own, so neither
a deep document nor a long one can exhaust the interpreter; nothing is constructed from a tag.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from pushlink.errors import Finding

#: Deep enough for any pack (about ten levels) with an envelope of its own below that.
DEPTH_MAX: Final = 32

#: RFC 8785 keeps integers exact up to here; longer ones are ids, and ids are text.
INTEGER_MAX: Final = 2**53 - 1

#: Line and column, 1-based.
Place: TypeAlias = tuple[int, int]

#: Names of keys and indexes of lists from the root to a value.
Steps: TypeAlias = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FRACTION = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_SHOUTED: Final = frozenset({"True", "TRUE", "False", "FALSE", "Null", "NULL"})
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True, kw_only=True)
class Node:
    """One value and its place. `faulty` says that a finding names it already."""

    place: Place
    value: str | int | bool | None = None
    entries: dict[str, Entry] | None = None
    items: list[Node] | None = None
    faulty: bool = False

    def plain(self) -> object:
        """The value as JSON has it."""
        if self.entries is not None:
            return {key: entry.node.plain() for key, entry in self.entries.items()}
        if self.items is not None:
            return [item.plain() for item in self.items]
        return self.value

    def kind(self) -> str:
        """What it is, in the words of a finding."""
        if self.entries is not None:
            return "keys with values"
        if self.items is not None:
            return "a list"
        match self.value:
            case None:
                return "nothing"
            case bool():
                return "true or false"
            case int():
                return "a number"
            case _:
                return "text"

    def child(self, step: str | int) -> Node | None:
        """The value below a key or at an index, if there is one."""
        if self.entries is not None and isinstance(step, str):
            entry = self.entries.get(step)
            return entry.node if entry else None
        if self.items is not None and isinstance(step, int) and step < len(self.items):
            return self.items[step]
        return None


@dataclass(slots=True, kw_only=True)
class Entry:
    """A value below a key, and the place of the key."""

    place: Place
    node: Node


@dataclass(slots=True, kw_only=True)
class _Open:
    """A mapping or list whose end was not seen yet; in a mapping, `key` waits for its value."""

    node: Node
    steps: Steps
    key: Event | None = None


def write_path(steps: Steps) -> str:
    """The steps as people write them: `flows[0].actions[1].create.path`, `headers["X-Version"]`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _SIMPLE_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text


def value_place(root: Node | None, steps: Steps) -> Place:
    """Where the deepest value on the way stands that exists; 0, 0 without a tree."""
    if root is None:
        return 0, 0
    node = root
    for step in steps:
        below = node.child(step)
        if below is None:
            break
        node = below
    return node.place


def key_place(root: Node, steps: Steps) -> Place:
    """Where the last of the steps stands as a key; else where its value, or what should hold it, does."""
    node: Node | None = root
    for step in steps[:-1]:
        node = node.child(step) if node else None
    entry = node.entries.get(str(steps[-1])) if node and node.entries else None
    return entry.place if entry else value_place(root, steps)


def parse(text: str, file: str) -> tuple[Node | None, list[Finding]]:
    """The tree of `text`, and what is wrong with it as YAML; the tree is None when there is nothing to go on with."""
    builder = _Builder(file)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
            if builder.stopped:
                return None, builder.findings
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        builder.report(where, (), f"This is not YAML: {' '.join(_reasons(error))}.")
        return None, builder.findings
    except ReaderError as error:
        where = _place_in(text, error.position)
        builder.report(where, (), "A control character stands here. Remove it, or write it as an escape in quotes.")
        return None, builder.findings
    except (ValueError, OverflowError) as error:
        # The scanner turns the digits of an escape into a character without a look at their size.
        builder.report(_bad_escape(text), (), f"An escape in double quotes names no character: {error}.")
        return None, builder.findings
    except (YAMLError, AssertionError) as error:
        builder.report((0, 0), (), f"This is not YAML: {error}.")
        return None, builder.findings
    if builder.root is None and not builder.findings:
        builder.report((1, 1), (), "The document is empty. Write its keys and values.")
    return builder.root, builder.findings


def _place_in(text: str, position: int) -> Place:
    before = text[:position]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _bad_escape(text: str) -> Place:
    escapes = re.finditer(r"\\U([0-9A-Fa-f]{8})", text)
    return next((_place_in(text, escape.start()) for escape in escapes if int(escape[1], 16) > sys.maxunicode), (0, 0))


def _reasons(error: MarkedYAMLError) -> Iterator[str]:
    if error.context:
        yield f"{error.context},"
    yield (error.problem or "the text stops making sense here").replace("<stream end>", "the end of the file")


@dataclass(slots=True)
class _Builder:
    """Takes events one at a time and keeps the tree, the open collections and the findings."""

    file: str
    root: Node | None = None
    stopped: bool = False
    findings: list[Finding] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    documents: int = 0

    def report(self, where: Place, steps: Steps, message: str) -> None:
        """Note one thing to mend."""
        line, column = where
        path = write_path(steps)
        self.findings.append(Finding(file=self.file, line=line, column=column, path=path, message=message))

    def take(self, event: Event) -> None:
        """Take the next event of the parser."""
        match event:
            case DocumentStartEvent():
                self._start_document(event)
            case MappingStartEvent():
                self._open(event, Node(place=_place(event), entries={}))
            case SequenceStartEvent():
                self._open(event, Node(place=_place(event), items=[]))
            case MappingEndEvent() | SequenceEndEvent():
                self.stack.pop()
            case ScalarEvent():
                event.value = _join_halves(event.value)
                self._scalar(event)
            case AliasEvent():
                self._scalar(event)
            case _:
                pass

    def _start_document(self, event: DocumentStartEvent) -> None:
        self.documents += 1
        where = _place(event)
        if self.documents > 1:
            self.report(where, (), "A second document starts here. Write one document in one file.")
            self.stopped = True
        if event.tags or event.version not in {None, (1, 2)}:
            self.report(where, (), "Remove the directives: the file is always read as YAML 1.2.")
            self.stopped = True

    def _steps(self) -> Steps:
        """Where the next value goes."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if top.node.items is not None:
            return (*top.steps, len(top.node.items))
        return (*top.steps, top.key.value) if isinstance(top.key, ScalarEvent) else top.steps

    def _awaits_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].node.entries is not None and self.stack[-1].key is None

    def _open(self, event: MappingStartEvent | SequenceStartEvent, node: Node) -> None:
        if self._awaits_key():
            self.report(node.place, self._steps(), "A key is text, not a list or a mapping.")
            self.stopped = True
            return
        if len(self.stack) >= DEPTH_MAX:
            message = f"This is nested too deeply: at most {DEPTH_MAX} levels are read."
            self.report(node.place, self._steps(), message)
            self.stopped = True
            return
        steps = self._steps()
        node.faulty = self._decorated(event, node.place, steps)
        self._put(node)
        self.stack.append(_Open(node=node, steps=steps))

    def _scalar(self, event: ScalarEvent | AliasEvent) -> None:
        if self._awaits_key():
            self._take_key(event)
            return
        steps = self._steps()
        node = Node(place=_place(event))
        key = self.stack[-1].key if self.stack else None
        if key is not None and isinstance(event, ScalarEvent) and not event.value and event.style is None:
            node.place = _place(key)  # nothing is written, and the parser says where the next thing is
        if isinstance(event, AliasEvent):
            node.faulty = True
            self.report(node.place, steps, "Aliases are refused: write the value out in full.")
        else:
            node.faulty = self._decorated(event, node.place, steps)
            self._resolve(event, node, steps)
        self._put(node)

    def _take_key(self, event: ScalarEvent | AliasEvent) -> None:
        top, where = self.stack[-1], _place(event)
        top.key = event
        if isinstance(event, AliasEvent):
            self.report(where, top.steps, "Aliases are refused: write the key out in full.")
            return
        self._decorated(event, where, top.steps)
        if event.value == "<<" and event.style is None:
            self.report(where, top.steps, "Merge keys are refused: write the keys out in full.")
        elif not event.value:
            self.report(where, top.steps, "This key is empty. Write its name before the colon.")
        elif problem := _bad_text(event.value):
            self.report(where, top.steps, problem)

    def _put(self, node: Node) -> None:
        """Hang the value below what is open; it is dropped when a finding names its key."""
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if top.node.items is not None:
            top.node.items.append(node)
            return
        key, top.key = top.key, None
        if top.node.entries is None or not isinstance(key, ScalarEvent) or _bad_key(key):
            return
        where = _place(key)
        if (known := top.node.entries.get(key.value)) is not None:
            message = (
                f"`{key.value}` is written a second time; the first is in line {known.place[0]}. Keep one of them."
            )
            self.report(where, (*top.steps, key.value), message)
            return
        top.node.entries[key.value] = Entry(place=where, node=node)

    def _decorated(
        self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent, where: Place, steps: Steps
    ) -> bool:
        if event.anchor is not None:
            self.report(where, steps, f"Anchors are refused: remove `&{event.anchor}`.")
        if event.tag is not None:
            self.report(where, steps, f"Tags are refused: remove `{_shown_tag(event.tag)}`.")
        return event.anchor is not None or event.tag is not None

    def _resolve(self, event: ScalarEvent, node: Node, steps: Steps) -> None:
        """Text in quotes is text; a plain word is what YAML 1.2 says, unless people read it in two ways."""
        text = event.value
        node.value = text
        problem = _bad_text(text)
        if problem is None and event.style is None:
            if text in _WORDS:
                node.value = _WORDS[text]
            elif text in _SHOUTED:
                problem = f"Write {text.lower()} in small letters, or in quotes if it is text."
            elif _LEADING_ZERO.fullmatch(text):
                problem = f'A number does not start with 0. If it is text, put it in quotes: "{text}".'
            elif _INTEGER.fullmatch(text):
                node.value, problem = _integer(text)
            elif _FRACTION.fullmatch(text):
                problem = f'A number with a fraction is not exact. Write it as text, in quotes: "{text}".'
        if problem is not None:
            node.faulty = True
            self.report(node.place, steps, problem)


def _integer(text: str) -> tuple[int | str, str | None]:
    # The interpreter refuses to convert thousands of digits, and a pack has no use for more than a few.
    digits_max = 24
    number = int(text, 0) if len(text) <= digits_max else INTEGER_MAX + 1
    if abs(number) > INTEGER_MAX:
        return text, f'This number is too long to be kept exact. Write it as text, in quotes: "{text[:digits_max]}".'
    return number, None


def _join_halves(text: str) -> str:
    """JSON writes a character beyond the first 65,536 as two escapes; one alone is left for a finding."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _bad_text(text: str) -> str | None:
    if "\x00" in text:
        return "Text cannot hold a NUL character. Remove it."
    if _SURROGATE.search(text):
        return "This escape is half a character. Write the character itself."
    return None


def _bad_key(key: ScalarEvent) -> bool:
    return not key.value or (key.value == "<<" and key.style is None) or _bad_text(key.value) is not None


def _shown_tag(tag: object) -> str:
    return str(tag).replace("tag:yaml.org,2002:", "!!")


def _place(event: Event) -> Place:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1
