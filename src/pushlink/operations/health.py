"""The checks of `doctor`: is this deployment able to keep its promises, and does anything wait that nobody owns.

Each check stands for itself, says one sentence, and names the next step where something is to do. A check that raises
an error of pushlink's is a failed check with that error's words; what depends on a failed one is left out. Nothing is
changed, no secret is shown, and no remote is spoken to.
"""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from pushlink.errors import Finding, PushlinkError
from pushlink.flows.world import World
from pushlink.operations.reads import Counts, counts
from pushlink.operations.remotes import held_back
from pushlink.operations.waiting import causes_of
from pushlink.ports import Credentials, StateSeen
from pushlink.store.access import Connection
from pushlink.store.active import ActiveAction, ActiveCatalog, CatalogReader
from pushlink.store.catalog import load_installs, read_deployment
from pushlink.store.dialect import LOSSY_FAULT, LOSSY_REMEDY, check_durability, current_time, lossy_version
from pushlink.store.registry import IN_USE, SlotKind, read_registry
from pushlink.store.restores import read_marks
from pushlink.store.schema import SchemaState

#: Leases live on the database's clock alone; beyond this the machine's own times in logs mislead people.
CLOCK_DIFFERENCE_S_MAX: Final = 2.0

#: Bits of a mode that let somebody else than the owner at a file.
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its stable name, how it ended, a sentence, evidence, and what to do."""

    name: str
    verdict: Verdict
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    next_step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined. The callables may raise errors of pushlink's; each is called in the check that is about it."""

    secret: Callable[[], bytes]
    secret_file: Path | None  # None: it comes from the environment
    database: Callable[[], AbstractContextManager[Connection]]
    schema: Callable[[], SchemaState]
    authority: Callable[[], str]  # one line about it
    policy_findings: Callable[[Connection], Sequence[Finding]]
    read_objects: Callable[[Connection], Sequence[str]]  # looks every declared table up; answers with the names
    credentials: Callable[[], Credentials]
    now: Callable[[], dt.datetime]  # of this machine
    world: Callable[[], World | None] = lambda: None  # None: nothing is compared with the catalogue
    state: Callable[[], StateSeen | None] = lambda: None  # what this machine remembers; None: it has no place for it


#: Every check that `examine` may answer with, in its order.
CHECKS: Final = (
    "secret",
    "database",
    "schema",
    "durability",
    "library",
    "clock",
    "objects",
    "authority",
    "deployment",
    "restore_guard",
    "packs",
    "credentials",
    "lanes",
    "leases",
    "waiting",
    "remotes",
)


def examine(subject: Subject) -> tuple[Check, ...]:
    """Run every check that can be run."""
    return tuple(_examined(subject))


def _examined(subject: Subject) -> Iterator[Check]:
    yield _guarded("secret", lambda: _secret(subject))
    database = _guarded("database", lambda: _database(subject))
    yield database
    if database.verdict is Verdict.FAIL:
        return
    schema = _guarded("schema", lambda: _schema(subject))
    yield schema
    yield _in_database(subject, "durability", _durability)
    yield _in_database(subject, "library", _library)
    yield _in_database(subject, "clock", lambda conn: _clock(conn, subject.now()))
    yield _in_database(subject, "objects", lambda conn: _objects(conn, subject))
    yield _in_database(subject, "authority", lambda conn: _authority(conn, subject))
    if schema.verdict is Verdict.FAIL:
        return
    yield _in_database(subject, "deployment", _deployment)
    yield _in_database(subject, "restore_guard", lambda conn: _restore_guard(conn, subject))
    yield _in_database(subject, "packs", _packs)
    if _has_secret(subject):
        yield _in_database(subject, "credentials", lambda conn: _credentials(conn, subject.credentials()))
    found: list[Counts] = []
    yield _in_database(subject, "lanes", lambda conn: _lanes(_counted(conn, found)))
    if found:
        yield _leases(found[0])
    yield _in_database(subject, "waiting", lambda conn: _waiting(conn, subject))
    yield _in_database(subject, "remotes", _remotes)


