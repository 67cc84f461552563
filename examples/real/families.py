"""Children first, to a real server whose answers get lost: the second half of `make real`.

Every subdivision refers to its country and 1,456 to another subdivision. They are saved in the worst order, deepest
first and countries last, and pushed through a proxy that loses the answer of one write in fifty. What is in doubt
parks; what refers to it waits. Then an operator looks each doubtful record up at the server and adopts it, or says that
an update was applied, and the work goes on. In the end the server has each record once, and every parent's id is right.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import geo
import sqlalchemy as sa
from datasette_server import Datasette
from kinto_server import Kinto
from lossy import LossyProxy
from remotes import PACKS, Remote

from pushlink import Deferred, Reserved, Runtime, WorkerOptions
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.protocol.verbs import Verb
from pushlink.store.catalog import set_general_worker
from pushlink.store.dialect import read_only
from pushlink.store.tables import push_attempt, push_slot, remote_link

#: What is told what should be and what is: a sentence, the wanted value, the found one.
Expect: TypeAlias = Callable[[str, object, object], None]

#: One answer of so many is lost.
LOST_EVERY = 50
#: What is adopted lets its children go on, and one in fifty of those is lost again: 5,295 records need few rounds.
ROUNDS_MAX = 12
SENDS_MAX = 16
BATCH = 1_000
OPERATOR = "operator:make-real"
#: `general`: workers take both lanes. `narrow`: the request path pushes countries, the narrow worker subdivisions.
MODES = ("general", "narrow")


class FamilyDatasette(Datasette):
    """The same server with columns for the ids of what a subdivision refers to."""

    extra: Mapping[str, tuple[str, ...]] = {"Subdivision": ("country_id", "parent_id")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A server of this half: how it is made, its pack, and what its log says of a create."""

    make: Callable[[Path, int], Remote]
    pack: Path
    pack_address: str
    created: str


FAMILIES: Mapping[str, Family] = {
    "kinto": Family(
        make=Kinto, pack=PACKS / "family-kinto.yaml", pack_address="http://127.0.0.1:8738", created="POST 201"
    ),
    "datasette": Family(
        make=FamilyDatasette,
        pack=PACKS / "family-datasette.yaml",
        pack_address="http://127.0.0.1:8739",
        created="POST 201",
    ),
}


@dataclass(slots=True)
class Found:
    """What one run came to."""

    rows: int = 0
    waited: int = 0  # records that were deferred
    lost: int = 0
    settled: int = 0  # what an operator said of them
    rounds: int = 0
    seconds: float = 0.0


def push_families(
    pl: Runtime,
    remote: Remote,
    proxy: LossyProxy,
    mode: str,
    created: str,
    expect: Expect,
) -> Found:
    """Save everything children first and push it; `expect` is told what should be and what is."""
    found, began = Found(), time.monotonic()
    if mode == "narrow":
        with pl.engine.begin() as conn:
            set_general_worker(conn, on=False, reason="make real", actor=OPERATOR, now=pl.world.clock.now(conn))
    order = worst_order(local_rows(pl))
    found.rows = len(order)
    outcomes = save_all(pl, order)
    found.waited = outcomes["Deferred"]
    wanted = {name: sum(1 for place in order if place[0] == name) for name in geo.TABLES}
    expect("outcomes of the save", Counter(Deferred=wanted["Subdivision"], Reserved=wanted["Country"]), outcomes)
    while found.rounds < ROUNDS_MAX:
        found.rounds += 1
        work(pl, mode)
        doubtful = in_doubt(pl)
        expect(f"requests in doubt after round {found.rounds}", len(proxy.lost) - found.settled, len(doubtful))
        expect(f"creates in the server's own log, round {found.rounds}", counted(remote), remote.requests()[created])
        if not doubtful:
            break
        found.settled += settle_all(pl, remote, doubtful)
    found.lost, found.seconds = len(proxy.lost), time.monotonic() - began
    expect("answers that were lost and requests that were settled", found.lost, found.settled)
    expect("creates in the server's own log", found.rows, remote.requests()[created])
    expect("what the server counts", found.rows, counted(remote))
    expect("records without a link", 0, found.rows - len(links(pl)))
    compare(pl, remote, expect)
    return found


