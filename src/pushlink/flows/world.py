"""What flows and steps need from outside: the ports, the terms of a deployment, and what may be remembered.

A `World` is made once by the composition root and passed along; nothing here is global. What it remembers can be
forgotten at any time: parsed snapshots by digest, and which credentials the remote has accepted in this run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import sqlalchemy as sa

from pushlink.errors import ConfigurationError, invariant
from pushlink.ports import Authority, Clock, Credentials, Ids, RecordStore, StateKeeper, Vault
from pushlink.protocol.contracts import ProfileContract
from pushlink.protocol.drift import Hit
from pushlink.protocol.sealing import Plain
from pushlink.protocol.snapshots import ActionSnapshot, Digest, Document, ProfileSnapshot
from pushlink.store.active import CatalogReader
from pushlink.store.requests import read_documents

V = TypeVar("V")

#: Parsed snapshots kept in memory; a deployment has a few for each action and credential generation.
SNAPSHOTS_MAX: Final = 4_096

#: Drift comparisons kept in memory: a few for each action, credential generation and reading of the catalogue.
COMPARISONS_MAX: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The numbers of a deployment, in milliseconds where not said otherwise."""

    lease_ms: int = 90_000
    margin_ms: int = 5_000  # between a request's deadline and the end of its lease
    claims_max: int = 5  # claims of a row without a recorded outcome before it is held as poison (D-16)
    mirror_tries_max: int = 12
    mirror_pause_ms: int = 2_000
    pause_max_ms: int = 600_000  # the longest that a process may stand still between its checkpoint and its send
    trusts_uncertified: bool = False  # whether a replay contract counts that was never certified


class Remembered(Generic[V]):
    """A bounded, thread-safe memory of values that can be made again."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: OrderedDict[object, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object) -> V | None:
        """The value, if it is still remembered."""
        return self._values.get(key)  # one look-up is atomic by itself

    def put(self, key: object, value: V) -> V:
        """Remember `value`, forgetting the oldest one when there are too many."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._size_max:
                self._values.popitem(last=False)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Ports, terms and memories of one process."""

    records: RecordStore
    authority: Authority
    credentials: Credentials
    clock: Clock
    ids: Ids
    catalog: CatalogReader
    secret: bytes = field(repr=False)
    vault: Vault = field(default_factory=Plain)
    terms: Terms = Terms()
    deployment_id: str | None = None  # as the settings name it, if they do
    state: StateKeeper | None = None  # what this machine remembers of the database
    profiles: Remembered[ProfileSnapshot] = field(default_factory=lambda: Remembered(SNAPSHOTS_MAX))
    actions: Remembered[ActionSnapshot] = field(default_factory=lambda: Remembered(SNAPSHOTS_MAX))
    contracts: Remembered[Digest] = field(default_factory=lambda: Remembered(SNAPSHOTS_MAX))
    documents: Remembered[Document] = field(default_factory=lambda: Remembered(SNAPSHOTS_MAX))
    comparisons: Remembered[tuple[Hit, ...]] = field(default_factory=lambda: Remembered(COMPARISONS_MAX))
    proven: Remembered[bool] = field(default_factory=lambda: Remembered(SNAPSHOTS_MAX))

    def jitter_permille(self) -> int:
        """A random 0 to 1000, so that waiting attempts do not all come back in the same instant."""
        return int(self.ids.token()[:8], 16) % 1_001

    def generation(self, profile: ProfileContract, tenant: str) -> str:
        """The current generation of a profile's credential; empty for a profile without one."""
        return self.credentials.generation(profile.credential_ref, tenant=tenant) if profile.credential_ref else ""

    def generation_of(self, reference: str | None, tenant: str) -> str:
        """The same for a reference; a credential that cannot be found has none, which differs from every frozen one."""
        try:
            return self.credentials.generation(reference, tenant=tenant) if reference else ""
        except ConfigurationError:
            return "unavailable"

    def profile_document(self, profile: ProfileContract, profile_digest: Digest, generation: str) -> Document:
        """The frozen form of a profile (named by the digest of its contract) under one credential generation."""
        key = (profile_digest, generation)
        known = self.documents.get(key)
        return known or self.documents.put(
            key, ProfileSnapshot(contract=profile, credential_generation=generation).document()
        )

    def thaw(
        self, conn: sa.Connection, profiles: Sequence[Digest], actions: Sequence[Digest]
    ) -> tuple[dict[Digest, ProfileSnapshot], dict[Digest, ActionSnapshot]]:
        """The snapshots of these digests, read from the database once and remembered."""
        missing = [d for d in profiles if self.profiles.get(d) is None]
        missing += [d for d in actions if self.actions.get(d) is None]
        texts = read_documents(conn, missing)
        invariant(len(texts) == len(set(missing)), "a frozen document is not there", missing=sorted(set(missing)))
        return (
            {d: self.profiles.get(d) or self.profiles.put(d, ProfileSnapshot.read(texts[d])) for d in profiles},
            {d: self.actions.get(d) or self.actions.put(d, ActionSnapshot.read(texts[d])) for d in actions},
        )

    def accepted(self, tenant: str, profile: ProfileSnapshot) -> bool:
        """Whether the remote accepted this credential generation in this run (D-23)."""
        reference = profile.contract.credential_ref
        return reference is None or bool(self.proven.get((tenant, reference, profile.credential_generation)))

    def note_accepted(self, tenant: str, profile: ProfileSnapshot) -> None:
        """Remember that the remote accepted this credential generation."""
        self.proven.put((tenant, profile.contract.credential_ref, profile.credential_generation), True)
