"""Which destinations fail so often that they are left alone, and what was heard of them; shared by all workers.

A row stands only for a destination that has failed lately. Answers of one group are counted under the row's lock, and
the state that follows is computed by `protocol.pacing`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from pushlink.protocol.limit_contracts import Circuit
from pushlink.protocol.pacing import CircuitState, observed
from pushlink.store.dialect import array_rows, insert_ignore
from pushlink.store.tables import UtcTime, remote_circuit

#: A tenant and one of its destination slots.
Place: TypeAlias = tuple[str, str]

_STATE: Final = ("failures", "successes", "window_started_at", "open_until", "opened")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What one answer, or its absence, says of the remote behind a destination."""

    tenant: str
    destination_slot_id: str
    failing: bool
    reason: str
    terms: Circuit

    @property
    def place(self) -> Place:
        """The destination."""
        return self.tenant, self.destination_slot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCircuit:
    """The state of one destination, and what was heard of it last."""

    state: CircuitState
    reason: str


def read_circuits(conn: sa.Connection) -> Mapping[Place, KeptCircuit]:
    """Every destination that has failed and is not proved well since; usually none."""
    return {
        (row.tenant, row.destination_slot_id): KeptCircuit(state=_state(row), reason=row.reason)
        for row in conn.execute(_READ)
    }


def lock_circuit(conn: sa.Connection, place: Place) -> CircuitState:
    """The state of one destination, which nobody changes before this transaction ends."""
    row = conn.execute(_LOCK, {"of_tenant": place[0], "of_destination": place[1]}).first()
    return CircuitState() if row is None else _state(row)


def note_health(conn: sa.Connection, items: Sequence[Health], *, now: dt.datetime) -> None:
    """Count what a group of answers said; a destination that has not failed lately costs no write."""
    if not items:
        return
    known = read_circuits(conn) if any(not item.failing for item in items) else {}
    by_place: dict[Place, list[Health]] = {}
    for item in items:
        by_place.setdefault(item.place, []).append(item)
    for place, heard in sorted(by_place.items()):
        failing = [item for item in heard if item.failing]
        if failing or place in known:
            _count(conn, place, failing, len(heard) - len(failing), heard[-1].terms, now=now)


def _count(
    conn: sa.Connection, place: Place, failing: Sequence[Health], fine: int, terms: Circuit, *, now: dt.datetime
) -> None:
    if failing and terms.failures:
        _make(conn, place, now=now)
    before = lock_circuit(conn, place)
    after = observed(before, terms, failing=len(failing), fine=fine, now=now)
    if after == before:
        return
    if after == CircuitState():
        conn.execute(_FORGET, {"of_tenant": place[0], "of_destination": place[1]})
        return
    changed = {name: getattr(after, name) for name in _STATE}
    reason = {"reason": failing[-1].reason} if failing else {}
    t = remote_circuit
    statement = sa.update(t).where(t.c.tenant == place[0], t.c.destination_slot_id == place[1])
    conn.execute(statement.values(**changed, **reason, updated_at=now))


def _make(conn: sa.Connection, place: Place, *, now: dt.datetime) -> None:
    columns: dict[str, sa.types.TypeEngine[Any]] = {
        "tenant": sa.Text(),
        "destination_slot_id": sa.Text(),
        "reason": sa.Text(),
        "updated_at": UtcTime(),
    }
    rows = array_rows(conn, "failing", columns, [(*place, "", now)])
    chosen = sa.select(*(rows.c[name] for name in columns)).where(sa.true())
    conn.execute(insert_ignore(remote_circuit).from_select(list(columns), chosen))


def _state(row: sa.Row[tuple[object, ...]]) -> CircuitState:
    return replace(CircuitState(), **{name: getattr(row, name) for name in _STATE})


_T: Final = remote_circuit
_READ: Final = sa.select(_T)
_ONE: Final = (_T.c.tenant == sa.bindparam("of_tenant"), _T.c.destination_slot_id == sa.bindparam("of_destination"))
_LOCK: Final = sa.select(_T).where(*_ONE).with_for_update()
_FORGET: Final = sa.delete(_T).where(*_ONE)
