"""The statements of `pushlink verify`: decisions and receipts in order, each beside the entry that it was sealed over.

Decisions are one chain. Receipts have a chain for each link or key, and hang on the decision of their operation, which
says how many it left and what the digest of their seals is. All is read in pages, so memory does not grow with the
tables. Nothing that saves, claims or sends imports this module.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import Digest, digest, write_time
from pushlink.store.audit import OperatorAction
from pushlink.store.tables import adoption_receipt, operator_action, rebind_receipt, revalidation_receipt

#: Where a decision keeps the digest of the seals of the receipts that it left; decisions of before have none.
RECEIPTS_DIGEST: Final = "receipts_digest"

#: Rows of one page.
PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A table of receipts. `key` names an entry within its operation, `counted` what its decisions call the number."""

    name: str
    table: sa.Table
    key: str
    verbs: Mapping[str, str | None]  # of the decisions that leave receipts; for adoptions the deed that each one is
    counted: str


REVALIDATIONS: Final = Chain(
    name="revalidation",
    table=revalidation_receipt,
    key="link_id",
    verbs={"mapping_apply": None},
    counted="links",
)
REBINDS: Final = Chain(
    name="rebind",
    table=rebind_receipt,
    key="old_link_key",
    verbs={"slot rebind": None},
    counted="records",
)
ADOPTIONS: Final = Chain(
    name="adoption",
    table=adoption_receipt,
    key="link_key",
    verbs={"adopt_apply": "adopt", "adopt_rollback": "roll_back"},
    counted="links",
)
CHAINS: Final = (REVALIDATIONS, REBINDS, ADOPTIONS)

#: The chain that a decision leaves receipts in.
CHAIN_OF: Final[Mapping[str, Chain]] = {verb: chain for chain in CHAINS for verb in chain.verbs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The receipts that one decision left: all of its operation or, for a batch of adoptions, a range of their keys."""

    chain: Chain
    operation_id: str
    verb: str
    at: dt.datetime
    first: str | None = None
    last: str | None = None


def left_receipts(conn: sa.Connection, action: OperatorAction, *, now: dt.datetime) -> OperatorAction:
    """The decision of an operation or batch with the digest of the receipts that it has just left."""
    span = span_of(action.verb, action.target_id, now, action.after)
    return replace(action, evidence={**action.evidence, RECEIPTS_DIGEST: digest_span(conn, span)})


def span_of(verb: str, operation_id: str, at: dt.datetime, after: Mapping[str, Any]) -> Span:
    """The receipts that a decision left, from what it says came of it."""
    return Span(
        chain=CHAIN_OF[verb],
        operation_id=operation_id,
        verb=verb,
        at=at,
        first=after.get("first"),
        last=after.get("last"),
    )


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """A receipt, whether its seal holds, and the seal of the one before it; `None` where that one is not there."""

    operation_id: str
    key: str
    is_sealed: bool
    previous: str
    before: str | None


def read_decisions(conn: sa.Connection) -> Iterator[sa.RowMapping]:
    """Every decision in the order of the chain."""
    t, after = operator_action, 0
    while True:
        page = conn.execute(sa.select(t).where(t.c.id > after).order_by(t.c.id).limit(PAGE)).mappings().all()
        if not page:
            return
        yield from page
        after = page[-1]["id"]


def count_decisions(conn: sa.Connection) -> int:
    """How many there are."""
    return int(conn.execute(sa.select(sa.func.count()).select_from(operator_action)).scalar_one())


def has_decision(conn: sa.Connection, seal: str) -> bool:
    """Whether a decision with this seal is anywhere in the chain."""
    return (
        conn.execute(sa.select(operator_action.c.id).where(operator_action.c.hash == seal).limit(1)).first() is not None
    )


def count_receipts(conn: sa.Connection, chain: Chain) -> int:
    """How many receipts a table has."""
    return int(conn.execute(sa.select(sa.func.count()).select_from(chain.table)).scalar_one())


def read_receipts(conn: sa.Connection, chain: Chain) -> Iterator[ReceiptRow]:
    """Every receipt of a table, by operation and key."""
    t = chain.table
    before = t.alias("before")
    keys = [t.c[column.name] for column in t.primary_key]
    statement = (
        sa.select(t, before.c.hash.label("hash_before"))
        .select_from(t.outerjoin(before, _follows(chain, t, before)))
        .order_by(*keys)
        .limit(PAGE)
    )
    after: tuple[Any, ...] | None = None
    while True:
        behind = sa.true() if after is None else sa.tuple_(*keys) > sa.tuple_(*map(sa.literal, after))
        page = conn.execute(statement.where(behind)).mappings().all()
        for row in page:
            yield ReceiptRow(
                row["operation_id"], row[chain.key], _is_sealed(t, row), row["previous_hash"], row["hash_before"]
            )
        if not page:
            return
        after = tuple(page[-1][column.name] for column in keys)


def count_span(conn: sa.Connection, span: Span) -> int:
    """How many receipts a decision left that are there."""
    counted = sa.select(sa.func.count()).select_from(span.chain.table).where(*_within(span))
    return int(conn.execute(counted).scalar_one())


def digest_span(conn: sa.Connection, span: Span) -> Digest:
    """The digest of the seals of a decision's receipts, in the order of the seals."""
    t, after, found = span.chain.table, "", hashlib.sha256()
    statement = sa.select(t.c.hash).where(*_within(span)).order_by(t.c.hash).limit(PAGE)
    while page := conn.execute(statement.where(t.c.hash > after)).scalars().all():
        for seal in page:
            found.update(seal.encode())
        after = page[-1]
    return Digest("sha256:" + found.hexdigest())


def read_untold(conn: sa.Connection, chain: Chain) -> list[str]:
    """Operations that left receipts and of which no decision tells; the first few."""
    t, a = chain.table, operator_action
    told = sa.exists().where(
        a.c.target_id == t.c.operation_id, a.c.target_kind == "manifest", a.c.verb.in_(chain.verbs)
    )
    statement = sa.select(t.c.operation_id).where(~told).distinct().order_by(t.c.operation_id).limit(PAGE)
    return list(conn.execute(statement).scalars())


def _follows(chain: Chain, t: sa.Table, before: sa.FromClause) -> sa.ColumnElement[bool]:
    """How a receipt's predecessor is found; each by an index."""
    if chain is REVALIDATIONS:
        return sa.and_(before.c.link_id == t.c.link_id, before.c.operation_id == t.c.prior_operation_id)
    if chain is ADOPTIONS:
        return sa.and_(before.c.link_key == t.c.link_key, before.c.position == t.c.position - 1)
    return sa.and_(before.c.new_link_key == t.c.old_link_key, before.c.hash == t.c.previous_hash)


def _within(span: Span) -> list[sa.ColumnElement[bool]]:
    t = span.chain.table
    found = [t.c.operation_id == span.operation_id]
    deed = span.chain.verbs[span.verb]
    if deed is not None:
        found += [t.c.deed == deed, t.c.applied_at == span.at]
    if span.first is not None and span.last is not None:
        found.append(t.c[span.chain.key].between(span.first, span.last))
    return found


def _is_sealed(t: sa.Table, row: sa.RowMapping) -> bool:
    sealed = {column.name: row[column.name] for column in t.columns if column.name != "hash"}
    return bool(digest({**sealed, "applied_at": write_time(row["applied_at"])}) == row["hash"])
