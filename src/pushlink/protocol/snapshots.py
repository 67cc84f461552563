"""Frozen values: what a save, a claim and a reply leave behind, byte for byte, for as long as it decides something.

Every document carries its format version and is written in the canonical form of RFC 8785, so that equal values have
equal digests on every machine and in every later release (a newer release reads all older formats; golden documents in
the tests pin each of them). Decimals, dates and times are kept exact by tagging them; nothing here knows a zone of the
machine. The same documents are what the store keeps by digest in `frozen_document`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NewType, TypeAlias

import rfc8785

from pushlink.errors import Code, ConfigurationError
from pushlink.protocol.contracts import ActionContract, Contract, ProfileContract

LinkKey = NewType("LinkKey", str)
LocatorKey = NewType("LocatorKey", str)
AttemptId = NewType("AttemptId", str)
ClaimToken = NewType("ClaimToken", str)
Digest = NewType("Digest", str)
InstallId = NewType("InstallId", str)

#: A source value as the record store reads it. `None` means "the field is empty"; a field that was not read is absent.
SourceValue: TypeAlias = bool | int | str | Decimal | dt.datetime | dt.date | dt.time | tuple[str, ...] | None

FORMAT_VERSION: Final = 1


def canonical(document: object) -> bytes:
    """The RFC 8785 form of a JSON document in UTF-8. Values that it cannot keep exact are tagged before."""
    return rfc8785.dumps(document)  # type: ignore[arg-type]


def canonical_texts(document: AbstractMapping[str, str | None]) -> bytes:
    """The same of an object with ASCII names and nothing but texts and nulls, where Python's own encoder writes it."""
    return _ENCODE_TEXTS(document).encode()


_ENCODE_TEXTS: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def digest(document: object) -> Digest:
    """`sha256:` and the hexadecimal SHA-256 of the canonical form."""
    return Digest("sha256:" + hashlib.sha256(canonical(document)).hexdigest())


def digest_bytes(data: bytes) -> Digest:
    """`sha256:` and the hexadecimal SHA-256 of raw bytes."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A frozen document as the store keeps it: its kind, its canonical text, and the digest that names it."""

    kind: str
    digest: Digest
    text: str


def freeze(kind: str, content: AbstractMapping[str, object]) -> Document:
    """Wrap `content` with kind and format version; the digest covers all three."""
    document = {"kind": kind, "format": FORMAT_VERSION, "content": content}
    data = canonical(document)
    return Document(kind=kind, digest=digest_bytes(data), text=data.decode())


