"""Whatever is done to decisions and receipts behind everybody's back is named: chain, place and kind (S13)."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import MakeStage, Stage
from migration import adoptions, moves, slots
from pushlink.adapters.anchor_file import AnchorFile
from pushlink.adapters.anchor_keys import AnchorKeys, anchor_keys_of
from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.errors import CallerError, Unavailable
from pushlink.operations.verifying import Kind, Verified, anchor_of, verify
from pushlink.protocol.anchors import Anchor, read_anchor
from pushlink.protocol.snapshots import canonical, digest, write_time
from pushlink.store import audit
from pushlink.store.access import reading
from pushlink.store.audit import GENESIS, OperatorAction, record_actions
from pushlink.store.catalog import read_deployment
from pushlink.store.tables import adoption_receipt, operator_action, rebind_receipt, revalidation_receipt
from support.levels import as_operators
from support.memory import measured

ACTIONS = 7
AT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def action(number: int) -> OperatorAction:
    return OperatorAction(
        tenant="t",
        actor=f"olga-{number}",
        approver="anna",
        verb="retire",
        reason="why",
        target_kind="link",
        target_id=f"link-{number}",
        link_key="key",
        before={"status": "finalized"},
        after={"status": "retired"},
        evidence={"number": number},
    )


@pytest.fixture
def chained(make_stage: MakeStage) -> Stage:
    """Seven decisions, over several transactions; the first is that of the pack's installation."""
    stage = make_stage()
    for numbers in ([1, 2], [3], [4, 5, 6]):
        with stage.engine.begin() as conn:
            record_actions(conn, [action(number) for number in numbers], now=AT)
    assert len(stage.rows("operator_action")) == ACTIONS
    return stage


def tampered(stage: Stage, table: sa.Table, change: Callable[[sa.Connection], object], **more: Any) -> Verified:
    """What is found of a change by somebody who may drop triggers; the change is taken back."""
    with stage.engine.connect() as conn:
        unguard(conn, table)
        change(conn)
        found = verify(conn, **more)
        conn.rollback()
    with stage.engine.begin() as conn:
        assert verify(conn).is_whole
    return found


def unguard(conn: sa.Connection, table: sa.Table) -> None:
    """Take the triggers of a table out of the way, as its owner can."""
    if conn.dialect.name == "postgresql":
        conn.execute(sa.DDL("ALTER TABLE %(table)s DISABLE TRIGGER ALL").against(table))
        return
    names = sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :of")
    for name in conn.execute(names, {"of": table.name}).scalars().all():
        conn.execute(sa.DDL("DROP TRIGGER %(name)s", context={"name": name}))


def first(found: Verified) -> tuple[str, Kind, int | None]:
    assert not found.is_whole
    assert found.breaks >= len(found.broken) > 0
    return found.broken[0].chain, found.broken[0].kind, found.broken[0].place


def kinds(found: Verified) -> set[tuple[str, Kind]]:
    assert found.is_whole == (found.broken == ())
    return {(one.chain, one.kind) for one in found.broken}


def ids(stage: Stage) -> list[int]:
    return [row["id"] for row in stage.rows("operator_action", "id")]


def other_value(value: Any) -> Any:
    """Another value of the column's type: one byte, one number or one microsecond away."""
    match value:
        case str():
            return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "something"
        case int():
            return value + 1
        case dt.datetime():
            return value + dt.timedelta(microseconds=1)
        case _:
            return "something"


# ------------------------------------------------------------------------------------------------ decisions


@pytest.mark.rule("SY-03")
@pytest.mark.parametrize("column", [c.name for c in operator_action.columns if c.name != "id"])
def test_one_byte_of_any_column_is_noticed_where_it_is(chained: Stage, column: str) -> None:
    """Wherever it stands in the chain: the first, one between, the newest."""
    t = operator_action
    for place in (1, 4, ACTIONS):
        row_id = ids(chained)[place - 1]
        [row] = chained.rows("operator_action", id=row_id)
        value = other_value(row[column])
        found = tampered(
            chained,
            t,
            lambda conn, row_id=row_id, value=value: conn.execute(
                sa.update(t).where(t.c.id == row_id).values({column: value})
            ),
        )
        assert first(found) == ("decision", Kind.EDITED, place)


