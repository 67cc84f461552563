"""Adoption manifests: JSON lines that say of every record with a legacy link whether it is adopted, or why not.

The first line is what the plan was made with, the last its totals and the digest of all lines before; between them is
one line a record, in link-key order, so that an apply can walk through it with the memory of one batch. Every line is
its own canonical form (RFC 8785): the same rows, the same declarations and the same operation give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias

from pushlink.errors import CallerError
from pushlink.protocol.adoption import Because, Legacy, Pair
from pushlink.protocol.documents import LINK_KEY, SHA256, parts, unplain
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, Slots

#: The version of the document's form.
FORMAT: Final = 1
KIND: Final = "adoption_manifest"

#: No line is longer; the bound keeps a mistaken file out of memory.
LINE_BYTES_MAX: Final = 65_536

#: The canonical form of what stands in a manifest: objects of ASCII names with texts, whole numbers and truth values,
#: which the standard encoder writes as RFC 8785 does, ten times as fast as a canonicaliser of everything.
_ENCODE: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode

#: A detail is a hint for a person, not a copy of a field.
DETAIL_LENGTH_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The action of the catalogue that the records are adopted for, as it was when the plan was made."""

    connector_owner_key: str
    action_slot_id: str
    destination_slot_id: str
    destination_scope: str
    install_id: InstallId
    action_digest: Digest
    profile_digest: Digest
    mapping_fingerprint: Digest
    body_fingerprint: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a plan was made with."""

    operation_id: str
    tenant: str
    source_object: str
    action: Binding
    legacy: Legacy
    remote_verified: bool

    @property
    def slots(self) -> Slots:
        """The identity that every link key of the manifest is made of."""
        return Slots(
            tenant=self.tenant,
            connector_owner_key=self.action.connector_owner_key,
            action_slot_id=self.action.action_slot_id,
            destination_slot_id=self.action.destination_slot_id,
            source_object=self.source_object,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoptable:
    """A record that becomes a link: what it claims, and the record and the rows of ours that it was planned over."""

    link_key: LinkKey
    record_id: str
    remote_id: str
    record_digest: Digest
    rows_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record that is left alone. `link_key` is empty where the record has no id that a key could be made of."""

    link_key: LinkKey
    record_id: str
    because: str  # a `Because`
    detail: str


