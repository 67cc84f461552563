"""`make real`: the countries and subdivisions of ISO 3166, pushed to a real server, and compared field by field.

For each database: everything is saved and pushed; every remote record must equal its local one, and the server must
count as many; saving everything again must send nothing; a hundred edits must send exactly a hundred updates. Then
the families (`families.py`): children first, through a proxy that loses answers. The exit code is 1 when one of these
does not hold. It needs no network; what it makes is in build/real.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import geo
import sqlalchemy as sa
from databases import DATABASES
from families import FAMILIES, LOST_EVERY, MODES, Family, Found, push_families
from lossy import LossyProxy
from remotes import REMOTES, Entry, Remote, free_port
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pushlink import Outcome, Runtime, WorkerOptions
from pushlink.packs.loader import load_pack_text
from pushlink.store.dialect import read_only
from pushlink.store.tables import push_attempt, remote_link

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
USER = "publisher"
EDITS = 100
#: Where the packs look for the bearer token of a server that takes one.
BEARER_VARIABLE = "PUSHLINK_REAL_TOKEN"
#: Records of one transaction of the host.
BATCH = 1_000
SHOWN_MAX = 10

console = Console(width=120, highlight=False)


@dataclass(slots=True, kw_only=True)
class Result:
    """One row of the table in the end."""

    database: str
    server: str
    mode: str = ""  # of the worker, where it is a run of families
    version: str = ""
    rows: int = 0
    creates: int = 0
    resent: int = 0
    updates: int = 0
    equal: int = 0
    save_s: float = 0.0
    push_s: float = 0.0
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def expect(self, what: str, wanted: object, found: object) -> None:
        """Keep a sentence when something is not as it should be."""
        if wanted != found:
            self.problems.append(f"{what}: {found} instead of {wanted}")


def main() -> int:
    """Run every pair of database and server; 0 when all of them came out equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=[*DATABASES, "both"], default="both")
    parser.add_argument("--server", choices=[*REMOTES, "all"], default="all")
    parser.add_argument("--limit", type=int, help="so many records instead of all of them; 0 for all everywhere")
    parser.add_argument("--part", choices=["records", "families", "both"], default="both")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "real", help="where everything is put")
    arguments = parser.parse_args()
    results = []
    families: list[Result] = []
    for server in REMOTES if arguments.server == "all" else [arguments.server]:
        if not REMOTES[server].is_there:
            console.print(f"[bold]{server}[/] is left out: its package is not installed (it is in requirements.lock)")
            continue
        for database in DATABASES if arguments.database == "both" else [arguments.database]:
            if arguments.part != "families":
                folder = new_folder(arguments.folder, f"{database}-{server}")
                console.print(f"[bold]{database} to {server}[/]")
                results.append(run(database, server, folder, chosen_limit(REMOTES[server], arguments.limit)))
            for mode in MODES if server in FAMILIES and arguments.part != "records" else ():
                folder = new_folder(arguments.folder, f"{database}-{server}-families-{mode}")
                console.print(f"[bold]{database} to {server}, families, {mode} worker[/]")
                families.append(run_families(database, server, folder, mode))
    show(results)
    verdicts(families, "records with the ids of their country and parent")
    done = [*results, *families]
    return 1 if not done or any(result.problems for result in done) else 0


def new_folder(where: Path, name: str) -> Path:
    """An empty directory for one run."""
    folder = where.resolve() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def run_families(database: str, server: str, folder: Path, mode: str) -> Result:
    """The families of one database at one server, with one kind of worker, through a proxy that loses answers."""
    family = FAMILIES[server]
    result = Result(database=database, server=server, mode=mode, version=REMOTES[server].version)
    port = free_port()
    remote = family.make(folder, port)
    try:
        with DATABASES[database](folder) as url:
            remote.start()
            with LossyProxy(port, free_port(), every=LOST_EVERY) as proxy:
                pl = open_runtime(url, folder)
                try:
                    prepare(pl, family, proxy.url, None)
                    found = push_families(pl, remote, proxy, mode, family.created, result.expect)
                finally:
                    pl.close()
    finally:
        result.server_cpu_s = remote.stop()
    result.rows = result.equal = found.rows
    console.print(f"  {summary(found)}")
    for problem in result.problems[:SHOWN_MAX]:
        console.print(f"  [red]{problem}[/]")
    return result


def summary(found: Found) -> str:
    """One line for a run of families."""
    return (
        f"{found.rows:,} records, {found.waited:,} deferred; {found.lost} answers lost, {found.settled} settled, in"
        f" {found.rounds} rounds and {found.seconds:.1f} s"
    )