@pytest.mark.rule("SY-03")
@pytest.mark.parametrize("place", range(1, ACTIONS))
def test_a_decision_that_was_taken_out_is_missed_at_its_place(chained: Stage, place: int) -> None:
    """By the one after it."""
    t, row_id = operator_action, ids(chained)[place - 1]
    found = tampered(chained, t, lambda conn: conn.execute(sa.delete(t).where(t.c.id == row_id)))
    assert first(found) == ("decision", Kind.MISSING, place)
    assert found.breaks == 1


@pytest.mark.rule("SY-03")
@pytest.mark.parametrize(("one", "two"), [(1, 2), (2, 6), (3, ACTIONS), (1, ACTIONS)])
def test_decisions_that_were_exchanged_are_named_where_the_first_stands(chained: Stage, one: int, two: int) -> None:
    """Every seal holds, and the order does not."""
    t = operator_action

    def swap(conn: sa.Connection) -> None:
        places = [ids_of(conn)[place - 1] for place in (one, two)]
        rows = [dict(conn.execute(sa.select(t).where(t.c.id == row_id)).mappings().one()) for row_id in places]
        conn.execute(sa.delete(t).where(t.c.id.in_(places)))
        conn.execute(t.insert(), [row | {"id": row_id} for row, row_id in zip(rows, reversed(places), strict=True)])

    assert first(tampered(chained, t, swap)) == ("decision", Kind.REORDERED, one)


def ids_of(conn: sa.Connection) -> list[int]:
    return list(conn.execute(sa.select(operator_action.c.id).order_by(operator_action.c.id)).scalars())


@pytest.mark.rule("SY-03")
def test_a_decision_that_nobody_sealed_is_noticed(chained: Stage) -> None:
    """Added behind the others, with what the chain asks for and without its seal."""
    t = operator_action

    def add(conn: sa.Connection) -> None:
        row = dict(conn.execute(sa.select(t).order_by(t.c.id.desc()).limit(1)).mappings().one())
        conn.execute(t.insert(), row | {"id": row["id"] + 1, "previous_hash": row["hash"], "hash": GENESIS})

    assert first(tampered(chained, t, add)) == ("decision", Kind.EDITED, ACTIONS + 1)


# ------------------------------------------------------------------------------------------------ anchors


def anchored(stage: Stage, *, keep: Path) -> list[tuple[int, Anchor]]:
    """Verify, add an anchor, and read them all."""
    file = AnchorFile(keep)
    with reading(stage.engine) as conn:
        name = read_deployment(conn).deployment_id
        found = verify(conn, anchors=list(file.read(deployment_id=name)))
        assert found.is_whole
        file.append(anchor_of(found, deployment_id=name, at=AT))
    return list(file.read(deployment_id=name))


@pytest.mark.rule("SY-03")
def test_a_tail_that_was_cut_off_is_seen_by_an_anchor_and_by_nothing_else(chained: Stage, tmp_path: Path) -> None:
    """However long it was; later decisions after the cut do not hide it."""
    anchors = anchored(chained, keep=tmp_path / "anchors")
    t = operator_action
    for left in range(ACTIONS):
        gone = ids(chained)[left:]

        def cut(conn: sa.Connection, gone: Iterable[int] = gone) -> None:
            conn.execute(sa.delete(t).where(t.c.id.in_(gone)))

        assert tampered(chained, t, cut).is_whole
        found = tampered(chained, t, cut, anchors=anchors)
        assert first(found) == ("decision", Kind.TRUNCATED, left + 1)
        assert f"saw {ACTIONS} decisions, and {left} are there" in found.broken[0].says

    def cut_and_go_on(conn: sa.Connection) -> None:
        cut(conn, ids_of(conn)[4:])
        record_actions(conn, [action(number) for number in range(20, 30)], now=AT)

    assert tampered(chained, t, cut_and_go_on).is_whole
    assert first(tampered(chained, t, cut_and_go_on, anchors=anchors)) == ("decision", Kind.REWRITTEN, ACTIONS)


