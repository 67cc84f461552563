"""`make demo`: a small CRM, a small remote, and pushlink between them, from the first save to a comparison of both.

Everything lives in build/demo, which is made anew each time, and on loopback; no network is needed. The exit code is 1
when a local and a remote record differ, or when the remote made one record too many or too few.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import sqlalchemy as sa
from crm import Base, Organisation, Person, organisations, people
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sides import DATABASE, POLICY, SETTINGS, TOKEN, Remote, both_sides
from sqlalchemy.orm import Session
from witness import differences

from pushlink import Outcome, Refused, Runtime
from pushlink.packs.loader import load_pack_text
from pushlink.store.dialect import read_only
from pushlink.store.links import read_links
from pushlink.store.reads import read_attempt_page, read_link_counts, read_link_page

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "examples" / "packs" / "crm.yaml"
#: The address that the pack names. The demo takes a free port instead, so that two demos never meet.
PACK_ADDRESS = "http://127.0.0.1:8731"
#: The credential that the pack names. The demo's token lies in a file, so that the command line finds it afterwards.
PACK_CREDENTIAL = "env:CRM_TOKEN"
#: Records that step 5 changes after they were created; one of them is changed twice.
EDITED = 4
#: Differences that are shown; the verdict counts all of them.
SHOWN_MAX = 12

console = Console(width=110, highlight=False)


def main() -> int:
    """Tell the story; 0 when both sides are equal in the end."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=ROOT / "build" / "demo", help="where everything is put")
    folder: Path = arguments.parse_args().folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    with both_sides(folder) as (pl, remote):
        fill(pl, folder)
        introduce(pl, remote, folder)
        save_everything(pl, remote)
        work(pl, remote, "4  A worker", "it marks each request as about to be sent, sends it once, and keeps the id")
        edit(pl)
        work(pl, remote, "6  The worker again", "the last word of each record, in one request each")
        refuse(pl)
        show(pl)
        is_equal = compare(pl, remote)
    say(f"Everything is in {shown(folder)}; this took {time.monotonic() - began:.1f} s. What to look at next:")
    for command in ("explain Person 4", "stuck"):
        say(f"  {shown(Path(sys.executable).with_name('pushlink'))} {command} --config {shown(folder / SETTINGS)}")
    return 0 if is_equal else 1


# ------------------------------------------------------------------------------------------------ the steps


def fill(pl: Runtime, folder: Path) -> None:
    """What the application has before it hears of pushlink: its tables and its records."""
    step("1  A CRM", "an SQLite database with people and organisations (only e-mails and amounts are made up)")
    Base.metadata.create_all(pl.engine)
    with Session(pl.engine) as session, session.begin():
        session.add_all([*people(), *organisations()])
    with Session(pl.engine) as session:
        some = session.scalars(sa.select(Person).where(Person.id.in_([1, 3, 5, 11, 15]))).all()
        amounts = [session.scalar(sa.select(sa.func.count()).select_from(kind)) for kind in (Person, Organisation)]
    say(f"{shown(folder / DATABASE)} has {amounts[0]} people and {amounts[1]} organisations; some of the people:")
    columns = ("id", "full_name", "email", "birthday", "status", "remote_id")
    show_rows(columns, [[getattr(person, column) for column in columns] for person in some])


def introduce(pl: Runtime, remote: Remote, folder: Path) -> None:
    """The tables of pushlink beside the CRM's, and the pack: what goes where."""
    step(
        "2  A remote and a pack", "the pack says as data which record goes where, as what, and where its id comes back"
    )
    pl.upgrade()
    text = PACK.read_text(encoding="utf-8").replace(PACK_ADDRESS, remote.url)
    text = text.replace(PACK_CREDENTIAL, json.dumps(f"file:{folder / TOKEN}"))
    pack = load_pack_text(text, file=PACK.name)
    applied = pl.apply_pack(pack, actor="demo", reason="the demo starts")
    say(f"remote: {remote.url}, a process of its own that wants a bearer token and makes a record of every POST")
    say(f"pack:   {shown(PACK)} applied; its actions and destinations have {len(applied.added_slots)} slots")