def _guarded(name: str, run: Callable[[], Check]) -> Check:
    try:
        return run()
    except PushlinkError as error:
        return Check(
            name=name,
            verdict=Verdict.FAIL,
            message=error.message,
            evidence={"code": error.code.value, **error.evidence},
            next_step=error.next_step,
        )


def _in_database(subject: Subject, name: str, run: Callable[[Connection], Check]) -> Check:
    def opened() -> Check:
        with subject.database() as conn:
            return run(conn)

    return _guarded(name, opened)


# ------------------------------------------------------------------------------------------------ the checks


def _remotes(conn: Connection) -> Check:
    held = held_back(conn, tenant=None, now=current_time(conn))
    if not held:
        return _ok("remotes", "No remote is left alone.")
    return Check(
        name="remotes",
        verdict=Verdict.WARN,
        message=f"{held[0].destination_slot_id}: {held[0].sentence}"
        + (f" So do {len(held) - 1} other destinations." if len(held) > 1 else ""),
        evidence={"held_back": [f"{one.tenant}/{one.destination_slot_id} {one.held_by}" for one in held]},
        next_step="pushlink stuck",
    )


def _has_secret(subject: Subject) -> bool:
    try:
        return bool(subject.secret())
    except PushlinkError:
        return False


def _secret(subject: Subject) -> Check:
    subject.secret()
    file = subject.secret_file
    if file is None:
        return _ok("secret", "The deployment secret comes from the environment.")
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & _OTHERS:
        return Check(
            name="secret",
            verdict=Verdict.FAIL,
            message=f"Others than its owner may use the secret file {file} (mode {mode:04o}).",
            evidence={"file": str(file), "mode": f"{mode:04o}"},
            next_step=f"chmod 600 {file}",
        )
    return _ok("secret", f"The secret file {file} is there, and its owner's alone.")


def _database(subject: Subject) -> Check:
    with subject.database() as conn:
        current_time(conn)
    return _ok("database", "The database answers.")


def _schema(subject: Subject) -> Check:
    state = subject.schema()
    if state.is_current:
        return _ok("schema", f"The tables are at revision {state.current}.")
    evidence = {"current": state.current, "head": state.head, "differences": list(state.differences)}
    if state.differences and not state.pending:
        message = f"The tables differ from those of this release in {len(state.differences)} places."
        return Check(
            name="schema",
            verdict=Verdict.FAIL,
            message=message,
            evidence=evidence,
            next_step="pushlink db check",
        )
    there = f"are at revision {state.current}" if state.current else "are not there"
    return Check(
        name="schema",
        verdict=Verdict.FAIL,
        message=f"The tables {there}; this release needs {state.head}.",
        evidence=evidence,
        next_step="pushlink db upgrade",
    )


def _durability(conn: Connection) -> Check:
    check_durability(conn)
    return _ok("durability", "What the database says is committed survives a crash.")


def _library(conn: Connection) -> Check:
    version = lossy_version(conn)
    if version is None:
        return _ok("library", "No fault of this database's release is known that could lose what is committed.")
    return Check(
        name="library",
        verdict=Verdict.WARN,
        message=LOSSY_FAULT.format(version=version),
        evidence={"version": version},
        next_step=LOSSY_REMEDY,
    )


def _clock(conn: Connection, machine: dt.datetime) -> Check:
    difference_s = (current_time(conn) - machine).total_seconds()
    evidence = {"difference_s": round(difference_s, 3)}
    if abs(difference_s) > CLOCK_DIFFERENCE_S_MAX:
        return Check(
            name="clock",
            verdict=Verdict.WARN,
            message=f"This machine's clock is {abs(difference_s):.1f} s off the database's, which alone decides.",
            evidence=evidence,
            next_step="set the machine's clock, so that logs can be compared",
        )
    return Check(name="clock", verdict=Verdict.OK, message="Machine and database agree on the time.", evidence=evidence)