def thaw(kind: str, text: str) -> dict[str, object]:
    """The content of a frozen document; raises `ConfigurationError` for another kind or a format of a later release."""
    document = json.loads(text)
    if document.get("kind") != kind or document.get("format") not in range(1, FORMAT_VERSION + 1):
        raise ConfigurationError(
            f"This release cannot read a frozen {document.get('kind')!r} of format {document.get('format')!r}.",
            code=Code.SCHEMA_OUTDATED,
            evidence={"wanted_kind": kind, "formats": f"1..{FORMAT_VERSION}"},
            next_step="run the release that wrote it, or a newer one",
        )
    content: dict[str, object] = document["content"]
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names for people: shown, compared for drift, and never part of a key."""

    namespace: str
    flow: str
    flow_version: str
    action: str
    target_object: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The stable identity of one connector action at one destination, within one tenant."""

    tenant: str
    connector_owner_key: str
    action_slot_id: str
    destination_slot_id: str
    source_object: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSnapshot:
    """A profile as it was when frozen: contract, and the generations that the credential provider reported."""

    contract: ProfileContract
    credential_generation: str

    def document(self) -> Document:
        """The frozen form, kind `profile`."""
        return freeze(
            "profile", {"contract": _written(self.contract), "credential_generation": self.credential_generation}
        )

    @classmethod
    def read(cls, text: str) -> ProfileSnapshot:
        """Read a frozen `profile` of any format up to this release's."""
        content = thaw("profile", text)
        return cls(
            contract=ProfileContract.model_validate_json(json.dumps(content["contract"])),
            credential_generation=str(content["credential_generation"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSnapshot:
    """An action's configuration as it was when frozen."""

    contract: ActionContract

    def document(self) -> Document:
        """The frozen form, kind `action`."""
        return freeze("action", {"contract": _written(self.contract)})

    @classmethod
    def read(cls, text: str) -> ActionSnapshot:
        """Read a frozen `action` of any format up to this release's."""
        return cls(contract=ActionContract.model_validate_json(json.dumps(thaw("action", text)["contract"])))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritySnapshot:
    """What the originating user was allowed to read when the values were read."""

    user_id: str
    source_object: str
    source_record_id: str
    allowed_fields: tuple[str, ...]
    decided_at: dt.datetime
    policy_digest: str
    mapping_fingerprint: Digest

    def document(self) -> Document:
        """The frozen form, kind `authority`."""
        return freeze(
            "authority",
            {
                "user_id": self.user_id,
                "source_object": self.source_object,
                "source_record_id": self.source_record_id,
                "allowed_fields": sorted(self.allowed_fields),
                "decided_at": write_time(self.decided_at),
                "policy_digest": self.policy_digest,
                "mapping_fingerprint": self.mapping_fingerprint,
            },
        )

    @classmethod
    def read(cls, text: str) -> AuthoritySnapshot:
        """Read a frozen `authority` of any format up to this release's."""
        content = thaw("authority", text)
        fields = content["allowed_fields"]
        return cls(
            user_id=str(content["user_id"]),
            source_object=str(content["source_object"]),
            source_record_id=str(content["source_record_id"]),
            allowed_fields=tuple(fields) if isinstance(fields, list) else (),
            decided_at=read_time(str(content["decided_at"])),
            policy_digest=str(content["policy_digest"]),
            mapping_fingerprint=Digest(str(content["mapping_fingerprint"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRequest:
    """The request of one attempt, ready to send but for the credential: nothing of it is computed again."""

    method: str
    path: str  # relative to the profile's base_url, already percent-encoded
    headers: tuple[tuple[str, str], ...]  # allow-listed and safe to replay, in sending order
    body: bytes
    body_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class WritebackSnapshot:
    """The compatibility mirror of one attempt: where it is written and which values may be overwritten."""

    source_object: str
    source_record_id: str
    remote_id_field: str
    provenance_field: str | None
    provenance_value: str | None
    expected_remote_id: str | None
    expected_provenance: str | None

    def document(self) -> Document:
        """The frozen form, kind `writeback`."""
        return freeze("writeback", {name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def read(cls, text: str) -> WritebackSnapshot:
        """Read a frozen `writeback` of any format up to this release's."""
        content = thaw("writeback", text)
        return cls(**{name: content[name] for name in cls.__slots__})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceValues:
    """All mapped source values of one save. A field that is missing here was not mapped; `None` means it was empty."""

    values: AbstractMapping[str, SourceValue]

    def document(self) -> Document:
        """The frozen form, kind `values`, with exact decimals and times."""
        return freeze("values", {name: _tag(value) for name, value in self.values.items()})

    @classmethod
    def read(cls, text: str) -> SourceValues:
        """Read frozen `values` of any format up to this release's."""
        return cls(values={name: _untag(value) for name, value in thaw("values", text).items()})


def write_time(moment: dt.datetime) -> str:
    """UTC with microseconds, always the same width: text order is time order. `moment` must carry a zone."""
    if moment.tzinfo is None:
        msg = "a naive datetime has no place in a frozen document"
        raise ValueError(msg)
    return moment.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_time(text: str) -> dt.datetime:
    """The inverse of `write_time`."""
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC)


def _written(contract: Contract) -> object:
    """What a contract says beyond its defaults, so that a field of a later release changes no older document."""
    return contract.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _tag(value: SourceValue) -> object:
    match value:
        case None | bool() | str():
            return value
        case int():
            return {"integer": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case dt.datetime():
            return {"datetime": write_time(value)}
        case dt.date():
            return {"date": value.isoformat()}
        case dt.time():
            return {"time": value.isoformat()}
        case tuple():
            return {"list": list(value)}


def _untag(value: object) -> SourceValue:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        match next(iter(value.items())):
            case ("integer", str(text)):
                return int(text)
            case ("decimal", str(text)):
                return Decimal(text)
            case ("datetime", str(text)):
                return read_time(text)
            case ("date", str(text)):
                return dt.date.fromisoformat(text)
            case ("time", str(text)):
                return dt.time.fromisoformat(text)
            case ("list", list(items)):
                return tuple(str(item) for item in items)
    msg = f"not a frozen source value: {type(value).__name__}"
    raise ValueError(msg)