def save_everything(pl: Runtime, remote: Remote) -> None:
    """Saves in the application's own transactions, one of which is rolled back."""
    step("3  Saves", "a push is reserved in the CRM's own transaction; nothing is sent before that commits")
    with Session(pl.engine) as session:
        ghost = Person(full_name="Nobody", status="lead")
        session.add(ghost)
        outcomes = pl.save(session, ghost, user="mara")
        session.rollback()
    say(f"one save: {in_words([outcomes])}; the CRM rolls back, and {len(attempts(pl))} attempts are left of it")
    with Session(pl.engine) as session, session.begin():
        everybody = session.scalars(sa.select(Person)).all()
        saved = pl.save_many(session, [*everybody, *session.scalars(sa.select(Organisation))], user="mara")
    drafts = sum(not outcomes for outcomes in saved)
    say(f"{len(saved)} saves: {in_words(saved)}; {drafts} drafts stay at home, because the pack says `when`")
    say(f"requests that the remote has seen so far: {remote.counts().total()}")


def work(pl: Runtime, remote: Remote, title: str, why: str) -> None:
    """A worker until nothing is left to do, with the remote's own count beside its own."""
    step(title, why)
    before, began = remote.counts(), time.monotonic()
    tally = pl.drain()
    seconds = time.monotonic() - began
    done = remote.counts() - before
    counts = f"{done['created']} creates, {done['updated']} updates"
    say(f"{tally.claimed} claims in {seconds:.1f} s; the remote counted {counts}")


def edit(pl: Runtime) -> None:
    """Edits of several kinds, a record that is edited twice, and saves of records that did not change."""
    step("5  Edits", "only what changed is wanted; a record that is saved twice in between is sent once")
    with Session(pl.engine) as session, session.begin():
        ada, _, sofia, maria = session.scalars(sa.select(Person).order_by(Person.id).limit(4))
        snorri = session.scalars(sa.select(Person).where(Person.full_name == "Snorri Sturluson")).one()
        ada.email, sofia.email, maria.full_name, snorri.status = "countess@example.org", None, "Marie Curie", "lead"
        saved = pl.save_many(session, [ada, sofia, maria, snorri], user="mara")
    say(f"an e-mail changed, one cleared, a name changed, a draft became a lead: {in_words(saved)}")
    with Session(pl.engine) as session, session.begin():
        maria = session.get_one(Person, 4)
        maria.status = "lead"
        saved = [pl.save(session, maria, user="mara")]
    say(f"Marie Curie a second time: {in_words(saved)}, {waiting(saved)}")
    with Session(pl.engine) as session, session.begin():
        union = session.get_one(Organisation, 1)
        union.annual_revenue = (union.annual_revenue or Decimal(0)) + Decimal("0.01")
        saved = pl.save_many(session, session.scalars(sa.select(Organisation)), user="mara")
    say(f"one organisation has a cent more, and all of them are saved: {in_words(saved)}")


def refuse(pl: Runtime) -> None:
    """A user who may not read everything that the push would send, and one who may."""
    step("7  A refused save", f"a push sends what its user may read; {shown(POLICY)} lets a trainee see no birthdays")
    with Session(pl.engine) as session, session.begin():
        hedy = Person(full_name="Hedy Lamarr", email="hedy@example.org", birthday=dt.date(1914, 11, 9), status="lead")
        session.add(hedy)
        for refused in [outcome for outcome in pl.save(session, hedy, user="tim") if isinstance(outcome, Refused)]:
            say(f"Tim adds Hedy Lamarr: [bold]{refused.code}[/]. {refused.message}")
            say("evidence: " + ", ".join(f"{name} = {value}" for name, value in refused.evidence.items()))
    with Session(pl.engine) as session, session.begin():
        hedy = session.scalars(sa.select(Person).where(Person.full_name == "Hedy Lamarr")).one()
        say(f"the CRM's transaction committed all the same; she has {len(attempts(pl, record=hedy.id))} attempts")
        say(f"Mara saves her: {in_words([pl.save(session, hedy, user='mara')])}")
    say(f"the worker once more: {pl.drain().claimed} claim")


