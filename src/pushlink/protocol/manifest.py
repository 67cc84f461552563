"""Mapping manifests: the document that moves the mapping authority of finalized links.

A manifest says for each link which row it was made for, what the mapping and body fingerprints and the install are, and
what they become. It is read strictly: its text is its canonical form (RFC 8785), so what was approved is byte for byte
what is applied. Whether two mappings mean the same is decided by whoever approves, never here (RV-12). What a manifest
leaves behind, and what stands in its way, is in `receipts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from pushlink.protocol import fingerprints
from pushlink.protocol.documents import (
    FINDINGS_SHOWN_MAX,
    LINK_KEY,
    MEMBERS_MAX,
    SHA256,
    Approval,
    Kind,
    approve,
    out_of_order,
    parts,
    read_document,
    unplain,
    unplain_authority,
    write_document,
)
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, digest

#: What is handed on from `documents.py`.
__all__ = ["FINDINGS_SHOWN_MAX", "MEMBERS_MAX", "Approval", "approve"]

#: The version of the document's form.
FORMAT: Final = 1

#: The columns of a link that a row digest binds: identity, remote record, snapshots, fingerprints and pointer. What
#: ordinary traffic rewrites (display names, mirror status, remote version, times) is not among them.
ROW_FIELDS: Final = (
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
    "created_install_id",
    "validated_install_id",
    "created_profile_digest",
    "created_action_digest",
    "profile_digest",
    "action_digest",
    "mapping_fingerprint",
    "body_fingerprint",
    "destination_scope",
    "remote_id",
    "remote_id_canonical",
    "mirror_remote_id_field",
    "mirror_provenance_field",
    "last_mapping_revalidation_operation_id",
)

#: A link's bound columns, as `ROW_FIELDS` names them.
BoundRow: TypeAlias = Mapping[str, str | None]

#: The rules that a manifest of this release is computed by.
ALGORITHMS: Final[Mapping[str, int]] = {
    "body_fingerprint": fingerprints.VERSION,
    "mapping_fingerprint": fingerprints.VERSION,
    "row_digest": 1,
}

_FINGERPRINT: Final = re.compile(r"(?P<surface>mapping|body)(?P<version>[1-9][0-9]{0,3}):[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingState:
    """What updates of a link are validated against: both fingerprints, and the install they were computed from."""

    mapping_fingerprint: Digest
    body_fingerprint: Digest
    install_id: InstallId


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One link of a manifest: the exact row it was made for, and the state it has and gets."""

    link_key: LinkKey
    row_digest: Digest
    old: MappingState
    new: MappingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest that was read or made, with the digest of its canonical form. Members are in link-key order."""

    operation_id: str
    tenant: str
    reason: str
    approval: Approval
    algorithms: Mapping[str, int]
    members: tuple[Member, ...]
    digest: Digest


# ------------------------------------------------------------------------------------------------ making


def row_digest(row: BoundRow) -> Digest:
    """The digest of everything of a link that a manifest binds."""
    return digest({"kind": "link_row", "format": 1, "row": {name: row[name] for name in ROW_FIELDS}})


def state_of(row: BoundRow) -> MappingState:
    """What a link is validated against now."""
    return MappingState(
        mapping_fingerprint=Digest(row["mapping_fingerprint"] or ""),
        body_fingerprint=Digest(row["body_fingerprint"] or ""),
        install_id=InstallId(row["validated_install_id"] or ""),
    )


def row_after(row: BoundRow, state: MappingState, operation_id: str) -> dict[str, str | None]:
    """A link's bound columns as an operation leaves them."""
    return {
        **row,
        "mapping_fingerprint": state.mapping_fingerprint,
        "body_fingerprint": state.body_fingerprint,
        "validated_install_id": state.install_id,
        "last_mapping_revalidation_operation_id": operation_id,
    }


def new_manifest(
    *, operation_id: str, tenant: str, reason: str, approval: Approval, members: Iterable[Member]
) -> Manifest:
    """A manifest of this release's rules; raises `CallerError` with every finding that reading it would have."""
    ordered = sorted(members, key=lambda member: member.link_key)
    content = _content(operation_id, tenant, reason, approval, ALGORITHMS, ordered)
    return read_manifest(write_document(content))


# ------------------------------------------------------------------------------------------------ writing, reading


