"""What rows keep of records is sealed, opens for its own row alone, and is never sent when it does not open (S8)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from flows.family import PARENT, TIE, Family
from flows.stage import PERSON, MakeStage, Stage, action_of, pack_with
from flows.test_replays import staged as replayed
from flows.test_stamp_lookups import staged as stamped
from operations.operators import create_of, decide, lost_create, refused, settle
from pushlink.adapters.vault import OVERHEAD_BYTES, KeyVault
from pushlink.errors import ConfigurationError
from pushlink.operations import keeping
from pushlink.operations.explain import explain
from pushlink.operations.keeping import Rekeyed, Run
from pushlink.ports import Vault
from pushlink.protocol.sealing import Plain
from pushlink.protocol.snapshots import LinkKey, write_time
from pushlink.protocol.verbs import Verb
from pushlink.store.history import read_timeline
from pushlink.store.tables import METADATA
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading, updating
from pushlink.testing.scripted import ScriptedTransport

ONE, TWO = bytes(range(32)), bytes(range(1, 33))
OLD = KeyVault({"old": ONE}, newest="old")
BOTH = KeyVault({"old": ONE, "new": TWO}, newest="new")
NEW = KeyVault({"new": TWO}, newest="new")
STRICT = KeyVault({"old": ONE, "new": TWO}, newest="new", required=True)

CANARY = "Canary-9f2Qz7"
ADA = {"name": f"Ada {CANARY}", "email": "ada@example.com"}

#: What guards a content; a database editor drops these first.
GUARDS = ("push_request", "push_response")


def other(stage: Stage, make_stage: MakeStage, vault: Vault) -> Stage:
    """Another process of the same deployment, with other keys."""
    made = make_stage(pack=None, vault=vault, remote=stage.remote, clock=stage.fixed, credentials=stage.credentials)
    made.fixed = stage.fixed
    return made


def unguarded(stage: Stage) -> None:
    """The database's own triggers are in nobody's way who may drop them."""
    for table in GUARDS:
        on = f" ON pushlink_{table}" if stage.engine.dialect.name == "postgresql" else ""
        stage.sql(f"DROP TRIGGER pushlink_{table}_keeps_values{on}")


def keeper(stage: Stage, **options: Any) -> Run:
    return Run(engine=stage.engine, world=stage.world, actor="olga", reason="a rotation", **options)


def rekey(stage: Stage, **options: Any) -> Rekeyed:
    return keeping.rekey(keeper(stage, **options))


def held(stage: Stage) -> list[tuple[str, str | None, str | None]]:
    return [(row["status"], row["hold_code"], row["reason_code"]) for row in stage.attempts()]


UNREADABLE = ("pending", "body_unreadable", "body_unreadable")


# ------------------------------------------------------------------------------------------------ what is stored


@pytest.mark.rule("D-34")
def test_no_value_of_a_record_is_in_any_row(make_stage: MakeStage) -> None:
    """Through creates, updates, doubts, refusals and late answers; on the wire it is as it was saved."""
    stage = make_stage(vault=OLD)
    stage.linked(1, **ADA)
    stage.save(1, name=f"Ada L. {CANARY}")
    stage.drain()
    stage.remote.script.next(verbs.answer(422, {"error": CANARY, "detail": [CANARY]}), when=updating)
    stage.save(1, name=f"Ada M. {CANARY}")
    stage.drain()
    stage.remote.script.next(verbs.answer(500, {"error": CANARY}), when=creating)
    stage.save(2, **ADA)
    stage.remote.script.next(verbs.answer(429, {"error": CANARY}), when=creating)
    stage.save(3, **ADA)
    stage.drain()
    stage.clock_forward()
    stage.drain()
    stage.save(4, **ADA)
    late = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    late.finish()
    sent = [json.loads(asked.body)["name"] for asked in stage.remote.sent]
    assert sent[:3] == [ADA["name"], f"Ada L. {CANARY}", f"Ada M. {CANARY}"]
    assert all(CANARY in name for name in sent)
    assert CANARY not in stage.dump()
    assert {row["sealed_by"] for row in stage.rows("push_request")} == {"old"}
    assert {row["wanted_sealed_by"] for row in stage.rows("push_slot")} == {"old"}
    assert {row["sealed_by"] for row in stage.rows("push_response") if row["body"]} == {"old"}
    assert any(row["late"] for row in stage.rows("push_response"))
    for row in stage.rows("push_request"):
        assert row["body_size"] == len(row["body"]) - OVERHEAD_BYTES


def test_without_keys_the_same_would_be_found(make_stage: MakeStage) -> None:
    """The test above can fail: with no key everything is kept as it is, and works as ever."""
    stage = make_stage()
    stage.linked(1, **ADA)
    assert CANARY in stage.dump()
    assert {row["sealed_by"] for row in stage.rows("push_request")} == {None}


def test_no_byte_of_the_database_s_files_tells_a_body(
    engine: sa.Engine, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """No file, no write-ahead log, no table as text. What is looked for is what the mapping makes: no record has it."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["mappings"].append({"source": "born", "target": "/born", "encode": {"date": "%d__%m__%Y"}})

    remote = ScriptedTransport(RemoteOptions(prefix="/v2"))
    for number, vault in ((1, OLD), (2, Plain())):
        stage = Stage(engine, tmp_path, pack=pack_with(change), vault=vault, remote=remote)
        stage.linked(number, name="Ada", born=dt.date(1987, 6, number))
        canary = f"{number:02d}__06__1987".encode()
        assert canary in remote.sent[-1].body
        files = files_of(engine, request)
        found = [str(file) for file in files if canary in file.read_bytes()]
        assert bool(found) == isinstance(vault, Plain), found
        assert (canary.decode() in stage.dump()) == isinstance(vault, Plain)


