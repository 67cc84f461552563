"""Everything that waits for a person, by cause, with the commands to type, a page at a time; and exports."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pushlink.errors import CallerError
from pushlink.flows.world import World
from pushlink.operations.attention import Attention, Cause, Item
from pushlink.operations.offers import offers
from pushlink.operations.reasons import reason_of
from pushlink.operations.verbs import Verb
from pushlink.operations.words import HOLDS
from pushlink.protocol.attention import KINDS, Kind, next_step_of
from pushlink.protocol.snapshots import LinkKey, write_time
from pushlink.store import exporting
from pushlink.store.access import Connection
from pushlink.store.reads import page_of, row_limit

#: What an export can hold, in the order in which it is written.
EXPORTED: Final = ("link", "attempt", "event")

#: Rows that are shown of each cause.
SAMPLES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """One thing that waits. `verbs` are what may be typed about it, `first` is the safe one of them.

    `target_id` is the attempt or the link that a decision names; a whole action or deployment has a note instead.
    """

    source_object: str
    record_id: str
    link_key: LinkKey | None
    target: str
    target_id: str
    row_version: int
    since: dt.datetime | None
    note: str
    first: Verb
    verbs: tuple[Verb, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckGroup:
    """Everything that waits for one cause; `rows` are those that were made first, and more are behind `next_page`."""

    cause: str
    kind: str
    code: str
    about: str
    says: str
    reason: str
    next_step: str
    count: int
    oldest: dt.datetime | None
    rows: tuple[Stuck, ...]
    next_page: str | None

    @property
    def first(self) -> Verb | None:
        """What is safe to type about the first row that is shown."""
        return self.rows[0].first if self.rows else None


def stuck(
    conn: Connection, *, world: World | None = None, tenant: str = "", samples: int = SAMPLES, now: dt.datetime
) -> tuple[StuckGroup, ...]:
    """What waits for a person, by cause, with some rows of each. Without a `World` nothing is compared with now."""
    attention = Attention(conn, world=world, tenant=tenant, now=now)
    return tuple(_group(conn, attention, cause, world, now, limit=samples) for cause in attention.causes())


def stuck_page(
    conn: Connection,
    name: str,
    *,
    world: World | None = None,
    tenant: str = "",
    page: str | None = None,
    limit: int,
    now: dt.datetime,
) -> StuckGroup:
    """The rows of one cause behind a page; raises `CallerError` where nothing waits for it."""
    attention = Attention(conn, world=world, tenant=tenant, now=now)
    kind = next((kind for kind in Kind if kind.value == name.partition("/")[0]), None)
    causes = {cause.name: cause for cause in attention.causes(kind)}
    if name not in causes:
        there = sorted(cause.name for cause in attention.causes())
        raise CallerError(f"Nothing waits for {name!r}.", evidence={"causes": there}, next_step="pushlink stuck")
    return _group(conn, attention, causes[name], world, now, limit=row_limit(limit), after=page or "")


def causes_of(conn: Connection, *, world: World | None, now: dt.datetime) -> list[Cause]:
    """Every cause in a whole deployment, for `doctor`."""
    return Attention(conn, world=world, tenant=None, now=now).causes()


def export(
    conn: Connection, *, tenant: str = "", kinds: Collection[str] = EXPORTED, after: str | None = None
) -> Iterator[str]:
    """One JSON object a line, by kind and key; `after` is the last key that an earlier export of one kind had."""
    for kind in EXPORTED:
        if kind not in kinds:
            continue
        begin = None if after is None else int(after) if kind == "event" else after
        for row in exporting.read_all(conn, kind, tenant=tenant, after=begin):
            plain = {name: write_time(v) if isinstance(v, dt.datetime) else v for name, v in row.items()}
            yield json.dumps({"kind": kind, **plain}, ensure_ascii=False, sort_keys=True)


def _group(
    conn: Connection,
    attention: Attention,
    cause: Cause,
    world: World | None,
    now: dt.datetime,
    *,
    limit: int,
    after: str = "",
) -> StuckGroup:
    found = attention.items(cause, after=after, limit=limit + 1) if limit else []
    page = page_of(found, limit, lambda item: item.key) if limit else None
    items: Sequence[Item] = page.rows if page is not None else ()
    says, next_step = _reason(cause.kind, cause.code)
    return StuckGroup(
        cause=cause.name,
        kind=cause.kind.value,
        code=cause.code,
        about=cause.about,
        says=KINDS[cause.kind].says,
        reason=says,
        next_step=next_step_of(cause.kind, cause.code, cause.about) or next_step,
        count=cause.rows,
        oldest=cause.oldest,
        rows=tuple(_stuck(conn, item, world, now) for item in items),
        next_page=page.next_page if page is not None else None,
    )


def _reason(kind: Kind, code: str) -> tuple[str, str]:
    """What a hold or a reason says, and what usually follows."""
    held = {hold.value: word for hold, word in HOLDS.items()}.get(code) if kind is Kind.HELD else None
    if held is not None:
        return held.says, f"Wait for {held.waits_for}."
    reason = reason_of(code) if code else None
    return (reason.sentence, reason.next_step) if reason is not None else ("", "")


def _stuck(conn: Connection, item: Item, world: World | None, now: dt.datetime) -> Stuck:
    offered = offers(conn, item, world=world, now=now)
    target = item.attempt or item.link
    kind = "attempt" if item.attempt is not None else "link" if item.link is not None else "deployment"
    return Stuck(
        source_object=item.source_object,
        record_id=item.record_id,
        link_key=item.slot.link_key if item.slot is not None else None,
        target=kind,
        target_id=target.id if target is not None else item.key,
        row_version=target.row_version if target is not None else 0,
        since=item.since,
        note=item.note,
        first=offered.first,
        verbs=offered.verbs,
    )
