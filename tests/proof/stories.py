"""Stories: the table of scenarios that `make crash` goes through. A new one is one entry of `SCENARIOS`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proof.scenarios import SETTLED_S, Hand, Scenario
from pushlink.migration import adopt, adopt_apply
from pushlink.protocol.verbs import Verb
from support.bench import MIRROR, PACK, PERSON

MAPPED_OTHERWISE: Final = PACK.replace("target: /name}", "target: /full_name}").replace("1.0.0", "2.0.0")

_ACTION: Final = "0b7f4d1e-2f8e-4b3c-9a11-6f1f0c9d2a03"

#: A person's boss is another person, and is named by the id that the remote gave him.
BOSSES: Final = f"""        associations:
          - name: boss
            source: boss
            source_object: Person
            action_slot_id: {_ACTION}
            mode: foreign_key
            target: /boss
"""

_CREATE: Final = "create: {method: POST, path: /people, "

#: The remote makes one record of all creates under one key, for longer than any recovery takes.
KEYED: Final = PACK.replace(
    _CREATE,
    _CREATE + "idempotency: {in: header, name: Idempotency-Key, lifetime: 7d, margin: 1m,"
    ' receipt: [{header: Idempotent-Replayed, equals: "true"}]}, ',
)

#: The record of a create in doubt is found by a text that it alone carries.
STAMPED: Final = PACK.replace(
    _CREATE,
    _CREATE
    + 'stamp: {format: token}, body: {merge: {/ref: "{stamp}"}}, lookup: {path: /people, query: {ref: "{stamp}"},'
    " items: /records, match: /ref, id: [{from: $response.body#/id}], every: 10s, timeout: 7d}, ",
)


def _create(hand: Hand) -> None:
    hand.save("Ada")
    hand.work()


def _saved(hand: Hand) -> None:
    hand.save("Ada")


def _linked(hand: Hand) -> None:
    hand.save("Ada")
    hand.work()
    hand.later(1)


def _update(hand: Hand) -> None:
    hand.save("Grace")
    hand.work()


def _wanting(hand: Hand) -> None:
    _linked(hand)
    hand.save("Grace")


def _doubtful_update(hand: Hand) -> None:
    _wanting(hand)
    hand.work_once()
    hand.later(SETTLED_S)


def _resend(hand: Hand) -> None:
    hand.decide(Verb.RESEND, operation="update")
    hand.work_once()


def _unmirrored(hand: Hand) -> None:
    hand.fail_mirrors(1)
    hand.save("Ada")
    hand.work_once()
    hand.fail_mirrors(0)
    hand.later(60)


def _unsettled(hand: Hand) -> None:
    hand.save("Ada")
    hand.work_once()


def _in_doubt(hand: Hand) -> None:
    _unsettled(hand)
    hand.later(SETTLED_S)


def _adopt(hand: Hand) -> None:
    hand.decide(Verb.ADOPT, argument=hand.remote_id())
    hand.work_once()


def _supersede(hand: Hand) -> None:
    hand.decide(Verb.SUPERSEDE, reserve=True)
    hand.work_once()


def _absent(hand: Hand) -> None:
    hand.decide(Verb.ABSENT)
    _supersede(hand)


def _twins(record: str) -> tuple[str, ...]:
    return record, f"{record}+"


def _drifted(hand: Hand) -> None:
    hand.change_pack(PACK)
    for record in _twins(hand.record):
        hand.save("Ada", record)
    hand.work_once()
    hand.change_pack(MAPPED_OTHERWISE)
    hand.write_manifest(_twins(hand.record))


def _save_below(hand: Hand) -> None:
    """A person and his boss in one transaction, the person first: he waits until the remote knows his boss."""

    def once() -> None:
        below, boss = _twins(hand.record)
        with hand.engine.begin() as conn:
            if conn.execute(sa.select(PERSON.c.id).where(PERSON.c.id == boss)).first() is None:
                conn.execute(PERSON.insert(), [{"id": boss, "name": "Ada"}, {"id": below, "name": "Bob", "boss": boss}])
            hand.runtime.save_many(conn, [("Person", below), ("Person", boss)], user="u1")

    hand.patiently(once)


def _family(hand: Hand) -> None:
    """Saved; the boss is sent; the person is woken; the person is sent."""
    _save_below(hand)
    for _ in range(3):
        hand.work_once()
        hand.later(1)


def _lost_and_replayed(hand: Hand) -> None:
    """The first answer is lost; the same bytes go out again when they are due."""
    hand.work_once()
    hand.later(600)
    hand.work_once()


def _looked_up(hand: Hand) -> None:
    """An operator has it looked for at once."""
    hand.decide(Verb.LOOKUP)
    hand.work_once()


def _legacy(hand: Hand) -> None:
    """Two people that an older integration pushed, and a manifest that adopts them."""
    for record in _twins(hand.record):
        remote_id = _pushed_before(hand.stand.remote, record)
        values = {"id": record, "name": "Ada", "remote_id": remote_id, "remote_source": "people"}
        with hand.engine.begin() as conn:
            conn.execute(PERSON.insert().values(values))
    asked = adopt.Asked(source_object="Person", action_slot_id=_ACTION, operation_id=f"op-{hand.record}")
    adopt.plan(hand.engine, hand.runtime.world, hand.runtime.records, asked, _adoptions(hand))


def _pushed_before(remote: str, record: str) -> str:
    """The id that the remote gave to an older integration."""
    with closing(HTTPConnection(remote.removeprefix("http://"))) as connection:
        connection.request("POST", "/people", json.dumps({"key": record, "name": "Ada"}), {"Older-Integration": "yes"})
        return str(json.load(connection.getresponse())["id"])


def _adopt_all(hand: Hand) -> None:
    """Apply the manifest; what was adopted before is left as it is."""
    manifest = adopt_apply.read_manifest(_adoptions(hand))

    def once() -> None:
        adopt_apply.apply(hand.engine, hand.runtime.world, manifest, actor="cli:proof", reason="the older one is off")

    hand.patiently(once)


def _adopt_and_go_on(hand: Hand) -> None:
    """Apply it again, and change what was adopted: the older record is updated, and none is created."""
    _adopt_all(hand)
    for record in _twins(hand.record):
        hand.save("Grace", record)
    hand.recover()


def _adoptions(hand: Hand) -> Path:
    return hand.stand.home / f"{hand.record}.adopt.jsonl"


FINALIZED: Final = frozenset({"finalized"})
DOUBTED: Final = frozenset({"finalized", "in doubt"})
REFUSED: Final = frozenset({"refused", "in doubt"})
SETTLED: Final = frozenset({"finalized", "in doubt", "refused"})
PARKED: Final = frozenset({"in doubt"})


def _story(
    name: str,
    prepare: Callable[[Hand], None],
    act: Callable[[Hand], None],
    ends: frozenset[str],
    *,
    post: str | None = None,
    patch: str | None = None,
    **more: Any,
) -> Scenario:
    """One row of the table; `post` and `patch` say what becomes of the first request of each kind."""
    behaviours = {method: [told] for method, told in {"POST": post, "PATCH": patch}.items() if told}
    return Scenario(name=name, prepare=prepare, act=act, ends=ends, behaviours=behaviours, **more)


_once: Final = Hand.work_once

SCENARIOS: Final = (
    Scenario(name="create accepted", act=_create, ends=DOUBTED | {"nothing"}),
    _story("create, rejected", _saved, _once, REFUSED, post="reject"),
    _story("create, reply lost", _saved, Hand.work, PARKED, post="reply_lost"),
    _story("create, request lost", _saved, _once, PARKED, post="request_lost"),
    _story("create, 5xx with the effect", _saved, _once, PARKED, post="error_with_effect"),
    _story("create, 5xx without the effect", _saved, _once, PARKED, post="error_without_effect"),
    _story("create, truncated answer", _saved, _once, PARKED, post="truncated"),
    _story("create, throttled once", _saved, _once, DOUBTED, post="throttle"),
    _story("create, connection refused", _saved, _once, DOUBTED, refuses=1),
    _story("mirror written back", _unmirrored, _once, FINALIZED),
    _story("update accepted", _linked, _update, DOUBTED),
    _story("update, reply lost", _wanting, _once, PARKED, patch="reply_lost"),
    _story("update, rejected", _wanting, _once, REFUSED, patch="reject"),
    _story("update in doubt, resent", _doubtful_update, _resend, DOUBTED, patch="reply_lost"),
    _story("reconciled, adopted", _in_doubt, _adopt, DOUBTED, post="reply_lost"),
    _story("reconciled, absent, superseded", _in_doubt, _absent, SETTLED, post="request_lost"),
    _story("rejected, superseded", _in_doubt, _supersede, SETTLED, post="reject"),
    _story(
        "manifest applied",
        _drifted,
        Hand.apply_manifest,
        FINALIZED,
        recover=Hand.apply_manifest,
        records=_twins,
        together=True,
    ),
    Scenario(
        name="child deferred until its parent is there",
        act=_family,
        records=_twins,
        ends=DOUBTED | {"nothing", "held: association_blocked"},
        pack=PACK + BOSSES + MIRROR,
    ),
    _story(
        "create under a key, replayed",
        _saved,
        _lost_and_replayed,
        FINALIZED,
        post="reply_lost",
        pack=KEYED + MIRROR,
        dedupe=True,
    ),
    _story("reconciled, looked up", _unsettled, _looked_up, FINALIZED, post="reply_lost", pack=STAMPED + MIRROR),
    _story("adoption applied", _legacy, _adopt_all, FINALIZED, recover=_adopt_and_go_on, records=_twins),
)
