"""Rebind manifests and their receipts: what moves with a record, and what keeps all of them where they are."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pushlink.errors import CallerError
from pushlink.protocol import rebinding
from pushlink.protocol.documents import approve
from pushlink.protocol.identity import link_key, locator_key
from pushlink.protocol.rebind_receipts import (
    Conflict,
    Facts,
    InTheWay,
    RebindReceipt,
    is_sealed,
    judge_member,
    judge_repeat,
    receipt_of,
)
from pushlink.protocol.rebinding import (
    ATTEMPT_FIELDS,
    LINK_FIELDS,
    SLOT_FIELDS,
    Rebind,
    Standing,
    member_of,
    moved,
    new_rebind,
    read_rebind,
    rows_digest,
    write_rebind,
)
from pushlink.protocol.snapshots import Slots, canonical, digest_bytes

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
NOBODY = "sha256:" + "0" * 64
OLD = Slots(
    tenant="north",
    connector_owner_key="owner-1",
    action_slot_id="act-1",
    destination_slot_id="dest-1",
    source_object="Person",
)
NEW = replace(OLD, action_slot_id="act-2", destination_slot_id="dest-2")
KEY, NEW_KEY = link_key(OLD, "1"), link_key(NEW, "1")
SLOT = {**dict.fromkeys(SLOT_FIELDS, "x"), "link_key": KEY, "create_ordinal": 1, "wanted_version": 2}
LINK = {
    **dict.fromkeys(LINK_FIELDS, "x"),
    "id": "l1",
    "link_key": KEY,
    "slot_key": KEY,
    "locator_key": "locator",
    "destination_scope": "scope",
    "remote_id": "7001",
    "remote_id_canonical": "7001",
}
ATTEMPT = {
    **dict.fromkeys(ATTEMPT_FIELDS, "x"),
    "id": "a1",
    "link_key": KEY,
    "operation": "create",
    "create_key": KEY,
    "update_key": None,
}
NOTHING = Standing(slot=None, links=(), attempts=())
WHOLE = Standing(slot=SLOT, links=(LINK,), attempts=(ATTEMPT,))


def rebind(standing: Standing = WHOLE, **more: Any) -> Rebind:
    members = [member_of(NEW, "1", KEY, standing), member_of(NEW, "2", link_key(OLD, "2"), NOTHING)]
    given: dict[str, Any] = {
        "operation_id": "op-1",
        "reason": "another id",
        "approval": approve("Olga", "yes"),
        "old": OLD,
        "new": NEW,
        "members": members,
    }
    return new_rebind(**{**given, **more})


def first(manifest: Rebind) -> rebinding.Member:
    return next(member for member in manifest.members if member.old_key == KEY)


# ------------------------------------------------------------------------------------------------ rows


@pytest.mark.rule("D-43")
def test_the_digest_of_the_rows_of_a_key_is_pinned_and_knows_no_order() -> None:
    assert rows_digest(NOTHING) == "sha256:fa3409b5f16135bf69b9f7b30355f32b2b58939ca182071bd51a50d4e44f3449"
    assert rows_digest(WHOLE) == "sha256:9205ef9d0e15cea8b4a18b645747eee7aa51ccb913683aeb059c82486bea632b"
    two = replace(WHOLE, links=(LINK, {**LINK, "id": "l0"}), attempts=(ATTEMPT, {**ATTEMPT, "id": "a0"}))
    turned = replace(two, links=two.links[::-1], attempts=two.attempts[::-1])
    assert rows_digest(two) == rows_digest(turned) != rows_digest(WHOLE)
    assert rows_digest(replace(WHOLE, in_work=("a1",))) == rows_digest(WHOLE)


@pytest.mark.parametrize(
    ("standing", "is_bare"),
    [
        (NOTHING, True),
        (replace(NOTHING, slot={**SLOT, "create_ordinal": 0, "wanted_version": 0}), True),
        (replace(NOTHING, slot={**SLOT, "create_ordinal": 1, "wanted_version": 0}), False),
        (replace(NOTHING, slot={**SLOT, "create_ordinal": 0, "wanted_version": 1}), False),
        (replace(NOTHING, links=(LINK,)), False),
        (replace(NOTHING, attempts=(ATTEMPT,)), False),
    ],
)
def test_a_key_is_bare_until_something_came_of_it(standing: Standing, is_bare: bool) -> None:
    assert standing.is_bare is is_bare


def test_every_key_of_a_row_follows_and_a_key_that_was_free_stays_free() -> None:
    """Ordinals, versions and ids go with the rows as they are."""
    after = moved(WHOLE, NEW, NEW_KEY)
    slots = {"connector_owner_key": "owner-1", "action_slot_id": "act-2", "destination_slot_id": "dest-2"}
    locator = locator_key(NEW, scope="scope", canonical_id="7001")
    assert after.slot == {**SLOT, **slots, "link_key": NEW_KEY}
    assert after.links == ({**LINK, **slots, "link_key": NEW_KEY, "slot_key": NEW_KEY, "locator_key": locator},)
    assert after.attempts == ({**ATTEMPT, "link_key": NEW_KEY, "destination_slot_id": "dest-2", "create_key": NEW_KEY},)
    free = Standing(
        slot=None,
        links=({**LINK, "slot_key": None, "locator_key": None},),
        attempts=({**ATTEMPT, "create_key": None, "update_key": KEY},),
    )
    [link], [attempt] = moved(free, NEW, NEW_KEY).links, moved(free, NEW, NEW_KEY).attempts
    assert moved(free, NEW, NEW_KEY).slot is None
    assert (link["slot_key"], link["locator_key"]) == (None, None)
    assert (attempt["create_key"], attempt["update_key"]) == (None, NEW_KEY)


# ------------------------------------------------------------------------------------------------ the document


def findings(change: Callable[[dict[str, Any]], object]) -> list[str]:
    """What reading says of a manifest after a change, under a digest that is right again."""
    document = json.loads(write_rebind(rebind()))
    change(document["manifest"])
    body = canonical(document["manifest"])
    with pytest.raises(CallerError) as caught:
        read_rebind(canonical({**document, "digest": digest_bytes(body)}).decode())
    found: list[str] = caught.value.evidence["findings"]  # type: ignore[assignment]
    return found


def test_a_manifest_is_read_as_it_was_written() -> None:
    """With its members in the order of their keys, or with none: a slot without records may be rebound as well."""
    made = rebind()
    assert read_rebind(write_rebind(made)) == made
    assert [member.old_key for member in made.members] == sorted([KEY, link_key(OLD, "2")])
    assert rebind(members=[]).members == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(note="x"), ["the manifest must have exactly"]),
        (lambda m: m.update(members={}), ["the manifest has a members of another type"]),
        (lambda m: m.update(approval={}), ["the approval must have exactly who, digest"]),
        (lambda m: m.update(old={}), ["the old slot must have exactly"]),
        (lambda m: m["new"].update(action_slot_id=7), ["the new slot has a action_slot_id of another type"]),
        (lambda m: m["members"][1].pop("record_id"), ["member 2 must have exactly"]),
        (
            lambda m: (m.update(approval={}, old={}), m["members"][0].clear()),
            ["the approval must", "the old slot must", "member 1 must"],
        ),
        (lambda m: m.update(reason=""), ["reason is empty"]),
        (
            lambda m: m.update(source_object=" Person"),
            ["source_object has blanks", "member 1: new_key", "member 2: new_key"],
        ),
        (lambda m: m["old"].update(action_slot_id=""), ["old.action_slot_id is empty"]),
        (lambda m: m["new"].update(action_slot_id=""), ["new.action_slot_id is empty"]),
        (lambda m: m.update(old=m["new"]), ["both slots are the same"]),
        (lambda m: m["members"].reverse(), ["member 2: members are not sorted"]),
        (lambda m: m["members"][0].update(old_key="lk1_0"), ["member 1: old_key is no link key"]),
        (lambda m: m["members"][1].update(rows_digest="x"), ["member 2: rows_digest is no digest"]),
        (lambda m: m["members"][1].update(new_key="x"), ["member 2: new_key is not the one"]),
        (
            lambda m: m["members"][1].update(
                record_id=m["members"][0]["record_id"], new_key=m["members"][0]["new_key"]
            ),
            ["1 members get a key that another member gets"],
        ),
    ],
)
def test_what_is_wrong_with_a_manifest_is_said_at_its_place(
    change: Callable[[dict[str, Any]], object], said: list[str]
) -> None:
    """All of it, and nothing else, even under a digest that fits."""
    found = findings(change)
    assert [one.startswith(start) for one, start in zip(found, said, strict=True)] == [True] * len(said), found


def test_a_manifest_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many members as there may be are read."""
    monkeypatch.setattr(rebinding, "MEMBERS_MAX", 2)
    text = write_rebind(rebind())
    assert len(read_rebind(text).members) == 2
    monkeypatch.setattr(rebinding, "MEMBERS_MAX", 1)
    with pytest.raises(CallerError, match="a manifest has 1 members at most, this one has 2"):
        read_rebind(text)


