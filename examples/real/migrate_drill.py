"""`make migrate-drill`: 100,000 records with planted trouble are adopted, and a pack changes under live links.

First the countries and subdivisions of ISO 3166, many times over, as an older integration would have left them: what
becomes of each record is known in advance, and is compared with what the plan, the apply and the rollback say, one by
one. Then a pack that maps otherwise under the links of a real kinto: updates refuse, the manifest is applied, updates
flow, and the server's own log has no request that was not expected. The exit code is 1 when anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import secrets
import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import geo
import pycountry
import sqlalchemy as sa
from databases import DATABASES
from remotes import REMOTES, Entry, Remote, free_port
from rich.box import SIMPLE_HEAD
from rich.table import Table
from run import BATCH, ROOT, USER, bar, console, links, local_rows, open_runtime, outcomes, report, save_all, work

from pushlink import Runtime
from pushlink.migration import adopt, adopt_apply, adopt_rollback, revalidate
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.packs.loader import load_pack_text
from pushlink.protocol.adoption import Pair
from pushlink.protocol.manifest import approve
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.verbs import Verb
from pushlink.store.dialect import read_only
from pushlink.store.tables import METADATA, remote_link

#: Records that are changed, deleted and saved once the plan is made.
CHANGED, GONE, SAVED = 200, 100, 100
#: Records of each kind that needs rows of ours; a decision of a person is one transaction.
EACH = 40
MARK = "geo-sync-2"

HOST = sa.MetaData()
PLACES = sa.Table(
    "places",
    HOST,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("region", sa.Text),
    sa.Column("remote_id", sa.Text),
    sa.Column("source", sa.Text),
    sa.Column("old_id", sa.Text),
    sa.Column("old_source", sa.Text),
)

#: What is pushed nowhere: the drill of adoption sends nothing.
PACK: Mapping[str, Any] = {
    "pack": "places-drill",
    "version": "1.0.0",
    "connector_owner_key": "6b1f6f0e-7c1c-4a39-9b53-3f7a0f0d5a11",
    "namespace": "places-drill",
    "profiles": {"main": {"base_url": "http://127.0.0.1:9", "auth": {"kind": "none"}, "destination_scope": "geo"}},
    "destinations": [{"destination_slot_id": "places-1", "target_object": "places", "profile": "main"}],
    "flows": [
        {
            "flow": "Places",
            "version": 1,
            "actions": [
                {
                    "action": "push_place",
                    "action_slot_id": "place-1",
                    "source_object": "Place",
                    "destination": "places-1",
                    "create": {
                        "path": "/places",
                        "response": {
                            "id": [{"from": "$response.body#/id"}],
                            "id_rule": {"canonical": "uuid_lower_v1"},
                        },
                    },
                    "update": {"path": "/places/{remote_id}"},
                    "mappings": [{"source": "code", "target": "/code"}, {"source": "name", "target": "/name"}],
                    "mirror": {"remote_id_field": "remote_id", "provenance_field": "source", "provenance_value": MARK},
                }
            ],
        }
    ],
}

#: Every hundred records hold these, one each; the others are in order. A twin claims what the record before it does.
PLANTED: Mapping[int, tuple[str, Mapping[str, str | None]]] = {
    3: ("several_ids", {"old_id": "an older id", "old_source": "geo-sync-1"}),
    7: ("several_ids", {"old_id": "SAME"}),
    11: ("provenance_without_id", {"remote_id": None}),
    17: ("provenance_without_id", {"old_source": "geo-sync-1"}),
    23: ("outside_pair", {"remote_id": None, "source": None, "old_id": "SAME", "old_source": "geo-sync-1"}),
    31: ("id_without_provenance", {"source": None}),
    37: ("action_unmapped", {"source": "push_place_2019"}),
    41: ("action_unmapped", {"source": "GEO-SYNC-2"}),
    43: ("destination_changed", {"source": "geo-sync-2-test"}),
    47: ("destination_changed", {"region": "south"}),
    53: ("id_unusable", {"remote_id": "see ticket 7"}),
    59: ("id_unusable", {"remote_id": "4711"}),
    61: ("claimed_twice", {}),
    62: ("claimed_twice", {"remote_id": "TWIN"}),
    71: ("empty", {"remote_id": None, "source": None}),
}


@dataclass(slots=True, kw_only=True)
class Drill:
    """What one run found, line by line, and what differed."""

    database: str
    lines: list[tuple[str, str, int, int]] = field(default_factory=list)  # part, what, expected, found
    times: list[tuple[str, int, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def compare(self, part: str, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
        """One line for each word, and a problem for each record of which another word is said."""
        planned, said = Counter(expected.values()), Counter(found.values())
        for what in sorted(planned.keys() | said.keys()):
            self.lines.append((part, what, planned[what], said[what]))
        for record in sorted(expected.keys() | found.keys()):
            if expected.get(record) != found.get(record):
                self.problems.append(f"{part}: {record}: {found.get(record)} instead of {expected.get(record)}")

    def expect(self, part: str, what: str, wanted: int, found: int) -> None:
        """A line for a number."""
        self.lines.append((part, what, wanted, found))
        if wanted != found:
            self.problems.append(f"{part}: {what}: {found} instead of {wanted}")

    @contextmanager
    def timed(self, what: str, count: int) -> Iterator[None]:
        """Count the seconds of a step."""
        began = time.monotonic()
        yield
        self.times.append((what, count, report(what, count, began)))


def main() -> int:
    """Both drills on each database; 0 when nothing differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=[*DATABASES, "both"], default="both")
    parser.add_argument("--records", type=int, default=100_000, help="legacy records of the adoption")
    parser.add_argument("--links", type=int, default=5_000, help="live links of the upgrade; 0 leaves it out")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "migrate-drill", help="where everything is put")
    arguments = parser.parse_args()
    drills = []
    for database in DATABASES if arguments.database == "both" else [arguments.database]:
        folder: Path = arguments.folder.resolve() / database
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        drill = Drill(database=database)
        drills.append(drill)
        console.print(f"[bold]{database}: adoption of {arguments.records:,} records[/]")
        (folder / "adoption").mkdir()
        with DATABASES[database](folder / "adoption") as url:
            adoption(drill, url, folder / "adoption", arguments.records)
        if arguments.links and REMOTES["kinto"].is_there:
            console.print(f"[bold]{database}: an upgrade under {arguments.links:,} links of kinto[/]")
            (folder / "upgrade").mkdir()
            with DATABASES[database](folder / "upgrade") as url:
                upgrading(drill, url, folder / "upgrade", arguments.links)
    for drill in drills:
        show(drill)
    return 1 if any(drill.problems for drill in drills) else 0


