"""The two effects a flow may ask for.

`Tx` runs one step, in one transaction, together with the same step of other flows; `Send` puts one request on the wire
with no transaction open anywhere. A flow never catches: what may be expected comes back as a value, and an exception
abandons the flow exactly as a crash would.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import sqlalchemy as sa

from pushlink.ports import WireRequest


class Step(Protocol):
    """A set-oriented piece of one transaction: as many results as items, in their order.

    No two items of one call are of one link key, so a step may tell its items apart by their attempts.
    """

    def __call__(self, conn: sa.Connection, items: Sequence[Any], *, now: dt.datetime) -> Sequence[Any]:
        """Run inside an open transaction that the driver commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tx:
    """Run `step` for `item`. `key` is the link key: groups are committed in its order, and have each key once.

    `after_send` marks a write that must not be given up for a database that is away: the driver tries it again until
    it is settled. `on_failure` is what the driver runs instead when the step fails for this item alone.
    """

    step: Step
    item: Any
    key: str
    after_send: bool = False
    on_failure: Tx | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Put `request` on the wire once; the answer is a `WireReply`, whatever happened.

    A send is `gated` when it follows the checkpoint, which counts it; a read before it is not.
    """

    request: WireRequest
    gated: bool = True


Effect: TypeAlias = Tx | Send

#: A flow returns nothing: everything it has to say is in the database.
Flow: TypeAlias = Generator[Effect, Any, None]