# ------------------------------------------------------------------------------------------------ receipts, judging


def receipt(prior: RebindReceipt | None = None, manifest: Rebind | None = None) -> RebindReceipt:
    made = manifest or rebind()
    return receipt_of(made, first(made), WHOLE, prior, actor="olga", now=NOW)


@pytest.mark.rule("D-43")
def test_the_first_receipt_of_a_record_is_pinned_and_the_next_is_sealed_over_it() -> None:
    made = receipt()
    assert made.hash == "sha256:87b0eae4154ad8fed98fa614b08bfd891acb9ce22c70a5801b3a9661e7bcbe20"
    assert made.previous_hash == NOBODY
    assert made.moved == '{"attempts":["a1"],"links":["l1"]}'
    assert made.rows_digest_after == rows_digest(moved(WHOLE, NEW, NEW_KEY))
    assert receipt(made).previous_hash == made.hash
    assert is_sealed(made)
    assert not is_sealed(replace(made, reason="else"))


def judged(*, member: rebinding.Member | None = None, **facts: Any) -> Conflict | None:
    given: dict[str, Any] = {"old": WHOLE, "new": NOTHING, "owners": {}, "prior": None, **facts}
    manifest = rebind(given["old"])
    return judge_member(manifest, member or first(manifest), Facts(**given))


