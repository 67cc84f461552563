"""Anchors: what was seen of the chains at one time, kept outside of the database.

A chain of hashes cannot show that its newest entries were cut off, nor that all of it was written anew by somebody who
can compute hashes. An anchor can, if whoever writes the database cannot write the anchors, or cannot sign them. One
line of JSON each; the signature is over the rest of the line in its canonical form:

    {"anchor": 2, "at": TIME, "deployment_id": ID, "decisions": COUNT, "head": SEAL or null,
     "receipts": {CHAIN: COUNT}, "key": ID, "signature": BASE64}

An unsigned one is of format 1 and has neither key nor signature.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from pushlink.protocol.snapshots import canonical, write_time

#: The formats, and whether their lines are signed.
FORMATS: Final = {1: False, 2: True}

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
    content: bytes = field(default=b"", compare=False, repr=False)  # what a signature is over
    key: str | None = None
    signature: str | None = None


def write_anchor(
    *,
    at: dt.datetime,
    deployment_id: str,
    decisions: int,
    head: str | None,
    receipts: Mapping[str, int],
    sign: Callable[[bytes], tuple[str, str]] | None = None,
) -> bytes:
    """The line of an anchor, with its end; `sign` answers with the id of a key and its signature over the content."""
    document: dict[str, object] = {
        "anchor": 1 if sign is None else 2,
        "at": write_time(at),
        "deployment_id": deployment_id,
        "decisions": decisions,
        "head": head,
        "receipts": dict(receipts),
    }
    content = canonical(document)
    if sign is not None:
        document["key"], document["signature"] = sign(content)
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
    if not isinstance(found, dict) or found.get("anchor") not in list(FORMATS):
        return f"it is no anchor of format {' or '.join(map(str, FORMATS))}"
    is_signed = FORMATS[found["anchor"]]
    key, signature = (found.pop(name, None) for name in ("key", "signature"))
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
        or {type(key), type(signature)} != ({str} if is_signed else {type(None)})
    ):
        return "it lacks a part, or has one that cannot be"
    return Anchor(
        at=at,
        deployment_id=deployment_id,
        decisions=count,
        head=head,
        receipts=receipts,
        content=canonical(found),
        key=key,
        signature=signature,
    )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