def files_of(engine: sa.Engine, request: pytest.FixtureRequest) -> list[Path]:
    """The database's files and those of its write-ahead log, once everything is in them."""
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "")
        files = [file for file in path.parent.glob(path.name + "*") if file.is_file()]
        assert any(file.name.endswith("-wal") for file in files)
        return files
    data = request.getfixturevalue("postgres").data
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("CHECKPOINT")
        oid = conn.exec_driver_sql("SELECT oid FROM pg_database WHERE datname = current_database()").scalar_one()
    files = [file for of in (data / "base" / str(oid), data / "pg_wal") for file in of.iterdir() if file.is_file()]
    assert any(file.parent.name == "pg_wal" for file in files)
    return files


@pytest.mark.rule("D-34", "DL-15")
def test_what_waits_for_another_record_is_sealed_too(engine: sa.Engine, tmp_path: Path) -> None:
    """The values of a deferred create, its body once it is complete, and the call that follows: none is in a row."""
    stage = Family(engine, tmp_path, PARENT, TIE, vault=OLD)
    stage.write("Place", 1, name=f"parent {CANARY}")
    stage.write("Country", 1, name=f"country {CANARY}")
    stage.keep("Place", 2, name=f"child {CANARY}", parent_id=1, country_id=1)
    assert stage.of("Place", 2)["dispatch_lane"] == "deferred_association"
    assert CANARY not in stage.dump()
    stage.keep("Country", 1)
    stage.keep("Place", 1)
    stage.drain()
    assert stage.remote_record("Place", 2)["name"] == f"child {CANARY}"
    assert len(stage.rows("push_request", attempt_id=stage.of("Place", 2)["id"])) == 2
    assert CANARY not in stage.dump()
    assert {row["sealed_by"] for row in stage.rows("push_request") if row["body"]} == {"old"}
    assert len(stage.remote.api.records) == 4  # a country, two places, and what ties them
    assert rekey(other_family(stage, engine, tmp_path, PARENT, TIE)).is_whole


