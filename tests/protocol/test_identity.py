from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import SLOTS
from pushlink.errors import CallerError, Code, ProtocolViolation
from pushlink.protocol.identity import (
    ACTION_TYPE,
    KeyType,
    canonical_record_id,
    create_idempotency_key,
    link_key,
    locator_key,
    owner_key,
    read_record_id,
    update_idempotency_key,
)
from pushlink.protocol.snapshots import Digest, LinkKey, Slots, digest_bytes

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "identity_v1.json").read_text(encoding="utf-8"))
SECRET = bytes(range(32))
PARTS = (KeyType.TEXT, KeyType.INTEGER)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
slot_ids = texts.filter(bool)


@pytest.mark.rule("ID-01", "C-040", "D-42")
@pytest.mark.parametrize("vector", GOLDEN["link_keys"], ids=lambda vector: vector["why"])
def test_a_link_key_is_the_one_of_the_golden_vectors(vector: dict[str, str]) -> None:
    """`link_key` is pinned for ever: prefix with version, and the digest over the length-prefixed parts."""
    slots = Slots(**{field.name: vector[field.name] for field in dataclasses.fields(Slots)})
    assert link_key(slots, vector["record_id"]) == vector["key"]
    assert vector["key"].startswith("lk1_")


@pytest.mark.rule("C-040")
def test_golden_keys_of_colliding_joins_are_all_different() -> None:
    """Lists of parts that read alike when they are joined by a separator have different keys."""
    keys = [vector["key"] for vector in GOLDEN["link_keys"]]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("vector", GOLDEN["locator_keys"], ids=lambda vector: vector["why"])
def test_a_locator_key_is_the_one_of_the_golden_vectors(vector: dict[str, str]) -> None:
    """A locator key is pinned like a link key, and never equal to one."""
    slots = dataclasses.replace(SLOTS, tenant=vector["tenant"])
    assert locator_key(slots, scope=vector["scope"], canonical_id=vector["canonical_id"]) == vector["key"]


@pytest.mark.rule("D-37")
@pytest.mark.parametrize("vector", GOLDEN["idempotency_keys"], ids=lambda vector: vector["why"])
def test_an_idempotency_key_is_derived_and_the_same_again_after_a_restore(vector: dict[str, object]) -> None:
    """The key hangs on the secret, the link key and the ordinal only; nothing random and no clock is in it."""
    key = LinkKey(str(vector["link_key"]))
    if vector["operation"] == "create":
        assert create_idempotency_key(SECRET, key, int(str(vector["ordinal"]))) == vector["key"]
    else:
        version, digest = int(str(vector["version"])), Digest(str(vector["body_digest"]))
        assert update_idempotency_key(SECRET, key, version, digest) == vector["key"]
    assert uuid.UUID(str(vector["key"])).version == 8


@pytest.mark.rule("D-37")
def test_an_idempotency_key_differs_by_operation_ordinal_version_body_and_secret() -> None:
    """No two requests that may differ share a key."""
    key, body = link_key(SLOTS, "1"), digest_bytes(b"{}")
    keys = {
        create_idempotency_key(SECRET, key, 1),
        create_idempotency_key(SECRET, key, 2),
        create_idempotency_key(SECRET[::-1], key, 1),
        create_idempotency_key(SECRET, link_key(SLOTS, "2"), 1),
        update_idempotency_key(SECRET, key, 1, body),
        update_idempotency_key(SECRET, key, 2, body),
        update_idempotency_key(SECRET, key, 1, digest_bytes(b"")),
    }
    assert len(keys) == 7


def test_an_idempotency_key_is_a_uuid_whose_every_other_bit_comes_from_the_digest() -> None:
    """Version 8 and the variant of RFC 9562 are six bits; each of the other 122 is set in some keys, not in all."""
    keys = [uuid.UUID(create_idempotency_key(SECRET, link_key(SLOTS, "1"), ordinal)).int for ordinal in range(1, 99)]
    ever, always = 0, (1 << 128) - 1
    for key in keys:
        ever, always = ever | key, always & key
    fixed = 0xF << 76 | 0x3 << 62
    assert always == 0x8 << 76 | 0x2 << 62
    assert ever == (1 << 128) - 1 & ~fixed | always