def show(pl: Runtime) -> None:
    """Some links and attempts, and how many there are."""
    step("8  Links and attempts", "a link is who owns which remote record; an attempt is one push with its history")
    with read_only(pl.engine).connect() as conn:
        amount = sum(read_link_counts(conn).values())
        links = read_link_page(conn, tenant="", source_object="Person", limit=4).rows
        newest = read_attempt_page(conn, tenant="", limit=7).rows
        owners = read_links(conn, [x.attempt.link_key for x in newest])
    pushes = Counter(f"{operation} {status}" for operation, status, _ in attempts(pl))
    say(f"the newest {len(links)} links of people, of {amount} links in all:")
    show_rows(
        ("link", "status", "remote id", "in the CRM", "finalized"),
        [
            [f"{x.source_object} {x.source_record_id}", x.status, x.remote_id, x.mirror_status, f"{x.finalized_at:%T}"]
            for x in links
        ],
    )
    counts = ", ".join(f"{count} {name}" for name, count in sorted(pushes.items()))
    say(f"the newest {len(newest)} attempts, of {pushes.total()} in all ({counts}); an update's id is its link's:")
    show_rows(
        ("attempt", "operation", "status", "version", "sends", "remote id"),
        [
            [
                f"{x.source_object} {x.source_record_id}",
                x.attempt.operation,
                x.attempt.status,
                x.attempt.version,
                x.attempt.send_count,
                x.attempt.remote_id or (link and link.remote_id),
            ]
            for x, link in zip(newest, owners, strict=True)
        ],
    )


def compare(pl: Runtime, remote: Remote) -> bool:
    """Every record of both sides beside its other one, and the remote's own count of creates."""
    step("9  Both sides, record by record", "what the remote holds, and what the CRM's rows say it should hold")
    problems: list[str] = []
    pushed = 0
    with Session(pl.engine) as session:
        for kind, path in ((Person, "/people"), (Organisation, "/organisations")):
            drafts = (Person.status == "draft") if kind is Person else sa.false()
            records = session.scalars(sa.select(kind).where(sa.not_(drafts))).all()
            problems += differences(kind.__name__, records, remote.get(path))
            pushed += len(records)
    done = remote.counts()
    if done["created"] != pushed:
        problems.append(f"the remote accepted {done['created']} creates for {pushed} records")
    if done["updated"] != EDITED:
        problems.append(f"the remote accepted {done['updated']} updates for {EDITED} edited records")
    for problem in problems[:SHOWN_MAX]:
        say(f"[red]{problem}[/]")
    if problems:
        say(f"[bold red]VERDICT: DIFFERENT[/]: {len(problems)} differences in {pushed} records")
    else:
        counts = f"{pushed} records, {done['created']} creates, {done['updated']} updates"
        say(f"[bold green]VERDICT: EQUAL[/]: {counts}, and every field is the same on both sides")
    return not problems


# ------------------------------------------------------------------------------------------------ words and tables


def attempts(pl: Runtime, record: int | None = None) -> Sequence[tuple[str, str, str]]:
    """Operation, status and record of every attempt, or of those of one person."""
    found = []
    page = None
    with read_only(pl.engine).connect() as conn:
        while True:
            listed = read_attempt_page(
                conn,
                tenant="",
                source_object=None if record is None else "Person",
                record_id=None if record is None else str(record),
                page=page,
            )
            found += [(x.attempt.operation.value, x.attempt.status.value, x.source_record_id) for x in listed.rows]
            page = listed.next_page
            if page is None:
                return found


def in_words(saved: Iterable[Iterable[Outcome]]) -> str:
    """How many outcomes of each kind."""
    counted = Counter(type(outcome).__name__ for outcomes in saved for outcome in outcomes)
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items())) or "nothing"


def waiting(saved: Iterable[Iterable[Outcome]]) -> str:
    """Which versions are wanted now."""
    return ", ".join(f"version {getattr(outcome, 'version', '?')}" for outcomes in saved for outcome in outcomes)


def shown(path: Path) -> str:
    """A path as one may type it here: relative when it is below the working directory, else whole."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def step(title: str, why: str) -> None:
    """A numbered heading with its reason."""
    console.print(f"\n[bold]{title}[/]: {why}", soft_wrap=True)


def say(line: str) -> None:
    """One line of a step."""
    console.print(f"  {line}", soft_wrap=True)


def show_rows(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table."""
    table = Table(*columns, box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=True)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
