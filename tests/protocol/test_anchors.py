"""The line of an anchor: what it is, byte by byte, and every way in which it may be wrong."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from pushlink.protocol.anchors import LINE_BYTES_MAX, Anchor, read_anchor, write_anchor
from pushlink.protocol.snapshots import canonical

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
HEAD = "sha256:" + "a" * 64
UNSIGNED = (
    b'{"anchor":1,"at":"2026-03-01T12:00:00.000000Z","decisions":3,"deployment_id":"d1",'
    b'"head":"' + HEAD.encode() + b'","receipts":{"rebind":2}}'
)
LACKS = "it lacks a part, or has one that cannot be"


def written(**more: Any) -> bytes:
    given: dict[str, Any] = {"at": AT, "deployment_id": "d1", "decisions": 3, "head": HEAD, "receipts": {"rebind": 2}}
    return write_anchor(**{**given, **more})


def signed() -> bytes:
    return written(sign=lambda content: ("k1", f"over {len(content)}"))


def changed(line: bytes, **parts: Any) -> bytes:
    """The line with parts of another value; `...` leaves one out."""
    document = {name: part for name, part in {**json.loads(line), **parts}.items() if part is not ...}
    return canonical(document) + b"\n"


@pytest.mark.rule("D-43")
def test_an_unsigned_anchor_is_pinned_and_is_of_the_first_format() -> None:
    assert written() == UNSIGNED + b"\n"
    found = read_anchor(written())
    assert found == Anchor(
        at="2026-03-01T12:00:00.000000Z", deployment_id="d1", decisions=3, head=HEAD, receipts={"rebind": 2}
    )
    assert isinstance(found, Anchor)
    assert found.content == UNSIGNED


def test_a_signed_anchor_is_of_the_second_format_and_its_signature_is_over_the_rest() -> None:
    content = UNSIGNED.replace(b'"anchor":1', b'"anchor":2')
    found = read_anchor(signed())
    assert isinstance(found, Anchor)
    assert (found.key, found.signature) == ("k1", f"over {len(content)}")
    assert found.content == content
    assert repr(content) not in repr(found)


@pytest.mark.parametrize("head", [None, HEAD])
def test_a_deployment_without_a_decision_has_no_head(head: str | None) -> None:
    """And only such a one."""
    empty = changed(written(), decisions=0, head=head)
    assert (read_anchor(empty) == LACKS) is (head is not None)
    assert (read_anchor(changed(written(), head=head)) == LACKS) is (head is None)


def test_counts_start_at_nothing() -> None:
    found = read_anchor(changed(written(), receipts={"rebind": 0, "adoption": 1}))
    assert isinstance(found, Anchor)
    assert found.receipts == {"rebind": 0, "adoption": 1}


@pytest.mark.parametrize("line", [written(), signed()], ids=["unsigned", "signed"])
@pytest.mark.parametrize(
    "parts",
    [
        {"at": 7},
        {"at": ...},
        {"deployment_id": None},
        {"decisions": -1},
        {"decisions": True},
        {"decisions": "3"},
        {"decisions": ...},
        {"head": 7},
        {"head": HEAD + "0"},
        {"head": "sha256:" + "A" * 64},
        {"receipts": []},
        {"receipts": ...},
        {"receipts": {"rebind": -1}},
        {"receipts": {"rebind": False}},
        {"receipts": {"rebind": 1, "adoption": "2"}},
    ],
    ids=str,
)
def test_an_anchor_with_a_part_that_cannot_be_is_none(line: bytes, parts: dict[str, Any]) -> None:
    assert read_anchor(changed(line, **parts)) == LACKS


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (written(), {"key": "k1"}),
        (written(), {"signature": "s"}),
        (written(), {"key": "k1", "signature": "s"}),
        (signed(), {"key": ...}),
        (signed(), {"signature": ...}),
        (signed(), {"key": ..., "signature": ...}),
        (signed(), {"key": 7}),
        (signed(), {"signature": 7}),
    ],
)
def test_an_anchor_is_signed_whole_or_not_at_all(line: bytes, parts: dict[str, Any]) -> None:
    """A format says which; a signature that was taken away does not make an unsigned anchor."""
    assert read_anchor(changed(line, **parts)) == LACKS


@pytest.mark.parametrize("found", [b"[1]", b"7", b'"anchor"', b'{"anchor":3}', b'{"anchor":0}', b"{}"])
def test_a_document_of_another_format_is_no_anchor(found: bytes) -> None:
    assert read_anchor(found + b"\n") == "it is no anchor of format 1 or 2"


def test_a_line_that_was_cut_or_is_something_else_is_no_anchor() -> None:
    """One of as many bytes as there may be is still looked at."""
    assert read_anchor(UNSIGNED) == "it has no end: the file was cut, or somebody is writing it"
    assert read_anchor(b"{\n") == "it is no JSON"
    assert read_anchor(b"[" * (LINE_BYTES_MAX - 1) + b"\n") == "it is no JSON"
    assert read_anchor(b" " * LINE_BYTES_MAX + b"\n") == f"it is longer than {LINE_BYTES_MAX} bytes"