@pytest.mark.rule("ID-01", "C-040")
@given(
    left=st.tuples(slot_ids, slot_ids, slot_ids, slot_ids, texts, texts),
    right=st.tuples(slot_ids, slot_ids, slot_ids, slot_ids, texts, texts),
)
def test_two_different_tuples_never_share_a_link_key(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    """The encoding is injective: equal keys mean equal parts, tenant and record id included."""

    def key(parts: tuple[str, ...]) -> str:
        owner, slot, destination, source_object, tenant, record_id = parts
        slots = Slots(
            tenant=tenant,
            connector_owner_key=owner,
            action_slot_id=slot,
            destination_slot_id=destination,
            source_object=source_object,
        )
        return link_key(slots, record_id)

    assert (key(left) == key(right)) is (left == right)


@pytest.mark.rule("ID-02")
def test_no_name_version_install_or_payload_can_enter_a_key() -> None:
    """The key takes the stable slots and the record id, and there is no place where a name could be given."""
    assert {field.name for field in dataclasses.fields(Slots)} == {
        "tenant",
        "connector_owner_key",
        "action_slot_id",
        "destination_slot_id",
        "source_object",
    }
    assert link_key.__annotations__.keys() == {"slots", "record_id", "return"}


@pytest.mark.rule("ID-01", "ID-08")
@pytest.mark.parametrize("part", [field.name for field in dataclasses.fields(Slots)])
def test_every_slot_and_the_record_id_decide_the_key(part: str) -> None:
    """Another value of any part is another key; the action type is the one word of the protocol."""
    changed = dataclasses.replace(SLOTS, **{part: "other"})
    assert link_key(changed, "1") != link_key(SLOTS, "1") != link_key(SLOTS, "2")
    assert ACTION_TYPE == "PushToConnector"


def test_tenants_never_share_an_owner_key_or_a_locator() -> None:
    """The owner key is the pack's key together with the tenant, wherever the border between the two lies."""
    assert owner_key("a", "b") != owner_key("ab", "") != owner_key("", "ab")
    other = dataclasses.replace(SLOTS, tenant="t2")
    assert locator_key(other, scope="", canonical_id="1") != locator_key(SLOTS, scope="", canonical_id="1")


@pytest.mark.rule("D-26")
def test_the_same_remote_id_in_two_scopes_is_two_locators() -> None:
    """The remote tenant is part of the locator key."""
    assert locator_key(SLOTS, scope="org-1", canonical_id="7") != locator_key(SLOTS, scope="org-2", canonical_id="7")


@pytest.mark.rule("ID-03")
@pytest.mark.parametrize("part", ["connector_owner_key", "action_slot_id", "destination_slot_id", "source_object"])
def test_an_empty_slot_makes_no_key(part: str) -> None:
    """A key is never made of what could not be resolved."""
    with pytest.raises(ProtocolViolation, match=part):
        link_key(dataclasses.replace(SLOTS, **{part: ""}), "1")


@pytest.mark.rule("D-42")
@pytest.mark.parametrize(
    ("key_type", "value", "text"),
    [
        (KeyType.INTEGER, 0, "0"),
        (KeyType.INTEGER, -7, "-7"),
        (KeyType.INTEGER, 2**64, "18446744073709551616"),
        (KeyType.INTEGER, 2**256 - 1, str(2**256 - 1)),
        (KeyType.UUID, uuid.UUID("5F0C1B1E-0000-4000-8000-00000000000A"), "5f0c1b1e-0000-4000-8000-00000000000a"),
        (KeyType.UUID, "5F0C1B1E00004000800000000000000A", "5f0c1b1e-0000-4000-8000-00000000000a"),
        (KeyType.TEXT, " A\u0308 ", " A\u0308 "),
        (KeyType.TEXT, "", ""),
    ],
)
def test_a_record_id_has_one_canonical_text(key_type: KeyType, value: object, text: str) -> None:
    """Integers are decimal, UUIDs lower-case with hyphens, text stays as it is: neither trimmed nor normalised."""
    assert canonical_record_id(key_type, value) == text
    assert canonical_record_id(key_type, read_record_id(key_type, text)) == text


@pytest.mark.rule("D-42", "C-040")
@given(left=st.tuples(texts, st.integers(-9, 999)), right=st.tuples(texts, st.integers(-9, 999)))
def test_a_composite_id_is_injective_and_can_be_read_back(left: tuple[str, int], right: tuple[str, int]) -> None:
    """Components carry type and length, so that no two tuples read alike."""
    text = canonical_record_id(KeyType.COMPOSITE, left, parts=PARTS)
    assert read_record_id(KeyType.COMPOSITE, text, parts=PARTS) == left
    assert (text == canonical_record_id(KeyType.COMPOSITE, right, parts=PARTS)) is (left == right)


@pytest.mark.rule("D-42")
@pytest.mark.parametrize(
    ("key_type", "value"),
    [
        (KeyType.INTEGER, True),
        (KeyType.INTEGER, 1.0),
        (KeyType.INTEGER, "1"),
        (KeyType.INTEGER, None),
        (KeyType.INTEGER, 1 << 256),
        (KeyType.UUID, "not-a-uuid"),
        (KeyType.UUID, "{5f0c1b1e-0000-4000-8000-00000000000a}"),
        (KeyType.UUID, b"0123456789abcdef"),
        (KeyType.UUID, 1.5),
        (KeyType.TEXT, 7),
        (KeyType.TEXT, b"7"),
        (KeyType.TEXT, None),
        (KeyType.TEXT, "\ud800"),
        (KeyType.TEXT, "a\udfff"),
        (KeyType.TEXT, "a\x00b"),
        (KeyType.COMPOSITE, ("a",)),
        (KeyType.COMPOSITE, ("a", None)),
        (KeyType.COMPOSITE, ["a", 1]),
        (KeyType.COMPOSITE, "t1:a,i1:1"),
    ],
)
def test_an_id_of_another_type_is_refused(key_type: KeyType, value: object) -> None:
    """The object's settings name the key type; nothing is converted silently."""
    with pytest.raises(CallerError) as caught:
        canonical_record_id(key_type, value, parts=PARTS if key_type is KeyType.COMPOSITE else ())
    assert caught.value.code is Code.RECORD_ID_UNUSABLE


@pytest.mark.rule("D-42")
@pytest.mark.parametrize(
    ("key_type", "text"),
    [
        (KeyType.INTEGER, "007"),
        (KeyType.INTEGER, "-0"),
        (KeyType.INTEGER, "+1"),
        (KeyType.INTEGER, "\u0661"),
        (KeyType.INTEGER, ""),
        (KeyType.COMPOSITE, ""),
        (KeyType.COMPOSITE, "t1:a"),
        (KeyType.COMPOSITE, "t1:a,i1:1,"),
        (KeyType.COMPOSITE, "t2:a,i1:1"),
        (KeyType.COMPOSITE, "i1:1,t1:a"),
        (KeyType.COMPOSITE, "t1:a;i1:1"),
        (KeyType.COMPOSITE, "t9:a,i1:1"),
    ],
)
def test_a_text_that_is_not_canonical_is_no_record_id(key_type: KeyType, text: str) -> None:
    """Two spellings of one id would be two keys."""
    with pytest.raises(CallerError):
        read_record_id(key_type, text, parts=PARTS if key_type is KeyType.COMPOSITE else ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("u1:a,i1:1", "component 1 does not start with 't' and a length"),
        ("t1:a,t1:1", "component 2 does not start with 'i' and a length"),
        ("t2:a,i1:1", "component 1 does not end where its length says"),
        ("t1:a,i2:1", "component 2 does not end where its length says"),
    ],
)
def test_a_component_that_cannot_be_read_is_named_by_its_place(text: str, said: str) -> None:
    """Counted from one, for the person who typed it."""
    with pytest.raises(CallerError, match=said):
        read_record_id(KeyType.COMPOSITE, text, parts=PARTS)


def test_a_short_deployment_secret_derives_nothing() -> None:
    """A guessable secret would make the keys guessable."""
    with pytest.raises(ProtocolViolation):
        create_idempotency_key(SECRET[:15], link_key(SLOTS, "1"), 1)
    assert create_idempotency_key(SECRET[:16], link_key(SLOTS, "1"), 1)


def test_an_integer_is_read_up_to_a_bound() -> None:
    """A hostile text never becomes a number that takes long to make."""
    assert read_record_id(KeyType.INTEGER, "1" * 256) == int("1" * 256)
    with pytest.raises(CallerError):
        read_record_id(KeyType.INTEGER, "1" * 257)
