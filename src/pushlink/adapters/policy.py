"""Authorities: may this user read these fields of this record?

`PolicyAuthority` answers out of a policy document, `CallableAuthority` asks a function of the host, `AllowAllAuthority`
lets every user read everything and has to be chosen by name. All of them only ever narrow: what is not granted is
denied, an answer never names a field that was not asked for, and a decision holds names and flags, never a value. The
values that decide (owners, conditions of shares) are read through the record store on the caller's connection, in sets,
and are dropped here (AU-01, AU-05).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike

from sqlalchemy import Connection

from pushlink.adapters.policy_document import (
    Policy,
    PolicyDocument,
    Rows,
    Share,
    above,
    inherited,
    read_policy,
)
from pushlink.errors import CallerError
from pushlink.ports import AuthorityDecision, AuthorityRequest, RecordStore
from pushlink.protocol.render import applies
from pushlink.protocol.snapshots import SourceValue, SourceValues, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Right:
    """Fields of one object that a user may read in the rows that the scope covers. `fields` None means all of them."""

    fields: frozenset[str] | None
    rows: Rows
    owner_field: str | None
    shares: tuple[Share, ...]

    def allows(self, field: str) -> bool:
        return self.fields is None or field in self.fields

    def facts(self) -> Iterator[str]:
        """The fields of a row that tell whether this right covers it; none when it covers every row."""
        if self.rows is Rows.ALL:
            return
        yield from (name for name in (self.owner_field, *(share.owner_field for share in self.shares)) if name)
        yield from (condition.field for share in self.shares for condition in share.when)


class PolicyAuthority:
    """An `Authority` out of a policy document; one instance serves all threads."""

    def __init__(self, document: PolicyDocument, records: RecordStore) -> None:
        self.document = document
        self._policy: Policy = document.policy
        self._records = records
        self.policy_digest: str = digest(self._policy.model_dump(mode="json", by_alias=True))
        self._rights = lru_cache(maxsize=10_000)(self._find_rights)

    @classmethod
    def from_file(cls, path: str | PathLike[str], records: RecordStore) -> PolicyAuthority:
        """Read a policy file; raises `ConfigurationError` when it has something to mend."""
        return cls(read_policy(path), records)

    def summary(self) -> str:
        """One line for `doctor`."""
        return f"policy {self.document.file}: {len(self._policy.users)} users, {len(self._policy.roles)} roles"

    def decide_reads(self, conn: Connection, requests: Sequence[AuthorityRequest]) -> list[AuthorityDecision | None]:
        """One decision for each request, None for a user the policy does not know.

        Rows are looked at only where a row decides, with one read for all requests.
        """
        rights = [self._rights_of(request) for request in requests]
        facts = self._read_facts(conn, requests, rights)
        return [
            self._decide(request, found, facts.get(index))
            for index, (request, found) in enumerate(zip(requests, rights, strict=True))
        ]

    def users_active(self, conn: Connection, user_ids: Sequence[str]) -> list[bool]:
        """Whether each user is known and active."""
        del conn
        users = self._policy.users
        return [user_id in users and users[user_id].active for user_id in user_ids]

    def _rights_of(self, request: AuthorityRequest) -> tuple[_Right, ...]:
        user = self._policy.users.get(request.user_id)
        if user is None or not user.active:
            return ()
        return self._rights(user.roles, request.ref.source_object)

    def _find_rights(self, role_names: tuple[str, ...], source_object: str) -> tuple[_Right, ...]:
        held = inherited(self._policy, role_names)
        shares = [share for share in self._policy.sharing if share.object == source_object and held & set(share.to)]
        rights = []
        for role_name in sorted(held):
            grant = self._policy.roles[role_name].objects.get(source_object)
            if grant is None or not grant.read:
                continue
            # A share with a role opens rows to what that role may see in them, not to all that its holder may.
            opened = [s for s in shares if any(role_name in inherited(self._policy, [to]) for to in held & set(s.to))]
            rights.append(
                _Right(
                    fields=None if grant.fields is None else frozenset(grant.fields),
                    rows=grant.rows,
                    owner_field=grant.owner_field,
                    shares=tuple(opened),
                )
            )
        # Where one right covers everything, no row has to be looked at.
        unlimited = next((right for right in rights if right.fields is None and right.rows is Rows.ALL), None)
        return (unlimited,) if unlimited is not None else tuple(rights)

    def _read_facts(
        self, conn: Connection, requests: Sequence[AuthorityRequest], rights: Sequence[tuple[_Right, ...]]
    ) -> Mapping[int, Mapping[str, SourceValue] | None]:
        wanted = {
            index: sorted({fact for right in found for fact in right.facts()}) for index, found in enumerate(rights)
        }
        asked = [index for index, facts in wanted.items() if facts]
        if not asked:
            return {}
        rows = self._records.read_records(
            conn, [requests[index].ref for index in asked], [wanted[index] for index in asked]
        )
        return dict(zip(asked, rows, strict=True))

    def _decide(
        self, request: AuthorityRequest, rights: Sequence[_Right], row: Mapping[str, SourceValue] | None
    ) -> AuthorityDecision | None:
        user = self._policy.users.get(request.user_id)
        if user is None:
            return None
        covering = [right for right in rights if self._covers(right, request.user_id, row)]
        return _decision(
            request,
            active=user.active,
            readable=bool(covering),
            allows=lambda field: any(right.allows(field) for right in covering),
            policy_digest=self.policy_digest,
        )

    def _covers(self, right: _Right, user_id: str, row: Mapping[str, SourceValue] | None) -> bool:
        if right.rows is Rows.ALL:
            return True
        if row is None:
            return False
        owner = _owner(row, right.owner_field)
        if owner is not None and (owner == user_id or (right.rows is not Rows.OWN and self._leads(user_id, owner))):
            return True
        return any(self._is_shared(share, row) for share in right.shares)

    def _is_shared(self, share: Share, row: Mapping[str, SourceValue]) -> bool:
        if share.owned_by is not None and share.owned_by not in self._roles(_owner(row, share.owner_field)):
            return False
        return applies(share.when, SourceValues(values=row))

    def _leads(self, user_id: str, owner: str) -> bool:
        """Whether one of the user's roles stands above one of the owner's."""
        mine = set(self._roles(user_id))
        return any(mine & above(self._policy, role_name) for role_name in self._roles(owner))

    def _roles(self, user_id: str | None) -> tuple[str, ...]:
        user = self._policy.users.get(user_id) if user_id is not None else None
        return user.roles if user is not None else ()


class AllowAllAuthority:
    """Every user may read every field of every row: for an installation with one user. Settings must name it."""

    policy_digest: str = digest({"policy": "allow_all"})

    def summary(self) -> str:
        """One line for `doctor`."""
        return "allow_all: every user may read every field of every row"

    def decide_reads(self, conn: Connection, requests: Sequence[AuthorityRequest]) -> list[AuthorityDecision | None]:
        """Yes to every request that names a user."""
        del conn
        return [
            _decision(request, active=True, readable=True, allows=_always, policy_digest=self.policy_digest)
            if request.user_id
            else None
            for request in requests
        ]

    def users_active(self, conn: Connection, user_ids: Sequence[str]) -> list[bool]:
        """Whoever has a name is active."""
        del conn
        return [bool(user_id) for user_id in user_ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What a host's function says to one request: `fields` None means all that were asked for."""

    readable: bool
    fields: Collection[str] | None = None
    active: bool = True


