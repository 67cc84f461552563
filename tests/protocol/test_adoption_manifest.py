"""The text of an adoption manifest: pinned, so that a later release reads what an older one planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlink.errors import CallerError
from pushlink.protocol.adoption import Legacy, Pair, record_digest
from pushlink.protocol.adoption_manifest import (
    LINE_BYTES_MAX,
    Adoptable,
    Binding,
    Entry,
    Header,
    Refused,
    Totals,
    read_lines,
    write_lines,
)
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey

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


def test_a_line_has_a_bound() -> None:
    """A file that is something else never fills the memory."""
    with pytest.raises(CallerError, match=f"more than {LINE_BYTES_MAX} bytes"):
        list(read_lines([b"x" * (LINE_BYTES_MAX + 1)]))
    assert list(write_lines(HEADER, (), empty=0))[-1][1] is not None
