"""Anchors: what was seen of the chains at one time, kept outside of the database.

A chain of hashes cannot show that its newest entries were cut off, nor that all of it was written anew by somebody who
can compute hashes. An anchor can, if whoever writes the database cannot write the anchors. One line of JSON each:

    {"anchor": 1, "at": TIME, "deployment_id": ID, "decisions": COUNT, "head": SEAL or null, "receipts": {CHAIN: COUNT}}
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from pushlink.protocol.snapshots import canonical, write_time

FORMAT: Final = 1

#: More than any anchor needs.
LINE_BYTES_MAX: Final = 10_000

_SEAL: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """How many decisions there were, the seal of the newest, and how many receipts each chain had."""

    at: str
    deployment_id: str
    decisions: int
    head: str | None
    receipts: Mapping[str, int]


def write_anchor(
    *, at: dt.datetime, deployment_id: str, decisions: int, head: str | None, receipts: Mapping[str, int]
) -> bytes:
    """The line of an anchor, with its end."""
    document = {
        "anchor": FORMAT,
        "at": write_time(at),
        "deployment_id": deployment_id,
        "decisions": decisions,
        "head": head,
        "receipts": dict(receipts),
    }
    return canonical(document) + b"\n"


def read_anchor(line: bytes) -> Anchor | str:
    """The anchor of a line, or in words what is wrong with the line."""
    if len(line) > LINE_BYTES_MAX:
        return f"it is longer than {LINE_BYTES_MAX} bytes"
    if not line.endswith(b"\n"):
        return "it has no end: the file was cut, or somebody is writing it"
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return "it is no JSON"
    if not isinstance(found, dict) or found.get("anchor") != FORMAT:
        return f"it is no anchor of format {FORMAT}"
    count, head, receipts = found.get("decisions"), found.get("head"), found.get("receipts")
    at, deployment_id = found.get("at"), found.get("deployment_id")
    is_head = head is None if count == 0 else isinstance(head, str) and _SEAL.fullmatch(head) is not None
    if (
        not isinstance(at, str)
        or not isinstance(deployment_id, str)
        or not _is_count(count)
        or not is_head
        or not isinstance(receipts, dict)
        or not all(_is_count(each) for each in receipts.values())
    ):
        return "it lacks a part, or has one that cannot be"
    return Anchor(at=at, deployment_id=deployment_id, decisions=count, head=head, receipts=receipts)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
