"""`make bench-small`: reserved to finalized, one worker, against a local stub; and PgQueuer doing the same POSTs.

Each variant runs in a fresh process, so that CPU times are its own; rounds are interleaved, so that a noisy moment hits
everybody. PgQueuer claims a job, sends the POST and inserts one row with the answer; it promises nothing of what
pushlink does. Read the ratio and the CPU per push, not the absolute rates.

    python -m benchmarks.small [--count 4000] [--rounds 2] [--only VARIANT] [--write]

`--write` keeps the medians in `benchmarks/README.md`; the raw figures are always kept in `build/bench-small.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import platform
import resource
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from plugins.postgres import Server, new_home  # noqa: E402 - found through the line above

CONCURRENCY = 128

#: Where the README keeps the figures.
START, END = "<!-- figures -->", "<!-- end of the figures -->"

PACK = """
pack: bench
version: 1.0.0
connector_owner_key: bench-owner
namespace: bench
profiles:
  main: {{base_url: "http://127.0.0.1:{port}", auth: {{kind: none}}}}
destinations:
  - {{destination_slot_id: bench-destination, target_object: things, profile: main}}
flows:
  - flow: bench
    version: 1
    actions:
      - action: push
        action_slot_id: bench-action
        source_object: Thing
        destination: bench-destination
        create: {{method: POST, path: /things, response: {{id: [{{from: "$response.body#/id"}}]}}}}
        update: {{method: PATCH, path: "/things/{{remote_id}}"}}
        mappings:
          - {{source: name, target: /name}}
          - {{source: amount, target: /amount}}
        {mirror}
"""
MIRROR = "mirror: {remote_id_field: remote_id}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: pushes a second, and CPU microseconds a push of the worker and of the database server."""

    variant: str
    creates: int  # accepted by the stub, which is as many as there were records
    pushes_s: float
    worker_us: float
    database_us: float | None


