"""An independent judge of rows: reads tables with SQL of its own and the remote's own counts, and names what is wrong.

It imports nothing of pushlink, so that a mistake there is not believed here. A judge may be asked again and again; what
must never change or be forgotten it remembers from one time to the next.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from proof.judge.arrows import ARROWS, SILENT

Row: TypeAlias = Mapping[str, Any]

_ALL: Final = {
    "attempt": "SELECT * FROM pushlink_push_attempt ORDER BY id",
    "event": "SELECT * FROM pushlink_attempt_event ORDER BY id",
    "link": "SELECT * FROM pushlink_remote_link ORDER BY id",
    "request": 'SELECT * FROM pushlink_push_request ORDER BY attempt_id, "freeze"',
    "response": "SELECT * FROM pushlink_push_response ORDER BY id",
    "slot": "SELECT * FROM pushlink_push_slot ORDER BY link_key",
    "document": "SELECT * FROM pushlink_frozen_document ORDER BY digest",
}

#: The same for the rows of one source record.
_OF_ONE: Final = {
    "attempt": sa.text(
        "SELECT a.* FROM pushlink_push_attempt a JOIN pushlink_push_slot s ON s.link_key = a.link_key"
        " WHERE s.source_record_id = :record ORDER BY a.id"
    ),
    "event": sa.text(
        "SELECT e.* FROM pushlink_attempt_event e JOIN pushlink_push_slot s ON s.link_key = e.link_key"
        " WHERE s.source_record_id = :record ORDER BY e.id"
    ),
    "link": sa.text("SELECT * FROM pushlink_remote_link WHERE source_record_id = :record ORDER BY id"),
    "request": sa.text(
        "SELECT r.* FROM pushlink_push_request r JOIN pushlink_push_attempt a ON a.id = r.attempt_id"
        " JOIN pushlink_push_slot s ON s.link_key = a.link_key"
        ' WHERE s.source_record_id = :record ORDER BY r.attempt_id, r."freeze"'
    ),
    "response": sa.text(
        "SELECT r.* FROM pushlink_push_response r JOIN pushlink_push_slot s ON s.link_key = r.link_key"
        " WHERE s.source_record_id = :record ORDER BY r.id"
    ),
    "slot": sa.text("SELECT * FROM pushlink_push_slot WHERE source_record_id = :record ORDER BY link_key"),
}

#: Rows of these are written once.
_FROZEN: Final = {"event": ("id",), "request": ("attempt_id", "freeze"), "response": ("id",), "document": ("digest",)}

_SAID_BY_PEOPLE: Final = ("confirm_absent", "dispose")
_WAITS_FOR_PEOPLE: Final = ("ambiguous_remote_effect", "terminal_failed")
_IN_WORK: Final = ("processing", "post_sent", "writeback_commit_pending")
_THROTTLED: Final = 429

#: Why a row is in doubt whatever this database knows of its sends: the checkpoint may have been lost with a timeline.
SENT_PERHAPS: Final = "timeline_changed"
_OPEN_UPDATE: Final = ("pending", "processing", "post_sent", "ambiguous_remote_effect")
_LANES: Final = ("configured", "deferred_association")
_LINKED: Final = ("writeback_commit_pending", "finalized")


class Judge:
    """What must hold, whatever happened. `creates` and `sends` count by source record id, as the remote saw them."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._written: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in _FROZEN}
        self._read: dict[str, dict[tuple[Any, ...], tuple[tuple[Any, ...], Row]]] = {name: {} for name in _FROZEN}
        self._remote_ids: set[tuple[str, str]] = set()  # link key, remote id
        self._foreign: dict[str, str] = {}  # attempts of unknown lanes, as they were when they were first seen

    def problems(
        self,
        *,
        creates: Mapping[str, int],
        sends: Mapping[str, int] | None = None,
        owners: Mapping[str, str] | None = None,
        settled: bool = False,
        record: str | None = None,
    ) -> list[str]:
        """Every broken invariant in a sentence. `owners` says which source record each remote id belongs to.

        `settled`: the workers have nothing more to do, so nothing may be in work or due. `record`: look at the rows of
        this source record alone, which is quick; what happened to others is found when all are looked at again.
        """
        with self._engine.begin() as conn:
            tables = self._read_all(conn) if record is None else self._read_one(conn, record)
        if record is not None:
            creates = {record: creates.get(record, 0)}
            sends = {record: (sends or {}).get(record, 0)}
        checks: list[Iterator[str]] = [
            _creates(tables, creates),
            _proved_absent(tables, creates),
            _sends(tables, sends or {}),
            _keys(tables),
            _links(tables, owners),
            _events(tables),
            _reasons(tables, settled=settled),
            _checkpoints(tables),
            _once_refused(tables),
            self._frozen(tables, whole=record is None),
            self._never_lost(tables, whole=record is None),
            self._untouched(tables),
        ]
        return [problem for check in checks for problem in check]

    def _read_all(self, conn: sa.Connection) -> dict[str, list[Row]]:
        """Every row, by the driver's own cursor: a simulation asks for all of them after each thing that happens."""
        tables: dict[str, list[Row]] = {}
        with closing(conn.connection.cursor()) as cursor:
            for name, query in _ALL.items():
                cursor.execute(query)
                columns = [column[0] for column in cursor.description]
                rows = cursor.fetchall()
                if name in _FROZEN:
                    tables[name] = self._known(name, columns, rows)
                else:
                    tables[name] = [dict(zip(columns, row, strict=True)) for row in rows]
        return tables

    def _known(self, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[Row]:
        """Rows that are written once; one that is as it was read before is the same mapping as before."""
        known, places = self._read[name], [columns.index(part) for part in _FROZEN[name]]
        found: list[Row] = []
        for row in rows:
            identity = tuple(row[place] for place in places)
            before = known.get(identity)
            if before is None or before[0] != row:
                before = known[identity] = (row, dict(zip(columns, row, strict=True)))
            found.append(before[1])
        return found

    def _read_one(self, conn: sa.Connection, record: str) -> dict[str, list[Row]]:
        return {
            name: [dict(row) for row in conn.execute(query, {"record": record}).mappings()]
            for name, query in _OF_ONE.items()
        }

    def heard(self, link_key: str, remote_id: str) -> None:
        """A process has read this id in an answer and has ended its work on it: from now on it is written down (I4)."""
        self._remote_ids.add((link_key, remote_id))

    def _frozen(self, tables: Mapping[str, list[Row]], *, whole: bool) -> Iterator[str]:
        for name, key in _FROZEN.items():
            rows = tables.get(name, [])
            now = {tuple(row[part] for part in key): row for row in rows}
            for identity in self._written[name] if whole else now:
                row, before = now.get(identity), self._written[name].get(identity)
                if before is not None and row is not before and row != before:
                    yield f"the {name} {identity} is gone or no longer what was written"
            self._written[name] |= now

    def _untouched(self, tables: Mapping[str, list[Row]]) -> Iterator[str]:
        """What waits in a lane that nobody knows is never touched by anybody (I9)."""
        for row in tables["attempt"]:
            if row["dispatch_lane"] not in _LANES:
                now = _digest(row)
                if self._foreign.setdefault(row["id"], now) != now:
                    yield f"the attempt {row['id']} of the lane {row['dispatch_lane']} was touched"

    def _never_lost(self, tables: Mapping[str, list[Row]], *, whole: bool) -> Iterator[str]:
        known = _known_ids(tables)
        keys = {slot["link_key"] for slot in tables["slot"]}
        for link_key, remote_id in self._remote_ids:
            if (whole or link_key in keys) and (link_key, remote_id) not in known:
                yield f"the remote id {remote_id} of {link_key} is nowhere any more"
        self._remote_ids |= known


def _creates(tables: Mapping[str, list[Row]], creates: Mapping[str, int]) -> Iterator[str]:
    """One accepted create for each record, and one more for each attempt that somebody superseded."""
    record_of = {slot["link_key"]: slot["source_record_id"] for slot in tables["slot"]}
    superseded = Counter(
        record_of[row["link_key"]]
        for row in tables["attempt"]
        if row["operation"] == "create" and row["status"] == "superseded"
    )
    for record, count in creates.items():
        if count > 1 + superseded[record]:
            yield f"the remote accepted {count} creates of record {record}"


def _proved_absent(tables: Mapping[str, list[Row]], creates: Mapping[str, int]) -> Iterator[str]:
    """A create that ended by proof left nothing behind (I8); one that a person ended is that person's word."""
    record_of = {slot["link_key"]: slot["source_record_id"] for slot in tables["slot"]}
    last = {event["attempt_id"]: event["event"] for event in tables["event"] if event["to_status"] == "terminal_failed"}
    rows = [row for row in tables["attempt"] if row["operation"] == "create"]
    superseded = Counter(record_of[row["link_key"]] for row in rows if row["status"] == "superseded")
    for row in rows:
        record = record_of[row["link_key"]]
        is_proved = row["status"] == "terminal_failed" and last.get(row["id"]) not in _SAID_BY_PEOPLE
        if is_proved and creates.get(record, 0) > superseded[record]:
            yield f"the create {row['id']} of {record} ended as not applied, and the remote has made a record"


def _sends(tables: Mapping[str, list[Row]], sends: Mapping[str, int]) -> Iterator[str]:
    """Every request was announced by a checkpoint, one each."""
    record_of = {slot["link_key"]: slot["source_record_id"] for slot in tables["slot"]}
    announced: Counter[str] = Counter()
    for row in tables["attempt"]:
        announced[record_of[row["link_key"]]] += row["send_count"]
    for record, count in sends.items():
        if count > announced[record]:
            yield f"{count} requests for record {record} arrived, {announced[record]} were announced"


def _keys(tables: Mapping[str, list[Row]]) -> Iterator[str]:
    """One create that occupies, one open update, one live link for each link key."""
    creates = Counter(
        row["link_key"] for row in tables["attempt"] if row["operation"] == "create" and row["status"] != "superseded"
    )
    updates = Counter(
        row["link_key"] for row in tables["attempt"] if row["operation"] == "update" and row["status"] in _OPEN_UPDATE
    )
    links = Counter(row["link_key"] for row in tables["link"] if row["status"] != "retired")
    for what, counts in (("creates occupy", creates), ("updates are open for", updates), ("links live for", links)):
        yield from (f"{count} {what} {key}" for key, count in counts.items() if count > 1)
    for row in tables["attempt"]:
        is_open = row["operation"] == "update" and row["status"] in _OPEN_UPDATE
        if (row["update_key"] == row["link_key"]) is not is_open:
            yield f"the update {row['id']} is {row['status']} and holds the key {row['update_key']}"
        occupies = row["operation"] == "create" and row["status"] != "superseded"
        if (row["create_key"] == row["link_key"]) is not occupies:
            yield f"the create {row['id']} is {row['status']} and holds the key {row['create_key']}"
    remote = Counter((row["destination_slot_id"], row["remote_id"]) for row in tables["link"] if row["locator_key"])
    yield from (f"{count} live links own the remote record {key}" for key, count in remote.items() if count > 1)


def _links(tables: Mapping[str, list[Row]], owners: Mapping[str, str] | None) -> Iterator[str]:
    """A finished create has its link, a link has its create, and both name the remote record that is the source's."""
    by_key = {row["link_key"]: row for row in tables["link"]}
    finished = {}
    for row in tables["attempt"]:
        if row["operation"] == "create" and row["status"] in _LINKED:
            finished[row["link_key"]] = row
            link = by_key.get(row["link_key"])
            if link is None or link["remote_id"] != row["remote_id"]:
                yield f"the create {row['id']} is {row['status']} without its link"
    for link in tables["link"]:
        owner = None if owners is None else owners.get(link["remote_id"])
        if owners is not None and owner != link["source_record_id"]:
            yield f"the link of {link['source_record_id']} names {link['remote_id']}, which belongs to {owner}"
    for slot in tables["slot"]:
        if not slot["acknowledged_version"] <= slot["wanted_version"] >= slot["refused_version"]:
            yield f"the slot {slot['link_key']} acknowledges or refuses what nobody wanted"
        if slot["acknowledged_version"] and slot["link_key"] not in by_key:
            yield f"the slot {slot['link_key']} acknowledges a version without a link"


def _events(tables: Mapping[str, list[Row]]) -> Iterator[str]:
    """Every event follows an arrow, each begins where the last one ended, and the row stands where its story ends."""
    stories: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for event in tables["event"]:
        story = event["link_key"] if event["subject"] == "link" else event["attempt_id"]
        stories[event["subject"], story].append(event)
    stands_at: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in tables["attempt"]:
        stands_at[row["operation"], row["id"]].append(row["status"])
    for row in tables["link"]:
        stands_at["link", row["link_key"]].append(row["status"])
    for (subject, story), events in stories.items():
        if subject not in ARROWS:
            continue
        at = "-"
        for event in events:
            source, target = event["from_status"] or "-", event["to_status"]
            if source != at and (at, source) not in SILENT:
                yield f"{subject} {story}: {event['event']} begins at {source}, but it was {at}"
            is_hold = source == target and event["event"] in {"hold", "unhold"}
            if not is_hold and (source, target) not in ARROWS[subject]:
                yield f"{subject} {story}: {event['event']} goes from {source} to {target}, which no arrow does"
            at = target
        stands = stands_at[subject, story]
        if at not in stands and not any((at, status) in SILENT for status in stands):
            yield f"{subject} {story}: its story ends at {at}, the row is {stands}"
    for row in tables["attempt"]:
        if (row["operation"], row["id"]) not in stories:
            yield f"the attempt {row['id']} has no story"


def _reasons(tables: Mapping[str, list[Row]], *, settled: bool) -> Iterator[str]:
    """Nothing waits without a lease, a due time, or a reason that a person can be shown."""
    for row in tables["attempt"]:
        what = f"the {row['operation']} {row['id']} is {row['status']}"
        if (row["hold_code"] or row["status"] in _WAITS_FOR_PEOPLE) and not row["reason_code"]:
            yield f"{what}, held by {row['hold_code']}, without a reason"
        if row["status"] in _IN_WORK and (row["claim_token"] is None or row["lease_until"] is None):
            yield f"{what} without an owner"
        is_due = row["status"] in {"pending", "writeback_pending"} and not row["hold_code"]
        if settled and row["dispatch_lane"] in _LANES and (row["status"] in _IN_WORK or is_due):
            yield f"{what} although nobody has anything to do"
    if settled:
        yield from _unsent(tables)


def _unsent(tables: Mapping[str, list[Row]]) -> Iterator[str]:
    """A wanted version that is newer than what was dealt with has an attempt that carries it, or stands in its way."""
    stopped = {
        row["link_key"]
        for row in tables["attempt"]
        if row["hold_code"] or row["status"] in _WAITS_FOR_PEOPLE or row["dispatch_lane"] not in _LANES
    } | {row["link_key"] for row in tables["link"] if row["status"] != "finalized"}
    for slot in tables["slot"]:
        dealt_with = max(slot["acknowledged_version"], slot["refused_version"])
        if slot["wanted_version"] > dealt_with and not slot["wanted_state"] and slot["link_key"] not in stopped:
            yield f"version {slot['wanted_version']} of {slot['source_record_id']} is wanted and nothing carries it"


def _checkpoints(tables: Mapping[str, list[Row]]) -> Iterator[str]:
    """What is terminal is not in doubt, what is in doubt has begun to send, and no answer came to what was not sent."""
    sends = {row["id"]: row["send_count"] for row in tables["attempt"]}
    for row in tables["attempt"]:
        what = f"the {row['operation']} {row['id']} is {row['status']}"
        if row["status"] == "terminal_failed" and (row["in_doubt"] or row["remote_id"]):
            yield f"{what} although it is in doubt, or its remote id is known"
        if row["in_doubt"] and not row["send_count"] and row["reason_code"] != SENT_PERHAPS:
            yield f"{what} and in doubt although nothing was ever sent"
        if row["send_count"] and row["first_io_at"] is None:
            yield f"{what} and has sent without a first time"
        if row["status"] == "pending" and row["remote_io_started_at"] is not None:
            yield f"{what} with a checkpoint"
    seen: set[tuple[str, int, bool]] = set()
    for response in tables["response"]:
        identity = (response["attempt_id"], response["send_ordinal"], bool(response["late"]))
        is_looked_up = "look_up" in json.loads(response["verdict"])  # which may be asked for again and again
        if identity in seen and not is_looked_up:
            yield f"the answer to send {response['send_ordinal']} of {response['attempt_id']} is there twice"
        seen |= set() if is_looked_up else {identity}
        if not 1 <= response["send_ordinal"] <= sends.get(response["attempt_id"], 0):
            yield f"an answer to send {response['send_ordinal']} of {response['attempt_id']}, which was never announced"


def _once_refused(tables: Mapping[str, list[Row]]) -> Iterator[str]:
    """What the remote refused is sent again by nobody but a person, and a throttle costs no try."""
    refused = {slot["link_key"]: slot["refused_version"] for slot in tables["slot"]}
    tried = Counter(row["attempt_id"] for row in tables["response"] if row["status"] != _THROTTLED)
    for row in tables["attempt"]:
        is_open = row["operation"] == "update" and row["status"] in _OPEN_UPDATE and not row["association"]
        if is_open and row["version"] <= refused[row["link_key"]]:
            yield f"the update {row['id']} carries version {row['version']}, which was refused, and nobody released it"
        is_create = row["operation"] == "create" and not row["remote_id"]  # a mirror has a count of its own
        if is_create and row["retry_count"] > tried[row["id"]]:
            yield f"the create {row['id']} counts {row['retry_count']} tries, and {tried[row['id']]} failed"


def _known_ids(tables: Mapping[str, list[Row]]) -> set[tuple[str, str]]:
    """Every remote id that is written down anywhere, with the link key it was written down for."""
    columns = [("link", "remote_id"), ("attempt", "remote_id"), ("response", "candidate_id")]
    known = {(row["link_key"], row[column]) for name, column in columns for row in tables[name] if row[column]}
    disposed = {
        (row["link_key"], json.loads(row["evidence"] or "{}").get("remote_id"))
        for row in tables["event"]
        if row["event"] == "dispose"
    }
    return known | {(key, remote_id) for key, remote_id in disposed if remote_id}


def _digest(row: Row) -> str:
    text = json.dumps([(name, _plain(value)) for name, value in sorted(row.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> str:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else repr(value)


def judged(problems: Iterable[str], story: object) -> None:
    """Fail a test with every problem and the story that led to them."""
    found = list(problems)
    assert not found, f"after {story}:\n  " + "\n  ".join(found)
