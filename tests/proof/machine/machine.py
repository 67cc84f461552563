"""The machine: the same steps on a model and on two deployments, and the same to be seen of all three."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proof.machine.model import DOUBT, FAILED, FAULTS, Story
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.protocol.verbs import VERBS, Target, Verb
from pushlink.testing import verbs
from pushlink.testing.messages import Asked
from support.bench import PERSON, Bench

#: Records of one example: few, so that things happen to the same ones.
RECORDS: Final = ("a", "b")
NAMES: Final = ("Ada", "Bea", "Cora")

#: Past every settle time, in seconds.
SETTLED_S: Final = 3 * 3_600.0

WIRE: Final[Mapping[str, Callable[[], verbs.Verb]]] = {
    "reply lost": verbs.store_then_close,
    "request lost": verbs.close_after_read,
    "error with effect": lambda: verbs.store_then_answer(503, {"error": "busy"}),
    "error without effect": lambda: verbs.answer(503, {"error": "busy"}),
    "rejected": lambda: verbs.answer(422, {"error": "no"}),
    "throttled": lambda: verbs.answer(429, {"error": "later"}),
    "not reached": verbs.refuse_connection,
}

DECISIONS: Final = {
    "adopt": Verb.ADOPT, "absent": Verb.ABSENT, "supersede": Verb.SUPERSEDE, "applied": Verb.APPLIED,
    "resend": Verb.RESEND, "release-version": Verb.RELEASE_VERSION, "suspend": Verb.SUSPEND,
    "revalidate": Verb.REVALIDATE, "retire": Verb.RETIRE,
}  # fmt: skip

_EXAMPLES: Final = itertools.count(1)

_NEWEST: Final = sa.text(
    "SELECT a.id, a.row_version, a.status FROM pushlink_push_attempt a"
    " JOIN pushlink_push_slot s ON s.link_key = a.link_key"
    " WHERE s.source_record_id = :record AND a.operation = :operation ORDER BY a.id DESC LIMIT 1"
)
_LINK: Final = sa.text("SELECT id, row_version, status FROM pushlink_remote_link WHERE source_record_id = :record")

records = st.sampled_from(RECORDS)


class Machine(RuleBasedStateMachine):
    """One example: records of its own on benches that all examples share. `benches` is set by who runs it."""

    benches: tuple[Bench, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._example = next(_EXAMPLES)
        self._stories = {record: Story() for record in RECORDS}

    def _name(self, record: str) -> str:
        return f"{record}{self._example}"

    # ------------------------------------------------------------------------------ rules

    @rule(record=records, name=st.sampled_from(NAMES))
    def save(self, record: str, name: str) -> None:
        self._stories[record].save(name)
        for bench in self.benches:
            bench.save(self._name(record), name=name)

    @rule(record=records)
    def delete(self, record: str) -> None:
        if self._stories[record].host is None:
            return
        self._stories[record].delete()
        for bench in self.benches:
            with bench.database.engine.begin() as conn:
                bench.runtime.deleted(conn, "Person", self._name(record), user="u1")
                conn.execute(PERSON.delete().where(PERSON.c.id == self._name(record)))

    @rule(record=records, method=st.sampled_from(["POST", "PATCH"]), fault=st.sampled_from(sorted(WIRE)))
    def disturb(self, record: str, method: str, fault: str) -> None:
        self._stories[record].faults[method].append(fault)
        for bench in self.benches:
            bench.wire.script.next(WIRE[fault](), when=self._is_about(record, method))

    @rule()
    def work(self) -> None:
        for story in self._stories.values():
            story.work()
        for bench in self.benches:
            bench.drain()

    @precondition(lambda self: any(story.verbs() for story in self._stories.values()))
    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        choices = [(record, verb) for record, story in self._stories.items() for verb in story.verbs()]
        record, verb = data.draw(st.sampled_from(choices))
        for bench in self.benches:
            self._decide(bench, record, DECISIONS[verb])
        self._stories[record].decide(verb)
        self.work()

    # ------------------------------------------------------------------------------ what must hold

    @invariant()
    def model_and_databases_agree(self) -> None:
        wanted = {record: story.seen() for record, story in self._stories.items()}
        for bench in self.benches:
            assert self._seen(bench) == wanted, bench.database.engine.dialect.name

    def teardown(self) -> None:
        """The judge has the last word. What was not met is forgotten: the next example has records of its own."""
        for bench in self.benches:
            bench.wire.script.calm()
            bench.drain()
            for record in RECORDS:
                bench.check("these steps", settled=True, record=self._name(record))

    # ------------------------------------------------------------------------------ one bench

    def _is_about(self, record: str, method: str) -> Callable[[Asked], bool]:
        name = self._name(record)
        return lambda asked: asked.method == method and asked.json()["key"] == name

    def _decide(self, bench: Bench, record: str, verb: Verb) -> None:
        bench.clock.advance(seconds=SETTLED_S)
        bench.drain()
        name, argument = self._name(record), None
        if verb is Verb.ADOPT:
            argument = next(made.id for made in bench.wire.api.records if made.document["key"] == name)
        with bench.database.engine.begin() as conn:
            if VERBS[verb].target is Target.LINK:
                row = conn.execute(_LINK, {"record": name}).one()
            else:
                operation = "update" if verb in {Verb.APPLIED, Verb.RESEND, Verb.RELEASE_VERSION} else "create"
                row = conn.execute(_NEWEST, {"record": name, "operation": operation}).one()
            more: dict[str, Any] = {"reserve": True} if verb is Verb.SUPERSEDE else {}
            decision = Decision(
                verb=verb,
                target_id=row.id,
                row_version=row.row_version,
                actor="olga",
                reason="looked at the remote",
                argument=argument,
                **more,
            )
            act(conn, bench.runtime.world, decision, terms=OperatorTerms(), now=bench.clock.now(conn))

    def _seen(self, bench: Bench) -> dict[str, dict[str, object]]:
        with bench.database.engine.begin() as conn:
            return {record: self._seen_of(bench, conn, self._name(record)) for record in RECORDS}

    @staticmethod
    def _seen_of(bench: Bench, conn: sa.Connection, name: str) -> dict[str, object]:
        create = conn.execute(_NEWEST, {"record": name, "operation": "create"}).first()
        update = conn.execute(_NEWEST, {"record": name, "operation": "update"}).first()
        link = conn.execute(_LINK, {"record": name}).first()
        return {
            "host": conn.execute(sa.select(PERSON.c.name).where(PERSON.c.id == name)).scalar_one_or_none(),
            "create": create and create.status,
            "link": link and link.status,
            "update": update.status if update and update.status in {DOUBT, FAILED} else None,
            "remote": [made.document["name"] for made in bench.wire.api.records if made.document["key"] == name],
        }


assert set(WIRE) == set(FAULTS) - {"plain"}
