"""`verify`: decisions and receipts held against their seals, their chains, what decisions tell of them, and anchors.

What is found is named by chain, place and kind. After a break the walk goes on with what stands there, so that each
break is told once. The tables are read in pages and in one moment; of breaks some are shown and all are counted.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from pushlink.protocol.anchors import Anchor, write_anchor
from pushlink.store import audit, chains
from pushlink.store.access import Connection
from pushlink.store.audit import GENESIS
from pushlink.store.chains import CHAIN_OF, CHAINS, RECEIPTS_DIGEST, Chain, span_of

#: The name of the chain of decisions, and of the file of anchors.
DECISIONS: Final = "decision"
ANCHORS: Final = "anchor"

#: Breaks that an answer names; all of them are counted.
SHOWN_MAX: Final = 20

#: Entries between two reports of progress.
TOLD_EVERY: Final = 1_000

#: Called with the chain, how many of its entries were read, and how many there are.
OnProgress: TypeAlias = Callable[[str, int, int], None]

#: Why a signature over a content, by the key of that id, is not believed; `None` for one that is.
Refuses: TypeAlias = Callable[[bytes, str | None, str | None], str | None]


class Kind(StrEnum):
    """What became of an entry."""

    EDITED = "edited"
    MISSING = "missing"
    REORDERED = "reordered"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"
    ADDED = "added"
    FORGED = "forged"


_OUT_OF_PLACE: Final = {
    Kind.REORDERED: "the decision that it was sealed over stands somewhere else",
    Kind.MISSING: "the decision that it was sealed over is not there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The entry at which a chain does not hold. `place` counts from 1: in the chain of decisions, or in the table."""

    chain: str
    kind: Kind
    place: int | None
    entry: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Whether all holds, how much there is, and the first of what does not hold; `breaks` counts all of it."""

    is_whole: bool
    actions: int
    head: str | None
    receipts: Mapping[str, int]
    breaks: int
    broken: tuple[Break, ...]
    anchors: int  # earlier ones that were compared
    signed: int  # those of them whose signature was checked


@dataclass(slots=True, kw_only=True)
class _Walk:
    """One verification on its way."""

    conn: Connection
    on_progress: OnProgress | None
    breaks: int = 0
    broken: list[Break] = field(default_factory=list)

    def found(self, chain: str, kind: Kind, place: int | None, entry: str, says: str) -> None:
        self.breaks += 1
        if len(self.broken) < SHOWN_MAX:
            self.broken.append(Break(chain=chain, kind=kind, place=place, entry=entry, says=says))

    def counted(self, chain: str, rows: Iterable[Any], total: int) -> Iterator[tuple[int, Any]]:
        """Each row with its place, telling how far it is."""
        place = 0
        for place, row in enumerate(rows, 1):
            if self.on_progress is not None and place % TOLD_EVERY == 0:
                self.on_progress(chain, place, total)
            yield place, row
        if self.on_progress is not None:
            self.on_progress(chain, place, total)


def verify(
    conn: Connection,
    *,
    anchors: Sequence[tuple[int, Anchor]] = (),
    refuses: Refuses | None = None,
    on_progress: OnProgress | None = None,
) -> Verified:
    """Read every chain once. `anchors` come with the numbers of their lines, in any order.

    `refuses` says why the signature of an anchor is not believed; such an anchor is a break and is compared with
    nothing. Without it no signature is looked at.
    """
    walk = _Walk(conn=conn, on_progress=on_progress)
    if refuses is not None:
        anchors = list(_believed(walk, anchors, refuses))
    actions, head = _decisions(walk, sorted(anchors, key=lambda one: (one[1].decisions, one[0])))
    receipts = {chain.name: _receipts(walk, chain, anchors) for chain in CHAINS}
    return Verified(
        is_whole=walk.breaks == 0,
        actions=actions,
        head=head,
        receipts=receipts,
        breaks=walk.breaks,
        broken=tuple(walk.broken),
        anchors=len(anchors),
        signed=0 if refuses is None else len(anchors),
    )


def anchor_of(
    found: Verified, *, deployment_id: str, at: dt.datetime, sign: Callable[[bytes], tuple[str, str]] | None = None
) -> bytes:
    """The line that keeps what was found; only what is whole is kept."""
    return write_anchor(
        at=at,
        deployment_id=deployment_id,
        decisions=found.actions,
        head=found.head,
        receipts=found.receipts,
        sign=sign,
    )


def _believed(walk: _Walk, anchors: Sequence[tuple[int, Anchor]], refuses: Refuses) -> Iterator[tuple[int, Anchor]]:
    for line, anchor in anchors:
        why = refuses(anchor.content, anchor.key, anchor.signature)
        if why is None:
            yield line, anchor
        else:
            walk.found(ANCHORS, Kind.FORGED, line, "", f"line {line} of the anchors, of {anchor.at}: {why}")


# ------------------------------------------------------------------------------------------------ decisions


def _decisions(walk: _Walk, anchors: Sequence[tuple[int, Anchor]]) -> tuple[int, str | None]:
    """Walk the chain; each anchor is compared where it was made. Answers how many there are, and the newest seal."""
    previous, place, left = GENESIS, 0, list(reversed(anchors))
    while left and left[-1][1].decisions == 0:
        left.pop()
    for place, row in walk.counted(DECISIONS, chains.read_decisions(walk.conn), chains.count_decisions(walk.conn)):
        entry = f"{row['id']}: {row['verb']} by {row['actor']}"
        if not audit.is_sealed(row):
            walk.found(DECISIONS, Kind.EDITED, place, entry, "it is not as it was written")
        elif row["previous_hash"] != previous:
            is_elsewhere = row["previous_hash"] == GENESIS or chains.has_decision(walk.conn, row["previous_hash"])
            kind = Kind.REORDERED if is_elsewhere else Kind.MISSING
            walk.found(DECISIONS, kind, place, entry, _OUT_OF_PLACE[kind])
        previous = row["hash"]
        while left and left[-1][1].decisions == place:
            line, anchor = left.pop()
            if anchor.head != previous:
                says = f"line {line} of the anchors, of {anchor.at}, saw another seal here"
                walk.found(DECISIONS, Kind.REWRITTEN, place, entry, says)
        if row["verb"] in CHAIN_OF and row["target_kind"] == "manifest":
            _told(walk, place, entry, row)
    for line, anchor in reversed(left):
        says = f"line {line} of the anchors, of {anchor.at}, saw {anchor.decisions} decisions, and {place} are there"
        walk.found(DECISIONS, Kind.TRUNCATED, place + 1, "", says)
    return place, None if place == 0 else previous


def _told(walk: _Walk, place: int, entry: str, row: Mapping[str, Any]) -> None:
    """Hold a decision against the receipts that it says it left."""
    chain = CHAIN_OF[row["verb"]]
    try:
        after, evidence = json.loads(row["after"] or "{}"), json.loads(row["evidence"] or "{}")
        told = int(after[chain.counted])
    except (ValueError, TypeError, KeyError):
        return  # a decision that was edited, which is said already
    span = span_of(row["verb"], row["target_id"], row["at"], after)
    there = chains.count_span(walk.conn, span)
    where = f"operation {span.operation_id}, decision {entry}"
    if there != told:
        kind = Kind.MISSING if there < told else Kind.ADDED
        walk.found(chain.name, kind, None, where, f"decision {place} left {told} receipts, and {there} are there")
    elif RECEIPTS_DIGEST in evidence and evidence[RECEIPTS_DIGEST] != chains.digest_span(walk.conn, span):
        walk.found(chain.name, Kind.REWRITTEN, None, where, f"its receipts are not those that decision {place} left")


# ------------------------------------------------------------------------------------------------ receipts


def _receipts(walk: _Walk, chain: Chain, anchors: Iterable[tuple[int, Anchor]]) -> int:
    """Hold each receipt of a table against its seal and the one before it; answers how many there are."""
    total = chains.count_receipts(walk.conn, chain)
    for place, row in walk.counted(chain.name, chains.read_receipts(walk.conn, chain), total):
        entry = f"operation {row.operation_id}, {chain.key} {row.key}"
        if not row.is_sealed:
            walk.found(chain.name, Kind.EDITED, place, entry, "it is not as it was written")
        elif row.before is None and row.previous != GENESIS:
            walk.found(chain.name, Kind.MISSING, place, entry, "the receipt that it was sealed over is not there")
        elif row.before is not None and row.before != row.previous:
            walk.found(
                chain.name, Kind.REORDERED, place, entry, "it was sealed over another receipt than the one before it"
            )
    for operation_id in chains.read_untold(walk.conn, chain):
        walk.found(chain.name, Kind.ADDED, None, f"operation {operation_id}", "no decision tells of its receipts")
    for line, anchor in anchors:
        seen = anchor.receipts.get(chain.name, 0)
        if seen > total:
            says = f"line {line} of the anchors, of {anchor.at}, saw {seen} receipts, and {total} are there"
            walk.found(chain.name, Kind.TRUNCATED, total + 1, "", says)
    return total
