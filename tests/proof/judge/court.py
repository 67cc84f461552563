"""The judge with a remote's log beside it: rows, remote and host have to tell one story.

`Court.problems` looks at some records, or at everything, of one database. `Court.end` says in one word how a record's
story ended, for tables of figures.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from proof.judge.rows import SENT_PERHAPS, Judge, Row

Story: TypeAlias = Mapping[str, list[Row]]

#: What a record's story is made of, of one record or (without one) of all: whose it is comes with each row.
_STORY: Final = {
    "host": sa.text("SELECT id AS record_, person.* FROM person WHERE id = coalesce(:record, id)"),
    "slots": sa.text(
        "SELECT s.source_record_id AS record_, s.* FROM pushlink_push_slot s"
        " WHERE s.source_record_id = coalesce(:record, s.source_record_id)"
    ),
    "attempts": sa.text(
        "SELECT s.source_record_id AS record_, a.* FROM pushlink_push_attempt a"
        " JOIN pushlink_push_slot s ON s.link_key = a.link_key"
        " WHERE s.source_record_id = coalesce(:record, s.source_record_id) ORDER BY a.id"
    ),
    "links": sa.text(
        "SELECT l.source_record_id AS record_, l.* FROM pushlink_remote_link l"
        " WHERE l.source_record_id = coalesce(:record, l.source_record_id) ORDER BY l.id"
    ),
    "candidates": sa.text(
        "SELECT s.source_record_id AS record_, r.candidate_id FROM pushlink_push_response r"
        " JOIN pushlink_push_slot s ON s.link_key = r.link_key"
        " WHERE s.source_record_id = coalesce(:record, s.source_record_id) AND r.candidate_id IS NOT NULL"
    ),
    "receipts": sa.text(
        "SELECT s.source_record_id AS record_, r.operation_id FROM pushlink_revalidation_receipt r"
        " JOIN pushlink_push_slot s ON s.link_key = r.link_key"
        " WHERE s.source_record_id = coalesce(:record, s.source_record_id)"
    ),
}

#: A create that stands here may have taken effect without anybody knowing.
_MAY_HAVE: Final = frozenset({"processing", "post_sent", "ambiguous_remote_effect"})
_WAITS_FOR_PEOPLE: Final = frozenset({"ambiguous_remote_effect", "terminal_failed"})

_ENDS: Final = {
    "finalized": "finalized",
    "ambiguous_remote_effect": "in doubt",
    "terminal_failed": "refused",
    "superseded": "superseded",
}


class RemoteLog:
    """What the remote says that it was asked and did, by the record's key; reads what is new each time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.sends: Counter[str] = Counter()
        self.creates: Counter[str] = Counter()
        self.owners: dict[str, str] = {}  # remote id: key
        self.made: dict[str, list[str]] = defaultdict(list)  # key: remote ids that its creates made
        self.older: dict[str, list[str]] = defaultdict(list)  # the same of an older integration's creates
        self.documents: dict[str, dict[str, Any]] = {}  # remote id: what it holds
        self.replays: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # by keys: digests

    def refresh(self) -> None:
        """Read the lines that were written since; a last line that is not whole yet waits."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text.rpartition(b"\n")[0]
        self._read += len(whole) + (1 if whole else 0)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, line: Mapping[str, Any]) -> None:
        if line["method"] == "broken":
            return
        key = line["key"]
        is_older = line.get("older", False)
        self.sends[key] += not is_older
        if line["method"] == "POST" and line["idempotency_key"]:
            self.replays[key][line["idempotency_key"]].add(line["digest"])
        if not line["applied"]:
            return
        if line["method"] == "POST":
            self.creates[key] += 1
            self.owners[line["id"]] = key
            (self.older if is_older else self.made)[key].append(line["id"])
        self.documents[line["id"]] = {**self.documents.get(line["id"], {}), **line["document"]}


class Court:
    """Judges one database against one remote, again and again."""

    def __init__(self, engine: sa.Engine, log: Path) -> None:
        self._engine = engine
        self._judge = Judge(engine)
        self._log = RemoteLog(log)

    def problems(
        self,
        records: Sequence[str] | None,
        *,
        settled: bool,
        together: bool = False,
        saved: bool = True,
        whole: bool = False,
    ) -> list[str]:
        """Every broken invariant in a sentence, of some records or (`None`) of everything.

        `together`: what moved one of these links moved all of them. `saved`: the host writes a record and saves it in
        one transaction, so neither is there without the other. `whole`: these records are all that there are, so the
        rows are looked at once for all of them.
        """
        self._log.refresh()
        found: list[str] = []
        log = self._log
        for record in [None] if whole or records is None else records:
            rows = {"creates": log.creates, "sends": log.sends, "owners": log.owners}
            found += self._judge.problems(**rows, settled=settled, record=record)  # type: ignore[arg-type]
        moved = set()
        stories = self._stories(None) if whole else {}
        for record in records or []:
            story = (stories or self._stories(record))[record]
            found += _explained(record, story, log)
            found += _replays(record, log)
            found += _evidence(story)
            found += _host(record, story, log.older.get(record, []), saved=saved)
            found += _refers(record, story, log)
            found += _receipts(record, story)
            found += _agrees(record, story, log) if settled else []
            moved |= {link["last_mapping_revalidation_operation_id"] for link in story["links"]}
        if together and len(moved) > 1:
            found.append(f"some of the links {', '.join(records or [])} were moved and others were not: {moved}")
        return found

    def end(self, record: str) -> str:
        """How it stands with a record, in a word or two: of its open or last update, else of its create."""
        story = self._stories(record)[record]
        if not story["slots"]:
            return "nothing"
        last = story["attempts"][-1] if story["attempts"] else None
        if last is None:
            return "linked" if story["links"] else "nothing"
        if last["hold_code"]:
            return f"held: {last['hold_code']}"
        return _ENDS.get(last["status"], last["status"])

    def _stories(self, record: str | None) -> Mapping[str, Story]:
        """By record, what the tables say of it: of one, or in one reading of all."""
        stories: dict[str, Story] = defaultdict(lambda: {name: [] for name in _STORY})
        with self._engine.begin() as conn:
            for name, query in _STORY.items():
                for row in conn.execute(query, {"record": record}).mappings():
                    stories[row["record_"]][name].append(row)
        return stories


def _explained(record: str, story: Story, log: RemoteLog) -> Iterator[str]:
    """Each record at the remote is somebody's: its id is written down, or its create is known to be in doubt."""
    known = {row["remote_id"] for name in ("attempts", "links") for row in story[name]}
    known |= {row["candidate_id"] for row in story["candidates"]}
    creates = [row for row in story["attempts"] if row["operation"] == "create"]
    # Under a replay contract a create in doubt is pending: it says that it is in doubt, and is sent again.
    is_open = any((row["status"] in _MAY_HAVE or row["in_doubt"]) and row["send_count"] for row in creates)
    for made in log.made[record]:
        if made not in known and not is_open:
            yield f"the remote made {made} for {record}, and nothing here knows of it: {_standing(story)}"


