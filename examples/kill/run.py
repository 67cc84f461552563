"""`make kill`: requests in flight at a slow remote, `kill -9` of the worker, a second worker, and what became of each.

For each database: records are saved, and a worker of its own process sends as many creates as it may have in flight to
a real HTTP server that takes each one and does not answer. The worker is killed. A second worker runs until nothing is
due: what was never started is sent, what was in flight is parked with its evidence, and the server's own count says
that nothing was sent twice. The exit code is 1 when one of these does not hold. What it makes is in build/kill.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pushlink import Runtime
from pushlink.packs.loader import load_pack_text
from pushlink.store.tables import attempt_event, push_attempt
from pushlink.testing import verbs
from pushlink.testing.messages import creating
from pushlink.testing.remote import FaultyRemote

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "real"))
from databases import DATABASES  # noqa: E402 - the databases of `make real`, beside this folder

#: Seconds of the story: a request's deadline, the lease that holds it, and how long the remote takes.
DEADLINE_S, MARGIN_S, LEASE_S, SLOW_S = 4, 1, 6, 60
PATIENCE_S = 40
TOKEN_VARIABLE = "KILL_TOKEN"  # noqa: S105 - the name of a variable

PACK = f"""
pack: orders
version: 1.0.0
connector_owner_key: 6f0f9a44-54a3-4a9e-9a4b-3b2cc3f0a001
namespace: orders
profiles:
  main:
    base_url: ADDRESS
    credential_ref: env:{TOKEN_VARIABLE}
    timeouts: {{connect: 2s, total: {DEADLINE_S}s}}
destinations:
  - {{destination_slot_id: 6f0f9a44-54a3-4a9e-9a4b-3b2cc3f0a002, target_object: orders, profile: main}}