@pytest.mark.rule("D-11", "DL-15")
def test_a_deferred_create_whose_values_cannot_be_read_is_held(engine: sa.Engine, tmp_path: Path) -> None:
    """It is as any other create without its key: nothing is sent, and with the key back it goes on."""
    stage = Family(engine, tmp_path, PARENT, vault=OLD)
    stage.write("Place", 1, name="parent")
    stage.keep("Place", 2, name="child", parent_id=1)
    stage.keep("Place", 1)
    stage.run(stage.claim())
    lost = other_family(stage, engine, tmp_path, PARENT, vault=NEW)
    lost.drain()
    assert held(lost)[0] == UNREADABLE
    sends = stage.sends
    back = other_family(stage, engine, tmp_path, PARENT)
    back.drain()
    assert back.sends == sends + 1
    assert back.remote_record("Place", 2)["name"] == "child"


def other_family(stage: Family, engine: sa.Engine, home: Path, *associations: Any, vault: Vault = BOTH) -> Family:
    """Another process of a family's deployment, with other keys."""
    made = Family(engine, home, *associations, vault=vault, remote=stage.remote, clock=stage.fixed)
    made.fixed = stage.fixed
    return made


@pytest.mark.rule("D-34")
def test_what_a_look_up_by_the_stamp_finds_is_sealed(make_stage: MakeStage) -> None:
    """The remote lists the whole record; the answer is kept sealed, and settles the doubt all the same."""
    stage = stamped(lambda **options: make_stage(vault=OLD, **options))
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    stage.clock_forward(seconds=10)
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert len([row for row in stage.rows("push_response") if row["body"]]) == 1
    assert CANARY not in stage.dump()


# ------------------------------------------------------------------------------------------------ rotation


@pytest.mark.rule("D-34")
def test_a_rotation_leaves_nothing_under_the_old_key(make_stage: MakeStage) -> None:
    """Both keys open, the new one seals, `rekey` seals the rest, and then the old one may go: what waited is sent."""
    old = make_stage(vault=OLD)
    old.linked(1, **ADA)
    old.remote.script.next(verbs.answer(500, {"error": "why"}), when=creating)
    old.save(2, **ADA)
    old.drain()
    old.save(3, **ADA)
    old.save(1, name=f"waits {CANARY}")
    both = other(old, make_stage, BOTH)
    both.save(4, **ADA)
    before = {(r["attempt_id"], r["freeze"]): (r["body_digest"], r["body_size"]) for r in both.rows("push_request")}
    told: list[dict[str, int]] = []
    done = rekey(both, batch=2, on_progress=lambda counts: told.append(dict(counts)))
    assert done.is_whole
    assert done.unreadable == 0
    assert done.keys == {"requests": {"new": 4}, "replies": {"new": 2}, "wanted": {"new": 4}}
    assert done.sealed == {"requests": 3, "replies": 2, "wanted": 3}
    assert told[-1] == done.sealed
    assert len(told) > 3
    after = {(r["attempt_id"], r["freeze"]): (r["body_digest"], r["body_size"]) for r in both.rows("push_request")}
    assert after == before
    new = other(old, make_stage, NEW)
    new.drain()
    assert {row["reason_code"] for row in new.attempts(status="ambiguous_remote_effect")} == {"effect_unknown"}
    assert [row["remote_id"] for row in new.links()] == ["1", "3", "2"] or len(new.links()) == 3
    assert json.loads(new.remote.sent[-1].body)["name"] in {f"waits {CANARY}", ADA["name"]}
    assert CANARY not in new.dump()
    again = rekey(new)
    assert (again.is_whole, again.sealed) == (True, {})
    [action] = [row for row in new.rows("operator_action", "id") if row["verb"] == "rekey"]
    assert (action["actor"], action["reason"], json.loads(action["after"])) == ("olga", "a rotation", dict(done.sealed))