Entry: TypeAlias = Adoptable | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the entries add up to. `empty` counts records in which no older integration left anything."""

    records: int
    empty: int
    adoptable: int
    refused: Mapping[str, int]
    digest: Digest


# ------------------------------------------------------------------------------------------------ writing


def write_lines(header: Header, entries: Iterable[Entry], *, empty: int) -> Iterator[tuple[bytes, Totals | None]]:
    """The lines of a manifest, each with its line end; the totals come with the last one.

    Entries must come in the order of link key and record id.
    """
    running = hashlib.sha256()
    counts: Counter[str] = Counter()
    adoptable = 0
    for content in _contents(header, entries):
        if "because" in content:
            counts[str(content["because"])] += 1
        elif "remote_id" in content:
            adoptable += 1
        line = _line(content)
        running.update(line)
        yield line, None
    totals = Totals(
        records=adoptable + counts.total() + empty,
        empty=empty,
        adoptable=adoptable,
        refused=dict(sorted(counts.items())),
        digest=Digest(""),
    )
    content = asdict(totals) | {"digest": _sealed(running, totals)}
    yield _line(content), Totals(**content)


def _line(content: Mapping[str, Any]) -> bytes:
    return _ENCODE(content).encode() + b"\n"


def _contents(header: Header, entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    yield {"kind": KIND, "format": FORMAT, **asdict(header)}
    for entry in entries:
        content = asdict(entry)
        if isinstance(entry, Refused):
            content["detail"] = entry.detail[:DETAIL_LENGTH_MAX]
        yield content


def _sealed(running: Any, totals: Totals) -> Digest:
    """The digest of all lines before the last, and of what the last says."""
    whole = running.copy()
    whole.update(_line(asdict(totals) | {"digest": ""}).rstrip())
    return Digest("sha256:" + whole.hexdigest())


# ------------------------------------------------------------------------------------------------ reading


def read_lines(lines: Iterable[bytes]) -> Iterator[Header | Entry | Totals]:
    """The parts of a manifest, in their order; raises `CallerError` at the first line that cannot be trusted.

    Only who has read it to its end knows that the digest holds: read it through once before acting on any of it.
    """
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            yield reader.take(line)
        except _Wrong as wrong:
            raise _refused(number, str(wrong)) from None
    if not reader.is_whole:
        raise _refused(reader.count + 1, "the manifest ends before its last line")


def read_planned(lines: Iterable[bytes]) -> Iterator[Adoptable]:
    """The records to adopt of a manifest that was read through before and was whole; nothing is checked again."""
    for line in lines:
        content = json.loads(line)
        if content.keys() == _ADOPTABLE:
            yield Adoptable(**content)


_ADOPTABLE: Final = {entry.name for entry in fields(Adoptable)}


class _Wrong(Exception):
    """What is wrong with a line, in words."""


class _Reader:
    """What is known of the lines so far."""

    def __init__(self) -> None:
        self.count = 0
        self.is_whole = False
        self._running = hashlib.sha256()
        self._before = ("", "")
        self._adoptable = 0
        self._refused: Counter[str] = Counter()

    def take(self, line: bytes) -> Header | Entry | Totals:
        """The next part."""
        if self.is_whole:
            raise _Wrong("there is something behind its last line")
        content = _parsed(line)
        self.count += 1
        part: Header | Entry | Totals
        if self.count == 1:
            part = _header(content)
        elif "digest" in content:
            part = self._totals(content)
        else:
            part = self._entry(content)
        self._running.update(line)
        return part

    def _entry(self, content: dict[str, Any]) -> Entry:
        entry = _entry(content)
        place = (entry.link_key, entry.record_id)
        if place <= self._before:
            raise _Wrong("its entries are not sorted by link key, or one is there twice")
        self._before = place
        if isinstance(entry, Refused):
            self._refused[entry.because] += 1
        else:
            self._adoptable += 1
        return entry

    def _totals(self, content: dict[str, Any]) -> Totals:
        _require("the last line", content, _TOTALS)
        totals = Totals(**content)
        unsealed = Totals(**content | {"digest": ""})
        counted = (self._adoptable, dict(self._refused), totals.empty + self._adoptable + self._refused.total())
        if (totals.adoptable, dict(totals.refused), totals.records) != counted:
            raise _Wrong("its totals are not those of its entries")
        if totals.digest != _sealed(self._running, unsealed):
            raise _Wrong("the digest is not that of the manifest")
        self.is_whole = True
        return totals


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise _Wrong(f"the line has more than {LINE_BYTES_MAX} bytes")
    try:
        content = json.loads(line)
        is_canonical = isinstance(content, dict) and _line(content) == line
    except (ValueError, RecursionError):
        raise _Wrong("the line is no JSON document") from None
    if not is_canonical:
        raise _Wrong("the line is no object in its canonical form (RFC 8785)")
    return dict(content)


def _header(content: dict[str, Any]) -> Header:
    if (content.get("kind"), content.get("format")) != (KIND, FORMAT):
        raise _Wrong(f"it is no {KIND} of format {FORMAT}")
    _require("the first line", content, _HEADER)
    _require("action", content["action"], dict.fromkeys((entry.name for entry in fields(Binding)), str))
    for name in ("operation_id", "source_object", *(["tenant"] if content["tenant"] else [])):
        _first(unplain(name, content[name]))
    return Header(
        operation_id=content["operation_id"],
        tenant=content["tenant"],
        source_object=content["source_object"],
        action=Binding(**content["action"]),
        legacy=_legacy(content["legacy"]),
        remote_verified=content["remote_verified"],
    )


def _legacy(content: dict[str, Any]) -> Legacy:
    _require("legacy", content, _LEGACY)
    for pair in (content["current"], *content["older"]):
        _require("a pair", pair, {"remote_id": str, "provenance": str})
    if not all(isinstance(mark, str) for mark in (*content["markers"], *content["elsewhere"])):
        raise _Wrong("a mark is of another type")
    return Legacy(
        current=Pair(**content["current"]),
        older=tuple(Pair(**pair) for pair in content["older"]),
        markers=tuple(content["markers"]),
        elsewhere=tuple(content["elsewhere"]),
        destination_field=content["destination_field"],
        destination_value=content["destination_value"],
    )


def _entry(content: dict[str, Any]) -> Entry:
    kind: type[Adoptable | Refused] = Refused if "because" in content else Adoptable
    _require("the entry", content, dict.fromkeys((entry.name for entry in fields(kind)), str))
    entry = kind(**content)
    if not LINK_KEY.fullmatch(entry.link_key) and (entry.link_key or isinstance(entry, Adoptable)):
        raise _Wrong("link_key is no link key")
    if isinstance(entry, Refused) and entry.because not in set(Because):
        raise _Wrong(f"{entry.because!r} is no reason of this release")
    if isinstance(entry, Adoptable) and not all(map(SHA256.fullmatch, (entry.record_digest, entry.rows_digest))):
        raise _Wrong("a digest is none")
    return entry


def _require(what: str, value: object, wanted: Mapping[str, type]) -> None:
    _first(parts(what, value, wanted))


def _first(findings: Iterable[str]) -> None:
    for finding in findings:
        raise _Wrong(finding)


_HEADER: Final[Mapping[str, type]] = {
    "kind": str,
    "format": int,
    "operation_id": str,
    "tenant": str,
    "source_object": str,
    "action": dict,
    "legacy": dict,
    "remote_verified": bool,
}
_LEGACY: Final[Mapping[str, type]] = {
    "current": dict,
    "older": list,
    "markers": list,
    "elsewhere": list,
    "destination_field": str,
    "destination_value": str,
}
_TOTALS: Final[Mapping[str, type]] = {"records": int, "empty": int, "adoptable": int, "refused": dict, "digest": str}


def _refused(number: int, said: str) -> CallerError:
    return CallerError(
        f"The manifest cannot be used: line {number}: {said}.",
        evidence={"line": number, "finding": said},
        next_step="make it anew with `pushlink adopt plan`; a manifest is never edited",
    )