@pytest.mark.rule("SY-03")
def test_a_chain_that_was_written_anew_is_seen_by_an_anchor(chained: Stage, tmp_path: Path) -> None:
    """Seals are no signatures: who can compute them leaves a chain that holds, and no anchor of before does."""
    early = anchored(chained, keep=tmp_path / "anchors")
    t = operator_action

    def forge(conn: sa.Connection) -> None:
        rows = [dict(row) for row in conn.execute(sa.select(t).order_by(t.c.id)).mappings()]
        previous = GENESIS
        conn.execute(sa.delete(t))
        for row in rows:
            row |= {"previous_hash": previous, "reason": "another reason"}
            row["hash"] = previous = audit._seal(row)
            conn.execute(t.insert(), row)

    assert tampered(chained, t, forge).is_whole
    found = tampered(chained, t, forge, anchors=early)
    assert first(found) == ("decision", Kind.REWRITTEN, ACTIONS)


def signed_anchors(stage: Stage, *, keep: Path, keys: AnchorKeys) -> Verified:
    """What `pushlink verify --anchor` does where keys are named."""
    file = AnchorFile(keep)
    with stage.engine.begin() as conn:
        name = read_deployment(conn).deployment_id
        found = verify(conn, anchors=list(file.read(deployment_id=name)), refuses=keys.refuses)
    if found.is_whole and keys.newest is not None:
        file.append(anchor_of(found, deployment_id=name, at=AT, sign=keys.sign))
    return found


KEYS = {"k1": b"1" * 32, "k2": b"2" * 32}


@pytest.mark.rule("SY-03")
def test_a_signed_anchor_holds_under_every_key_that_is_named_and_its_public_half(
    chained: Stage, tmp_path: Path
) -> None:
    """Keys rotate: older lines hold while their key is named. Who only checks needs no secret, and adds nothing."""
    path = tmp_path / "anchors"
    assert signed_anchors(chained, keep=path, keys=AnchorKeys({"k1": KEYS["k1"]}, newest="k1")).signed == 0
    rotated = AnchorKeys(KEYS, newest="k2")
    assert signed_anchors(chained, keep=path, keys=rotated).signed == 1
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["k1", "k2"]
    elsewhere = anchor_keys_of(rotated.public_keys(), EnvironmentFileCredentials(b"x", environment={}), newest=None)
    found = signed_anchors(chained, keep=path, keys=elsewhere)
    assert (found.is_whole, found.anchors, found.signed) == (True, 2, 2)
    assert path.read_bytes().splitlines() == lines


def forged(line: bytes, **changes: object) -> bytes:
    """The anchor with something changed, and the signature of before."""
    return canonical({**json.loads(line), **changes}) + b"\n"


def signed_by(line: bytes, keys: AnchorKeys) -> bytes:
    """The same anchor under another key that calls itself the same."""
    document = {name: value for name, value in json.loads(line).items() if name not in {"key", "signature"}}
    key, signature = keys.sign(canonical(document))
    return canonical({**document, "key": key, "signature": signature}) + b"\n"


FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "another head": lambda line: forged(line, head="sha256:" + "a" * 64),
    "fewer decisions": lambda line: forged(line, decisions=1),
    "fewer receipts": lambda line: forged(line, receipts={}),
    "another time": lambda line: forged(line, at="2020-01-01T00:00:00.000000Z"),
    "another key's id": lambda line: forged(line, key="k2"),
    "no key of ours": lambda line: forged(line, key="k9"),
    "no signature": lambda line: forged(line, signature=""),
    "a signature cut short": lambda line: forged(line, signature=json.loads(line)["signature"][:-4]),
    "no base64": lambda line: forged(line, signature="!!!"),
    "another secret": lambda line: signed_by(line, AnchorKeys({"k1": b"x" * 32}, newest="k1")),
    "unsigned": lambda line: (
        canonical({n: v for n, v in {**json.loads(line), "anchor": 1}.items() if n not in {"key", "signature"}}) + b"\n"
    ),
}