def _replays(record: str, log: RemoteLog) -> Iterator[str]:
    """Whatever is sent again under one idempotency key is the same to the byte."""
    for token, digests in log.replays[record].items():
        if len(digests) > 1:
            yield f"{record} was sent with {len(digests)} bodies under the key {token}"


def _evidence(story: Story) -> Iterator[str]:
    """What is parked in doubt says since when, and that it is; a claim of an older timeline may know of no send."""
    for row in story["attempts"]:
        is_told = row["first_io_at"] and row["last_checkpoint_at"] and row["send_count"]
        is_parked = row["status"] == "ambiguous_remote_effect"
        if is_parked and not (row["in_doubt"] and (is_told or row["reason_code"] == SENT_PERHAPS)):
            yield f"the {row['operation']} {row['id']} is ambiguous without evidence of a send"


def _host(record: str, story: Story, older: Sequence[str], *, saved: bool) -> Iterator[str]:
    """A record and its reservation are one transaction; its mirror shows its own link, or nothing.

    A record that an older integration pushed is there before anything of ours is, and its mirror shows that one's id.
    """
    if saved and not older and bool(story["host"]) is not bool(story["slots"]):
        yield f"{record} and its reservation are not one: {len(story['host'])} and {len(story['slots'])} rows"
    ids = {link["remote_id"] for link in story["links"]} or set(older)
    for row in story["host"]:
        if row["remote_id"] is not None and row["remote_id"] not in ids:
            yield f"the mirror of {record} shows {row['remote_id']}, its links are {sorted(ids)}"
        for link in story["links"]:
            if link["mirror_status"] == "written" and row["remote_id"] is None:
                yield f"the mirror of {record} is said to be written and shows nothing"


def _refers(record: str, story: Story, log: RemoteLog) -> Iterator[str]:
    """What refers to another record of the host refers to that one's remote record, from its first byte on."""
    for host in story["host"]:
        for made in log.made.get(record, []):
            named = log.documents[made].get("boss")
            if log.owners.get(named) != host.get("boss"):
                yield f"{record} refers to {host.get('boss')} here, and its record {made} to {named}"


def _receipts(record: str, story: Story) -> Iterator[str]:
    """A receipt stands with its link's move, and none without the other."""
    told = {row["operation_id"] for row in story["receipts"]}
    for link in story["links"]:
        at = link["last_mapping_revalidation_operation_id"]
        if (at is None) is bool(told) or (at is not None and at not in told):
            yield f"the link of {record} names the operation {at}, its receipts {sorted(told)}"


def _agrees(record: str, story: Story, log: RemoteLog) -> Iterator[str]:
    """At rest the remote holds what the host holds, or a person can see that it does not, and why."""
    parked = any(row["status"] in _WAITS_FOR_PEOPLE or row["hold_code"] for row in story["attempts"])
    parked |= any(link["status"] != "finalized" for link in story["links"])
    parked |= any(slot["wanted_state"] for slot in story["slots"])
    for host in story["host"]:
        held = [log.documents[link["remote_id"]] for link in story["links"] if link["remote_id"] in log.documents]
        if not parked and not (held and held[-1].get("name") == host["name"]):
            there = [one.get("name") for one in held]
            yield f"{record} is {host['name']!r} here and {there} there, and nothing says so"


def _standing(story: Story) -> str:
    return ", ".join(f"{row['operation']} {row['status']}" for row in story["attempts"]) or "no attempts"
