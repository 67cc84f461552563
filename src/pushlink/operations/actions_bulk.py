"""Many decisions from one CSV file: each row is the same decision as a single one, with its own answer.

A dry run makes every decision and takes all of them back, so it says exactly what the run would do. Row by row each one
commits for itself and a refused one costs the others nothing; all-or-nothing commits them together or not at all. Two
rows that claim one remote id are both refused: a file cannot know which of them is right (MG-03).
"""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from pushlink.errors import CallerError, Code, PushlinkError
from pushlink.flows.world import World
from pushlink.operations.actions import Decision, Done, OperatorTerms, act
from pushlink.protocol.verbs import VERBS, Verb
from pushlink.store.access import Connection

#: The columns of the file, in any order; `argument` may be empty.
COLUMNS: Final = ("attempt_id", "row_version", "verb", "argument", "reason")

#: Rows of one file; a longer one is cut by its author, so that somebody still looks at what it does.
ROWS_MAX: Final = 10_000

#: A word in `argument` that makes a supersede reserve the newest wanted version at once, or a retire free the place.
WORDS: Final = {Verb.SUPERSEDE: "reserve", Verb.RETIRE: "release"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file as it was written, or why it is none."""

    line: int
    attempt_id: str
    verb: str
    decision: Decision | None
    mistake: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one row: `done`, `refused`, or `undone` when it was taken back with the others."""

    line: int
    attempt_id: str
    verb: str
    outcome: str
    code: str | None = None
    message: str | None = None
    before: str | None = None
    after: str | None = None
    row_version: int | None = None
    remote_id: str | None = None
    made: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """What became of a file. `applied` is False for a dry run, and where all or nothing came to nothing."""

    applied: bool
    done: int
    refused: int
    rows: tuple[Result, ...]


def read_decisions(text: str, *, actor: str, tenant: str = "", approver: str | None = None) -> tuple[Row, ...]:
    """The rows of a file; raises `CallerError` for a file whose columns are not those of `COLUMNS`."""
    reader = csv.DictReader(io.StringIO(text))
    if sorted(reader.fieldnames or ()) != sorted(COLUMNS):
        raise CallerError(
            f"The file's columns are {', '.join(COLUMNS)}.",
            evidence={"columns": list(reader.fieldnames or ())},
            next_step="write them as the first line",
        )
    rows = tuple(_row(reader.line_num, entry, actor, tenant, approver) for entry in reader)
    if len(rows) > ROWS_MAX:
        raise CallerError(f"A file has {ROWS_MAX} rows at most, this one {len(rows)}.", next_step="cut it")
    return rows


def act_many(
    transaction: Callable[[], AbstractContextManager[Connection]],
    world: World,
    rows: Sequence[Row],
    *,
    terms: OperatorTerms,
    dry_run: bool = False,
    all_or_nothing: bool = False,
) -> Bulk:
    """Make the decisions of a file; `transaction` opens one that commits when its block ends."""
    claimed_twice = _claimed_twice(rows)
    if not (dry_run or all_or_nothing):
        results = [result for row in rows for result in _alone(transaction, world, row, terms, claimed_twice)]
        return _bulk(results, applied=True)
    with transaction() as conn:
        now = world.clock.now(conn)
        everything = conn.begin_nested()
        results = [_one(conn, world, row, terms, claimed_twice, now) for row in rows]
        is_applied = not dry_run and all(result.outcome == "done" for result in results)
        if is_applied:
            everything.commit()
        else:
            everything.rollback()
    return _bulk(results if is_applied or dry_run else [_undone(result) for result in results], applied=is_applied)


def _alone(
    transaction: Callable[[], AbstractContextManager[Connection]],
    world: World,
    row: Row,
    terms: OperatorTerms,
    claimed_twice: frozenset[str],
) -> Iterator[Result]:
    try:
        with transaction() as conn:
            yield _one(conn, world, row, terms, claimed_twice, world.clock.now(conn))
    except PushlinkError as error:
        yield _refused(row, error.code, error.message)


def _one(
    conn: Connection, world: World, row: Row, terms: OperatorTerms, claimed_twice: frozenset[str], now: dt.datetime
) -> Result:
    decision = row.decision
    if decision is None:
        return _refused(row, Code.CALLER_MISTAKE, row.mistake or "")
    if decision.verb is Verb.ADOPT and decision.argument in claimed_twice:
        return _refused(row, Code.CALLER_MISTAKE, "Another row of the file adopts the same remote id.")
    try:
        with conn.begin_nested():
            return _done(row, act(conn, world, decision, terms=terms, now=now))
    except CallerError as error:
        return _refused(row, error.code, error.message)


def _row(line: int, entry: dict[str, str], actor: str, tenant: str, approver: str | None) -> Row:
    cells = {name: (entry.get(name) or "").strip() for name in COLUMNS}
    verb = next((verb for verb in VERBS if cells["verb"] in {verb.value, verb.value.removeprefix("reconcile ")}), None)
    shown = Row(line=line, attempt_id=cells["attempt_id"], verb=cells["verb"], decision=None)
    if None in entry or None in entry.values():
        return _mistaken(shown, "The row has not as many cells as there are columns.")
    if verb is None:
        return _mistaken(shown, f"{cells['verb']!r} is no verb.")
    if not cells["row_version"].isdecimal() or len(cells["row_version"]) > len(str(2**62)):
        return _mistaken(shown, "The row version is a number.")
    has_word = cells["argument"] == WORDS.get(verb, "")
    if cells["argument"] and VERBS[verb].argument is None and not has_word:
        return _mistaken(shown, f"{verb.value} takes no argument.")
    decision = Decision(
        verb=verb,
        target_id=cells["attempt_id"],
        row_version=int(cells["row_version"]),
        actor=actor,
        reason=cells["reason"],
        tenant=tenant,
        argument=(entry.get("argument") or None) if VERBS[verb].argument is not None else None,
        approver=approver,
        reserve=verb is Verb.SUPERSEDE and bool(cells["argument"]),
        release=verb is Verb.RETIRE and bool(cells["argument"]),
    )
    return Row(line=line, attempt_id=cells["attempt_id"], verb=cells["verb"], decision=decision)


def _mistaken(row: Row, mistake: str) -> Row:
    return Row(line=row.line, attempt_id=row.attempt_id, verb=row.verb, decision=None, mistake=mistake)


def _claimed_twice(rows: Sequence[Row]) -> frozenset[str]:
    adopted = Counter(
        row.decision.argument
        for row in rows
        if row.decision is not None and row.decision.verb is Verb.ADOPT and row.decision.argument is not None
    )
    return frozenset(remote_id for remote_id, count in adopted.items() if count > 1)


def _done(row: Row, done: Done) -> Result:
    return Result(
        line=row.line,
        attempt_id=row.attempt_id,
        verb=row.verb,
        outcome="done",
        before=done.before,
        after=done.after,
        row_version=done.row_version,
        message=" ".join(done.notes) or None,
        remote_id=done.remote_id,
        made=done.made,
    )


def _refused(row: Row, code: Code, message: str) -> Result:
    return Result(
        line=row.line,
        attempt_id=row.attempt_id,
        verb=row.verb,
        outcome="refused",
        code=code.value,
        message=message,
    )


def _undone(result: Result) -> Result:
    if result.outcome != "done":
        return result
    return Result(line=result.line, attempt_id=result.attempt_id, verb=result.verb, outcome="undone")


def _bulk(results: Sequence[Result], *, applied: bool) -> Bulk:
    refused = sum(result.outcome == "refused" for result in results)
    done = sum(result.outcome == "done" for result in results)
    return Bulk(applied=applied, done=done, refused=refused, rows=tuple(results))