def test_keys_that_come_later_seal_what_was_plain(make_stage: MakeStage) -> None:
    """Rows of before stay readable; after `rekey` they are sealed, and a plain one is not believed any more."""
    plain = make_stage()
    plain.linked(1, **ADA)
    plain.save(2, **ADA)
    with pytest.raises(ConfigurationError, match="no key to seal with"):
        rekey(plain)
    both = other(plain, make_stage, BOTH)
    dry = rekey(both, dry_run=True)
    assert dry.keys["requests"] == {"": 2}
    assert not dry.is_whole
    assert CANARY in both.dump()
    assert rekey(both).is_whole
    assert CANARY not in both.dump()
    strict = other(plain, make_stage, STRICT)
    strict.save(3, **ADA)
    unguarded(strict)
    waiting = strict.attempts(status="pending")
    strict.sql(
        "UPDATE pushlink_push_request SET body = :body, sealed_by = NULL WHERE attempt_id = :id",
        body=b'{"name": "forged"}',
        id=waiting[-1]["id"],
    )
    sends = strict.sends
    strict.drain()
    assert held(strict)[-1] == UNREADABLE
    assert strict.sends == sends + 1
    assert not any(b"forged" in asked.body for asked in strict.remote.sent)
    assert rekey(strict).unreadable == 1


