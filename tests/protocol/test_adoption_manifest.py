"""The text of an adoption manifest: pinned, so that a later release reads what an older one planned."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pushlink.errors import CallerError
from pushlink.protocol.adoption import Legacy, Pair, record_digest
from pushlink.protocol.adoption_manifest import (
    DETAIL_LENGTH_MAX,
    LINE_BYTES_MAX,
    Adoptable,
    Binding,
    Entry,
    Header,
    Refused,
    Totals,
    read_lines,
    read_planned,
    write_lines,
)
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, canonical, digest_bytes

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "adoption_v1.jsonl"

HEADER = Header(
    operation_id="op-1",
    tenant="north",
    source_object="Person",
    action=Binding(
        connector_owner_key="owner-1",
        action_slot_id="act-1",
        destination_slot_id="dest-1",
        destination_scope="tenant-42",
        install_id=InstallId("install-1"),
        action_digest=Digest("sha256:" + "a" * 64),
        profile_digest=Digest("sha256:" + "b" * 64),
        mapping_fingerprint=Digest("mapping1:" + "c" * 64),
        body_fingerprint=Digest("body1:" + "d" * 64),
    ),
    legacy=Legacy(
        current=Pair(remote_id="remote_id", provenance="source"),
        older=(Pair(remote_id="old_id", provenance="old_source"),),
        markers=("sync-1", "sync-2"),
        elsewhere=("sync-eu",),
        destination_field="region",
        destination_value="nörth",
    ),
    remote_verified=True,
)
ENTRIES: tuple[Entry, ...] = (
    Refused(link_key=LinkKey(""), record_id="b'x'", because="record_unusable", detail="its key is no id"),
    Adoptable(
        link_key=LinkKey("lk1_" + "1" * 64),
        record_id="1",
        remote_id="7001",
        record_digest=Digest("sha256:" + "2" * 64),
        rows_digest=Digest("sha256:" + "3" * 64),
    ),
    Refused(link_key=LinkKey("lk1_" + "4" * 64), record_id="2", because="claimed_twice", detail="☃ claims it as well"),
)


def written() -> bytes:
    return b"".join(line for line, _ in write_lines(HEADER, ENTRIES, empty=5))


@pytest.mark.rule("D-43", "MG-06")
def test_a_manifest_of_an_earlier_release_is_read() -> None:
    """Its text and its digest are pinned, and its parts come out as they went in."""
    assert GOLDEN.read_bytes() == written()
    header, *entries, totals = read_lines(GOLDEN.read_bytes().splitlines(keepends=True))
    assert header == HEADER
    assert tuple(entries) == ENTRIES
    assert isinstance(totals, Totals)
    assert (totals.records, totals.empty, totals.adoptable) == (8, 5, 1)
    assert totals.refused == {"claimed_twice": 1, "record_unusable": 1}
    pinned = "sha256:fa86100b6b1a2f1063e272041460ae937d435c1022a49a4f2f1e851fbe07f041"
    assert record_digest({"remote_id": "7001", "source": None, "n": 7}) == pinned


def lines() -> list[bytes]:
    """The header, a refused record, an adoptable one, a refused one, and the totals."""
    return written().splitlines(keepends=True)


def changed(line: bytes, **parts: Any) -> bytes:
    """A line with parts of another value, in its canonical form; `...` leaves one out."""
    content = {name: part for name, part in {**json.loads(line), **parts}.items() if part is not ...}
    return canonical(content) + b"\n"


def sealed(*before: bytes, **totals: Any) -> list[bytes]:
    """These lines, and totals whose digest is right."""
    last = json.loads(lines()[-1]) | totals | {"digest": ""}
    digest = digest_bytes(b"".join(before) + canonical(last))
    return [*before, canonical(last | {"digest": digest}) + b"\n"]


def finding(text: list[bytes]) -> str:
    """What is wrong with a manifest, behind the number of the line."""
    with pytest.raises(CallerError) as caught:
        list(read_lines(text))
    return f"{caught.value.evidence['line']}: {caught.value.evidence['finding']}"


def test_what_was_planned_is_walked_through_with_no_more_than_a_line_in_memory() -> None:
    assert list(read_planned(iter(lines()))) == [ENTRIES[1]]


def test_the_totals_come_with_the_last_line() -> None:
    """All records: the empty ones too."""
    said = [totals for _, totals in write_lines(HEADER, ENTRIES, empty=5)]
    assert said[:-1] == [None] * 4
    assert said[-1] == list(read_lines(lines()))[-1]
    twice = (replace(ENTRIES[1], record_id="0"), *ENTRIES[1:], replace(ENTRIES[2], record_id="3"))
    *_, (_, totals) = write_lines(HEADER, twice, empty=1)
    assert totals is not None
    assert (totals.records, totals.empty, totals.adoptable, totals.refused) == (5, 1, 2, {"claimed_twice": 2})


def test_a_detail_is_cut_and_no_other_part() -> None:
    long = replace(ENTRIES[2], detail="x" * (DETAIL_LENGTH_MAX + 1), record_id="y" * (DETAIL_LENGTH_MAX + 1))
    [_, (line, _), _] = write_lines(HEADER, [long], empty=0)
    assert len(json.loads(line)["detail"]) == DETAIL_LENGTH_MAX
    assert json.loads(line)["record_id"] == long.record_id


@pytest.mark.rule("MG-06")
def test_a_manifest_that_is_not_whole_or_has_more_behind_it_is_refused() -> None:
    """Nothing of it is applied."""
    header, first, adoptable, second, last = lines()
    assert finding([]) == "1: the manifest ends before its last line"
    assert finding([header, first, adoptable, second]) == "5: the manifest ends before its last line"
    assert finding([header, first, adoptable, second, last, last]) == "6: there is something behind its last line"
    assert finding([header, adoptable, first]) == ("3: its entries are not sorted by link key, or one is there twice")
    assert finding([header, first, first]) == "3: its entries are not sorted by link key, or one is there twice"


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize(
    ("at", "parts", "said"),
    [
        (0, {"kind": "plan"}, "it is no adoption_manifest of format 1"),
        (0, {"format": 2}, "it is no adoption_manifest of format 1"),
        (0, {"note": "x"}, "the first line must have exactly"),
        (0, {"remote_verified": 1}, "the first line has a remote_verified of another type"),
        (0, {"action": {}}, "action must have exactly"),
        (0, {"operation_id": ""}, "operation_id is empty"),
        (0, {"source_object": " Person"}, "source_object has blanks around it"),
        (0, {"tenant": " "}, "tenant is empty"),
        (0, {"legacy": {}}, "legacy must have exactly"),
        (0, {"legacy": {**asdict(HEADER.legacy), "current": {}}}, "a pair must have exactly"),
        (0, {"legacy": {**asdict(HEADER.legacy), "older": [{"remote_id": "a"}]}}, "a pair must have exactly"),
        (0, {"legacy": {**asdict(HEADER.legacy), "markers": ["sync-1", 7]}}, "a mark is of another type"),
        (0, {"legacy": {**asdict(HEADER.legacy), "elsewhere": [None]}}, "a mark is of another type"),
        (1, {"link_key": "lk1_0"}, "link_key is no link key"),
        (1, {"because": "a_whim"}, "'a_whim' is no reason of this release"),
        (1, {"because": ...}, "the entry must have exactly"),
        (1, {"detail": 7}, "the entry has a detail of another type"),
        (2, {"link_key": ""}, "link_key is no link key"),
        (2, {"link_key": "lk1_0"}, "link_key is no link key"),
        (2, {"record_digest": "x"}, "a digest is none"),
        (2, {"rows_digest": "x"}, "a digest is none"),
        (2, {"remote_id": 7001}, "the entry has a remote_id of another type"),
        (3, {"link_key": "lk1_" + "4" * 63}, "link_key is no link key"),
        (4, {"records": 9}, "its totals are not those of its entries"),
        (4, {"empty": 4}, "its totals are not those of its entries"),
        (4, {"adoptable": 2}, "its totals are not those of its entries"),
        (4, {"refused": {"claimed_twice": 2}}, "its totals are not those of its entries"),
        (4, {"note": "x"}, "the last line must have exactly"),
        (4, {"records": "8"}, "the last line has a records of another type"),
    ],
)
def test_a_line_that_is_wrong_is_named_with_its_number(at: int, parts: dict[str, Any], said: str) -> None:
    """Even where the digest of the last line is right."""
    text = lines()
    text[at] = changed(text[at], **parts)
    if at < 4:
        text = sealed(*text[:-1])
    found = finding(text)
    assert found.startswith(f"{at + 1}: {said}"), found


@pytest.mark.rule("MG-06")
def test_a_digest_that_is_not_that_of_all_lines_is_refused() -> None:
    """One letter of a detail is enough, and so is one number of the totals that nothing counts."""
    header, first, adoptable, second, last = lines()
    assert list(read_lines(sealed(header, first, adoptable, second))) == list(read_lines(lines()))
    assert finding([header, changed(first, detail="else"), adoptable, second, last]) == (
        "5: the digest is not that of the manifest"
    )
    more = changed(last, empty=6, records=9)
    assert finding([header, first, adoptable, second, more]) == "5: the digest is not that of the manifest"


@pytest.mark.parametrize("line", [b"", b"nothing", b"[" * 10_000, b"\xff"])
def test_a_line_that_is_no_document_is_refused(line: bytes) -> None:
    assert finding([line + b"\n"]) == "1: the line is no JSON document"


@pytest.mark.parametrize("line", [b"[]", b"7", b'{"kind": "adoption_manifest"}', b'{"b":1,"a":2}', b'{"a":"\\u0061"}'])
def test_a_line_that_is_no_object_in_its_canonical_form_is_refused(line: bytes) -> None:
    """What was approved is byte for byte what is applied."""
    assert finding([line + b"\n"]) == "1: the line is no object in its canonical form (RFC 8785)"


def test_a_manifest_of_a_deployment_without_tenants_is_read() -> None:
    """And one in which nothing is adopted."""
    header = replace(HEADER, tenant="")
    text = [line for line, _ in write_lines(header, (), empty=0)]
    assert [type(part) for part in read_lines(text)] == [Header, Totals]
    assert next(read_lines(text)) == header


def test_a_line_has_a_bound() -> None:
    """A file that is something else never fills the memory; a line of as many bytes is read."""
    with pytest.raises(CallerError, match=f"more than {LINE_BYTES_MAX} bytes"):
        list(read_lines([b"x" * (LINE_BYTES_MAX + 1)]))
    assert finding([b"x" * LINE_BYTES_MAX]) == "1: the line is no JSON document"