def worst_order(local: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Deepest subdivisions first, countries last."""

    def depth(key: str) -> int:
        parent = local["Subdivision", key]["parent_code"]
        return 0 if parent is None else 1 + depth(parent)

    subdivisions = sorted((key for name, key in local if name == "Subdivision"), key=lambda key: (-depth(key), key))
    countries = sorted(key for name, key in local if name == "Country")
    return [*(("Subdivision", key) for key in subdivisions), *(("Country", key) for key in countries)]


def save_all(pl: Runtime, order: list[tuple[str, str]]) -> Counter[str]:
    """Save in this order, a transaction for each batch; the outcomes by kind."""
    kinds: Counter[str] = Counter()
    for batch in (order[start : start + BATCH] for start in range(0, len(order), BATCH)):
        with pl.engine.begin() as conn:
            for [outcome] in pl.save_many(conn, batch, user="publisher"):
                is_expected = isinstance(outcome, Deferred | Reserved)
                kinds[type(outcome).__name__ if is_expected else str(outcome)] += 1
    return kinds


def work(pl: Runtime, mode: str) -> None:
    """Everything that is due: configured creates on the request path in the narrow mode, the rest by a worker."""
    if mode == "narrow":
        for code in unlinked_countries(pl):
            pl.push("Country", code)
    options = WorkerOptions(sends_max=SENDS_MAX, claim_max=4 * SENDS_MAX)
    asyncio.run(pl.worker(options=options).run(until_idle=True))


def settle_all(pl: Runtime, remote: Remote, doubtful: list[Any]) -> int:
    """What an operator does: look each record up at the server by its code, adopt it, or see that it was updated.

    An adopted id is followed by an update with the whole body, since nobody knows what the create had left there.
    """
    there = {(name, row[code_of(name)]): found for name in geo.TABLES for found, row in remote.records(name).items()}
    for attempt in doubtful:
        is_create = attempt.operation == "create"
        with pl.engine.begin() as conn:
            decision = Decision(
                verb=Verb.ADOPT if is_create else Verb.APPLIED,
                target_id=attempt.id,
                row_version=attempt.row_version,
                actor=OPERATOR,
                reason="the server has it under its code" if is_create else "the server has these values",
                argument=there[attempt.source_object, attempt.source_record_id] if is_create else None,
            )
            act(conn, pl.world, decision, terms=OperatorTerms(), now=pl.world.clock.now(conn))
    return len(doubtful)


# ------------------------------------------------------------------------------------------------ what is there


def compare(pl: Runtime, remote: Remote, expect: Expect) -> None:
    """Every record once, equal in every field, with the ids of the very records that it refers to."""
    local, owned = local_rows(pl), links(pl)
    for name in geo.TABLES:
        there = remote.records(name)
        codes = Counter(row[code_of(name)] for row in there.values())
        expect(f"{name} records that the server has twice", [], [code for code, count in codes.items() if count > 1])
        for (owner, key), row in local.items():
            if owner == name:
                expect(f"{name} {key}", {**row, **referred(name, row, owned)}, there.get(owned.get((name, key), "")))


def referred(name: str, row: Mapping[str, Any], owned: Mapping[tuple[str, str], str]) -> dict[str, str | None]:
    """The remote ids that a record must carry."""
    if name != "Subdivision":
        return {}
    parent = row["parent_code"]
    return {
        "country_id": owned.get(("Country", row["country_code"])),
        "parent_id": None if parent is None else owned.get(("Subdivision", parent)),
    }


def code_of(name: str) -> str:
    """The field in which the server's records have the local key."""
    return geo.key_of(geo.TABLES[name])


def counted(remote: Remote) -> int:
    """What the server itself counts."""
    return sum(remote.count(name) for name in geo.TABLES)


def local_rows(pl: Runtime) -> dict[tuple[str, str], dict[str, Any]]:
    """Every record of the host."""
    with read_only(pl.engine).connect() as conn:
        return geo.rows(conn)


def links(pl: Runtime) -> dict[tuple[str, str], str]:
    """The remote id of every record that has a link in order."""
    columns = (remote_link.c.source_object, remote_link.c.source_record_id, remote_link.c.remote_id)
    statement = sa.select(*columns).where(remote_link.c.status == "finalized")
    with read_only(pl.engine).connect() as conn:
        return {(name, record): remote_id for name, record, remote_id in conn.execute(statement)}


def unlinked_countries(pl: Runtime) -> list[str]:
    """Countries that have something to push."""
    owned = links(pl)
    return [key for name, key in sorted(local_rows(pl)) if name == "Country" and (name, key) not in owned]


def in_doubt(pl: Runtime) -> list[Any]:
    """Every parked request with its record."""
    t, s = push_attempt, push_slot
    statement = (
        sa.select(t.c.id, t.c.row_version, t.c.operation, s.c.source_object, s.c.source_record_id)
        .join_from(t, s, s.c.link_key == t.c.link_key)
        .where(t.c.status == "ambiguous_remote_effect")
        .order_by(t.c.id)
    )
    with read_only(pl.engine).connect() as conn:
        return list(conn.execute(statement))