def _objects(conn: Connection, subject: Subject) -> Check:
    names = subject.read_objects(conn)
    if not names:
        return Check(
            name="objects",
            verdict=Verdict.WARN,
            message="No source object is declared in the settings; only classes that an application binds are known.",
            next_step="declare [objects.NAME] in the settings",
        )
    return _ok("objects", f"The tables of all {len(names)} declared objects are there: {', '.join(names)}.")


def _authority(conn: Connection, subject: Subject) -> Check:
    summary = subject.authority()
    findings = subject.policy_findings(conn)
    if findings:
        return Check(
            name="authority",
            verdict=Verdict.WARN,
            message=f"The policy names {len(findings)} things that are not declared. The first: {findings[0]}",
            evidence={"findings": [str(finding) for finding in findings]},
            next_step="declare them, or mend the policy",
        )
    return _ok("authority", f"Who may read what: {summary}.")


def _deployment(conn: Connection) -> Check:
    found = read_deployment(conn)
    evidence = {
        "deployment_id": found.deployment_id,
        "mode": found.mode,
        "general_worker": found.general_worker,
        "catalog_revision": found.catalog_revision,
    }
    if found.mode != "running":
        return Check(
            name="deployment",
            verdict=Verdict.FAIL,
            message="The deployment is in recovery mode: nothing is sent, and saves are refused.",
            evidence=evidence,
            next_step="find out whether this database is the right one, then `pushlink deployment confirm`",
        )
    if found.uncleared_since is not None:
        return Check(
            name="deployment",
            verdict=Verdict.WARN,
            message="The database was confirmed after a restore; records without a link are not created yet.",
            evidence={**evidence, "uncleared_since": found.uncleared_since.isoformat()},
            next_step="compare with the remote, then `pushlink deployment clear`",
        )
    if found.general_worker != "on":
        return Check(
            name="deployment",
            verdict=Verdict.WARN,
            message="The general worker is off: workers take the lane of deferred associations only.",
            evidence=evidence,
            next_step="dispatch the rest by `pushlink push`, or `pushlink deployment general-worker on`",
        )
    message = f"The deployment {found.deployment_id} is running."
    return Check(name="deployment", verdict=Verdict.OK, message=message, evidence=evidence)


def _restore_guard(conn: Connection, subject: Subject) -> Check:
    seen = subject.state()
    if seen is None:
        return Check(
            name="restore_guard",
            verdict=Verdict.WARN,
            message="There is no state_directory: nobody notices here when the database is put back to an earlier day.",
            next_step="in the settings, name a directory on this machine's own disk as state_directory, and as "
            "deployment_id what `pushlink deployment show` prints",
        )
    mark = read_marks(conn).get(seen.state_id, 0)
    evidence = {"state": seen.mark, "database": mark, "deployment_id": seen.deployment_id}
    found = read_deployment(conn)
    is_other = seen.deployment_id not in (None, found.deployment_id)
    if is_other or (seen.confirmations, seen.mark) > (found.confirmations, mark):
        return Check(
            name="restore_guard",
            verdict=Verdict.FAIL,
            message="The state directory knows another database, or a later state of this one.",
            evidence=evidence,
            next_step="pushlink deployment show",
        )
    message = "The state directory knows this database." if seen.deployment_id else "No worker has started here yet."
    return Check(name="restore_guard", verdict=Verdict.OK, message=message, evidence=evidence)