@pytest.mark.parametrize(
    "standing",
    [WHOLE, replace(NOTHING, slot=SLOT), replace(NOTHING, links=(LINK,)), replace(NOTHING, attempts=(ATTEMPT,))],
    ids=["all", "a slot", "a link", "an attempt"],
)
def test_whatever_stands_under_a_key_may_move(standing: Standing) -> None:
    """Over a receipt that holds as well, and though another record owns another remote record."""
    assert judged(old=standing) is None
    assert judged(old=standing, prior=receipt(), owners={"else": "2"}) is None


@pytest.mark.parametrize(
    ("facts", "because", "says"),
    [
        ({"old": NOTHING}, InTheWay.ROWS_MISSING, "nothing stands under the old key"),
        ({"old": replace(WHOLE, in_work=("a1", "a2"))}, InTheWay.IN_WORK, "attempt a1, a2 is in work"),
        ({"new": WHOLE}, InTheWay.KEY_TAKEN, f"under {NEW_KEY} stand link l1, create a1"),
        (
            {"new": replace(NOTHING, slot=SLOT)},
            InTheWay.KEY_TAKEN,
            f"under {NEW_KEY} stand versions that were wanted",
        ),
        (
            {"owners": {locator_key(NEW, scope="scope", canonical_id="7001"): "2"}},
            InTheWay.REMOTE_TAKEN,
            "the remote record 7001 belongs to 2",
        ),
        (
            {"prior": replace(receipt(), reason="else")},
            InTheWay.RECEIPTS_BROKEN,
            "the receipt of operation op-1 was changed after it was written",
        ),
    ],
)
def test_one_thing_in_the_way_is_named(facts: dict[str, Any], because: InTheWay, says: str) -> None:
    found = judged(**facts)
    assert found == Conflict(record_id="1", link_key=KEY, because=because, detail=says)


def test_rows_that_are_not_as_the_manifest_found_them_do_not_move() -> None:
    found = judged(member=first(rebind(NOTHING)))
    assert found is not None
    assert found.because is InTheWay.ROWS_CHANGED


@pytest.mark.parametrize(
    ("made", "because"),
    [
        (receipt(), None),
        (receipt(receipt()), None),
        (None, InTheWay.DIVERGED),
        (replace(receipt(), reason="else"), InTheWay.RECEIPTS_BROKEN),
        (receipt(manifest=rebind(reason="else")), InTheWay.DIVERGED),
        (receipt(manifest=rebind(approval=approve("Olga", "no"))), InTheWay.DIVERGED),
    ],
    ids=["its own", "its own, after another", "none", "changed", "of another manifest", "of another approval"],
)
def test_a_repeat_holds_the_receipt_of_this_very_manifest(made: RebindReceipt | None, because: InTheWay | None) -> None:
    found = judge_repeat(rebind(), first(rebind()), made)
    assert (found and found.because) == because