# ------------------------------------------------------------------------------------------------ adoption


def adoption(drill: Drill, url: str, folder: Path, records: int) -> None:
    """Plant, plan, compare, apply, compare, repeat, save, take back, compare."""
    (folder / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    pl = Runtime.from_settings(database_url=url, secret_file=folder / "secret", authority={"kind": "allow_all"})
    pl.bind(PLACES, "Place")
    try:
        pl.upgrade()
        HOST.create_all(pl.engine)
        install(pl, json.dumps(PACK))
        expected = planted(pl, records)
        expected |= with_rows(pl, folder, records)
        plan = folder / "adopt.jsonl"
        with drill.timed("plan", records):
            totals = plan_into(pl, plan, "drill")
        found = {entry["record_id"]: entry.get("because", "adopt") for entry in entries(plan)}
        drill.compare("plan", {record: said for record, said in expected.items() if said != "empty"}, found)
        empty = Counter(expected.values())["empty"]
        drill.expect("plan", "records without anything of old", empty, totals.empty)
        results = disturbed(pl, {record for record, said in found.items() if said == "adopt"})
        said: dict[str, str] = {}
        with drill.timed("apply", totals.adoptable):
            apply(pl, plan, lambda entry, result, _detail: said.update({entry.record_id: result}))
        drill.compare("apply", results, said)
        adopted = [record for record, result in results.items() if result == "adopted"]
        before = census(pl)
        with drill.timed("repeat", totals.adoptable):
            done = apply(pl, plan)
        drill.expect("repeat", "adopted again", 0, done.adopted)
        drill.expect("repeat", "adopted before", len(adopted), done.already_adopted)
        drill.expect(
            "repeat", "tables that changed", 0, sum(before[name] != count for name, count in census(pl).items())
        )
        back(drill, pl, adopted)
    finally:
        pl.close()


def back(drill: Drill, pl: Runtime, adopted: list[str]) -> None:
    """Save some adopted records: updates alone. Take the operation back: those stay, and the others are free."""
    saved = adopted[:: max(1, len(adopted) // SAVED)][:SAVED]
    with pl.engine.begin() as conn:
        conn.execute(sa.update(PLACES).where(PLACES.c.id.in_(map(int, saved))).values(name=PLACES.c.name + " · ž字"))
        kinds = Counter(
            type(one).__name__ for one in outcomes(pl.save_many(conn, [("Place", int(r)) for r in saved], user=USER))
        )
    drill.expect("save", "updates", len(saved), kinds["Queued"])
    drill.expect("save", "creates", 0, kinds["Reserved"])
    found: dict[str, str] = {}
    ordered = adopt_rollback.Ordered(operation_id="drill", tenant="", actor=USER, reason="a drill")
    with drill.timed("rollback", len(adopted)):
        adopt_rollback.roll_back(
            pl.engine,
            pl.world,
            ordered,
            on_result=lambda receipt, result, _detail: found.update({receipt.source_record_id: result}),
        )
    stay = dict.fromkeys(saved, "record_saved")
    drill.compare("rollback", {record: stay.get(record, "rolled_back") for record in adopted}, found)


def planted(pl: Runtime, records: int) -> dict[str, str]:
    """Fill the host's table; answers with what has to become of each record."""
    expected: dict[str, str] = {}
    names = itertools.cycle([*pycountry.countries, *pycountry.subdivisions])
    with bar() as progress, pl.engine.begin() as conn:
        task = progress.add_task("planting", total=records)
        before = ""
        for numbers in _batches(range(1, records + 1)):
            made = []
            for number, entry in zip(numbers, names, strict=False):
                remote_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"place {number}"))
                said, more = PLANTED.get(number % 100, ("adopt", {}))
                spelled = {"SAME": remote_id, "TWIN": before.upper()}
                made.append(_place(number, entry, remote_id) | {n: spelled.get(v or "", v) for n, v in more.items()})
                expected[str(number)] = said
                before = remote_id
            conn.execute(PLACES.insert(), made)
            progress.advance(task, len(made))
    return expected


def with_rows(pl: Runtime, folder: Path, records: int) -> dict[str, str]:
    """Records that rows of ours speak about: linked, linked otherwise, retired, in work, or claimed by another link."""
    first = records + 1
    kinds = ("already_linked", "link_differs", "link_retired", "owner", "create_blocks", "owned_elsewhere")
    numbers = {kind: range(first + place * EACH, first + (place + 1) * EACH) for place, kind in enumerate(kinds)}
    entry = next(iter(pycountry.countries))
    with pl.engine.begin() as conn:
        for kind in kinds[:4]:
            conn.execute(PLACES.insert(), [_place(n, entry, _fresh(n)) for n in numbers[kind]])
    with pl.engine.begin() as conn:  # only these are planned: the others are hidden meanwhile
        hidden = sa.update(PLACES).where(PLACES.c.id < first)
        conn.execute(hidden.values(region="hidden"))
    plan_into(pl, folder / "earlier.jsonl", "earlier", hidden=True)
    apply(pl, folder / "earlier.jsonl")
    with pl.engine.begin() as conn:
        south = [n for n in range(1, first) if n % 100 == 47]
        conn.execute(sa.update(PLACES).where(PLACES.c.id < first).values(region="north"))
        for some in _batches(south):
            conn.execute(sa.update(PLACES).where(PLACES.c.id.in_(some)).values(region="south"))
        for number in numbers["link_differs"]:
            own = sa.update(PLACES).where(PLACES.c.id == number)
            conn.execute(own.values(remote_id=_fresh(number + 10_000_000)))
        clear = sa.update(PLACES).where(PLACES.c.id.in_(numbers["owner"]))
        conn.execute(clear.values(remote_id=None, source=None))
        claimed = zip(numbers["owned_elsewhere"], numbers["owner"], strict=True)
        conn.execute(PLACES.insert(), [_place(n, entry, _fresh(owner)) for n, owner in claimed])
        conn.execute(PLACES.insert(), [_place(n, entry, _fresh(n)) for n in numbers["create_blocks"]])
        pl.save_many(conn, [("Place", n) for n in numbers["create_blocks"]], user=USER)
    for number in numbers["link_retired"]:
        retire(pl, number)
    said = {str(number): kind for kind, some in numbers.items() for number in some}
    return {number: "empty" if kind == "owner" else kind for number, kind in said.items()}


def disturbed(pl: Runtime, adoptable: set[str]) -> dict[str, str]:
    """Change and delete some records behind the plan's back; answers with what has to become of each planned row."""
    ordered = sorted(adoptable, key=int)
    changed, gone = set(ordered[5::37][:CHANGED]), set(ordered[11::41][:GONE])
    gone -= changed
    with pl.engine.begin() as conn:
        for some in _batches(sorted(map(int, changed))):
            conn.execute(sa.update(PLACES).where(PLACES.c.id.in_(some)).values(source="geo-sync-3"))
        for some in _batches(sorted(map(int, gone))):
            conn.execute(sa.delete(PLACES).where(PLACES.c.id.in_(some)))
    words = dict.fromkeys(changed, "record_changed") | dict.fromkeys(gone, "record_gone")
    return {record: words.get(record, "adopted") for record in ordered}


def plan_into(pl: Runtime, path: Path, operation_id: str, *, hidden: bool = False) -> Any:
    """A plan with every declaration that there is; `hidden` plans what is not marked as hidden alone."""
    asked = adopt.Asked(
        source_object="Place",
        action_slot_id="place-1",
        operation_id=operation_id,
        older=(Pair(remote_id="old_id", provenance="old_source"),),
        elsewhere=("geo-sync-2-test",),
        destination_field="region",
        destination_value="north",
    )
    with bar() as progress:
        tasks = {what: progress.add_task(what, total=None) for what in ("records", "claims")}
        totals = adopt.plan(
            pl.engine,
            pl.world,
            pl.records,
            asked,
            path,
            on_progress=lambda what, done, total: progress.update(tasks[what], completed=done, total=total),
        )
    return totals if not hidden else None


def apply(pl: Runtime, path: Path, on_result: Callable[..., None] | None = None) -> adopt_apply.Applied:
    """Apply a manifest."""
    manifest = adopt_apply.read_manifest(path)
    with bar() as progress:
        task = progress.add_task("adopting", total=manifest.totals.adoptable)
        return adopt_apply.apply(
            pl.engine,
            pl.world,
            manifest,
            actor=USER,
            reason="a drill",
            on_progress=lambda done: progress.update(task, completed=done),
            on_result=on_result,
        )


def retire(pl: Runtime, number: int) -> None:
    """A person ends the link of a place."""
    with pl.engine.begin() as conn:
        chosen = sa.select(remote_link.c.id, remote_link.c.row_version)
        row = conn.execute(chosen.where(remote_link.c.source_record_id == str(number))).one()
        decision = Decision(
            verb=Verb.RETIRE, target_id=row.id, row_version=row.row_version, actor=USER, reason="a drill"
        )
        act(conn, pl.world, decision, terms=OperatorTerms(), now=pl.world.clock.now(conn))


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a manifest."""
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in itertools.islice(file, 1, None) if '"link_key"' in line)


def census(pl: Runtime) -> dict[str, int]:
    """How many rows each table of pushlink has."""
    with read_only(pl.engine).connect() as conn:
        count = sa.select(sa.func.count())
        return {t.name: conn.execute(count.select_from(t)).scalar_one() for t in METADATA.sorted_tables}


def _place(number: int, entry: Any, remote_id: str) -> dict[str, Any]:
    code = getattr(entry, "code", None) or entry.alpha_2
    own = {"id": number, "code": code, "name": entry.name, "region": "north", "remote_id": remote_id, "source": MARK}
    return own | {"old_id": None, "old_source": None}


def _fresh(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"place {number}"))


def _batches(items: Any) -> Iterator[list[Any]]:
    left = iter(items)
    while batch := list(itertools.islice(left, BATCH // 2)):
        yield batch


# ------------------------------------------------------------------------------------------------ upgrade


def upgrading(drill: Drill, url: str, folder: Path, count: int) -> None:
    """Push, change the mapping, be refused, apply the manifest, push again; the server's log has the last word."""
    entry = REMOTES["kinto"]
    remote = entry.make(folder, free_port())
    pl = open_runtime(url, folder)
    try:
        pl.upgrade()
        text = entry.pack.read_text(encoding="utf-8").replace(entry.pack_address, remote.start())
        with pl.engine.begin() as conn:
            geo.fill(conn, count)
        install(pl, text)
        said, _ = save_all(pl, "saving")
        drill.expect("upgrade", "creates reserved", count, said["Reserved"])
        work(pl, entry, "creating", count)
        logged = remote.requests()
        drill.expect("upgrade", "creates at the server", count, logged[entry.created])
        install(pl, text.replace("{source: name, target: /name}", "{source: name, target: /label}"))
        edit_all(pl)
        said, _ = save_all(pl, "saving, refused")
        drill.expect("upgrade", "updates refused", count, said["Refused"])
        work(pl, entry, "sending nothing", 0)
        manifest_applied(drill, pl, count)
        drill.expect("upgrade", "requests of refusals and manifest", 0, (remote.requests() - logged).total())
        said, _ = save_all(pl, "saving, let through")
        drill.expect("upgrade", "updates let through", count, said["Queued"])
        drill.times.append(("updates", count, work(pl, entry, "updating", count)))
        read_back(drill, pl, entry, remote, logged, count)
    finally:
        pl.close()
        remote.stop()


def manifest_applied(drill: Drill, pl: Runtime, count: int) -> None:
    """Make the manifest of all links, rehearse it, apply it, and apply it again."""
    with read_only(pl.engine).connect() as conn:
        keys = [LinkKey(key) for key in conn.execute(sa.select(remote_link.c.link_key)).scalars()]
    made = revalidate.make_manifest(
        pl.engine,
        keys,
        tenant="",
        operation_id="drill",
        reason="the name is called label there",
        approval=approve("Olga Owner", "A label is the name by another name."),
    )
    given: dict[str, Any] = {"actor": USER, "now": pl.world.clock.now}
    with drill.timed("validate", count):
        rehearsed = revalidate.validate(pl.engine, made, **given)
    drill.expect("upgrade", "receipts rehearsed", count, len(rehearsed.receipts))
    with drill.timed("apply manifest", count):
        done = revalidate.apply(pl.engine, made, **given)
    drill.expect("upgrade", "links moved", count, done.current if done.verdict.value == "applied" else 0)
    again = revalidate.apply(pl.engine, made, **given)
    drill.expect("upgrade", "verified again", count, again.members if again.verdict.value == "already_applied" else 0)


def read_back(drill: Drill, pl: Runtime, entry: Entry, remote: Remote, before: Counter[str], count: int) -> None:
    """The server's log, its count, and every record with its new field."""
    sent = remote.requests() - before
    drill.expect("upgrade", "updates at the server", count, sent[entry.updated])
    drill.expect("upgrade", "any other write at the server", 0, sent.total() - sent[entry.updated])
    local, owned = local_rows(pl), links(pl)
    there = {name: remote.records(name) for name in geo.TABLES}
    drill.expect("upgrade", "records at the server", count, sum(map(len, there.values())))
    right = sum(there[name][owned[name, key]].get("label") == row["name"] for (name, key), row in local.items())
    drill.expect("upgrade", "records with the new field", count, right)


def edit_all(pl: Runtime) -> None:
    """Another name for every record."""
    with pl.engine.begin() as conn:
        for table in geo.TABLES.values():
            conn.execute(sa.update(table).values(name=table.c.name + " · ž字"))


def install(pl: Runtime, text: str) -> None:
    """Apply a pack."""
    pl.apply_pack(load_pack_text(text), actor=USER, reason="make migrate-drill")


# ------------------------------------------------------------------------------------------------ on the screen


def show(drill: Drill) -> None:
    """What was expected beside what was found, and how long the steps took."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, title=drill.database)
    for name in ("part", "what"):
        table.add_column(name, no_wrap=True)
    for name in ("expected", "found", ""):
        table.add_column(name, justify="right")
    for part, what, wanted, found in drill.lines:
        table.add_row(part, what, f"{wanted:,}", f"{found:,}", "=" if wanted == found else "DIFFERENT")
    console.print()
    console.print(table)
    for what, count, seconds in drill.times:
        console.print(f"  {what:<16} {count:>8,} in {seconds:6.1f} s  {count / max(seconds, 1e-9):>8,.0f}/s")
    console.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    for problem in drill.problems[:20]:
        console.print(f"  [red]{problem}[/]")
    verdict = "[bold red]VERDICT: DIFFERENT" if drill.problems else "[bold green]VERDICT: AS EXPECTED"
    console.print(f"{verdict}[/]: {drill.database}: {len(drill.problems)} differences, record by record\n")


if __name__ == "__main__":
    sys.exit(main())
