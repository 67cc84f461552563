"""The document of a mapping manifest: what is read, and what is refused before any row is looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlink.errors import CallerError
from pushlink.protocol import manifest as module
from pushlink.protocol.manifest import (
    ROW_FIELDS,
    Approval,
    Manifest,
    MappingState,
    Member,
    approve,
    new_manifest,
    read_manifest,
    row_digest,
    state_of,
    write_manifest,
)
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, canonical, digest_bytes
from pushlink.store.tables import remote_link

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "manifest_v1.json"


def state(letter: str, install: str = "install-1") -> MappingState:
    return MappingState(
        mapping_fingerprint=Digest("mapping1:" + letter * 64),
        body_fingerprint=Digest("body1:" + letter * 64),
        install_id=InstallId(install),
    )


def member(number: int, **more: Any) -> Member:
    given_ = {"row_digest": Digest("sha256:" + "9" * 64), "old": state("a"), "new": state("b"), **more}
    return Member(link_key=LinkKey(f"lk1_{number:064x}"), **given_)


def manifest(*members: Member, **more: Any) -> Manifest:
    given_ = {
        "operation_id": "op-1",
        "tenant": "north",
        "reason": "the field was renamed",
        "approval": approve("Olga Owner", "Both mappings mean the same."),
        **more,
    }
    return new_manifest(members=members or (member(1), member(2)), **given_)


def changed(change: Callable[[dict[str, Any]], object], *, resealed: bool = True) -> str:
    """The text of a manifest after `change`, with a digest that is right again unless it is not to be."""
    document = json.loads(write_manifest(manifest()))
    change(document["manifest"])
    body = canonical(document["manifest"])
    if resealed:
        document["digest"] = digest_bytes(body)
    return canonical(document).decode() + "\n"


def findings(text: str) -> list[str]:
    with pytest.raises(CallerError) as caught:
        read_manifest(text)
    found: list[str] = caught.value.evidence["findings"]  # type: ignore[assignment]
    assert found
    return found


@pytest.mark.rule("RV-02")
def test_a_manifest_is_read_as_it_was_written() -> None:
    """Members come out sorted by link key, whatever order they went in, under the same digest."""
    made = manifest(member(3), member(1), member(2))
    assert [one.link_key[-1] for one in made.members] == ["1", "2", "3"]
    assert read_manifest(write_manifest(made)) == made
    assert read_manifest(write_manifest(made).removesuffix("\n")) == made
    assert made.digest == manifest(member(2), member(3), member(1)).digest


@pytest.mark.rule("RV-02", "D-43")
def test_a_manifest_of_an_earlier_release_is_read() -> None:
    """Its text, its digest and its row digest are pinned: a later release changes none of them."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    read = read_manifest(golden["text"])
    assert read == manifest()
    assert write_manifest(read) == golden["text"]
    assert row_digest({name: f"a {name}" for name in ROW_FIELDS}) == golden["row_digest"]


@pytest.mark.rule("RV-02")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda m: m["members"].reverse(), "not sorted", id="unsorted"),
        pytest.param(lambda m: m["members"].append(m["members"][-1]), "there twice", id="a link twice"),
        pytest.param(lambda m: m["members"].clear(), "has 0", id="no members"),
        pytest.param(lambda m: m.update(reason=""), "reason is empty", id="no reason"),
        pytest.param(lambda m: m.update(reason="\t \n"), "reason is empty", id="a blank reason"),
        pytest.param(lambda m: m["approval"].update(who=""), "approval.who is empty", id="nobody approved"),
        pytest.param(lambda m: m["approval"].update(digest=""), "approval.digest", id="no approval"),
        pytest.param(lambda m: m["approval"].update(who=" Olga"), "blanks around", id="blanks around who"),
        pytest.param(lambda m: m["approval"].update(who="O\u0308lga"), "NFC", id="a decomposed name"),
        pytest.param(lambda m: m["approval"].update(who="Ol\u200bga"), "nobody sees", id="an invisible character"),
        pytest.param(lambda m: m.update(operation_id="a\u202eb"), "nobody sees", id="a turned operation id"),
        pytest.param(lambda m: m.update(operation_id=""), "operation_id is empty", id="no operation id"),
        pytest.param(lambda m: m.update(tenant=" "), "tenant", id="a blank tenant"),
        pytest.param(lambda m: m["algorithms"].update(row_digest=2), "version 2 of row_digest", id="a later algorithm"),
        pytest.param(lambda m: m["algorithms"].update(row_digest=0), "version 0", id="no algorithm"),
        pytest.param(lambda m: m["algorithms"].pop("row_digest"), "algorithms must have", id="an algorithm missing"),
        pytest.param(lambda m: m.update(format=2), "format 2", id="a later format"),
        pytest.param(lambda m: m.update(kind="plan"), "'plan'", id="another document"),
        pytest.param(lambda m: m.update(note="x"), "must have exactly", id="one name more"),
        pytest.param(lambda m: m.pop("tenant"), "must have exactly", id="one name less"),
        pytest.param(lambda m: m.update(members={}), "members of another type", id="members that are no list"),
        pytest.param(lambda m: m["members"][0].update(link_key="lk1_X"), "no link key", id="no link key"),
        pytest.param(lambda m: m["members"][0].update(row_digest="x"), "row_digest is no digest", id="no row digest"),
        pytest.param(lambda m: m["members"][0].pop("old"), "member 1 must have", id="no old state"),
        pytest.param(lambda m: m["members"][0]["new"].update(install_id=""), "install_id is empty", id="no install"),
        pytest.param(lambda m: m["members"][0]["new"].update(install_id=7), "another type", id="an install of digits"),
        pytest.param(
            lambda m: m["members"][0]["new"].update(mapping_fingerprint="body1:" + "a" * 64),
            "no fingerprint of this surface",
            id="a fingerprint of another surface",
        ),
        pytest.param(
            lambda m: m["members"][0]["new"].update(mapping_fingerprint="mapping7:" + "a" * 64),
            "version 7",
            id="a later fingerprint",
        ),
        pytest.param(lambda m: m["members"][0].update(new=m["members"][0]["old"]), "nothing changes", id="no change"),
    ],
)
def test_what_is_wrong_is_said_before_any_row_is_looked_at(change: Callable[[Any], object], said: str) -> None:
    """Even under a digest that fits: the document alone is enough to refuse it."""
    assert any(said in finding for finding in findings(changed(change)))


