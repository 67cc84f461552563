"""What may be typed about one thing that waits: every decision that would be accepted, and the safe one of them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from pushlink.flows.world import World
from pushlink.operations.attention import Item
from pushlink.operations.contract_states import contract_state
from pushlink.operations.decidable import decidable
from pushlink.operations.verbs import GENERAL, Verb, verbs
from pushlink.protocol.attention import first_of
from pushlink.store.access import Connection

#: What is always safe, where nothing else is offered.
LOOK = "explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """Every decision about an item, what else its kind asks for, and the safe one of all of them to begin with."""

    verbs: tuple[Verb, ...]
    first: Verb


def offers(conn: Connection, item: Item, *, world: World | None, now: dt.datetime) -> Offers:
    """What is offered for one item, in the order of preference of its kind."""
    wanted = first_of(item.kind, item.code, item.about)
    tenant = item.slot.tenant if item.slot is not None else ""
    general = verbs(
        [name for name in (*wanted, LOOK) if name in GENERAL and (item.record_id or not GENERAL[name].about_record)],
        source_object=item.source_object,
        record_id=item.record_id,
        tenant=tenant,
        seen=item.seen,
    )
    found = general
    if item.slot is not None:
        contract = contract_state(conn, world, item.attempt, now=now)
        found = (
            *decidable(conn, item.slot, item.link, item.attempt, drift=item.drift, contract=contract, world=world),
            *general,
        )
    by_name = {verb.name: verb for verb in reversed(found)}
    return Offers(verbs=found, first=next((by_name[name] for name in wanted if name in by_name), found[-1]))
