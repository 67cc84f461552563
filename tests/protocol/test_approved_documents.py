"""Documents that people approve: one text for one content, and everything that is wrong with another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pushlink.errors import CallerError
from pushlink.protocol.documents import (
    Kind,
    approve,
    out_of_order,
    parts,
    read_document,
    unplain,
    unplain_authority,
    write_document,
)

CONTENT = {"kind": "move", "format": 1, "tenant": "", "members": [1, 2]}
WANTED = {"kind": str, "format": int, "tenant": str, "members": list}


def shape(content: Mapping[str, Any]) -> list[str]:
    return list(parts("the manifest", content, WANTED))


def problems(content: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"member {member} is odd" for member in content["members"] if member % 2 == 0)


MOVE = Kind(name="move", format=1, command="pushlink move plan", shape=shape, problems=problems)


def wrong(text: str) -> dict[str, Any]:
    with pytest.raises(CallerError) as caught:
        read_document(MOVE, text)
    return {"said": str(caught.value).partition(" Next: ")[0], **caught.value.evidence}


def text_of(**change: Any) -> str:
    return write_document({**CONTENT, "members": [1], **change})


def test_a_document_reads_back_with_the_digest_that_stands_beside_it() -> None:
    """With or without its line end; the digest is of the content alone."""
    text = text_of()
    content, digest = read_document(MOVE, text)
    assert content == {**CONTENT, "members": [1]}
    assert text == f'{{"digest":"{digest}","manifest":{{"format":1,"kind":"move","members":[1],"tenant":""}}}}\n'
    assert read_document(MOVE, text.removesuffix("\n")) == (content, digest)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("nothing", "it is no JSON document: "),
        ("[" * 100_000, "it is nested too deeply"),
        ("[]", "the document must have exactly digest, manifest"),
        ('{"manifest": {}}', "the document must have exactly digest, manifest"),
        ('{"digest": "a", "digest": "b", "manifest": {}}', "it is no JSON document: an object has one name twice"),
        ('{"digest": 5, "manifest": {}}', "the document has a digest of another type"),
        (text_of(kind="other"), "it is 'other' of format 1; this command reads 'move' of format 1"),
        (text_of(format=2), "it is 'move' of format 2; this command reads 'move' of format 1"),
        (text_of(tenant=5), "the manifest has a tenant of another type"),
        (text_of(members=[2]), "member 2 is odd"),
        (text_of().replace('"members":[1]', '"members":[3]'), "the digest is not that of the manifest"),
        (text_of().replace('"format":1,', '"format": 1,'), "the text is not in its canonical form (RFC 8785)"),
        (text_of() + "\n", "the text is not in its canonical form (RFC 8785)"),
    ],
)
def test_a_document_that_cannot_be_used_says_why(text: str, finding: str) -> None:
    """And which command makes another one: a manifest is never edited."""
    found = wrong(text)
    assert found["findings"][0].startswith(finding)
    assert found["count"] == len(found["findings"])
    assert found["said"].startswith(f"The manifest cannot be used: {finding}")


def test_everything_that_is_wrong_is_said_at_once_and_counted() -> None:
    """The first in the sentence, fifty in the evidence; the digest is looked at beside the content."""
    one = wrong(text_of(members=[2]))
    assert (one["count"], one["said"]) == (1, "The manifest cannot be used: member 2 is odd.")
    two = wrong(text_of(members=[2, 4]))
    assert (two["count"], two["said"]) == (2, "The manifest cannot be used: member 2 is odd and 1 more.")
    many = wrong(text_of(members=list(range(0, 200, 2))))
    assert (many["count"], len(many["findings"])) == (100, 50)
    edited = wrong(text_of(members=[2]).replace('"tenant":""', '"tenant":"a"'))
    assert edited["findings"] == ["member 2 is odd", "the digest is not that of the manifest"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": 1, "b": "x"}, []),
        ({"b": "x", "a": 1}, []),
        ({"a": 1}, ["it must have exactly a, b"]),
        ({"a": 1, "b": "x", "c": 0}, ["it must have exactly a, b"]),
        (["a", "b"], ["it must have exactly a, b"]),
        ({"a": True, "b": 5}, ["it has a a of another type", "it has a b of another type"]),
        ({"a": 1.0, "b": "x"}, ["it has a a of another type"]),
    ],
)
def test_an_object_has_exactly_its_parts(value: object, said: list[str]) -> None:
    """A truth value is no number."""
    assert list(parts("it", value, {"a": int, "b": str})) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ada Lovelace", None),
        ("Zo\u00eb", None),
        ("", "who is empty"),
        ("  ", "who is empty"),
        (" Ada", "who has blanks around it"),
        ("Ada\n", "who has blanks around it"),
        ("Zoe\u0308", "who is not in the composed form of Unicode (NFC)"),
        ("A\u200bda", "who has characters that nobody sees"),
        ("A\tda", "who has characters that nobody sees"),
        ("A\u2028da", "who has characters that nobody sees"),
    ],
)
def test_authority_is_given_in_plain_texts(text: str, said: str | None) -> None:
    assert list(unplain("who", text)) == ([] if said is None else [said])


def test_who_why_and_for_whom_are_all_looked_at() -> None:
    """A document without a tenant is for none; an approval shows the digest of its text."""
    approval = approve("Ada", "Yes, do it.")
    good = {
        "operation_id": "move-1",
        "reason": "a new object",
        "tenant": "",
        "approval": {"who": approval.who, "digest": approval.digest},
    }
    assert list(unplain_authority(good)) == []
    assert list(unplain_authority({**good, "tenant": "t-1"})) == []
    bad = {"operation_id": "", "reason": " a", "tenant": "t ", "approval": {"who": "", "digest": "sha256:0"}}
    assert list(unplain_authority(bad)) == [
        "operation_id is empty",
        "reason has blanks around it",
        "approval.who is empty",
        "tenant has blanks around it",
        "approval.digest is no digest",
    ]
    with pytest.raises(CallerError, match="approval is empty"):
        approve("Ada", " \n")


def test_members_stand_once_each_and_in_the_order_of_their_links() -> None:
    """The place is counted from one, for the person who looks it up."""
    assert list(out_of_order([])) == []
    assert list(out_of_order(["a", "b", "c"])) == []
    assert list(out_of_order(["a", "a", "c", "b"])) == [
        "member 2: the link a is there twice",
        "member 4: members are not sorted by link key",
    ]


def test_a_content_without_a_canonical_form_is_refused() -> None:
    """As a number that no reader of JSON keeps."""
    text = text_of().replace('"members":[1]', '"members":[1e400]')
    assert any("it has no canonical form" in finding for finding in wrong(text)["findings"])
    assert json.loads(text)["manifest"]["members"] == [float("inf")]
