"""What a pack declares about how much a remote takes: rates, requests at once, order, and when it counts as broken.

None of it changes what a request says or how its answer is read, so all of it may change at any time (DR-12). How the
numbers are used stands in `pacing.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pushlink.protocol.declared import Contract, DurationMs

#: Requests in a unit of time: `10/s`, `600/m`, `5000/h`, `100000/d`.
RATE_PATTERN = r"^[1-9][0-9]{0,6}/(s|m|h|d)$"


class SendLimits(Contract):
    """How many creates and updates the remote takes, counted over all workers of a deployment."""

    rate: Annotated[str | None, Field(pattern=RATE_PATTERN)] = None
    burst: Annotated[int, Field(ge=1, le=100_000)] = 1
    max_concurrency: Annotated[int | None, Field(ge=1, le=100_000)] = None


class Circuit(Contract):
    """When a remote that fails is left alone, and for how long before one request tries it again.

    It opens at `failures` within `window`, when they are at least half of what was answered; 0 never opens it.
    """

    failures: Annotated[int, Field(ge=0, le=100_000)] = 10
    window_ms: Annotated[DurationMs, Field(alias="window")] = 60_000
    pause_ms: Annotated[DurationMs, Field(alias="pause")] = 30_000


class Ordering(Contract):
    """What is sent one after the other, in the order of the saves: a whole destination, or what shares a field."""

    serialize_per: Literal["destination", "field"]
    field: str | None = None