@pytest.mark.rule("SY-03")
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_anchor_is_found_at_its_line(chained: Stage, tmp_path: Path, forgery: str) -> None:
    """Whoever can write the file as well still cannot sign: the line is named, and nothing is compared with it."""
    path, keys = tmp_path / "anchors", AnchorKeys(KEYS, newest="k1")
    signed_anchors(chained, keep=path, keys=keys)
    signed_anchors(chained, keep=path, keys=keys)
    good, other = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(good + FORGERIES[forgery](other))
    found = signed_anchors(chained, keep=path, keys=keys)
    assert [(one.chain, one.kind, one.place) for one in found.broken] == [("anchor", Kind.FORGED, 2)]
    assert (found.is_whole, found.anchors, found.signed) == (False, 1, 1)
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.rule("SY-03")
def test_a_chain_and_its_anchors_that_were_written_anew_together_are_found(chained: Stage, tmp_path: Path) -> None:
    """Without keys nobody could tell, as both agree. With keys every line of such a file is forged."""
    path, t = tmp_path / "anchors", operator_action

    def cut(conn: sa.Connection) -> None:
        conn.execute(sa.delete(t).where(t.c.id.in_(ids_of(conn)[3:])))

    with_tampering = tampered(chained, t, cut)
    document = {"anchor": 1, "at": "2026-01-02T00:00:00.000000Z", "head": with_tampering.head}
    with chained.engine.begin() as conn:
        name = read_deployment(conn).deployment_id
    receipts = dict(with_tampering.receipts)
    path.write_bytes(canonical({**document, "deployment_id": name, "decisions": 3, "receipts": receipts}) + b"\n")
    lines = list(AnchorFile(path).read(deployment_id=name))
    assert tampered(chained, t, cut, anchors=lines).is_whole
    keys = AnchorKeys(KEYS, newest="k1")
    assert [one.kind for one in tampered(chained, t, cut, anchors=lines, refuses=keys.refuses).broken] == [Kind.FORGED]


def test_anchors_of_any_time_hold_while_the_chain_grows(chained: Stage, tmp_path: Path) -> None:
    """One for each good verification; a line of earlier is compared where it was made."""
    for count in range(1, 5):
        anchors = anchored(chained, keep=tmp_path / "anchors")
        assert [line for line, _ in anchors] == list(range(1, count + 1))
        with chained.engine.begin() as conn:
            record_actions(conn, [action(count)], now=AT)
    assert [anchor.decisions for _, anchor in anchors] == [ACTIONS + more for more in range(4)]
    assert (tmp_path / "anchors").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: line[:-1],
        lambda _: b"{}\n",
        lambda _: b"no json\n",
        lambda _: b"[" * 9_000 + b"\n",
        lambda _: b"x" * 20_000 + b"\n",
        lambda line: line.replace(b'"anchor":1', b'"anchor":2'),
        lambda line: line.replace(b'"anchor":1', b'"anchor":3'),
        lambda line: line.replace(b'"anchor":1', b'"anchor":[]'),
        lambda line: line.replace(b'"anchor":1', b'"key":"k","signature":"s","anchor":1'),
        lambda line: line.replace(b'"decisions":7', b'"decisions":-7'),
        lambda line: line.replace(b'"decisions":7', b'"decisions":true'),
        lambda line: line.replace(b'"head":"sha256:', b'"head":"sha255:'),
        lambda line: line.replace(b'"deployment_id":"', b'"deployment_id":"another-'),
        lambda line: line.replace(b'"receipts":{', b'"receipts":[{').replace(b"}}", b"}]}"),
    ],
)
def test_a_line_that_is_no_anchor_is_refused_with_its_number(
    chained: Stage, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    """It is not passed over: whoever spoils a line would have one anchor less to fear."""
    path = tmp_path / "anchors"
    anchored(chained, keep=path)
    whole = path.read_bytes()
    assert spoil(whole) != whole
    path.write_bytes(whole + spoil(whole))
    with pytest.raises(CallerError, match=r"Line 2 of .* cannot be used"):
        anchored(chained, keep=path)


def test_a_file_that_cannot_be_written_is_said(chained: Stage, tmp_path: Path) -> None:
    """And where there is none yet, there are no anchors."""
    with pytest.raises(Unavailable, match="cannot be written"):
        anchored(chained, keep=tmp_path / "nowhere" / "anchors")
    with pytest.raises(Unavailable, match="cannot be read"):
        anchored(chained, keep=tmp_path)


def test_an_anchor_is_read_as_it_was_written(chained: Stage, tmp_path: Path) -> None:
    """The line of an earlier release is read for ever."""
    head = "sha256:" + "a" * 64
    line = (
        '{"anchor":1,"at":"2026-01-02T00:00:00.000000Z","decisions":3,"deployment_id":"d","head":"' + head + '",'
        '"receipts":{"adoption":1,"rebind":0,"revalidation":2}}\n'
    )
    assert read_anchor(line.encode()) == Anchor(
        at="2026-01-02T00:00:00.000000Z",
        deployment_id="d",
        decisions=3,
        head=head,
        receipts={"adoption": 1, "rebind": 0, "revalidation": 2},
    )
    [(_, anchor)] = anchored(chained, keep=tmp_path / "anchors")
    assert (anchor.decisions, anchor.receipts) == (ACTIONS, {"adoption": 0, "rebind": 0, "revalidation": 0})
    assert anchor.head == chained.rows("operator_action", "id")[-1]["hash"]


@pytest.mark.rule("SY-03")
def test_many_writers_at_once_make_one_chain_without_a_gap(chained: Stage) -> None:
    """Eight of them, each with transactions of its own: every decision is there, and each follows the one before."""
    engine, writers, each = as_operators(chained.engine), 8, 5

    def write(number: int) -> None:
        for turn in range(each):
            with engine.begin() as conn:
                record_actions(conn, [action(100 * number + turn)], now=AT)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(1, writers + 1)))
    with chained.engine.begin() as conn:
        found = verify(conn)
    assert (found.is_whole, found.actions) == (True, ACTIONS + writers * each)
    written = {row["target_id"] for row in chained.rows("operator_action")}
    assert {f"link-{100 * n + turn}" for n in range(1, writers + 1) for turn in range(each)} <= written