def write_manifest(manifest: Manifest) -> str:
    """The text of a manifest: its canonical form, and a line end."""
    content = _content(
        manifest.operation_id,
        manifest.tenant,
        manifest.reason,
        manifest.approval,
        manifest.algorithms,
        manifest.members,
    )
    return write_document(content)


def read_manifest(text: str) -> Manifest:
    """Read a manifest; raises `CallerError` with everything that is wrong with it, before any row is looked at."""
    content, digest_of = read_document(_KIND, text)
    return Manifest(
        operation_id=content["operation_id"],
        tenant=content["tenant"],
        reason=content["reason"],
        approval=Approval(**content["approval"]),
        algorithms=content["algorithms"],
        members=tuple(_member(item) for item in content["members"]),
        digest=digest_of,
    )


def _content(
    operation_id: str,
    tenant: str,
    reason: str,
    approval: Approval,
    algorithms: Mapping[str, int],
    members: Sequence[Member],
) -> dict[str, object]:
    return {
        "kind": "mapping_manifest",
        "format": FORMAT,
        "operation_id": operation_id,
        "tenant": tenant,
        "reason": reason,
        "approval": {"who": approval.who, "digest": approval.digest},
        "algorithms": dict(algorithms),
        "members": [
            {
                "link_key": member.link_key,
                "row_digest": member.row_digest,
                "old": _written(member.old),
                "new": _written(member.new),
            }
            for member in members
        ],
    }


def _written(state: MappingState) -> dict[str, str]:
    return {name: getattr(state, name) for name in _STATE}


def _member(item: Mapping[str, Any]) -> Member:
    return Member(
        link_key=item["link_key"],
        row_digest=item["row_digest"],
        old=MappingState(**item["old"]),
        new=MappingState(**item["new"]),
    )


# ------------------------------------------------------------------------------------------------ what is wrong

_STATE: Final = tuple(field.name for field in fields(MappingState))
_INNER: Final = {
    "kind": str,
    "format": int,
    "operation_id": str,
    "tenant": str,
    "reason": str,
    "approval": dict,
    "algorithms": dict,
    "members": list,
}
_MEMBER: Final = {"link_key": str, "row_digest": str, "old": dict, "new": dict}
_TEXTS: Final = dict.fromkeys(_STATE, str)


def _shape(content: Mapping[str, Any]) -> list[str]:
    said = list(parts("the manifest", content, _INNER))
    if said:
        return said
    said += parts("the approval", content["approval"], {"who": str, "digest": str})
    said += parts("the algorithms", content["algorithms"], dict.fromkeys(ALGORITHMS, int))
    for place, member in enumerate(content["members"], 1):
        wrong = list(parts(f"member {place}", member, _MEMBER))
        for side in ("old", "new") if not wrong else ():
            wrong += parts(f"member {place}, {side}", member[side], _TEXTS)
        said += wrong
    return said


def _problems(content: Mapping[str, Any]) -> Iterator[str]:
    yield from unplain_authority(content)
    members = content["members"]
    for name, version in content["algorithms"].items():
        if not 1 <= version <= ALGORITHMS[name]:
            yield f"this release does not know version {version} of {name}"
    if not 1 <= len(members) <= MEMBERS_MAX:
        yield f"a manifest has 1 to {MEMBERS_MAX} members, this one has {len(members)}"
    yield from out_of_order([member["link_key"] for member in members])
    for place, member in enumerate(members, 1):
        yield from _member_problems(place, member)


def _member_problems(place: int, member: Mapping[str, Any]) -> Iterator[str]:
    if not LINK_KEY.fullmatch(member["link_key"]):
        yield f"member {place}: link_key is no link key"
    if not SHA256.fullmatch(member["row_digest"]):
        yield f"member {place}: row_digest is no digest"
    for side in ("old", "new"):
        for surface in ("mapping", "body"):
            name = f"{surface}_fingerprint"
            found = _FINGERPRINT.fullmatch(member[side][name])
            if not found or found["surface"] != surface:
                yield f"member {place}, {side}: {name} is no fingerprint of this surface"
            elif int(found["version"]) > ALGORITHMS[name]:
                yield f"member {place}, {side}: this release does not know version {found['version']} of {name}"
        yield from unplain(f"member {place}, {side}: install_id", member[side]["install_id"])
    if member["old"] == member["new"]:
        yield f"member {place}: nothing changes for the link {member['link_key']}"


_KIND: Final = Kind(
    name="mapping_manifest", format=FORMAT, command="pushlink mapping manifest", shape=_shape, problems=_problems
)
