"""Reads a pack from a file or a text and says, for everything that is wrong with it, where it stands and what to do.

Three steps, each of which tells all it finds: the text becomes a tree of plain values (`tree.py`), the tree becomes a
`Pack` (pydantic, in strict mode), and the pack is linted (`lint.py`). Nothing is fetched, included, executed or
guessed, and the file is read once: what was checked is what is returned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from pushlink.errors import Finding, PackError
from pushlink.packs.addresses import fill_addresses
from pushlink.packs.explain import explain
from pushlink.packs.lint import LintFinding, Severity, lint
from pushlink.packs.model import Pack
from pushlink.packs.tree import Node, parse

#: Bytes of a pack file. The largest packs anyone has shown us are a tenth of this.
FILE_BYTES_MAX: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class PackDocument:
    """A pack that has the right shape, with the text it was read from and what lint says about it."""

    file: str
    text: str
    pack: Pack
    findings: tuple[LintFinding, ...]

    @property
    def errors(self) -> tuple[LintFinding, ...]:
        """The findings that must be mended before the pack can be used."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[LintFinding, ...]:
        """The findings that are probably not meant, but safe."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)


def load_pack(path: str | PathLike[str]) -> Pack:
    """The pack in a file, fit for use; raises `PackError` with every finding that is an error."""
    return _usable(read_pack(path))


def load_pack_text(text: str, *, file: str = "<text>") -> Pack:
    """The pack in a text, fit for use; raises `PackError` with every finding that is an error."""
    return _usable(read_pack_text(text, file=file))


def read_pack(path: str | PathLike[str]) -> PackDocument:
    """The pack in a file with all that lint says; raises `PackError` only when it has not the shape of a pack."""
    text, finding = read_text(path, "a pack's YAML file")
    if finding is not None:
        raise _refused(str(path), [finding])
    return read_pack_text(text, file=str(path))


def read_text(path: str | PathLike[str], kind: str) -> tuple[str, Finding | None]:
    """The text of a file, read once and no further than one byte over the bound; or why there is none."""
    file = str(path)
    try:
        if not Path(path).is_file():
            return "", _whole(file, f"There is no such file. Give the path of {kind}.")
        with Path(path).open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return "", _whole(file, f"The file cannot be read: {reason}.")
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        line, column = _place_of_byte(data, error.start)
        message = "The file is not UTF-8 text. Save it in that encoding."
        return "", Finding(file=file, line=line, column=column, path="", message=message)


def read_pack_text(text: str, *, file: str = "<text>") -> PackDocument:
    """The pack in a text with all that lint says; raises `PackError` only when it has not the shape of a pack."""
    if len(text.encode("utf-8", "surrogatepass")) > FILE_BYTES_MAX:
        raise _refused(file, [_whole(file, f"The pack is larger than {FILE_BYTES_MAX} bytes. Split it by connector.")])
    root, findings = parse(text, file)
    if root is None:
        raise _refused(file, findings)
    pack = _validate(root, file, findings)
    if pack is None or findings:
        raise _refused(file, findings)
    return PackDocument(file=file, text=text, pack=pack, findings=lint(pack, file=file, root=root))


def _validate(root: Node, file: str, findings: list[Finding]) -> Pack | None:
    """The model of the tree, or None with what is wrong appended to `findings`."""
    try:
        # By way of JSON: only there does strict mode take lists for tuples and text for enumerations.
        return fill_addresses(Pack.model_validate_json(json.dumps(root.plain()), by_alias=True, by_name=False))
    except ValidationError as error:
        findings.extend(explain(error, Pack, root, file))
        return None


def _usable(document: PackDocument) -> Pack:
    if document.errors:
        raise _refused(document.file, document.errors)
    return document.pack


def _refused(file: str, findings: Sequence[Finding]) -> PackError:
    ordered = tuple(sorted(findings, key=lambda finding: (finding.line, finding.column)))
    count = "one thing" if len(ordered) == 1 else f"{len(ordered)} things"
    first = f" The first: {ordered[0]}" if ordered else ""
    message = f"The pack {file} has {count} to mend.{first}"
    return PackError(message, findings=ordered, next_step=f"pushlink pack check {file}")


def _whole(file: str, message: str) -> Finding:
    return Finding(file=file, line=0, column=0, path="", message=message)


def _place_of_byte(data: bytes, position: int) -> tuple[int, int]:
    """Line and column of a byte, in characters; what stands before it in its line is sound."""
    start = data.rfind(b"\n", 0, position) + 1
    return data.count(b"\n", 0, position) + 1, len(data[start:position].decode("utf-8")) + 1