# ------------------------------------------------------------------------------------------------ receipts


def with_revalidations(stage: Stage, home: Path) -> sa.Table:
    """Two links that were moved to another mapping, twice."""
    keys = moves.moved_on(stage, 2)
    moves.apply(stage, moves.manifest_of(stage, keys))
    stage.apply(moves.mapping_named("/other_name") | {"version": "3.0.0"})
    moves.apply(stage, moves.manifest_of(stage, keys, "op-2"))
    return revalidation_receipt


def with_rebinds(stage: Stage, home: Path) -> sa.Table:
    """Two records that were moved to another slot, twice."""
    moves.linked(stage, 2)
    stage.apply(slots.renamed(version="2.0.0"))
    slots.apply(stage, slots.planned(stage))
    stage.apply(slots.renamed("act-3", version="3.0.0"))
    slots.apply(stage, slots.planned(stage, of="act-2", to="act-3", operation_id="op-2"))
    return rebind_receipt


def with_adoptions(stage: Stage, home: Path) -> sa.Table:
    """Two records that were adopted and taken back."""
    adoptions.adopted(stage, home, 1, 2)
    adoptions.roll_back(stage)
    return adoption_receipt


MADE = pytest.mark.parametrize("make", [with_revalidations, with_rebinds, with_adoptions])
Make = Callable[[Stage, Path], sa.Table]


def entries(conn: sa.Connection, t: sa.Table) -> list[dict[str, Any]]:
    """Receipts in the order in which they are read."""
    return [dict(row) for row in conn.execute(sa.select(t).order_by(*t.primary_key.columns)).mappings()]


def one(t: sa.Table, row: dict[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == row[column.name] for column in t.primary_key))


def name_of(t: sa.Table) -> str:
    return t.name.removeprefix("pushlink_").removesuffix("_receipt")


@pytest.mark.rule("RV-08")
@MADE
def test_receipts_that_nobody_touched_hold(make_stage: MakeStage, tmp_path: Path, make: Make) -> None:
    """Four of them, each counted by its decision, whose evidence has the digest of their seals."""
    stage = make_stage()
    table = make(stage, tmp_path)
    with stage.engine.begin() as conn:
        found = verify(conn)
    assert found.is_whole
    assert found.receipts == {"revalidation": 0, "rebind": 0, "adoption": 0} | {name_of(table): 4}