@contextmanager
def stub() -> Iterator[tuple[int, Callable[[], int]]]:
    """The stub process: its port, and a function that asks how many creates it has accepted."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stub"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise SystemExit("the stub has no pipes")

    def accepted() -> int:
        stdin.write("\n")
        stdin.flush()
        return int(stdout.readline())

    try:
        yield int(stdout.readline()), accepted
    finally:
        stdin.close()
        process.wait(timeout=10)
        stdout.close()


def run_pushlink(url: str, port: int, count: int, *, mirror: bool) -> tuple[float, float]:
    """Reserve `count` records, then time one worker until all are finalized: (seconds, worker CPU seconds)."""
    import sqlalchemy as sa
    import uvloop

    from pushlink import Runtime, WorkerOptions
    from pushlink.packs.loader import load_pack_text

    os.environ["PUSHLINK_SECRET"] = secrets.token_hex(16)
    runtime = Runtime.from_settings(
        database_url=url,
        authority={"kind": "allow_all"},
        egress={"allow_loopback": True},
        objects={"Thing": {"table": "things", "key": [{"column": "id", "type": "integer"}]}},
    )
    runtime.upgrade()
    metadata = sa.MetaData()
    things = sa.Table(
        "things",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("amount", sa.Integer),
        sa.Column("remote_id", sa.Text),
    )
    pack = load_pack_text(PACK.format(port=port, mirror=MIRROR if mirror else ""))
    with runtime.engine.begin() as conn:
        metadata.create_all(conn)
        conn.execute(things.insert(), [{"id": i, "name": f"thing {i}", "amount": i} for i in range(1, count + 1)])
    runtime.apply_pack(pack, actor="benchmark", reason="benchmark")
    for start in range(1, count + 1, 1_000):
        with runtime.engine.begin() as conn:
            runtime.save_many(conn, [("Thing", i) for i in range(start, min(start + 1_000, count + 1))], user="b")
    options = WorkerOptions(sends_max=CONCURRENCY, claim_max=CONCURRENCY, idle_horizon_s=0.0)
    started, cpu = time.perf_counter(), _cpu()
    uvloop.run(runtime.worker(options=options).run(until_idle=True))
    elapsed, used = time.perf_counter() - started, _cpu() - cpu
    with runtime.engine.begin() as conn:
        done = conn.execute(
            sa.text("SELECT count(*) FROM pushlink_remote_link WHERE status = 'finalized'")
        ).scalar_one()
    if done != count:
        raise SystemExit(f"{done} of {count} were finalized")
    runtime.close()
    return elapsed, used


def run_pgqueuer(url: str, port: int, count: int) -> tuple[float, float]:
    """The same POSTs by PgQueuer: claim, POST, insert one row with the answer."""
    import uvloop

    return uvloop.run(_pgqueuer(url, port, count))


async def _pgqueuer(dsn: str, port: int, count: int) -> tuple[float, float]:
    import aiohttp
    import asyncpg
    from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries

    address = dict(part.split("=", 1) for part in dsn.split())
    pool = await asyncpg.create_pool(
        host=address["host"], user=address["user"], database=address["dbname"], min_size=4, max_size=8
    )
    driver = AsyncpgPoolDriver(pool)
    queries = Queries(driver)
    await queries.install()
    await pool.execute("CREATE TABLE answers (job bigint PRIMARY KEY, remote_id text NOT NULL)")
    bodies = [json.dumps({"name": f"thing {i}", "amount": i}).encode() for i in range(1, count + 1)]
    await queries.enqueue(["post"] * count, bodies, [0] * count)
    queue = PgQueuer(driver)
    done = 0
    finished = asyncio.Event()
    # As pushlink does for creates without a replay contract: a fresh connection for every POST.
    connector = aiohttp.TCPConnector(force_close=True, limit=CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector) as session:

        @queue.entrypoint("post", concurrency_limit=CONCURRENCY)
        async def post(job: object) -> None:
            nonlocal done
            async with session.post(
                f"http://127.0.0.1:{port}/things",
                data=job.payload,  # type: ignore[attr-defined]
                headers={"Content-Type": "application/json"},
            ) as reply:
                answer = json.loads(await reply.read())
            await pool.execute(
                "INSERT INTO answers VALUES ($1, $2)",
                job.id,  # type: ignore[attr-defined]
                str(answer["id"]),
            )
            done += 1
            if done == count:
                finished.set()

        started, cpu = time.perf_counter(), _cpu()
        running = asyncio.create_task(queue.run(batch_size=64))
        await finished.wait()
        elapsed, used = time.perf_counter() - started, _cpu() - cpu
        queue.shutdown.set()
        await running
    await pool.close()
    return elapsed, used


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _server_cpu(pid: int) -> float:
    """CPU seconds of a postmaster and of all its children, dead ones included."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(path.parent.name) == pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == pid:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


VARIANTS = ("pushlink on PostgreSQL", "pushlink on PostgreSQL, with mirror", "PgQueuer", "pushlink on SQLite")


def measure(variant: str, count: int, server: Server | None, folder: Path, serial: int) -> Figure:
    """One run of one variant in a process of its own, on a database of its own."""
    with stub() as (port, accepted):
        if variant.endswith("SQLite"):
            url = f"sqlite:///{folder / f'bench{serial}.db'}"
        else:
            url = _new_database(server, serial, raw=variant == "PgQueuer")
        before = _server_cpu(server.pid) if server is not None else 0.0
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.small", "--child", variant, url, str(port), str(count)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        elapsed, used = json.loads(run.stdout.splitlines()[-1])
        database = None if variant.endswith("SQLite") or server is None else _server_cpu(server.pid) - before
        creates = accepted()
        if creates != count:
            raise SystemExit(f"{variant}: the stub accepted {creates} creates for {count} records")
    per_push = 1_000_000 / count
    return Figure(variant, creates, count / elapsed, used * per_push, None if database is None else database * per_push)


def _new_database(server: Server | None, serial: int, *, raw: bool) -> str:
    import psycopg

    if server is None:
        raise SystemExit("no server")
    name = f"bench{serial}"
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return server.dsn(name) if raw else str(server.url(name))


