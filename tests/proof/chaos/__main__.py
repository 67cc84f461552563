"""`make chaos`: real hosts and workers push while everything around them is destroyed; 1 when anything is wrong.

    python -m proof.chaos [--only TEXT] [--dialect sqlite] [--records 10000] [--seconds 60] [--workers 4] [--seed 1]

Every trouble of `proof.chaos.troubles` runs on the databases that it is about, in a deployment of its own. Each run is
a file of `build/chaos`, with the logs of its processes beside it; `--write` puts the newest of each into
`docs/reliability.md`, also of those that ran another time, and `--report` does nothing else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from proof.chaos.site import Site
from proof.chaos.troubles import BLOWS_MIN, TROUBLES, Scene, Trouble, opened_scene
from proof.databases import DIALECTS
from proof.figures import BUILD, table, write_section

#: No run takes longer, beyond the seconds that it was asked for.
RUN_S_MAX: Final = 600.0
TICK_S: Final = 0.05

#: Requests between two blows: so many at most, or one in so many of the records; and seconds after which a clock waits
#: for none.
BLOW_AFTER: Final = 40
BLOW_ONE_IN: Final = 50
IDLE_S_MAX: Final = 10.0

#: How often it is asked how much is left to do, in seconds.
LOOK_S: Final = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 when nothing was found."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended all the same
    options.raw.mkdir(parents=True, exist_ok=True)
    jobs = [
        (trouble, dialect)
        for trouble in TROUBLES
        if options.only in trouble.name
        for dialect in trouble.dialects
        if options.dialect in {None, dialect} and not options.report
    ]
    wrong = 0
    for trouble, dialect in jobs:
        found = _run(trouble, dialect, options)
        wrong += len(found["problems"])
        _say(_line(found))
        for problem in found["problems"][:20]:
            _say(f"      {problem}")
        if options.write:
            write_section("chaos", section(options.raw))
    if options.report:
        write_section("chaos", section(options.raw))
    _say(f"{len(jobs)} runs: {wrong or 'no'} violations")
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos", description=main.__doc__)
    parser.add_argument("--only", default="", help="troubles whose name has this in it")
    parser.add_argument("--dialect", choices=DIALECTS, help="one database alone")
    parser.add_argument("--records", type=int, default=10_000, help="records of each run")
    parser.add_argument("--seconds", type=float, default=60.0, help="over which the saves are spread")
    parser.add_argument("--workers", type=int, default=4, help="worker processes at a time")
    parser.add_argument("--left", type=float, default=0.1, help="share of the work that is left when blows end")
    parser.add_argument("--seed", type=int, default=1, help="what is struck when, and how")
    parser.add_argument("--raw", type=Path, default=BUILD / "chaos", help="where the raw results go")
    parser.add_argument("--write", action="store_true", help="write what is in the raw results into the page")
    parser.add_argument("--report", action="store_true", help="run nothing, and write it")
    return parser.parse_args(arguments)


# ------------------------------------------------------------------------------------------------ one run


def _run(trouble: Trouble, dialect: str, options: argparse.Namespace) -> dict[str, Any]:
    """One trouble on one database: its figures, and what was found."""
    name = f"{trouble.name.replace(', ', '-').replace(' ', '-')}-{dialect}"
    logs = options.raw / name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    home = Path(tempfile.mkdtemp(prefix="pushlink-chaos-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    found: dict[str, Any] = {"trouble": trouble.name, "dialect": dialect, "records": options.records, "problems": []}
    began = time.monotonic()
    try:
        with opened_scene(trouble, dialect, home, logs, records=options.records, seed=options.seed) as scene:
            found |= _story(trouble, scene, options.records, options)
    except PermissionError as error:
        found |= {"not_run": str(error)}
    except RuntimeError as error:
        found["problems"] = [str(error)]
    finally:
        shutil.rmtree(home, ignore_errors=True)
    found["seconds"] = round(time.monotonic() - began, 1)
    (options.raw / f"{name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def _story(trouble: Trouble, scene: Scene, records: int, options: argparse.Namespace) -> dict[str, Any]:
    site = scene.site
    site.keep_alive(options.workers)
    site.start_hosts(records, seconds=options.seconds)
    _destroy(trouble, scene, options, end=time.monotonic() + options.seconds + RUN_S_MAX)
    trouble.heal(scene)
    scene.tick(at_once=True)
    drain_s = site.drain(options.workers)
    if trouble.loses:  # hosts find out what they lost, and save it again; nothing of it may be made twice
        site.start_hosts(records, seconds=0.0)
        drain_s += site.drain(options.workers)
    site.stop_workers()
    tally = site.tally()
    problems = [*scene.problems, *_judge(trouble, site, records)]
    if problems and (site.home / "db.sqlite").exists():
        with sqlite3.connect(site.home / "db.sqlite") as database:
            database.execute("VACUUM INTO ?", [str(site.logs / "db.sqlite")])
    return {
        "struck": dict(scene.struck),
        "drain_s": round(drain_s, 1),
        **asdict(tally),
        "problems": problems,
    }


def _destroy(trouble: Trouble, scene: Scene, options: argparse.Namespace, *, end: float) -> None:
    """Deal blows until the hosts have saved everything and most of it is done, and at least a few.

    Between two blows some requests arrive, so that a slow machine is struck as often in its work as a fast one; none is
    waited for once all is done. A clock jumps on all the same: it may have jumped to where nothing is due.
    """
    site, struck_at, next_look = scene.site, time.monotonic(), 0.0
    pause_s, left = trouble.every_s[0], None
    goal = options.records // 2 if trouble.loses else 1  # after a loss nothing new is sent, so half of it is before
    gap = max(1, min(BLOW_AFTER, options.records // BLOWS_MIN // 2), options.records // BLOW_ONE_IN)
    while time.monotonic() < end:
        site.keep_alive(options.workers)
        scene.tick()
        now, sends = time.monotonic(), site.sends()
        is_idle = left == 0 or (trouble.late and now >= struck_at + IDLE_S_MAX)
        if now >= struck_at + pause_s and (sends >= goal or is_idle):
            blow = trouble.strike(scene)
            scene.struck += Counter({blow: 1} if blow else {})
            struck_at, pause_s = time.monotonic(), scene.random.uniform(*trouble.every_s)
            goal = site.sends() + scene.random.randint(1, gap)
        if now >= next_look and not site.are_saving():
            next_look, left = now + LOOK_S, site.waiting()
            is_enough = scene.struck.total() >= trouble.blows_min
            if is_enough and left is not None and left <= options.records * options.left:
                return
        time.sleep(TICK_S)


def _judge(trouble: Trouble, site: Site, records: int) -> list[str]:
    tally, there = site.tally(), site.records()
    found = [] if len(there) == records else [f"{len(there)} records are here, {records} were saved"]
    if trouble.loses:
        # What the remote did for rows that the failover took away cannot be known here; it may not be done twice.
        return found + [f"{tally.twice} keys have more than one accepted create"] * bool(tally.twice)
    if trouble.faithful and tally.parked:
        found.append(f"orderly stops left rows for people: {tally.parked}")
    found += [f"the remote's id {remote_id} is lost" for remote_id in tally.lost]
    return found + site.problems(there)


# ------------------------------------------------------------------------------------------------ what came of it


def _line(found: dict[str, Any]) -> str:
    name = f"{found['trouble']}, {found['dialect']}"
    if "not_run" in found:
        return f"   {name:<30} not run: {found['not_run']}"
    mark = "!! " if found["problems"] else "   "
    told = f"{sum(found.get('struck', {}).values()):>4} blows, {found.get('sends', 0):>6,} sends"
    parked = sum(found.get("parked", {}).values())
    rest = f"creates per key {_counts(found.get('creates', {}))}, {len(found.get('lost', ()))} lost, {parked} parked"
    return f"{mark}{name:<30} {told}, {rest}, drained in {found.get('drain_s', 0)} s, {found['seconds']} s in all"


def section(raw: Path) -> str:
    """The section of the page, out of the newest run of every trouble, whenever that was; and what never ran."""
    there = [json.loads(path.read_text(encoding="utf-8")) for path in raw.glob("*.json")]
    by_name = {(one["trouble"], one["dialect"]): one for one in there}
    asked = [(trouble.name, dialect) for trouble in TROUBLES for dialect in trouble.dialects]
    found = [by_name[name] for name in asked if name in by_name]
    ran = [one for one in found if "not_run" not in one]
    missing = [
        *(f"{one['trouble']}, {one['dialect']}: {one['not_run']}" for one in found if "not_run" in one),
        *(", ".join(name) for name in asked if name not in by_name),
    ]
    rows = [
        [
            one["trouble"],
            one["dialect"],
            f"{one['records']:,}",
            _listed(one["struck"]),
            f"{one['sends']:,}",
            _counts(one["creates"]),
            len(one["lost"]),
            one["drain_s"],
            len(one["problems"]),
        ]
        for one in ran
    ]
    parked = [
        [one["trouble"], one["dialect"], how, f"{count:,}"] for one in ran for how, count in one["parked"].items()
    ]
    records, wrong = sum(one["records"] for one in ran), sum(len(one["problems"]) for one in ran)
    head = ["trouble", "database", "records", "blows", "sends", "keys by accepted creates", "lost ids", "drain, s"]
    text = [
        f"{len(ran)} runs, {records:,} records: **{wrong or 'no'} violations**.",
        table([*head, "violations"], rows),
        "What waited for people at the end:",
        table(["trouble", "database", "how, and why", "rows"], parked),
        *["Not run: " + "; ".join(missing) + "."] * bool(missing),
    ]
    return "\n\n".join(text)


def _counts(creates: dict[Any, int]) -> str:
    return ", ".join(f"{times}: {keys:,}" for times, keys in creates.items()) or "none"


def _listed(struck: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(struck.items()))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