@pytest.mark.rule("RV-08")
@MADE
def test_one_byte_of_any_column_of_a_receipt_is_noticed(make_stage: MakeStage, tmp_path: Path, make: Make) -> None:
    """In every receipt, with its place among them, its operation and its key."""
    stage = make_stage()
    t = make(stage, tmp_path)
    with stage.engine.begin() as conn:
        rows = entries(conn, t)
    for place, row in enumerate(rows, 1):
        for column in t.columns:
            if column.primary_key or column.name == "position":
                continue
            change = {column.name: other_value(row[column.name])}
            found = tampered(
                stage,
                t,
                lambda conn, row=row, change=change: conn.execute(sa.update(t).where(one(t, row)).values(change)),
            )
            edited = [b for b in found.broken if b.kind is Kind.EDITED]
            assert [(b.chain, b.place) for b in edited] == [(name_of(t), place)], column.name
            assert row["operation_id"] in edited[0].entry


@pytest.mark.rule("RV-08")
@MADE
def test_a_receipt_that_was_taken_out_is_missed(make_stage: MakeStage, tmp_path: Path, make: Make) -> None:
    """Even the newest: the decision of its operation says how many it left. So is one that lost its key."""
    stage = make_stage()
    t = make(stage, tmp_path)
    with stage.engine.begin() as conn:
        rows = entries(conn, t)
    for row in rows:
        found = tampered(stage, t, lambda conn, row=row: conn.execute(sa.delete(t).where(one(t, row))))
        assert kinds(found) == {(name_of(t), Kind.MISSING)}
        assert any(
            row["operation_id"] in b.entry and "left 2 receipts, and 1 are there" in b.says for b in found.broken
        )
        followers = [other for other in rows if other["previous_hash"] == row["hash"]]
        assert found.breaks == 1 + len(followers)
    assert kinds(tampered(stage, t, lambda conn: conn.execute(sa.delete(t)))) == {(name_of(t), Kind.MISSING)}


@pytest.mark.rule("RV-08")
@MADE
def test_a_receipt_that_was_sealed_anew_does_not_fit_its_decision(
    make_stage: MakeStage, tmp_path: Path, make: Make
) -> None:
    """Its own seal holds; that of the decision, which is in the chain and in the anchors, does not."""
    stage = make_stage()
    t = make(stage, tmp_path)
    with stage.engine.begin() as conn:
        rows = entries(conn, t)
    for row in rows:
        changed = row | {"reason": "another reason"}
        sealed = {name: value for name, value in changed.items() if name != "hash"}
        seal = digest({**sealed, "applied_at": write_time(row["applied_at"])})
        change = {"reason": changed["reason"], "hash": seal}
        found = tampered(
            stage, t, lambda conn, row=row, change=change: conn.execute(sa.update(t).where(one(t, row)).values(change))
        )
        assert (name_of(t), Kind.REWRITTEN) in kinds(found)
        assert (name_of(t), Kind.EDITED) not in kinds(found)


@pytest.mark.rule("RV-08")
@MADE
def test_a_receipt_that_no_decision_tells_of_is_noticed(make_stage: MakeStage, tmp_path: Path, make: Make) -> None:
    """One that was added with a good seal, to an operation of before or to one that never was."""
    stage = make_stage()
    t = make(stage, tmp_path)
    key = {"revalidation": "link_id", "rebind": "old_link_key", "adoption": "link_key"}[name_of(t)]
    with stage.engine.begin() as conn:
        row = entries(conn, t)[0]
    for change in ({"operation_id": "op-never"}, {key: row[key][:-1] + chr(ord(row[key][-1]) ^ 1)}):
        added = row | change | {"previous_hash": GENESIS}
        if name_of(t) == "adoption":
            added |= {"position": 9, "link_key": row[key][:-1] + chr(ord(row[key][-1]) ^ 1)}
        if name_of(t) == "revalidation":
            added |= {"prior_operation_id": None}
        sealed = {name: value for name, value in added.items() if name != "hash"}
        added["hash"] = digest({**sealed, "applied_at": write_time(row["applied_at"])})
        found = tampered(stage, t, lambda conn, added=added: conn.execute(t.insert(), added))
        is_batch = name_of(t) == "adoption" and "operation_id" not in change
        assert (name_of(t), Kind.ADDED) in kinds(found) or is_batch


