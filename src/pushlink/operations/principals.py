"""Who decides: principals with roles, known by tokens, and the local administrator of a deployment without any.

A token is 256 random bits behind the id of its principal; only its SHA-256 is stored, and it is compared in constant
time. Every refusal of a token reads alike, whatever was wrong with it; the audit knows better, and ten of them within a
minute lock the principal out for the rest of it. While no principal was ever defined, whoever can
open the database on this machine is its administrator; the first principal has to be one too, and ends that.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pushlink.errors import CallerError, Code
from pushlink.store import principals
from pushlink.store.access import Connection
from pushlink.store.principals import PrincipalRow

#: What every token begins with, so that scanners of leaked secrets can know one.
TOKEN_PREFIX: Final = "pushlink"  # noqa: S105 - what stands before a secret

#: The parts of a token: prefix, id of the principal, secret.
_PARTS: Final = 3

#: Longer than any token that was ever given out; what is longer is not looked at.
_TOKEN_LENGTH_MAX: Final = 200


#: Refused tokens of one principal within the window, after which none of its tokens is taken until the window ends.
REFUSALS_MAX: Final = 10
LOCKED_OUT_FOR: Final = dt.timedelta(minutes=1)

#: What the audit keeps of a refusal's evidence.
_SHOWN: Final = ("role", "needs", "tenant")


class Role(StrEnum):
    """What a principal may do; each may do what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether whoever has this role may do what `other` may."""
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who somebody was shown to be. `tenant` is `None` for every tenant."""

    name: str
    role: Role
    tenant: str | None = None

    def require(self, role: Role, *, tenant: str | None) -> Identity:
        """Answer with itself if it may act in that role for that tenant; raises `CallerError` otherwise."""
        is_scoped = self.tenant is not None and self.tenant != tenant
        if self.role.includes(role) and not is_scoped:
            return self
        raise CallerError(
            f"{self.name!r} is {self.role.value}{' of another tenant' if is_scoped else ''}; this needs {role.value}.",
            code=Code.NOT_PERMITTED,
            evidence={"principal": self.name, "role": self.role.value, "needs": role.value}
            | ({"tenant": self.tenant} if is_scoped else {}),
            next_step="let a principal with that role do it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalView:
    """A principal as it is shown: never its token."""

    id: str
    name: str
    role: str
    tenant: str | None
    created_at: dt.datetime
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A new principal, and its token: this is the only time that it can be seen."""

    principal: PrincipalView
    token: str


class TokenRefused(CallerError):
    """A token that shows nobody. `principal_id` is whose it would have been; `because` is for the audit alone."""

    def __init__(self, message: str, *, because: str, principal_id: str = "") -> None:
        super().__init__(
            message,
            code=Code.TOKEN_REFUSED,
            next_step="set PUSHLINK_TOKEN, or name a file with --token-file; after ten refused ones wait a minute",
        )
        self.because = because
        self.principal_id = principal_id


def identify(conn: Connection, token: str | None, *, local_user: str, now: dt.datetime) -> Identity:
    """Who a token belongs to; without one the local administrator, while nobody was ever defined.

    Raises `TokenRefused`. Whoever catches it writes it into the audit by `record_refusal`, in a transaction of its own:
    the one that was refused leaves nothing.
    """
    if token is None:
        if principals.has_principals(conn):
            message = "A token is needed: principals are defined for this deployment."
            raise TokenRefused(message, because="there was none")
        return Identity(name=f"local:{local_user}", role=Role.ADMIN)
    row = principals.read_principal(conn, _id_of(token))
    digest = _digest(token)
    is_right = hmac.compare_digest(digest, row.token_sha256 if row is not None else _digest(""))
    because = _unusable(row, now, is_right=is_right)
    if row is None or because is not None:
        raise TokenRefused(
            "The token is not one of a usable principal.",
            because=because or "it is nobody's",
            principal_id=row.id if row is not None else "",
        )
    return Identity(name=row.name, role=Role(row.role), tenant=row.tenant)


def record_refusal(conn: Connection, error: TokenRefused, *, local_user: str, now: dt.datetime) -> None:
    """Write a refused token into the audit, and count it against the principal whose it would have been."""
    if error.principal_id:
        principals.count_refusal(conn, error.principal_id, window=LOCKED_OUT_FOR, now=now)
    actor = f"local:{local_user}"
    principals.record_refusal(conn, error.principal_id, because=error.because, actor=actor, now=now)


def record_not_permitted(
    conn: Connection, error: CallerError, *, command: str, local_user: str, now: dt.datetime
) -> None:
    """Write into the audit that a known principal asked for what its role, its tenant or its consent does not allow."""
    shown: dict[str, object] = {name: error.evidence[name] for name in _SHOWN if name in error.evidence}
    principals.record_not_permitted(
        conn,
        str(error.evidence["principal"]),
        because=error.message,
        evidence={"command": command, "typed_by": f"local:{local_user}", **shown},
        now=now,
    )


def add(
    conn: Connection,
    by: Identity,
    *,
    name: str,
    role: Role,
    tenant: str | None,
    lasts: dt.timedelta | None,
    reason: str,
    ids: Callable[[], str],
    now: dt.datetime,
) -> Added:
    """Define a principal. The first one is an administrator of every tenant, since a token is needed from then on."""
    by.require(Role.ADMIN, tenant=None)
    known = principals.lock_principals(conn)
    name = name.strip()
    if not name or name.startswith("local:"):
        raise CallerError(
            "A principal needs a name, and none that begins with 'local:'.", next_step="name it otherwise"
        )
    if any(one.name == name for one in known):
        raise CallerError(f"There is a principal {name!r} already; a name is never given twice.")
    if not known and (role is not Role.ADMIN or tenant is not None or lasts is not None):
        raise CallerError(
            "The first principal is an administrator of every tenant, without an end.",
            next_step="pushlink principal add NAME --role admin",
        )
    principal_id = ids()
    token = f"{TOKEN_PREFIX}_{principal_id}_{secrets.token_urlsafe(32)}"
    row = PrincipalRow(
        id=principal_id,
        name=name,
        role=role.value,
        token_sha256=_digest(token),
        tenant=tenant,
        created_at=now,
        expires_at=None if lasts is None else now + lasts,
        revoked_at=None,
    )
    principals.insert_principal(conn, row, actor=by.name, reason=reason, now=now)
    return Added(principal=_view(row), token=token)


def revoke(conn: Connection, by: Identity, *, name: str, reason: str, now: dt.datetime) -> PrincipalView:
    """End a principal; the last administrator whose token does not end stays."""
    by.require(Role.ADMIN, tenant=None)
    known = principals.lock_principals(conn)
    row = next((one for one in known if one.name == name), None)
    if row is None:
        raise CallerError(f"There is no principal {name!r}.", next_step="pushlink principal list")
    if row.revoked_at is not None:
        raise CallerError(f"{name!r} is revoked already.", code=Code.NOT_ALLOWED_NOW)
    if _is_lasting_admin(row) and not any(_is_lasting_admin(one) for one in known if one.id != row.id):
        raise CallerError(
            "The last administrator is not revoked: nobody could define another one.",
            code=Code.NOT_ALLOWED_NOW,
            next_step="pushlink principal add NAME --role admin",
        )
    principals.revoke_principal(conn, row, actor=by.name, reason=reason, now=now)
    return _view(row, revoked_at=now)


def list_all(conn: Connection) -> tuple[PrincipalView, ...]:
    """Every principal, revoked ones too."""
    return tuple(_view(row) for row in principals.read_principals(conn))


def _unusable(row: PrincipalRow | None, now: dt.datetime, *, is_right: bool) -> str | None:
    """Why a token is refused, for the audit; a principal that is locked out is so with its right token as well."""
    if row is None:
        return "it is nobody's"
    since = row.refusals_since
    if row.refusals >= REFUSALS_MAX and since is not None and now < since + LOCKED_OUT_FOR:
        return "too many tokens of this principal were refused within a minute"
    if not is_right:
        return "it is wrong"
    if row.revoked_at is not None:
        return "its principal is revoked"
    return "it has expired" if row.expires_at is not None and now >= row.expires_at else None


def _is_lasting_admin(row: PrincipalRow) -> bool:
    is_lasting = row.revoked_at is None and row.expires_at is None and row.tenant is None
    return is_lasting and row.role == Role.ADMIN.value


def _id_of(token: str) -> str:
    parts = token.split("_", _PARTS - 1) if len(token) <= _TOKEN_LENGTH_MAX else []
    return parts[1] if len(parts) == _PARTS and parts[0] == TOKEN_PREFIX else ""


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _view(row: PrincipalRow, *, revoked_at: dt.datetime | None = None) -> PrincipalView:
    return PrincipalView(
        id=row.id,
        name=row.name,
        role=row.role,
        tenant=row.tenant,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=revoked_at or row.revoked_at,
    )
