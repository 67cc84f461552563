"""What surrounds the simulated processes: identities out of a seed, a database that fails, a network that lies."""

from __future__ import annotations

import datetime as dt
import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import sqlalchemy as sa

from proof.simulation.faults import IN_A_TRANSACTION, ON_THE_WIRE, Fault, Faults
from pushlink.flows.drivers import Database, Failed
from pushlink.flows.effects import Step, Tx
from pushlink.ports import WireReply, WireRequest
from pushlink.testing import verbs
from pushlink.testing.collection import Record
from pushlink.testing.driver import SimulatedOutage
from pushlink.testing.scripted import ScriptedTransport
from pushlink.testing.verbs import Verb

#: What is told when nothing came of it.
NOTHING: Final = "nothing"

#: What the sender of a request sees that arrives too late.
LATE: Final = verbs.hang()

#: What the remote does, or the way to it, when a fault strikes.
VERBS: Final[Mapping[Fault, Verb]] = {
    Fault.NOT_CONNECTED: verbs.refuse_connection(),
    Fault.REQUEST_LOST: verbs.close_after_read(),
    Fault.REQUEST_LATE: LATE,
    Fault.REPLY_LOST: verbs.store_then_close(),
    Fault.REPLY_TRUNCATED: verbs.truncate(),
    Fault.ERROR_DONE: verbs.store_then_answer(502, {"error": "bad gateway"}),
    Fault.ERROR_UNDONE: verbs.answer(503, {"error": "try later"}),
    Fault.THROTTLED: verbs.answer(429, {"error": "slow down"}, headers=[("Retry-After", "30")]),
    Fault.REFUSED: verbs.answer(422, {"error": "not this"}),
    Fault.UNAUTHORISED: verbs.answer(401, {"error": "who are you"}, headers=[("WWW-Authenticate", "Bearer")]),
}


class SeededIds:
    """Identities that sort in the order in which they are made, and tokens, both the same for the same seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._last = 0

    def fresh(self) -> str:
        """The next identity."""
        self._last += 1
        return f"{self._last:016x}{self._rng.getrandbits(64):016x}"

    def token(self) -> str:
        """A token."""
        return f"{self._rng.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyDatabase(Database):
    """A database whose connections break before a commit, or after it."""

    faults: Faults

    def commit(self, step: Step, txs: Sequence[Tx]) -> list[Any]:
        """Run the step, unless the connection goes."""
        match self.faults.strike(*IN_A_TRANSACTION):
            case Fault.SERIALIZATION | Fault.DEADLOCK as fault if len(txs) > 1:
                return self._spoil(step, txs, _driver_error(fault))
            case Fault.ROLLED_BACK:
                return Database.commit(self, _breaking(step, SimulatedOutage("the connection is gone")), txs)
            case Fault.COMMIT_UNHEARD:
                Database.commit(self, step, txs)
                return [Failed(SimulatedOutage("the commit was not answered"), transient=True)] * len(txs)
            case Fault() as fault:
                return Database.commit(self, _breaking(step, _driver_error(fault)), txs)
            case None:
                return Database.commit(self, step, txs)

    def _spoil(self, step: Step, txs: Sequence[Tx], error: Exception) -> list[Any]:
        """One row of a group fails, wherever it stands; its neighbours have to be committed without it (D-17)."""
        victim = self.faults.rng.choice(txs).item

        def spoiled(conn: sa.Connection, items: Sequence[Any], *, now: dt.datetime) -> Sequence[Any]:
            done = step(conn, items, now=now)
            if any(item is victim for item in items):
                raise error
            return done

        results = Database.commit(self, spoiled, txs)
        for tx, result in zip(txs, results, strict=True):
            if tx.item is not victim and isinstance(result, Failed) and result.error is error:
                raise AssertionError(f"one bad row of {len(txs)} took {tx.key} with it")
        return results


class _Postgres(Exception):
    """An error as the driver of PostgreSQL raises it; only its state is ever looked at."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class _Sqlite(sqlite3.OperationalError):
    """An error as the driver of SQLite raises it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.sqlite_errorname = name


#: What the driver raises for each of these.
_DRIVER_ERRORS: Final[Mapping[Fault, Callable[[], Exception]]] = {
    Fault.SERIALIZATION: lambda: _Postgres("40001"),
    Fault.DEADLOCK: lambda: _Postgres("40P01"),
    Fault.BUSY: lambda: _Sqlite("SQLITE_BUSY"),
    Fault.DISK_FULL: lambda: _Sqlite("SQLITE_FULL"),
}


def _driver_error(fault: Fault) -> Exception:
    return sa.exc.DBAPIError("COMMIT", None, _DRIVER_ERRORS[fault]())


def is_simulated(error: BaseException) -> bool:
    """Whether a fault raised this, and no defect."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return isinstance(cause, SimulatedOutage | _Postgres | _Sqlite)


def _breaking(step: Step, error: Exception) -> Step:
    def breaks(*args: Any, **kwargs: Any) -> Sequence[Any]:
        step(*args, **kwargs)
        raise error

    return breaks


@dataclass(slots=True)
class Network:
    """The way to the remote. `underway` holds requests that nobody waits for any more and that will still arrive."""

    wire: ScriptedTransport
    faults: Faults
    key_of: Callable[[WireRequest], str]
    owned_ids: Callable[[WireRequest], Sequence[str]]  # ids that links of other records have, for this one's remote
    underway: list[WireRequest] = field(default_factory=list)
    forgotten: list[WireRequest] = field(default_factory=list)  # those from before the database was restored
    heard: str | None = None  # the id that the last answer named

    def send(self, request: WireRequest) -> WireReply:
        """One request, and whatever becomes of it."""
        fault = self.faults.strike(*ON_THE_WIRE)
        verb = self._verb(fault, request)
        if verb is not None:
            self.wire.script.next(verb)
        if fault is Fault.REQUEST_LATE:
            self.underway.append(request)
        reply = self.wire.send_now(request)
        if request.method == "POST" and reply.status == HTTPStatus.CREATED and reply.body_complete:
            self.heard = str(json.loads(reply.body)["id"])
        return reply

    def deliver(self, index: int) -> None:
        """A late request arrives; its answer goes nowhere."""
        self.wire.send_now(self.underway.pop(index))

    def is_underway(self, key: str) -> bool:
        """Whether a request about this record may still arrive."""
        return any(self.key_of(request) == key for request in self.underway)

    def is_overtaken(self, key: str) -> bool:
        """Whether an update of this record may still arrive, of those that the database can know of."""
        known = [request for request in self.underway if not any(request is one for one in self.forgotten)]
        return any(self.key_of(request) == key and request.method == "PATCH" for request in known)

    def _verb(self, fault: Fault | None, request: WireRequest) -> Verb | None:
        if fault not in {Fault.FOREIGN_ID, Fault.DUPLICATE}:
            return None if fault is None else VERBS[fault]
        is_named = fault is Fault.DUPLICATE
        others = [record.id for record in self.wire.api.records] if is_named else self.owned_ids(request)
        if request.method != "POST" or not others:
            self.faults.undo(fault)
            return None
        other = self.faults.rng.choice(others)
        return verbs.answer(409, {"existing": other}) if is_named else verbs.store_then_answer(201, {"id": other})


def live_record(wire: ScriptedTransport, key: str) -> Record | None:
    """What an honest operator finds who looks for a record at the remote: the newest live one."""
    found = [record for record in wire.api.records if record.document.get("key") == key]
    return found[-1] if found else None
