"""Rebind manifests: the document that moves everything that stands under one slot to another one (MG-07, D-29).

A slot is identity, so its successor has other keys. A manifest names both slots and, for every record of the old one,
the key its rows have, the key they get, and a digest of those rows as they were found. That the two are one lineage is
decided by whoever approves, never here. What a move changes of each row is computed here as well, so that a receipt,
a rehearsal and the statements cannot differ. Nothing is derived anew but keys: ordinals, versions, request keys and
ids go with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from pushlink.protocol.documents import (
    LINK_KEY,
    MEMBERS_MAX,
    SHA256,
    Approval,
    Kind,
    out_of_order,
    parts,
    read_document,
    unplain,
    unplain_authority,
    write_document,
)
from pushlink.protocol.identity import link_key, locator_key
from pushlink.protocol.snapshots import Digest, LinkKey, Slots, digest

#: The version of the document's form.
FORMAT: Final = 1

#: What a digest binds of a push slot: whose it is, and all its versions. Attempts and links are bound likewise; what
#: ordinary traffic rewrites (holds, claims, mirrors, names, times) is not among it.
SLOT_FIELDS: Final = (
    "link_key",
    "tenant",
    "connector_owner_key",
    "action_slot_id",
    "destination_slot_id",
    "source_object",
    "source_record_id",
    "create_ordinal",
    "wanted_version",
    "wanted_values_digest",
    "wanted_mapping_fingerprint",
    "wanted_state",
    "acknowledged_version",
    "applied_values_digest",
    "refused_version",
)
LINK_FIELDS: Final = (
    "id",
    "link_key",
    "tenant",
    "connector_owner_key",
    "action_slot_id",
    "destination_slot_id",
    "source_object",
    "source_record_id",
    "slot_key",
    "locator_key",
    "status",
    "validated_install_id",
    "profile_digest",
    "action_digest",
    "mapping_fingerprint",
    "body_fingerprint",
    "destination_scope",
    "remote_id",
    "remote_id_canonical",
    "last_mapping_revalidation_operation_id",
)
ATTEMPT_FIELDS: Final = (
    "id",
    "link_key",
    "tenant",
    "destination_slot_id",
    "operation",
    "dispatch_lane",
    "status",
    "create_key",
    "update_key",
    "ordinal",
    "version",
    "freeze_count",
    "in_doubt",
    "send_count",
    "remote_id",
)

#: The columns of one row that a manifest binds, as the tuples above name them.
Row: TypeAlias = Mapping[str, Any]

#: What a slot is told apart by, beside the tenant and the object, which never change.
_PARTS: Final = ("connector_owner_key", "action_slot_id", "destination_slot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Every row under one link key. `in_work` are the attempts that a worker has in its hands; no digest binds that."""

    slot: Row | None
    links: tuple[Row, ...]
    attempts: tuple[Row, ...]
    in_work: tuple[str, ...] = ()

    @property
    def is_bare(self) -> bool:
        """Whether nothing ever came of this key: a refused save leaves such a slot behind."""
        versions = (0, 0) if self.slot is None else (self.slot["create_ordinal"], self.slot["wanted_version"])
        return not self.links and not self.attempts and versions == (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One record of the old slot: where its rows are, where they go, and what they were when the manifest was made."""

    record_id: str
    old_key: LinkKey
    new_key: LinkKey
    rows_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebind:
    """A rebind manifest that was read or made, with its digest. Members are in the order of their old link keys."""

    operation_id: str
    reason: str
    approval: Approval
    old: Slots
    new: Slots
    members: tuple[Member, ...]
    digest: Digest

    @property
    def tenant(self) -> str:
        """Whose slots they are."""
        return self.old.tenant


# ------------------------------------------------------------------------------------------------ rows


def rows_digest(standing: Standing) -> Digest:
    """The digest of everything that a manifest binds of one key."""
    return digest(
        {
            "kind": "slot_rows",
            "format": 1,
            "slot": None if standing.slot is None else _bound(standing.slot, SLOT_FIELDS),
            "links": [_bound(link, LINK_FIELDS) for link in _by_id(standing.links)],
            "attempts": [_bound(attempt, ATTEMPT_FIELDS) for attempt in _by_id(standing.attempts)],
        }
    )


def moved(standing: Standing, new: Slots, key: LinkKey) -> Standing:
    """The same rows as they stand under the new slot: every key follows, a key that was free stays free."""
    about = {name: getattr(new, name) for name in _PARTS}
    return Standing(
        slot=None if standing.slot is None else {**standing.slot, **about, "link_key": key},
        links=tuple(
            {
                **link,
                **about,
                "link_key": key,
                "slot_key": None if link["slot_key"] is None else key,
                "locator_key": None
                if link["locator_key"] is None
                else locator_key(new, scope=link["destination_scope"], canonical_id=link["remote_id_canonical"]),
            }
            for link in standing.links
        ),
        attempts=tuple(
            {
                **attempt,
                "link_key": key,
                "destination_slot_id": new.destination_slot_id,
                "create_key": None if attempt["create_key"] is None else key,
                "update_key": None if attempt["update_key"] is None else key,
            }
            for attempt in standing.attempts
        ),
    )


def _bound(row: Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _by_id(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["id"]))


# ------------------------------------------------------------------------------------------------ making, reading


def member_of(new: Slots, record_id: str, old_key: LinkKey, standing: Standing) -> Member:
    """The member that moves one record's rows to the new slot."""
    return Member(
        record_id=record_id,
        old_key=old_key,
        new_key=link_key(new, record_id),
        rows_digest=rows_digest(standing),
    )


def new_rebind(
    *, operation_id: str, reason: str, approval: Approval, old: Slots, new: Slots, members: Iterable[Member]
) -> Rebind:
    """A manifest of this release's rules; raises `CallerError` with every finding that reading it would have."""
    ordered = sorted(members, key=lambda member: member.old_key)
    return read_rebind(write_document(_content(operation_id, reason, approval, old, new, ordered)))


def write_rebind(manifest: Rebind) -> str:
    """The text of a manifest: its canonical form beside its digest, and a line end."""
    m = manifest
    return write_document(_content(m.operation_id, m.reason, m.approval, m.old, m.new, m.members))


def read_rebind(text: str) -> Rebind:
    """Read a manifest; raises `CallerError` with everything that is wrong with it, before any row is looked at."""
    content, found = read_document(_KIND, text)
    old, new = (_slots(content, side) for side in ("old", "new"))
    return Rebind(
        operation_id=content["operation_id"],
        reason=content["reason"],
        approval=Approval(**content["approval"]),
        old=old,
        new=new,
        members=tuple(Member(**member) for member in content["members"]),
        digest=found,
    )


def parts_of(slots: Slots) -> dict[str, str]:
    """What tells a slot apart from the others of its tenant and object."""
    return {name: getattr(slots, name) for name in _PARTS}


def _content(
    operation_id: str, reason: str, approval: Approval, old: Slots, new: Slots, members: Sequence[Member]
) -> dict[str, object]:
    return {
        "kind": "rebind_manifest",
        "format": FORMAT,
        "operation_id": operation_id,
        "tenant": old.tenant,
        "source_object": old.source_object,
        "reason": reason,
        "approval": {"who": approval.who, "digest": approval.digest},
        "old": parts_of(old),
        "new": parts_of(new),
        "members": [{name: getattr(member, name) for name in _MEMBER} for member in members],
    }


def _slots(content: Mapping[str, Any], side: str) -> Slots:
    return Slots(tenant=content["tenant"], source_object=content["source_object"], **content[side])


# ------------------------------------------------------------------------------------------------ what is wrong

_INNER: Final = {
    "kind": str,
    "format": int,
    "operation_id": str,
    "tenant": str,
    "source_object": str,
    "reason": str,
    "approval": dict,
    "old": dict,
    "new": dict,
    "members": list,
}
_MEMBER: Final = {field.name: str for field in fields(Member)}


def _shape(content: Mapping[str, Any]) -> list[str]:
    said = list(parts("the manifest", content, _INNER))
    if said:
        return said
    said += parts("the approval", content["approval"], {"who": str, "digest": str})
    for side in ("old", "new"):
        said += parts(f"the {side} slot", content[side], dict.fromkeys(_PARTS, str))
    for place, member in enumerate(content["members"], 1):
        said += parts(f"member {place}", member, _MEMBER)
    return said


def _problems(content: Mapping[str, Any]) -> Iterator[str]:
    yield from unplain_authority(content)
    yield from unplain("source_object", content["source_object"])
    for side in ("old", "new"):
        for name in _PARTS:
            yield from unplain(f"{side}.{name}", content[side][name])
    if content["old"] == content["new"]:
        yield "both slots are the same"
    members = content["members"]
    if len(members) > MEMBERS_MAX:
        yield f"a manifest has {MEMBERS_MAX} members at most, this one has {len(members)}"
    yield from out_of_order([member["old_key"] for member in members])
    new = _slots(content, "new")
    is_whole = all(content["new"].values())
    for place, member in enumerate(members, 1):
        if not LINK_KEY.fullmatch(member["old_key"]):
            yield f"member {place}: old_key is no link key"
        if not SHA256.fullmatch(member["rows_digest"]):
            yield f"member {place}: rows_digest is no digest"
        if is_whole and member["new_key"] != link_key(new, member["record_id"]):
            yield f"member {place}: new_key is not the one that the new slot gives to record {member['record_id']}"
    twice = len(members) - len({member["new_key"] for member in members})
    if twice:
        yield f"{twice} members get a key that another member gets"


_KIND: Final = Kind(
    name="rebind_manifest", format=FORMAT, command="pushlink slot rebind plan", shape=_shape, problems=_problems
)