def child(variant: str, url: str, port: int, count: int) -> None:
    """The inside of one run; prints [seconds, CPU seconds] as its last line."""
    if variant == "PgQueuer":
        result = run_pgqueuer(url, port, count)
    else:
        result = run_pushlink(url, port, count, mirror=variant.endswith("mirror"))
    print(json.dumps(result))


def main() -> None:
    """Run all rounds, print the table and the ratios, keep the raw figures in build/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", choices=VARIANTS)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench-small.json")
    parser.add_argument("--write", action="store_true", help="keep the medians in benchmarks/README.md")
    parser.add_argument("--child", nargs=4, metavar=("VARIANT", "URL", "PORT", "COUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        variant, url, port, count = arguments.child
        child(variant, url, int(port), int(count))
        return
    folder = Path(tempfile.mkdtemp(prefix="pushlink-bench-"))
    home = new_home()
    server = Server(home)
    server.start()
    figures: list[Figure] = []
    try:
        for serial in range(arguments.rounds):
            for number, variant in enumerate(arguments.only or VARIANTS):
                figure = measure(variant, arguments.count, server, folder, serial * 10 + number)
                figures.append(figure)
                print(f"round {serial + 1}  {_line(figure)}", flush=True)
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    medians = report(figures)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps([asdict(f) for f in figures], indent=1))
    if arguments.write:
        keep(medians, count=arguments.count, rounds=arguments.rounds)


def report(figures: list[Figure]) -> list[Figure]:
    """Print the medians over the rounds, and the ratio to PgQueuer."""
    medians = {
        variant: Figure(
            variant,
            next(f.creates for f in figures if f.variant == variant),
            statistics.median(f.pushes_s for f in figures if f.variant == variant),
            statistics.median(f.worker_us for f in figures if f.variant == variant),
            None
            if variant.endswith("SQLite")
            else statistics.median(f.database_us or 0.0 for f in figures if f.variant == variant),
        )
        for variant in dict.fromkeys(f.variant for f in figures)
    }
    print()
    for figure in medians.values():
        print("median   " + _line(figure))
    ours, theirs = medians.get("pushlink on PostgreSQL"), medians.get("PgQueuer")
    if ours and theirs:
        cpu = _cpu_of(ours) / _cpu_of(theirs)
        print(f"ratio    {ours.pushes_s / theirs.pushes_s:.2f} of PgQueuer's rate, {cpu:.2f} of its CPU per push")
    return list(medians.values())


def keep(medians: list[Figure], *, count: int, rounds: int) -> None:
    """Write the medians into the README, with what one must know of the machine to read them."""
    page = ROOT / "benchmarks" / "README.md"
    before, start, rest = page.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    day, load = dt.datetime.now(dt.UTC).date().isoformat(), os.getloadavg()[0]
    machine = f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}"
    rows = [
        f"{day}, {machine}; {count} creates, median of {rounds} rounds.",
        "",
        "| variant | pushes/s | of PgQueuer's | worker us | database us | CPU, of PgQueuer's |",
        "|---|---|---|---|---|---|",
    ]
    theirs = next((f for f in medians if f.variant == "PgQueuer"), None)
    for f in medians:
        rate = "-" if theirs is None else f"{f.pushes_s / theirs.pushes_s:.2f}"
        cpu = "-" if theirs is None else f"{_cpu_of(f) / _cpu_of(theirs):.2f}"
        database = "-" if f.database_us is None else f"{f.database_us:.0f}"
        rows.append(f"| {f.variant} | {f.pushes_s:.0f} | {rate} | {f.worker_us:.0f} | {database} | {cpu} |")
    page.write_text("".join([before, start, "\n", "\n".join(rows), "\n", end, after]), encoding="utf-8")


def _cpu_of(figure: Figure) -> float:
    return figure.worker_us + (figure.database_us or 0)


def _line(figure: Figure) -> str:
    database = "-" if figure.database_us is None else f"{figure.database_us:.0f}"
    return (
        f"{figure.variant:<36} {figure.pushes_s:7.0f} pushes/s  "
        f"worker {figure.worker_us:4.0f} us  database {database:>4} us"
    )


if __name__ == "__main__":
    main()
