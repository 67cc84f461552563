"""Packs for people: check files, publish the schema, apply one, list what is installed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from pushlink.errors import CallerError, Code, Finding, PackError
from pushlink.packs.lint import LintFinding, Severity
from pushlink.packs.loader import load_pack, read_pack
from pushlink.packs.model import Pack
from pushlink.packs.schema import pack_schema
from pushlink.store import reads
from pushlink.store.access import Connection
from pushlink.store.catalog import AppliedPack, apply_pack, uninstall_pack

#: What the audit says of an apply when nobody gives a reason.
APPLY_REASON = "pack apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One thing to mend. `rule` is `None` for what has not the shape of a pack at all."""

    file: str
    line: int
    column: int
    path: str
    message: str
    rule: str | None
    severity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPack:
    """What a check says of one file. The names are `None` for a file that is no pack."""

    file: str
    is_usable: bool
    pack: str | None
    version: str | None
    actions: int
    findings: tuple[FindingView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedView:
    """What an apply did. `file` is empty for a pack that came from none."""

    file: str
    pack: str
    version: str
    tenant: str
    install_id: str
    install_revision: int
    catalog_revision: int
    is_new_incarnation: bool
    is_changed: bool
    added_slots: tuple[str, ...]
    returned_slots: tuple[str, ...]
    dropped_slots: tuple[str, ...]
    moved_slots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallView:
    """One install of a tenant, active or ended."""

    install_id: str
    tenant: str
    pack: str
    version: str
    namespace: str
    connector_owner_key: str
    status: str
    revision: int
    document_digest: str
    installed_at: dt.datetime
    updated_at: dt.datetime


def check(paths: Sequence[str | PathLike[str]]) -> tuple[CheckedPack, ...]:
    """Check each file by itself; nothing is installed and no database is asked."""
    return tuple(_check(path) for path in paths)


def schema() -> dict[str, Any]:
    """The JSON Schema of a pack document."""
    return pack_schema()


def apply(
    conn: Connection,
    source: Pack | str | PathLike[str],
    *,
    tenant: str,
    install_ids: Callable[[], str],
    actor: str,
    now: dt.datetime,
    reason: str = APPLY_REASON,
) -> AppliedView:
    """Install a pack, or the pack of a file, for a tenant; raises `PackError` for a file that has an error.

    Raises `ConfigurationError` when the slot registry refuses it. Nothing is written in either case.
    """
    pack, file = (source, "") if isinstance(source, Pack) else (load_pack(source), str(source))
    done = apply_pack(conn, pack, tenant=tenant, install_ids=install_ids, reason=reason, actor=actor, now=now)
    return _applied(file, pack.pack, pack.version, tenant, done)


def uninstall(
    conn: Connection, pack: str, *, tenant: str, revision: int, reason: str, actor: str, now: dt.datetime
) -> InstallView:
    """End the install of a pack, named as `installs` names it, at the revision that was seen; links stay as they are.

    Raises `CallerError` for a pack that is not installed, and for one that was applied again since.
    """
    found = [view for view in installs(conn, tenant=tenant) if view.pack == pack and view.status == "active"]
    if len(found) != 1:
        raise CallerError(
            f"{len(found) or 'No'} active installs of this tenant are called {pack!r}.",
            evidence={"tenant": tenant},
            next_step="pushlink pack list",
        )
    if found[0].revision != revision:
        raise CallerError(
            "The pack was applied again since it was looked at; nothing was done.",
            code=Code.STALE_VERSION,
            evidence={"seen": revision, "current": found[0].revision},
            next_step="look at it again: pushlink pack list",
        )
    ended = uninstall_pack(
        conn, tenant=tenant, connector_owner_key=found[0].connector_owner_key, reason=reason, actor=actor, now=now
    )
    return next(view for view in installs(conn, tenant=tenant) if view.install_id == ended.id)


def installs(conn: Connection, *, tenant: str = "") -> tuple[InstallView, ...]:
    """Every install of a tenant, by owner and time."""
    return tuple(
        InstallView(
            install_id=row.id,
            tenant=row.tenant,
            pack=row.pack,
            version=row.version,
            namespace=row.namespace,
            connector_owner_key=row.connector_owner_key,
            status=row.status,
            revision=row.revision,
            document_digest=row.document_digest,
            installed_at=row.installed_at,
            updated_at=row.updated_at,
        )
        for row in reads.read_install_list(conn, tenant=tenant)
    )


def _check(path: str | PathLike[str]) -> CheckedPack:
    try:
        document = read_pack(path)
    except PackError as error:
        found = tuple(_view(finding) for finding in error.findings)
        return CheckedPack(file=str(path), is_usable=False, pack=None, version=None, actions=0, findings=found)
    pack = document.pack
    return CheckedPack(
        file=str(path),
        is_usable=not document.errors,
        pack=pack.pack,
        version=pack.version,
        actions=sum(len(flow.actions) for flow in pack.flows),
        findings=tuple(_view(finding) for finding in document.findings),
    )


def _view(finding: Finding) -> FindingView:
    rule, severity = None, Severity.ERROR
    if isinstance(finding, LintFinding):
        rule, severity = finding.rule, finding.severity
    return FindingView(
        file=finding.file,
        line=finding.line,
        column=finding.column,
        path=finding.path,
        message=finding.message,
        rule=rule,
        severity=severity.value,
    )


def _applied(file: str, pack: str, version: str, tenant: str, done: AppliedPack) -> AppliedView:
    return AppliedView(
        file=file,
        pack=pack,
        version=version,
        tenant=tenant,
        install_id=done.install_id,
        install_revision=done.revision,
        catalog_revision=done.catalog_revision,
        is_new_incarnation=done.is_new_incarnation,
        is_changed=done.is_changed,
        added_slots=done.added,
        returned_slots=done.returned,
        dropped_slots=done.dropped,
        moved_slots=done.moved,
    )