flows:
  - flow: Orders
    version: 1
    actions:
      - action: push_order
        action_slot_id: 6f0f9a44-54a3-4a9e-9a4b-3b2cc3f0a003
        source_object: Order
        destination: 6f0f9a44-54a3-4a9e-9a4b-3b2cc3f0a002
        create:
          path: /orders
          success: {{status: [201]}}
          response: {{id: [{{from: $response.body#/id}}]}}
        mappings:
          - {{source: number, target: /number}}
"""

SETTINGS = """
database_url = "{url}"
secret_file = "secret"
state_directory = "state"
authority = {{ kind = "allow_all" }}
egress = {{ allow_loopback = true }}
worker = {{ sends_max = {in_flight}, lease = "{lease}s", margin = "{margin}s", poll = "200ms" }}

[objects.Order]
table = "orders"
key = [{{column = "id", type = "integer"}}]
"""

HOST = sa.MetaData()
ORDER = sa.Table(
    "orders", HOST, sa.Column("id", sa.Integer, primary_key=True), sa.Column("number", sa.Text, nullable=False)
)

PARKED = push_attempt.c.status == "ambiguous_remote_effect"

console = Console(width=120, highlight=False)


@dataclass(slots=True, kw_only=True)
class Result:
    """One row of the table in the end."""

    database: str
    saved: int
    in_flight: int
    unstarted: int = 0
    twice: int = 0
    finished: int = 0
    parked: int = 0
    with_evidence: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def expect(self, what: str, wanted: object, found: object) -> None:
        """Keep a sentence when something is not as it should be."""
        if wanted != found:
            self.problems.append(f"{what}: {found} instead of {wanted}")


def main() -> int:
    """Run the story on every database; 0 when it ended as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=[*DATABASES, "both"], default="both")
    parser.add_argument("--in-flight", type=int, default=20, help="creates on the wire when the worker is killed")
    parser.add_argument("--waiting", type=int, default=20, help="creates that were saved and not started by then")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "kill", help="where everything is put")
    arguments = parser.parse_args()
    os.environ[TOKEN_VARIABLE] = "any-token"
    results = []
    for database in DATABASES if arguments.database == "both" else [arguments.database]:
        folder: Path = arguments.folder.resolve() / database
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with DATABASES[database](folder) as url:
            results.append(run(database, url, folder, arguments.in_flight, arguments.waiting))
    show(results)
    return 1 if any(result.problems for result in results) else 0


def run(database: str, url: str, folder: Path, in_flight: int, waiting: int) -> Result:
    """Save, send, kill, start again, and count."""
    result = Result(database=database, saved=in_flight + waiting, in_flight=in_flight)
    began = time.monotonic()
    console.print(f"[bold]{database}[/]: {result.saved} records, {in_flight} of them in flight when the worker dies")
    with FaultyRemote() as remote:
        (folder / "secret").write_text(os.urandom(32).hex(), encoding="ascii")
        text = SETTINGS.format(url=url, in_flight=in_flight, lease=LEASE_S, margin=MARGIN_S)
        (folder / "pushlink.toml").write_text(text, encoding="utf-8")
        pl = Runtime.from_settings(folder / "pushlink.toml", database_url=url)
        try:
            prepare(pl, remote.base_url, result.saved)
            kill_in_flight(folder, remote, result)
            result.unstarted = rows(pl, push_attempt.c.first_io_at.is_(None))
            result.expect("creates that no worker had started", waiting, result.unstarted)
            remote.calm()
            work_again(pl, folder)
            judge(pl, remote, result)
        finally:
            pl.close()
    result.seconds = time.monotonic() - began
    for problem in result.problems:
        console.print(f"  [red]{problem}[/]")
    return result


def prepare(pl: Runtime, address: str, count: int) -> None:
    """The host's table, pushlink's own, the pack, and one save for each record."""
    pl.upgrade()
    HOST.create_all(pl.engine)
    pl.bind(ORDER, "Order")
    with pl.engine.begin() as conn:
        conn.execute(sa.insert(ORDER), [{"id": n, "number": f"order {n}"} for n in range(1, count + 1)])
    pl.apply_pack(load_pack_text(PACK.replace("ADDRESS", address)), actor="kill", reason="make kill")
    with pl.engine.begin() as conn:
        pl.save_many(conn, [("Order", n) for n in range(1, count + 1)], user="kill")


def worker(folder: Path) -> subprocess.Popen[str]:
    """The command as people run it, in a process of its own; no variable of this shell leads it elsewhere."""
    command = [sys.executable, "-c", "from pushlink.surfaces.cli import main; main()", "worker"]
    with (folder / "worker.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            [*command, "--config", str(folder / "pushlink.toml"), "--json"],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("PUSHLINK_")},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def kill_in_flight(folder: Path, remote: FaultyRemote, result: Result) -> None:
    """Let the first worker send as much as it may, and kill it before any answer."""
    remote.always(verbs.store_then_delay(SLOW_S), when=creating)
    with worker(folder) as process:
        arrived = remote.wait_until(lambda: remote.creates == result.in_flight, seconds=PATIENCE_S)
        process.kill()
    result.expect("creates that the remote took before the kill", (True, result.in_flight), (arrived, remote.creates))
    console.print(f"  {remote.creates} creates in flight, kill -9")


def work_again(pl: Runtime, folder: Path) -> None:
    """A second worker: it recovers what the dead one held as soon as its leases end, and is asked to stop then."""
    with worker(folder) as process:
        end = time.monotonic() + PATIENCE_S
        while rows(pl, push_attempt.c.status.in_(["pending", "processing"])) and time.monotonic() < end:
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    console.print(f"  a second worker: {json.loads(out)['sent']} sent")


def judge(pl: Runtime, remote: FaultyRemote, result: Result) -> None:
    """The server's own count, and what the tables say of every record."""
    counts = remote.creates_by(lambda record: record.document["number"])
    result.twice = sum(1 for count in counts.values() if count > 1)
    result.expect("records that the remote has twice", 0, result.twice)
    result.expect("records that reached the remote", result.saved, len(counts))
    result.finished = rows(pl, push_attempt.c.status == "finalized")
    result.parked = rows(pl, PARKED)
    told = sa.exists().where(
        attempt_event.c.attempt_id == push_attempt.c.id, attempt_event.c.to_status == "ambiguous_remote_effect"
    )
    first_io = push_attempt.c.first_io_at.is_not(None)
    result.with_evidence = rows(pl, PARKED, push_attempt.c.reason_code.is_not(None), first_io, told)
    result.expect("records that were finished", result.saved - result.in_flight, result.finished)
    result.expect("records that were parked", result.in_flight, result.parked)
    result.expect("parked records with evidence", result.in_flight, result.with_evidence)
    result.expect("records in any other state", 0, rows(pl) - result.finished - result.parked)


def rows(pl: Runtime, *conditions: sa.ColumnElement[bool]) -> int:
    """How many attempts there are of a kind."""
    with pl.engine.connect() as conn:
        return conn.execute(sa.select(sa.func.count()).select_from(push_attempt).where(*conditions)).scalar_one()


def show(results: Sequence[Result]) -> None:
    """One table for everything, and a verdict."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    titles = ("database", "saved", "in flight", "not started", "sent twice", "finished", "parked", "evidence", "s")
    for title in titles:
        table.add_column(title, justify="left" if title == "database" else "right")
    for r in results:
        numbers = (r.saved, r.in_flight, r.unstarted, r.twice, r.finished, r.parked, r.with_evidence)
        table.add_row(r.database, *map(str, numbers), f"{r.seconds:.1f}")
    console.print(table)
    verdict = Counter("held" if not r.problems else "broken" for r in results)
    word = "VERDICT: HELD" if set(verdict) == {"held"} else "VERDICT: BROKEN"
    console.print(f"{word}: none sent twice, the rest finished, {sum(r.parked for r in results)} parked with evidence")


if __name__ == "__main__":
    sys.exit(main())
