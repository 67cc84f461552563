"""One seed from its beginning to its end: what happened, what broke, and a digest by which two runs are compared."""

from __future__ import annotations

import gc
import hashlib
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from proof.judge.rows import Judge
from proof.simulation.places import Place
from proof.simulation.surroundings import LATE, NOTHING, live_record
from proof.simulation.universe import Universe

#: Things that happen to one seed before everything is healed.
STEPS: Final = 90

#: How it is told that nothing was written.
UNCHANGED: Final = ("claimed 0", " pass", "wakes", "goes back")


@dataclass(slots=True)
class Result:
    """What one seed came to. `digest` names its whole story."""

    seed: int
    problems: list[str] = field(default_factory=list)
    crashed: bool = False  # what ended it is no broken invariant but an error that nobody expects
    faults: Counter[str] = field(default_factory=Counter)
    arrows: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    digest: str = ""


def calm() -> None:
    """Statements and classes stay for ever; looking through them again and again took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def run(seed: int, place: Place, *, steps: int = STEPS) -> Result:
    """Simulate one seed; what goes wrong is in the result, never raised."""
    place.renew()
    engine = place.engine
    universe = Universe(engine, place.directory, seed, place.keep)
    result = Result(seed)
    court = Court(universe)
    try:
        for _ in range(steps):
            said = universe.happen()
            if said == NOTHING:
                continue
            universe.trace.append(said)
            if not said.endswith(UNCHANGED):
                court.look(settled=False, forget=said.startswith("restored"))
        universe.heal()
        court.look(settled=True)
        court.compare()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what this seed found
        result.crashed = not isinstance(error, AssertionError)
        result.problems.append("".join(traceback.format_exception_only(error)).strip())
        result.problems.append("".join(traceback.format_tb(error.__traceback__)[-6:]))
    result.problems = court.problems + result.problems
    result.faults = Counter({fault.value: count for fault, count in universe.faults.struck.items() if count})
    result.trace = universe.trace
    with engine.begin() as conn:
        events = conn.execute(
            sa.text("SELECT subject, event, from_status, to_status FROM pushlink_attempt_event ORDER BY id")
        ).all()
    result.arrows = Counter(f"{e.subject} {e.from_status or '-'} {e.event} {e.to_status}" for e in events)
    story = "\n".join([*universe.trace, *(str(tuple(event)) for event in events)])
    result.digest = hashlib.sha256(story.encode()).hexdigest()
    return result


class Court:
    """The independent judge at a universe; the first broken invariant ends a seed."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._judge = Judge(universe.engine)
        self._sends: Counter[str] = Counter()
        self._seen = 0
        self._restored = False
        self.problems: list[str] = []

    def look(self, *, settled: bool, forget: bool = False) -> None:
        """Every invariant as of now; raises `AssertionError` when one is broken."""
        universe = self._universe
        if forget:  # an older database knows less, and may
            for process in universe.everybody:
                process.told.clear()
            self._judge = Judge(universe.engine)
            self._restored = True
        created = universe.wire.api.created
        for entry in universe.wire.log[self._seen :]:
            if entry.verb != LATE.name:  # counted when it arrives
                asked = entry.asked.json()
                self._sends[str(asked["key"])] += 1
                self._refers(str(asked["key"]), asked.get("boss"))
        self._seen = len(universe.wire.log)
        for process in universe.everybody:
            while process.told:
                self._judge.heard(*process.told.pop())
        problems = self._judge.problems(
            creates=Counter(str(record.document["key"]) for record in created),
            sends=None if self._restored else self._sends,
            owners={record.id: str(record.document["key"]) for record in created},
            settled=settled,
        )
        problems = [said for said in problems if not self._is_explained(said)]
        if problems:
            self.problems += problems
            raise AssertionError(f"{len(problems)} invariants are broken")

    def _refers(self, key: str, boss: str | None) -> None:
        """What refers to another record names that one's own remote record, from its first byte on."""
        made = {record.id: str(record.document["key"]) for record in self._universe.wire.api.created}
        if boss is not None and made.get(boss) not in self._universe.served[key]:
            self.problems.append(f"{key} was sent as one of {boss}, which belongs to {made.get(boss)}")

    def _is_explained(self, said: str) -> bool:
        """What the judge cannot know: whose source is gone, and that a confirmed database doubts what it never saw."""
        if "ended as not applied" in said and any(f" of {record} ended" in said for record in self._universe.gone):
            return True
        if self._restored and (
            "confirmed_in_doubt goes from" in said or "in doubt although nothing was ever sent" in said
        ):
            return True
        return said.endswith("is wanted and nothing carries it") and any(
            f" of {record} is wanted" in said for record in self._universe.deleted
        )

    def compare(self) -> None:
        """What is at the remote at the end is what was saved last, or the record is on a list that people read."""
        universe = self._universe
        parked = {row.record_id for _, row in universe.operator.stuck()}
        for record, _ in universe.records:
            if record in universe.deleted or record in parked or record not in universe.names:
                continue
            if universe.waits_for_later(record):
                continue
            with universe.engine.begin() as conn:
                link = conn.execute(
                    sa.text(
                        "SELECT status FROM pushlink_remote_link WHERE source_record_id = :r AND status = 'finalized'"
                    ),
                    {"r": record},
                ).first()
            if link is None:
                if not self._retired(record):
                    self.problems.append(f"{record} has neither a link nor a place on the list")
                continue
            found = live_record(universe.wire, record)
            if found is None and record in universe.gone:
                continue  # nobody has touched it since somebody deleted it there
            field_name = ("name", "label")[universe.mapping]
            named = None if found is None else self._owner(found.document.get("boss"))
            is_led = named == universe.bosses.get(record) or not universe.has_bosses
            if found is None or not is_led or found.document.get(field_name) != universe.names[record]:
                here = f"{universe.names[record]}{_under(universe.bosses.get(record))}"
                self.problems.append(f"{record} is {here} here and {found and found.document} at the remote")
        if self.problems:
            raise AssertionError("the two sides differ")

    def _owner(self, remote_id: str | None) -> str | None:
        made = {record.id: str(record.document["key"]) for record in self._universe.wire.api.created}
        return made.get(remote_id or "")

    def _retired(self, record: str) -> bool:
        with self._universe.engine.begin() as conn:
            query = sa.text(
                "SELECT count(*) FROM pushlink_remote_link WHERE source_record_id = :r AND status = 'retired'"
            )
            return bool(conn.execute(query, {"r": record}).scalar_one())


def _under(boss: str | None) -> str:
    return f" under {boss}" if boss else ""