def chosen_limit(entry: Entry, limit: int | None) -> int | None:
    """How many records a server is sent: what the caller says, or what the server's entry does."""
    if limit is not None:
        return limit or None
    if entry.limit is not None:
        console.print(f"  {entry.limit} records, because {entry.because}; --limit 0 sends all")
    return entry.limit


def run(database: str, server: str, folder: Path, limit: int | None) -> Result:
    """Everything for one database and one server."""
    entry = REMOTES[server]
    result = Result(database=database, server=server, version=entry.version)
    remote = entry.make(folder, free_port())
    try:
        with DATABASES[database](folder) as url:
            address = remote.start()
            os.environ[BEARER_VARIABLE] = remote.secret
            pl = open_runtime(url, folder)
            try:
                prepare(pl, entry, address, limit)
                push(pl, entry, remote, result)
                push_again(pl, entry, remote, result)
                push_edits(pl, entry, remote, result)
            finally:
                pl.close()
    finally:
        result.server_cpu_s = remote.stop()
    for problem in result.problems[:SHOWN_MAX]:
        console.print(f"  [red]{problem}[/]")
    return result


def open_runtime(url: str, folder: Path) -> Runtime:
    """A runtime over the host's database."""
    (folder / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    pl = Runtime.from_settings(
        database_url=url,
        secret_file=folder / "secret",
        authority={"kind": "policy", "file": HERE / "policy.yaml"},
        egress={"allow_loopback": True},
    )
    for name, table in geo.TABLES.items():
        pl.bind(table, name)
    return pl


def prepare(pl: Runtime, entry: Entry | Family, address: str, limit: int | None) -> None:
    """The host's tables and records, the tables of pushlink, and the pack."""
    pl.upgrade()
    text = entry.pack.read_text(encoding="utf-8").replace(entry.pack_address, address)
    with pl.engine.begin() as conn:
        geo.fill(conn, limit)
    pl.apply_pack(load_pack_text(text, file=entry.pack.name), actor=USER, reason="make real")


# ------------------------------------------------------------------------------------------------ the three parts


def push(pl: Runtime, entry: Entry, remote: Remote, result: Result) -> None:
    """Everything for the first time: one create for each record."""
    local = local_rows(pl)
    result.rows = len(local)
    outcomes, result.save_s = save_all(pl, "saving")
    result.expect("outcomes of the first save", Counter(Reserved=len(local)), outcomes)
    cpu = time.process_time()
    result.push_s = work(pl, entry, "creating", len(local))
    result.client_cpu_s = time.process_time() - cpu
    result.creates = remote.requests()[entry.created]
    result.expect("requests after the first push", Counter({entry.created: len(local)}), remote.requests())
    result.equal = compare(pl, remote, result, "after the creates")


def push_again(pl: Runtime, entry: Entry, remote: Remote, result: Result) -> None:
    """Everything once more: nothing is sent, and nothing is written that a worker could send."""
    requests, marks, attempts = remote.requests(), all_marks(remote), attempt_rows(pl)
    outcomes, _ = save_all(pl, "saving again")
    work(pl, entry, "sending nothing", 0)
    result.resent = (remote.requests() - requests).total()
    result.expect("outcomes of saving again", Counter(Unchanged=result.rows), outcomes)
    result.expect("requests of saving again", Counter(), remote.requests() - requests)
    result.expect("the server's marks after saving again are the same", True, marks == all_marks(remote))
    result.expect("attempts after saving again are the same", True, attempts == attempt_rows(pl))


def push_edits(pl: Runtime, entry: Entry, remote: Remote, result: Result) -> None:
    """Some edits: one update for each of them, and the other records are left alone."""
    requests, marks = remote.requests(), all_marks(remote)
    with pl.engine.begin() as conn:
        edited = geo.edit(conn, min(EDITS, result.rows))
    outcomes, _ = save_all(pl, "saving edits")
    work(pl, entry, "updating", edited)
    wanted = Counter(Queued=edited, Unchanged=result.rows - edited)
    result.updates = (remote.requests() - requests)[entry.updated]
    result.expect("outcomes of the edits", +wanted, outcomes)
    result.expect("requests of the edits", Counter({entry.updated: edited}), remote.requests() - requests)
    changed = {place for place, mark in all_marks(remote).items() if place[1] and marks.get(place) != mark}
    result.expect("records that the server says were changed", edited, len(changed))
    result.equal = compare(pl, remote, result, "after the updates")


def save_all(pl: Runtime, what: str) -> tuple[Counter[str], float]:
    """Save every record as the host would, a transaction for each batch; the outcomes by kind, and the seconds."""
    places = sorted(local_rows(pl))
    found: Counter[str] = Counter()
    began = time.monotonic()
    with bar() as progress:
        task = progress.add_task(what, total=len(places))
        for batch in (places[start : start + BATCH] for start in range(0, len(places), BATCH)):
            with pl.engine.begin() as conn:
                found.update(map(word, outcomes(pl.save_many(conn, batch, user=USER))))
            progress.advance(task, len(batch))
    return found, report(what, len(places), began)


def work(pl: Runtime, entry: Entry, what: str, expected: int) -> float:
    """A worker until nothing is due; answers with its seconds."""
    began = time.monotonic()
    with bar() as progress:
        task = progress.add_task(what, total=expected)
        worker = pl.worker(
            options=WorkerOptions(sends_max=entry.sends_max, claim_max=4 * entry.sends_max),
            on_progress=lambda tally: progress.update(task, completed=tally.claimed),
        )
        tally = asyncio.run(worker.run(until_idle=True))
    return report(what, tally.claimed, began)


# ------------------------------------------------------------------------------------------------ comparisons


def compare(pl: Runtime, remote: Remote, result: Result, when: str) -> int:
    """Every local record beside the one its link names, and every remote record beside its owner; the equal ones."""
    local, owned = local_rows(pl), links(pl)
    equal = 0
    for name in geo.TABLES:
        here = {key: row for (owner, key), row in local.items() if owner == name}
        there = dict(remote.records(name))
        result.expect(f"the server's own count of {name} {when}", len(here), remote.count(name))
        for key, row in here.items():
            found = there.pop(owned.get((name, key), ""), None)
            if found == row:
                equal += 1
            else:
                result.problems.append(f"{name} {key} {when}: {row} here, {found} there")
        result.expect(f"remote records of {name} that nobody owns {when}", 0, len(there))
    return equal


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


def attempt_rows(pl: Runtime) -> list[Any]:
    """The attempts with their row versions: whatever was touched is seen."""
    with read_only(pl.engine).connect() as conn:
        return list(conn.execute(sa.select(push_attempt.c.id, push_attempt.c.row_version).order_by(push_attempt.c.id)))


def all_marks(remote: Remote) -> dict[tuple[str, str], object]:
    """The server's marks of both collections."""
    return {(name, place): mark for name in geo.TABLES for place, mark in remote.marks(name).items()}


# ------------------------------------------------------------------------------------------------ on the screen


def outcomes(saved: list[list[Outcome]]) -> Iterator[Outcome]:
    """The outcomes of a batch, one after the other."""
    for found in saved:
        yield from found


def word(outcome: Outcome) -> str:
    """The kind of an outcome."""
    return type(outcome).__name__


class Rate(ProgressColumn):
    """Steps a second, as soon as there is one."""

    def render(self, task: Task) -> Text:
        """The column of one bar."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


def bar() -> Progress:
    """Counts, a rate and the time; shown on terminals only."""
    return Progress(
        TextColumn("  {task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def report(what: str, count: int, began: float) -> float:
    """A line for what was done; answers with the seconds it took."""
    seconds = time.monotonic() - began
    console.print(f"  {what:<16} {count:>6,} in {seconds:6.1f} s  {count / max(seconds, 1e-9):>8,.0f}/s")
    return seconds


def show(results: list[Result]) -> None:
    """One table for everything."""
    if not results:
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for name in ("database", "server", "release"):
        table.add_column(name, no_wrap=True)
    for name in (
        "rows",
        "creates",
        "again",
        "updates",
        "equal",
        "seconds",
        "per s",
        "worker s",
        "server s",
    ):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result.database,
            result.server,
            result.version,
            *(f"{n:,}" for n in (result.rows, result.creates, result.resent, result.updates, result.equal)),
            f"{result.push_s:.1f}",
            f"{result.rows / max(result.push_s, 1e-9):,.0f}",
            f"{result.client_cpu_s:.1f}",
            f"{result.server_cpu_s:.1f}",
        )
    console.print()
    console.print(table)
    console.print("again: sent after saving everything once more; seconds, per s: the creates; worker s, server s: CPU")
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    console.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load of the machine {load}, {os.cpu_count()} cores\n")
    verdicts(results, "records equal in every field")


def verdicts(results: list[Result], what: str) -> None:
    """A line for each run: equal, or how many findings."""
    for result in results:
        run_of = f"{result.database} to {result.server}" + (f", {result.mode} worker" if result.mode else "")
        if result.problems:
            count = len(result.problems)
            console.print(f"[bold red]VERDICT: DIFFERENT[/]: {run_of}: {count} findings")
        else:
            console.print(
                f"[bold green]VERDICT: EQUAL[/]: {run_of}: {result.equal:,} of {result.rows:,} {what}, and the server"
                " counts as many"
            )


if __name__ == "__main__":
    sys.exit(main())