class CallableAuthority:
    """Asks two functions of the host, in sets and on the caller's connection.

    `decide` answers every request in order, with None for a user it does not know; `users_active` says who may still
    act. `version` names the host's rules in every snapshot: change it when they change. Fields that were not asked for
    are dropped from an answer.
    """

    def __init__(
        self,
        decide: Callable[[Connection, Sequence[AuthorityRequest]], Sequence[HostAnswer | None]],
        users_active: Callable[[Connection, Sequence[str]], Sequence[bool]],
        *,
        version: str,
    ) -> None:
        self._ask = decide
        self._ask_active = users_active
        self._version = version
        self.policy_digest: str = digest({"policy": "host", "version": version})

    def summary(self) -> str:
        """One line for `doctor`."""
        return f"the host's own rules, version {self._version}"

    def decide_reads(self, conn: Connection, requests: Sequence[AuthorityRequest]) -> list[AuthorityDecision | None]:
        """The host's answers, narrowed to what was asked."""
        answers = self._ask(conn, requests) if requests else []
        _require_length(len(requests), len(answers), "decide")
        return [
            None if answer is None else self._narrow(request, answer)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def users_active(self, conn: Connection, user_ids: Sequence[str]) -> list[bool]:
        """The host's answers."""
        answers = list(self._ask_active(conn, user_ids)) if user_ids else []
        _require_length(len(user_ids), len(answers), "users_active")
        return answers

    def _narrow(self, request: AuthorityRequest, answer: HostAnswer) -> AuthorityDecision:
        fields = answer.fields
        return _decision(
            request,
            active=answer.active,
            readable=answer.readable,
            allows=_always if fields is None else frozenset(fields).__contains__,
            policy_digest=self.policy_digest,
        )


def _decision(
    request: AuthorityRequest, *, active: bool, readable: bool, allows: Callable[[str], bool], policy_digest: str
) -> AuthorityDecision:
    """A decision that is no wider than the request and grants nothing in a row, or to a user, that is shut out."""
    asked = tuple(dict.fromkeys(request.fields))
    allowed = tuple(field for field in asked if active and readable and allows(field))
    return AuthorityDecision(
        user_active=active,
        row_readable=active and readable,
        allowed_fields=allowed,
        denied_fields=tuple(field for field in asked if field not in allowed),
        policy_digest=policy_digest,
    )


def _owner(row: Mapping[str, SourceValue], owner_field: str | None) -> str | None:
    """The owner's user id as text; None when the field is empty or holds something that is no id."""
    value = row.get(owner_field) if owner_field is not None else None
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else None


def _always(field: str) -> bool:
    del field
    return True


def _require_length(asked: int, answered: int, name: str) -> None:
    if asked != answered:
        raise CallerError(
            f"The host's `{name}` gave {answered} answers to {asked} questions.",
            next_step="return one answer for each, in their order",
        )