def _packs(conn: Connection) -> Check:
    catalog = CatalogReader().read(conn)
    installs = load_installs(conn)
    said = _problems(conn, catalog)
    if said:
        return Check(
            name="packs",
            verdict=Verdict.FAIL,
            message=f"Installed actions that cannot be used: {len(said)}. The first: {said[0]}",
            evidence={"problems": said},
            next_step="pushlink pack list",
        )
    if not installs:
        return Check(
            name="packs",
            verdict=Verdict.WARN,
            message="No pack is installed; nothing can be pushed.",
            next_step="pushlink pack apply FILE",
        )
    actions = len(catalog.all_actions())
    return _ok("packs", f"All that is installed can be used: packs {len(installs)}, actions {actions}.")


def _problems(conn: Connection, catalog: ActiveCatalog) -> list[str]:
    """What is wrong with actions that are in use, one sentence each."""
    objects = {
        (slot.tenant, slot.source_object)
        for slot in read_registry(conn)
        if slot.kind is SlotKind.ACTION and slot.status in IN_USE and slot.source_object is not None
    }
    found = [(name, problem) for name in sorted(objects) for problem in catalog.problems_for(*name)]
    return list(dict.fromkeys(f"{problem.action or name[1]}: {problem.message}" for name, problem in found))


def _credentials(conn: Connection, credentials: Credentials) -> Check:
    wanted = _references(CatalogReader().read(conn))
    missing: list[str] = []
    for reference, tenant in wanted:
        try:
            credentials.generation(reference, tenant=tenant)
        except PushlinkError as error:
            missing.append(f"{error.message} (tenant {tenant!r})" if tenant else error.message)
    if missing:
        return Check(
            name="credentials",
            verdict=Verdict.FAIL,
            message=f"Missing credentials: {len(missing)} of {len(wanted)}. {missing[0]}",
            evidence={"missing": missing},
            next_step="set the variable or write the file that it names",
        )
    return _ok("credentials", f"Every credential that a pack names is there: {len(wanted)}.")


def _references(catalog: ActiveCatalog) -> list[tuple[str, str]]:
    def named(actions: Iterable[ActiveAction]) -> Iterator[tuple[str, str]]:
        for action in actions:
            if action.profile.credential_ref is not None:
                yield action.profile.credential_ref, action.slots.tenant

    return sorted(set(named(catalog.all_actions())))


def _counted(conn: Connection, found: list[Counts]) -> Counts:
    found.append(counts(conn, now=current_time(conn)))
    return found[0]


def _lanes(counted: Counts) -> Check:
    evidence = {"lanes": dict(counted.by_lane)}
    if counted.unknown_lanes:
        rows = sum(counted.unknown_lanes.values())
        return Check(
            name="lanes",
            verdict=Verdict.WARN,
            message=f"{rows} attempts are of lanes that this release does not know; nobody touches them.",
            evidence={**evidence, "unknown": dict(counted.unknown_lanes)},
            next_step="run the release that knows the lane, or repair the rows' lane",
        )
    return Check(name="lanes", verdict=Verdict.OK, message="Every attempt is of a known lane.", evidence=evidence)


def _leases(counted: Counts) -> Check:
    if counted.overdue:
        rows = sum(row.rows for row in counted.overdue)
        return Check(
            name="leases",
            verdict=Verdict.WARN,
            message=f"{rows} attempts are past their lease, and no worker has recovered them yet.",
            evidence={f"{row.lane}/{row.status}": row.rows for row in counted.overdue},
            next_step="pushlink worker",
        )
    return _ok("leases", "No attempt is past its lease.")


def _waiting(conn: Connection, subject: Subject) -> Check:
    world = subject.world() if _has_secret(subject) else None
    causes = causes_of(conn, world=world, now=current_time(conn))
    if causes:
        return Check(
            name="waiting",
            verdict=Verdict.WARN,
            message=f"{sum(cause.rows for cause in causes)} things wait for a person.",
            evidence={cause.name: cause.rows for cause in causes},
            next_step="pushlink stuck",
        )
    return _ok("waiting", "Nothing waits for a person.")


def _ok(name: str, message: str) -> Check:
    return Check(name=name, verdict=Verdict.OK, message=message)