def test_a_killed_rekey_goes_on_where_it_was(make_stage: MakeStage) -> None:
    """What a batch has sealed is sealed; the next run does the rest, and ends the same."""
    plain = make_stage()
    for number in range(1, 6):
        plain.save(number, **ADA)
    both = other(plain, make_stage, BOTH)

    def die(counts: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rekey(both, batch=2, on_progress=die)
    assert sorted(str(row["sealed_by"]) for row in both.rows("push_request")) == ["None"] * 3 + ["new"] * 2
    done = rekey(both, batch=2)
    assert (done.is_whole, done.sealed) == (True, {"requests": 3, "wanted": 5})


# ------------------------------------------------------------------------------------------------ tampering


def swap(stage: Stage, name: str, columns: tuple[str, ...], key: str, one: Any, two: Any) -> None:
    """Exchange what two rows hold."""
    table = METADATA.tables[f"pushlink_{name}"]
    held = {row[key]: {column: row[column] for column in columns} for row in stage.rows(name)}
    with stage.engine.begin() as conn:
        for to, of in ((one, two), (two, one)):
            conn.execute(sa.update(table).where(table.c[key] == to).values(**held[of]))


def test_exchanged_bodies_are_never_sent(make_stage: MakeStage) -> None:
    """Two creates whose bodies a database editor swapped are held, with the reason; put back, they are sent."""
    stage = make_stage(vault=OLD)
    stage.save(1, name="Ada", email="ada@example.com")
    stage.save(2, name="Bob", email="bob@example.com")
    one, two = (row["id"] for row in stage.attempts())
    unguarded(stage)
    swap(stage, "push_request", ("body", "sealed_by", "body_digest"), "attempt_id", one, two)
    stage.drain()
    assert held(stage) == [UNREADABLE] * 2
    assert stage.sends == 0
    with stage.engine.begin() as conn:
        shown = explain(conn, "Person", "1", now=stage.clock.now(conn), world=stage.world).actions[0]
    assert (shown.state, shown.cause.code, shown.needs_person) == ("held", "body_unreadable", True)
    assert shown.evidence["unread"] == "not_opened"
    swap(stage, "push_request", ("body", "sealed_by", "body_digest"), "attempt_id", one, two)
    for row in stage.attempts():
        decide(stage, Verb.UNHOLD, row)
    stage.drain()
    assert [json.loads(asked.body)["name"] for asked in stage.remote.sent] == ["Ada", "Bob"]


def test_every_damaged_byte_of_a_body_is_noticed(make_stage: MakeStage) -> None:
    """Flipped or cut anywhere, it is held and not sent."""
    stage = make_stage(vault=OLD)
    stage.save(1, name="Ada")
    [row] = stage.rows("push_request")
    unguarded(stage)
    whole = bytes(row["body"])
    for place in range(0, len(whole), 7):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            stage.sql("UPDATE pushlink_push_request SET body = :body", body=damaged)
            [claimed] = stage.claim()
            stage.run([claimed])
            assert held(stage) == [UNREADABLE]
            decide(stage, Verb.UNHOLD, stage.attempt())
    assert stage.sends == 0


def test_exchanged_wanted_values_are_never_sent(make_stage: MakeStage) -> None:
    """The values of one record do not open for another; the next save of each record is sent as ever."""
    stage = make_stage(vault=OLD)
    for number in (1, 2):
        stage.linked(number)
    for number in (1, 2):
        stage.save(number, name=f"Changed {number}")
    one, two = (stage.slot(number)["link_key"] for number in (1, 2))
    swap(stage, "push_slot", ("wanted_values", "wanted_sealed_by", "wanted_values_digest"), "link_key", one, two)
    sends = stage.sends
    stage.drain()
    assert [row for row in held(stage) if row[0] == "pending"] == [UNREADABLE] * 2
    assert stage.sends == sends
    for number in (1, 2):
        stage.save(number, name=f"Again {number}")
        for row in stage.attempts(hold_code="body_unreadable"):
            decide(stage, Verb.UNHOLD, row)
        stage.drain()
    names = {json.loads(asked.body)["name"] for asked in stage.remote.sent[sends:]}
    assert names == {"Again 1", "Again 2"}


def test_values_of_another_mapping_do_not_open(make_stage: MakeStage) -> None:
    """A slot's values are bound to the mapping that they were frozen under; a changed fingerprint is stale as well."""
    stage = make_stage(vault=OLD)
    stage.linked(1)
    stage.save(1, name="Changed")
    sends = stage.sends
    stage.sql("UPDATE pushlink_push_slot SET wanted_mapping_fingerprint = 'another'")
    stage.drain()
    assert stage.slot()["wanted_state"] == "stale_mapping"
    assert stage.sends == sends


# ------------------------------------------------------------------------------------------------ a lost key


@pytest.mark.rule("D-11")
def test_a_worker_without_the_key_sends_nothing_and_one_with_it_goes_on(make_stage: MakeStage) -> None:
    """The drill: the key is missing, rows are held and named; with the key back they go on by themselves."""
    stage = make_stage(vault=OLD)
    stage.linked(1)
    stage.save(1, name="Changed")
    stage.save(2, name="Ada")
    sends = stage.sends
    for vault in (Plain(), NEW):
        lost = other(stage, make_stage, vault)
        lost.drain()
        assert [row for row in held(lost) if row[0] == "pending"] == [UNREADABLE] * 2
        assert lost.sends == sends
        assert {json.loads(r["detail"])["unread"] for r in lost.attempts(status="pending")} == {"key_missing"}
        report = rekey(lost) if vault is NEW else None
        assert report is None or report.unreadable == sum(sum(kind.values()) for kind in report.keys.values())
    back = other(stage, make_stage, BOTH)
    back.drain()
    assert [json.loads(asked.body)["name"] for asked in back.remote.sent[sends:]].count("Ada") == 1
    assert {row["status"] for row in back.attempts()} == {"finalized"}


@pytest.mark.rule("D-07")
@pytest.mark.parametrize("name", ["key", "upsert"])
def test_what_is_in_doubt_and_cannot_be_read_is_parked(make_stage: MakeStage, name: str) -> None:
    """A replay of bytes that nobody can read is none: nothing is sent, and the doubt stays, for a person."""
    stage = replayed(lambda **options: make_stage(vault=OLD, **options), name)
    stage.remote.script.next(verbs.store_then_close(), when=lambda asked: asked.method in {"POST", "PUT"})
    stage.save(1, **ADA)
    stage.run(stage.claim())
    waiting = stage.attempt()
    assert (waiting["status"], waiting["in_doubt"]) == ("pending", True)
    stage.clock_forward(minutes=1)
    sends = stage.sends
    lost = other(stage, make_stage, NEW)
    lost.drain()
    parked = lost.attempt()
    assert (parked["status"], parked["reason_code"], parked["hold_code"], parked["in_doubt"]) == (
        "ambiguous_remote_effect",
        "body_unreadable",
        None,
        True,
    )
    assert json.loads(parked["detail"])["unread"] == "key_missing"
    assert lost.sends == sends


FOLLOWUP = {
    "path": "/people",
    "key": "/email",
    "query": {"email": "{key}"},
    "only": "/records",
    "id": [{"from": "$response.body#/records/0/id"}],
    "every": "5s",
    "timeout": "30s",
}


def test_a_look_up_by_what_cannot_be_read_parks(make_stage: MakeStage) -> None:
    """There is nothing to ask by, so nothing is asked."""
    pack = pack_with(lambda document: action_of(document)["create"].update(followup=FOLLOWUP))
    stage = make_stage(vault=OLD, pack=pack)
    stage.remote.script.next(verbs.store_then_answer(201, {}), when=creating)
    stage.remote.script.always(verbs.answer(200, {"records": []}), when=reading)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    stage.clock_forward(seconds=1)
    sends = stage.sends
    lost = other(stage, make_stage, NEW)
    lost.drain()
    row = lost.attempt()
    assert (row["status"], row["reason_code"], row["in_doubt"]) == (
        "ambiguous_remote_effect",
        "body_unreadable",
        True,
    )
    assert lost.sends == sends


@pytest.mark.rule("D-14")
def test_an_answer_that_cannot_be_read_decides_nothing(make_stage: MakeStage) -> None:
    """Read again, it is refused with the reason; with the key it is read as on the first day."""
    stage = make_stage(vault=OLD)
    stage.remote.script.next(verbs.store_then_answer(201, {"id": 7, "name": CANARY}), when=creating)
    stage.save(1, **ADA)
    late = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    late.finish()
    settle(stage)
    row = create_of(stage)
    assert row["status"] == "ambiguous_remote_effect"
    lost = other(stage, make_stage, NEW)
    error = refused(lost, Verb.REINTERPRET, row)
    assert error.evidence["code"] == "body_unreadable"
    assert "not among the keys" in error.message
    done = decide(stage, Verb.REINTERPRET, row)
    assert done.remote_id == "7"


# ------------------------------------------------------------------------------------------------ erasing


def aged(stage: Stage) -> None:
    """One linked record with updates behind it, one in doubt, one refused and one that waits; all of them old."""
    stage.linked(1, **ADA)
    for name in ("Ada L.", "Ada M."):
        stage.save(1, name=f"{name} {CANARY}")
        stage.drain()
    lost_create(stage, 2)
    stage.remote.script.next(verbs.answer(422, {"error": CANARY}), when=creating)
    stage.save(3, **ADA)
    stage.drain()
    stage.linked(4, **ADA)
    stage.remote.script.next(verbs.store_then_close(), when=updating)
    stage.save(4, name=f"Doubt {CANARY}")
    stage.drain()
    stage.fixed.advance(days=40)
    stage.linked(5, **ADA)


@pytest.mark.parametrize("vault", [OLD, Plain()], ids=["sealed", "plain"])
def test_contents_are_erased_after_their_time_and_digests_stay(make_stage: MakeStage, vault: Vault) -> None:
    """What ended long ago loses its contents; what is young, in doubt, failed or waits keeps all of them."""
    stage = make_stage(vault=vault)
    aged(stage)
    before = {(r["attempt_id"], r["freeze"]): r for r in stage.rows("push_request")}
    dry = keeping.erase(keeper(stage, dry_run=True), days=30)
    assert dry.counts == {"attempts": 4, "wanted": 1}
    assert {(r["attempt_id"], r["freeze"]): r for r in stage.rows("push_request")} == before
    done = keeping.erase(keeper(stage, batch=2), days=30)
    assert done.counts == {"attempts": 4, "requests": 4, "replies": 4, "wanted": 1}
    kept = {row["id"]: row for row in stage.attempts()}
    for (attempt, number), row in before.items():
        [now] = [r for r in stage.rows("push_request", attempt_id=attempt) if r["freeze"] == number]
        is_over = kept[attempt]["status"] == "finalized" and kept[attempt]["updated_at"] < done.before
        assert (now["body"] is None, now["erased_at"] is not None) == (is_over, is_over)
        size = len(row["body"]) - (OVERHEAD_BYTES if row["sealed_by"] else 0)
        assert (now["body_digest"], now["body_size"]) == (row["body_digest"], size)
    assert stage.slot(1)["wanted_values"] is None
    assert [stage.slot(number)["wanted_values"] is None for number in (2, 3, 4, 5)] == [False] * 4
    assert keeping.erase(keeper(stage), days=30).counts == {}
    [action] = [row for row in stage.rows("operator_action", "id") if row["verb"] == "erase"]
    assert json.loads(action["after"]) == dict(done.counts)


def test_an_erased_record_goes_on_as_before(make_stage: MakeStage) -> None:
    """People are told what was erased and when; the same save is still unchanged, and another one is sent."""
    stage = make_stage(vault=OLD)
    aged(stage)
    before = stage.attempts(link_key=stage.slot(1)["link_key"])
    digests = {row["attempt_id"]: row["body_digest"] for row in stage.rows("push_request")}
    keeping.erase(keeper(stage), days=30)
    now = stage.fixed.now(None)  # type: ignore[arg-type]
    with stage.engine.begin() as conn:
        shown = explain(conn, "Person", "1", now=now, world=stage.world).actions[0]
        moments = read_timeline(conn, [LinkKey(before[0]["link_key"])]).rows
        young = explain(conn, "Person", "5", now=now, world=stage.world).actions[0]
    told = cast("list[dict[str, object]]", shown.evidence["erased"])
    newest = [before[0]["id"], before[-1]["id"]]
    assert [(each["attempt_id"], each["body_digest"]) for each in told] == [(one, digests[one]) for one in newest]
    assert all(each["body_size"] and each["body_erased_at"] == write_time(now) for each in told)
    answers = [moment.evidence for moment in moments if moment.event == "reply"]
    assert [each["body_erased_at"] for each in answers] == [write_time(now)] * 3
    assert all(each["body_size"] for each in answers)
    assert "erased" not in young.evidence
    sends = stage.sends
    stage.save(1)
    stage.drain()
    assert stage.sends == sends
    stage.save(1, name="Ada N.")
    stage.drain()
    assert json.loads(stage.remote.sent[-1].body)["name"] == "Ada N."


def test_what_is_erased_is_not_read_again(make_stage: MakeStage) -> None:
    """An answer without a body settles nothing, whatever its verdict was."""
    stage = make_stage(vault=OLD)
    stage.remote.script.next(verbs.answer(500, {"error": "why"}), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    row = create_of(stage)
    stage.sql(
        "UPDATE pushlink_push_response SET body = NULL, sealed_by = NULL, erased_at = :now",
        now=str(stage.fixed.now(None)),  # type: ignore[arg-type]
    )
    assert refused(stage, Verb.REINTERPRET, row).evidence["code"] == "body_unreadable"


def test_a_person_in_the_table_is_the_host_s(make_stage: MakeStage) -> None:
    """Sealing is about pushlink's rows: the record itself stays as the host keeps it."""
    stage = make_stage(vault=OLD)
    stage.linked(1, **ADA)
    with stage.engine.begin() as conn:
        assert conn.execute(sa.select(PERSON.c.name)).scalar_one() == ADA["name"]