def test_every_finding_is_said_at_its_place() -> None:
    """All the way down, one after the other."""

    def spoil(m: dict[str, Any]) -> None:
        m.update(approval={}, algorithms={})
        m["members"][0]["new"].clear()
        m["members"][1].clear()

    found = findings(changed(spoil))
    starts = ["the approval must", "the algorithms must", "member 1, new must", "member 2 must"]
    assert [one.startswith(start) for one, start in zip(found, starts, strict=True)] == [True] * 4

    def mistake(m: dict[str, Any]) -> None:
        m["members"][0].update(link_key="lk1_X")
        m["members"][1]["old"].update(body_fingerprint="body2:" + "a" * 64)

    assert findings(changed(mistake)) == [
        "member 2: members are not sorted by link key",
        "member 1: link_key is no link key",
        "member 2, old: this release does not know version 2 of body_fingerprint",
    ]


def test_a_manifest_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many members as there may be are read."""
    text = write_manifest(manifest())
    monkeypatch.setattr(module, "MEMBERS_MAX", 2)
    assert len(read_manifest(text).members) == 2
    monkeypatch.setattr(module, "MEMBERS_MAX", 1)
    assert findings(text) == ["a manifest has 1 to 1 members, this one has 2"]
    assert len(manifest(member(1)).members) == 1


def test_a_link_that_lacks_a_state_is_in_none() -> None:
    """A row of which a fingerprint or an install was never written is like no member's."""
    row: dict[str, str | None] = dict.fromkeys(ROW_FIELDS)
    assert state_of(row) == MappingState(
        mapping_fingerprint=Digest(""), body_fingerprint=Digest(""), install_id=InstallId("")
    )
    whole = {"mapping_fingerprint": "m", "body_fingerprint": "b", "validated_install_id": "i"}
    assert state_of(row | whole) == MappingState(
        mapping_fingerprint=Digest("m"), body_fingerprint=Digest("b"), install_id=InstallId("i")
    )


@pytest.mark.rule("RV-02")
def test_a_digest_that_does_not_fit_is_refused() -> None:
    """One character of a reason is enough."""
    assert findings(changed(lambda m: m.update(reason="another reason"), resealed=False)) == [
        "the digest is not that of the manifest"
    ]


@pytest.mark.rule("RV-02")
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: text.replace('":', '": ', 1), id="a blank"),
        pytest.param(lambda text: "\n" + text, id="a line before"),
        pytest.param(lambda text: text + "\n", id="a line after"),
        pytest.param(lambda text: json.dumps(json.loads(text), indent=1), id="indented"),
        pytest.param(lambda text: text.replace("renamed", "\\u0072enamed"), id="an escape"),
    ],
)
def test_a_text_that_is_not_canonical_is_refused(spoil: Callable[[str], str]) -> None:
    """What was approved is byte for byte what is applied."""
    assert findings(spoil(write_manifest(manifest()))) == ["the text is not in its canonical form (RFC 8785)"]


@pytest.mark.rule("RV-02")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nothing",
        "[" * 100_000,
        '{"digest":"a","digest":"b","manifest":{}}',
        '{"digest":"sha256:x","manifest":{"format":NaN}}',
    ],
)
def test_what_is_no_manifest_at_all_is_refused(text: str) -> None:
    """With a finding, and never with another error."""
    findings(text)


@settings(deadline=None)
@given(st.text(), st.integers(0, 3_000), st.integers(0, 40))
def test_no_text_makes_reading_fail_otherwise(junk: str, start: int, length: int) -> None:
    """A manifest with any piece of it replaced by anything is read as it is, or refused."""
    text = write_manifest(manifest())
    spoiled = text[:start] + junk + text[start + length :]
    try:
        read = read_manifest(spoiled)
    except CallerError:
        return
    assert write_manifest(read).removesuffix("\n") == spoiled.removesuffix("\n")


@pytest.mark.rule("RV-02")
@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_approval_is_none(text: str) -> None:
    """Somebody has to have said something."""
    with pytest.raises(CallerError):
        approve("Olga", text)


@pytest.mark.rule("RV-03")
def test_a_row_digest_binds_every_column_but_what_traffic_rewrites() -> None:
    """Each bound column alone makes another digest; what is left out is named here, so that a new column is decided."""
    row: dict[str, str | None] = dict.fromkeys(ROW_FIELDS, "x")
    digests = {row_digest(row)} | {row_digest({**row, name: None}) for name in ROW_FIELDS}
    assert len(digests) == len(ROW_FIELDS) + 1
    assert {column.name for column in remote_link.columns} - set(ROW_FIELDS) == {
        "names",
        "remote_version",
        "mirror_status",
        "reason_code",
        "evidence",
        "finalized_at",
        "updated_at",
        "row_version",
    }


def test_an_approval_keeps_the_digest_of_its_text() -> None:
    """So that the text can be shown later and compared."""
    assert approve("Olga", "yes") == Approval(who="Olga", digest=digest_bytes(b"yes"))
