"""`make upgrade`: two releases side by side while the schema is upgraded under their load; 1 when anything is wrong.

    python -m proof.upgrade [--dialect sqlite] [--sends 400] [--rate 40] [--rounds 3] [--kills 3] [--few]

The release before this one is kept in `proof/upgrade/releases`. Each round has a deployment of its own: a host and
workers of that release begin, `pushlink db upgrade` of this one runs under their load and is killed some times, hosts
and workers of both go on, those of the older one stop, the rest is drained, and the judge looks at everything. Each
round leaves a directory in `build/upgrade`; `--write` puts the newest ones into `docs/reliability.md`. `--few` is the
same story with as few processes as it takes.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proof.chaos.site import wait_until
from proof.databases import DIALECTS, Databases
from proof.figures import BUILD, table, write_section
from proof.upgrade.fleet import Fleet, Release, Running
from proof.upgrade.releases import previous, revision_of, unpack
from pushlink.errors import Code
from pushlink.store.schema import upgrade

#: Workers of each release, and hosts: one of each.
WORKERS: Final = 2
HOSTS: Final = 2

#: An upgrade that is to be killed is killed within so many seconds of its beginning.
KILLED_WITHIN_S: Final = 0.4

#: What a host may meet on a file that many write to, upgrade or not: it runs its transaction again.
BUSY: Final = "database is locked"

#: No phase takes longer.
PHASE_S_MAX: Final = 180.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 when nothing was found."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended all the same
    options.raw.mkdir(parents=True, exist_ok=True)
    dialects = [one for one in DIALECTS if options.dialect in {None, one}]
    archive, found = previous(), []
    with (
        tempfile.TemporaryDirectory(prefix="pushlink-upgrade-") as home,
        Databases(tuple(dialects), prepare=_connect) as databases,
    ):
        older = Release(name="previous", source=unpack(archive, Path(home)))
        for number in range(options.rounds):
            for dialect in dialects:
                url, place = databases.fresh(dialect)
                logs = options.raw / f"{dialect}-{number}"
                shutil.rmtree(logs, ignore_errors=True)
                logs.mkdir()
                found.append({"dialect": dialect, "round": number} | _round(url, place, logs, older, options, number))
                (logs / "result.json").write_text(json.dumps(found[-1], indent=1), encoding="utf-8")
                _say(_line(found[-1]))
    wrong = sum(len(one["problems"]) for one in found)
    if options.write:
        write_section("upgrade", _report(options.raw, revision_of(archive)))
    return 1 if wrong else 0


def _connect(engine: sa.Engine) -> None:
    """Make no tables: that is for the older release to do."""
    engine.connect().close()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.upgrade", description=main.__doc__)
    parser.add_argument("--dialect", choices=DIALECTS, help="one database alone")
    parser.add_argument("--sends", type=int, default=400, help="until the next phase begins")
    parser.add_argument("--rate", type=float, default=40.0, help="records that a host writes in a second")
    parser.add_argument("--few", action="store_true", help="one worker of each release, and none begins late")
    parser.add_argument("--rounds", type=int, default=3, help="upgrades of each database")
    parser.add_argument("--kills", type=int, help="upgrades that are killed before the one that ends: 3, of --few none")
    parser.add_argument("--seed", type=int, default=1, help="when they are killed")
    parser.add_argument("--raw", type=Path, default=BUILD / "upgrade", help="where the raw results go")
    parser.add_argument("--write", action="store_true", help="write the figures into the page")
    return parser.parse_args(arguments)


# ------------------------------------------------------------------------------------------------ one round


def _round(
    url: str, home: Path, logs: Path, older: Release, options: argparse.Namespace, number: int
) -> dict[str, Any]:
    fleet = Fleet(url, home, logs, older)
    try:
        return _Story(fleet, options, random.Random(options.seed + number)).told()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"problems": [str(error)]}
    finally:
        fleet.close()


class _Story:
    """The phases of one round, and what was wrong in them."""

    def __init__(self, fleet: Fleet, options: argparse.Namespace, chance: random.Random) -> None:
        self._fleet = fleet
        self._options = options
        self._random = chance
        self._problems: list[str] = []

    def told(self) -> dict[str, Any]:
        """Everything, from the older release alone to this one alone."""
        fleet, sends, few = self._fleet, self._options.sends, self._options.few
        if not few:
            self._expect_refusal()
        early = self._workers(fleet.older, 1 if few else WORKERS)
        hosts = [self._host(fleet.older, 0)]
        self._wait_for(sends, *early)
        told = self._upgrade()
        newcomers = self._workers(fleet.older, 0 if few else 1)
        late = self._workers(fleet.newer, len(early))
        hosts.append(self._host(fleet.newer, 1))
        mixed = fleet.sends()
        self._wait_for(sends, *newcomers, *late)
        self._end(hosts[0], *newcomers, *early)
        told["sends_mixed"] = fleet.sends() - mixed
        self._wait_for(sends // 2)
        self._end(hosts[1])
        told["drain_s"] = round(fleet.drain(len(late)), 1)
        self._end(*late)
        return told | self._figures(hosts, [*newcomers, *early, *late])

    def _workers(self, release: Release, count: int) -> list[Running]:
        return [self._fleet.start(release, "worker") for _ in range(count)]

    def _expect_refusal(self) -> None:
        """Nobody of this release works on tables that are not upgraded, and it says what to do."""
        try:
            said = self._fleet.run(self._fleet.newer, "worker", "--json", "--until-idle")
        except RuntimeError as error:
            said = str(error)
        if Code.SCHEMA_OUTDATED not in said or "pushlink db upgrade" not in said:
            self._problems.append(f"a worker began on older tables: {said}")

    def _host(self, release: Release, turn: int) -> Running:
        return self._fleet.start(release, "host", str(turn), str(HOSTS), str(self._options.rate))

    def _wait_for(self, sends: int, *workers: Running) -> None:
        """Let so many requests arrive, and each of these workers do something."""
        fleet, before = self._fleet, self._fleet.sends()
        if not wait_until(lambda: fleet.sends() >= before + sends and all(map(fleet.done, workers)), PHASE_S_MAX):
            done = [(worker.said.name, fleet.done(worker)) for worker in workers]
            raise RuntimeError(f"{fleet.sends() - before} of {sends} requests were sent, by {done}")

    def _upgrade(self) -> dict[str, Any]:
        """Upgrade under load, some times killed on the way: all of it happened, or nothing did."""
        fleet, before = self._fleet, self._fleet.sends()
        few, kills = self._options.few, self._options.kills
        kills = (0 if few else 3) if kills is None else kills
        killed = sum(fleet.kill_upgrade(self._random.uniform(0.0, KILLED_WITHIN_S)) for _ in range(kills))
        began = time.monotonic()
        if few:
            upgrade(fleet.engine)
        else:
            fleet.run(fleet.newer, "db", "upgrade", "--json")
        if not fleet.is_upgraded():
            raise RuntimeError("the upgrade has not happened")
        seconds = round(time.monotonic() - began, 2)
        return {"killed": killed, "upgrade_s": seconds, "sends_during": fleet.sends() - before}

    def _end(self, *running: Running) -> None:
        for one in running:
            self._problems += self._fleet.end(one)

    def _figures(self, hosts: list[Running], workers: list[Running]) -> dict[str, Any]:
        """What came of it, and what must not have."""
        fleet, tally, there = self._fleet, self._fleet.tally(), self._fleet.records()
        wanted = sum(host.told.get("records", 0) for host in hosts)
        problems = self._problems
        problems += fleet.problems(there)
        problems += [f"{len(there)} records are here, {wanted} were saved"] * (len(there) != wanted)
        problems += [f"{tally.linked} links are here, {wanted} were expected"] * (tally.linked != wanted)
        problems += [f"the remote's id {remote_id} is lost" for remote_id in tally.lost]
        problems += [f"nothing was wrong with the remote, and rows wait for people: {tally.parked}"] * bool(
            tally.parked
        )
        for worker in workers:
            if worker.told.get("abandoned"):
                problems.append(f"{worker.said.name}: {worker.told['abandoned']} flows were abandoned")
        errors: Counter[str] = sum((Counter(host.told.get("errors", {})) for host in hosts), Counter())
        busy = sum(count for error, count in errors.items() if BUSY in error)
        problems += [f"{n} transactions of hosts failed: {error}" for error, n in errors.items() if BUSY not in error]
        sent: Counter[str] = Counter()
        for worker in workers:
            sent[worker.release] += worker.told.get("sent", 0)
        slowest = max(host.told.get("slowest_s", 0.0) for host in hosts)
        return {
            "records": wanted,
            **asdict(tally),
            "sent": dict(sent),
            "slowest_save_s": slowest,
            "busy": busy,
            "problems": problems,
        }


# ------------------------------------------------------------------------------------------------ what came of it


def _line(one: dict[str, Any]) -> str:
    problems = "".join(f"\n      {problem}" for problem in one["problems"][:20])
    if "sends" not in one:
        return f"!! {one['dialect']}{problems}"
    mark = "!! " if one["problems"] else "   "
    told = f"{one['sends']:,} sends, {one['sends_mixed']:,} of them of both at once, by release {one['sent']}"
    rest = f"upgraded in {one['upgrade_s']} s after {one['killed']} kills, slowest save {one['slowest_save_s']} s"
    return f"{mark}{one['dialect']:<11} {told}, {rest}{problems}"


def _report(raw: Path, revision: str) -> str:
    """The section of the page, out of the newest rounds."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(raw.glob("*/result.json"))]
    found.sort(key=lambda one: (DIALECTS.index(one["dialect"]), one["round"]))
    head = [
        "database",
        "records",
        "upgrades killed",
        "upgrade, s",
        "slowest save, s",
        "saves run again",
        "sends meanwhile",
    ]
    head += ["sends of both side by side", "sent by the previous release, by this one", "keys by accepted creates"]
    rows = [
        [
            one["dialect"],
            f"{one['records']:,}",
            one["killed"],
            one["upgrade_s"],
            one["slowest_save_s"],
            one["busy"],
            f"{one['sends_during']:,}",
            f"{one['sends_mixed']:,}",
            " + ".join(f"{one['sent'][release]:,}" for release in ("previous", "this")),
            ", ".join(f"{times}: {keys:,}" for times, keys in one["creates"].items()),
            len(one["problems"]),
        ]
        for one in found
        if "sends" in one
    ]
    wrong = sum(len(one["problems"]) for one in found)
    records = sum(one.get("records", 0) for one in found)
    text = (
        f"{len(found)} upgrades of revision {revision} under load, {records:,} records: **{wrong or 'no'} violations**."
    )
    return f"{text}\n\n{table([*head, 'violations'], rows)}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