def test_receipts_of_before_are_counted_and_hold(make_stage: MakeStage, tmp_path: Path) -> None:
    """A decision of an earlier release has no digest of its receipts; what it counts is compared all the same."""
    stage = make_stage()
    t = with_revalidations(stage, tmp_path)

    def older(conn: sa.Connection) -> None:
        a = operator_action
        rows = [dict(row) for row in conn.execute(sa.select(a).order_by(a.c.id)).mappings()]
        unguard(conn, a)
        conn.execute(sa.delete(a))
        previous = GENESIS
        for row in rows:
            if row["verb"] == "mapping_apply":
                row["evidence"] = None
            row["previous_hash"] = previous
            row["hash"] = previous = audit._seal(row)
            conn.execute(a.insert(), row)

    def older_and_one_less(conn: sa.Connection) -> None:
        older(conn)
        conn.execute(sa.delete(t).where(one(t, entries(conn, t)[-1])))

    assert tampered(stage, t, older).is_whole
    assert kinds(tampered(stage, t, older_and_one_less)) == {("revalidation", Kind.MISSING)}


@pytest.mark.rule("SY-03")
def test_receipts_and_their_decisions_that_were_cut_off_together_are_seen_by_an_anchor(
    make_stage: MakeStage, tmp_path: Path
) -> None:
    """An older day of the database, as a backup that was put back would be."""
    stage = make_stage()
    t = with_revalidations(stage, tmp_path)
    anchors = anchored(stage, keep=tmp_path / "anchors")

    def back(conn: sa.Connection) -> None:
        a = operator_action
        unguard(conn, a)
        conn.execute(sa.delete(t).where(t.c.operation_id == "op-2"))
        conn.execute(sa.delete(a).where(a.c.target_id == "op-2"))

    assert tampered(stage, t, back).is_whole
    assert kinds(tampered(stage, t, back, anchors=anchors)) == {
        ("decision", Kind.TRUNCATED),
        ("revalidation", Kind.TRUNCATED),
    }


def test_what_is_applied_while_it_verifies_raises_no_alarm(make_stage: MakeStage, tmp_path: Path) -> None:
    """Decisions and receipts are read of one moment."""
    stage = make_stage()
    keys = moves.moved_on(stage, 2)
    applied: list[str] = []

    def apply_once(chain: str, done: int, total: int) -> None:
        if chain == "decision" and not applied:
            applied.append("op-1")
            moves.apply(stage, moves.manifest_of(stage, keys))

    with reading(stage.engine) as conn:
        found = verify(conn, on_progress=apply_once)
    assert (found.is_whole, found.receipts["revalidation"]) == (True, 0)
    with reading(stage.engine) as conn:
        later = verify(conn)
    assert (later.is_whole, later.receipts["revalidation"], later.actions) == (True, 2, found.actions + 1)


def test_a_long_chain_is_told_of_and_held_in_no_memory(make_stage: MakeStage) -> None:
    """Progress is told with counts; four times the entries need no more memory."""
    stage = make_stage(pack=None)
    peaks: list[int] = []
    for count in (2_000, 8_000):
        with stage.engine.begin() as conn:
            record_actions(conn, [action(number) for number in range(count - len(ids_of(conn)))], now=AT)
        told: list[tuple[str, int, int]] = []
        with reading(stage.engine) as conn:
            tell = lambda *one, told=told: told.append(one)  # noqa: E731
            found, peak = measured(lambda conn=conn, tell=tell: verify(conn, on_progress=tell))
        peaks.append(peak)
        assert (found.is_whole, found.actions) == (True, count)
        assert [one for one in told if one[0] == "decision"][:-1] == [
            ("decision", done, count) for done in range(1_000, count + 1, 1_000)
        ]
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_the_digest_of_an_operation_is_that_of_its_seals_in_order(make_stage: MakeStage, tmp_path: Path) -> None:
    """Fixed in a test: whoever holds an anchor can compute it without this code."""
    import json

    stage = make_stage()
    t = with_revalidations(stage, tmp_path)
    [row] = [r for r in stage.rows("operator_action", target_id="op-1") if r["verb"] == "mapping_apply"]
    with stage.engine.begin() as conn:
        seals = sorted(r["hash"] for r in entries(conn, t) if r["operation_id"] == "op-1")
    expected = "sha256:" + hashlib.sha256("".join(seals).encode()).hexdigest()
    assert json.loads(row["evidence"])["receipts_digest"] == expected
