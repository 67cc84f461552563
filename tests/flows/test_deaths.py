"""Every flow dies before and after every effect, or fails there, on both databases; then a fresh worker goes on.

What must come out is computed from the point of death alone: a create whose checkpoint was committed and whose answer
was not recorded is in doubt, and everything else ends as if nothing had happened. The judge then looks at every row.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa

from plugins.databases import DIALECTS, connect
from pushlink.flows.outcomes import Queued, Reserved
from pushlink.flows.world import Remembered
from pushlink.testing.driver import Death, How, every_death
from pushlink.testing.messages import Asked, creating, updating
from pushlink.testing.verbs import (
    PLAINLY,
    Verb,
    answer,
    bad_encoding,
    break_while_writing,
    close_after_read,
    close_before_read,
    hang,
    not_started,
    refuse_connection,
    short_body,
    store_then_answer,
    store_then_close,
    truncate,
)
from support.bench import Bench

#: Answers that leave the same rows behind as another one need not fail in every way as well.
DEATHS = (How.DIES_BEFORE, How.DIES_AFTER)

AMBIGUOUS = "ambiguous_remote_effect"
FINALIZED = "finalized"
TERMINAL = "terminal_failed"

MakeBench: TypeAlias = Callable[[bool], Bench]


@pytest.fixture(scope="module")
def engines(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function from a dialect to an engine on a migrated database that this module shares, in memory where it can.

    A process that dies at an effect takes nothing of the operating system with it, so no disk has to be waited for.
    """
    memory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    opened: list[sa.Engine] = []
    dropped: list[str] = []

    def open_(dialect: str) -> sa.Engine:
        if dialect == "sqlite":
            path = memory / f"{len(opened)}.sqlite"
            shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
            url = f"sqlite:///{path}"
        else:
            name = next(request.getfixturevalue("_database_names"))
            template = request.getfixturevalue("postgres_template")
            request.getfixturevalue("postgres_admin").execute(f"CREATE DATABASE {name} TEMPLATE {template}")
            dropped.append(name)
            url = request.getfixturevalue("postgres").url(name)
        opened.append(connect(url))
        return opened[-1]

    yield open_
    for engine in opened:
        engine.dispose()
    shutil.rmtree(memory)
    for name in dropped:
        request.getfixturevalue("postgres_admin").execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def benches(engines: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Bench]:
    """One bench for each dialect, with and without a mirror, for all tests of this module."""
    made: dict[tuple[str, bool], Bench] = {}

    def bench(dialect: str, mirror: bool) -> Bench:
        if (dialect, mirror) not in made:
            made[dialect, mirror] = Bench(engines(dialect), tmp_path_factory.mktemp("bench"), mirror=mirror)
        return made[dialect, mirror]

    return bench


@pytest.fixture(params=DIALECTS)
def make_bench(request: pytest.FixtureRequest, benches: Callable[[str, bool], Bench]) -> MakeBench:
    return lambda mirror: benches(request.param, mirror)


def for_record(record: str, when: Callable[[Asked], bool]) -> Callable[[Asked], bool]:
    """Requests of one record alone, so that a line that was never played meets nobody else."""
    return lambda asked: when(asked) and asked.json().get("key") == record


def is_in_doubt(death: Death) -> bool:
    """Whether the death fell between a committed checkpoint and a recorded answer."""
    at = death.effects[death.at - 1] if death.struck else ""
    return (
        (at == "checkpoint" and death.how is How.DIES_AFTER)
        or at == "send"
        or (at == "record" and death.how in {How.DIES_BEFORE, How.BREAKS})
    )


@dataclass(frozen=True, kw_only=True)
class Story:
    """One answer of the remote to a record's first request, and how the attempt ends when nobody dies."""

    name: str
    verb: Verb
    ends: str
    reason: str | None = None
    hows: Sequence[How] = tuple(How)

    def __str__(self) -> str:
        return self.name


CREATES = [
    Story(name="accepted", verb=PLAINLY, ends=FINALIZED),
    Story(name="rejected", verb=answer(422, {"error": "no"}), ends=TERMINAL, reason="remote_rejected"),
    Story(name="reply lost", verb=store_then_close(), ends=AMBIGUOUS),
    Story(name="request lost after it was sent", hows=DEATHS, verb=close_after_read(), ends=AMBIGUOUS),
    Story(name="closed before it was read", hows=DEATHS, verb=close_before_read(), ends=AMBIGUOUS),
    Story(name="broken while it was written", hows=DEATHS, verb=break_while_writing(stores=True), ends=AMBIGUOUS),
    Story(
        name="5xx with the effect",
        hows=DEATHS,
        verb=store_then_answer(503, headers=[("Retry-After", "30")]),
        ends=AMBIGUOUS,
    ),
    Story(name="5xx without the effect", hows=DEATHS, verb=answer(500), ends=AMBIGUOUS),
    Story(name="truncated", hows=DEATHS, verb=truncate(), ends=AMBIGUOUS),
    Story(name="short", hows=DEATHS, verb=short_body(), ends=AMBIGUOUS),
    Story(name="badly encoded", hows=DEATHS, verb=bad_encoding(), ends=AMBIGUOUS),
    Story(name="never answered", hows=DEATHS, verb=hang(), ends=AMBIGUOUS),
    Story(name="a success without an id", hows=DEATHS, verb=store_then_answer(201, {}), ends=AMBIGUOUS),
    Story(name="401 once", hows=DEATHS, verb=answer(401), ends=FINALIZED),
    Story(name="429 once", verb=answer(429, headers=[("Retry-After", "7")]), ends=FINALIZED),
    Story(name="refused before the first byte", hows=DEATHS, verb=refuse_connection(), ends=FINALIZED),
    Story(name="not started", hows=DEATHS, verb=not_started(), ends=FINALIZED),
]

#: The claim is the first effect of every round and the same for all: it dies in some stories, not in each.
CHECKPOINT = 2

#: Whether a mirror waits makes no difference to an answer that finalizes nothing.
UNMIRRORED = {"accepted", "reply lost"}

UPDATES = [
    Story(name="accepted", verb=PLAINLY, ends=FINALIZED),
    Story(name="rejected", verb=answer(422, {"error": "no"}), ends=TERMINAL),
    Story(name="reply lost", verb=store_then_close(), ends=AMBIGUOUS),
    Story(name="gone", verb=answer(404), ends=TERMINAL, reason="remote_gone"),
    Story(name="gone, says a remote that never accepted the credential", hows=DEATHS, verb=answer(404), ends="pending"),
    Story(name="changed by somebody else", hows=DEATHS, verb=answer(412), ends=TERMINAL, reason="remote_conflict"),
    Story(name="429 once", verb=answer(429, headers=[("Retry-After", "7")]), ends=FINALIZED),
    Story(name="refused before the first byte", hows=DEATHS, verb=refuse_connection(), ends=FINALIZED),
]


def after_every_death(
    bench: Bench, scenario: Callable[[Death], str], *, hows: Sequence[How] = tuple(How), first: int = 1
) -> Iterator[tuple[Death, str]]:
    """Run the scenario under every death; look at its record as it was left, recover, and look again.

    The scenario answers with its record. The run that nobody disturbs comes first; in the end everything is looked at,
    the records of earlier tests as well.
    """
    record = ""

    def run(death: Death) -> None:
        nonlocal record
        bench.wire.script.calm()
        record = scenario(death)
        bench.mirrors.failing = 0

    for death in every_death(run, hows, first=first):
        if death.how in DEATHS:
            bench.check(death, settled=False, record=record)
        bench.recover()
        bench.check(f"{death}, recovered", settled=True, record=record)
        yield death, record
    bench.check("everything", settled=True)


@pytest.mark.rule("AT-04", "AT-10", "PO-01", "PO-04", "PO-05", "PO-07", "RR-03", "RR-04", "DR-27", "D-05", "D-13")
@pytest.mark.parametrize(
    ("story", "mirror"),
    [*((story, True) for story in CREATES), *((story, False) for story in CREATES if story.name in UNMIRRORED)],
    ids=lambda value: value.name if isinstance(value, Story) else "mirror" if value else "no mirror",
)
def test_a_create_that_dies_anywhere_is_in_doubt_or_as_if_nothing_had_happened(
    make_bench: MakeBench, story: Story, mirror: bool
) -> None:
    """One accepted create at most; doubt exactly where bytes may have left and no answer was recorded."""
    bench = make_bench(mirror)

    def scenario(death: Death) -> str:
        record = bench.new_record()
        bench.wire.script.next(story.verb, when=for_record(record, creating))
        bench.work(death)
        return record

    first = 1 if story.verb is PLAINLY else CHECKPOINT
    for death, record in after_every_death(bench, scenario, hows=story.hows, first=first):
        expected = AMBIGUOUS if is_in_doubt(death) else story.ends
        assert bench.statuses(record) == [expected], death
        assert story.reason is None or expected == AMBIGUOUS or bench.rows(record)[0].reason_code == story.reason
        assert bench.creates(record) <= 1, death
        if expected == FINALIZED:
            assert bench.creates(record) == 1, death
            assert bench.mirror(record) == (bench.link(record).remote_id if mirror else None), death
        else:
            assert bench.link(record) is None, death


@pytest.mark.rule("PA-08", "PA-11", "DL-06", "DL-07", "D-19", "D-20", "D-21")
@pytest.mark.parametrize("story", UPDATES, ids=str)
def test_an_update_that_dies_anywhere_is_in_doubt_or_as_if_nothing_had_happened(
    make_bench: MakeBench, story: Story
) -> None:
    """No second update is in flight, a rejected version is not sent again, a remote that is gone suspends the link."""
    bench, number = make_bench(True), 0
    bench.accepted = None if "never accepted" in story.name else Remembered(8)

    def scenario(death: Death) -> str:
        nonlocal number
        record, number = bench.linked_record(), number + 1
        assert isinstance(bench.save(record, name=f"Ada {number}"), Queued)
        bench.wire.script.next(story.verb, when=for_record(record, updating))
        bench.work(death)
        return record

    first = 1 if story.verb is PLAINLY else CHECKPOINT
    for death, record in after_every_death(bench, scenario, hows=story.hows, first=first):
        expected = AMBIGUOUS if is_in_doubt(death) else story.ends
        assert bench.statuses(record, "update") == [expected], death
        suspended = expected == TERMINAL and story.reason in {"remote_gone", "remote_conflict"}
        assert bench.link(record).status == ("suspended_drift" if suspended else FINALIZED), death
        assert (
            story.reason is None or expected == AMBIGUOUS or bench.rows(record, "update")[0].reason_code == story.reason
        ), death
        assert (bench.rows(record, "update")[0].hold_code == "credential") is (expected == "pending"), death
        if expected == FINALIZED:
            [held] = [r for r in bench.wire.api.records if r.document["key"] == record]
            assert held.document["name"] == f"Ada {number}", death


@pytest.mark.rule("PO-02", "PO-06", "RR-05", "AT-12", "D-02")
def test_a_writeback_that_dies_anywhere_is_done_again_and_nothing_is_sent(make_bench: MakeBench) -> None:
    """A mirror that failed is written later, however often the worker dies over it; the remote hears nothing of it."""
    bench = make_bench(True)

    def scenario(death: Death) -> str:
        record = bench.new_record()
        bench.mirrors.failing = 1
        bench.work(Death(at=-1, how=How.DIES_BEFORE))
        assert bench.statuses(record) == ["writeback_pending"]
        bench.clock.advance(seconds=60)
        bench.work(death)
        return record

    for death, record in after_every_death(bench, scenario):
        assert bench.statuses(record) == [FINALIZED], death
        assert bench.mirror(record) == bench.link(record).remote_id, death
        assert bench.link(record).mirror_status == "written", death
        assert bench.creates(record) == 1, death


@pytest.mark.rule("PO-02", "DL-10", "RR-05")
def test_a_mirror_that_fails_under_a_death_is_written_in_the_end(make_bench: MakeBench) -> None:
    """The create's own mirror write fails and the worker dies around it: the link stays, the mirror comes."""
    bench = make_bench(True)

    def scenario(death: Death) -> str:
        record = bench.new_record()
        bench.mirrors.failing = 1
        bench.work(death)
        return record

    for death, record in after_every_death(bench, scenario):
        assert bench.statuses(record) == [AMBIGUOUS if is_in_doubt(death) else FINALIZED], death
        if not is_in_doubt(death):
            assert bench.mirror(record) == bench.link(record).remote_id, death


@pytest.mark.rule("PA-10", "RR-02", "D-19", "C-082")
def test_a_wanted_version_survives_every_death_of_its_create(make_bench: MakeBench) -> None:
    """A save while the create is open becomes one update when the link is there, and waits while it is in doubt."""
    bench = make_bench(True)

    def scenario(death: Death) -> str:
        record = bench.new_record(name="Ada")
        bench.save(record, name="Grace")
        bench.work(death)
        return record

    for death, record in after_every_death(bench, scenario):
        sent = [entry.asked for entry in bench.wire.log if entry.asked.json()["key"] == record]
        if is_in_doubt(death):
            assert bench.statuses(record, "update") == [], death
        else:
            assert bench.statuses(record, "update") == [FINALIZED], death
            assert [asked.json()["name"] for asked in sent] == ["Ada", "Grace"], death


@pytest.mark.rule("GT-08", "RR-07", "DR-22", "C-086")
def test_a_source_that_is_gone_ends_its_create_unsent_through_every_death(make_bench: MakeBench) -> None:
    """Nothing is sent for a record that is not there any more, whoever dies on the way."""
    bench = make_bench(True)

    def scenario(death: Death) -> str:
        record = bench.new_record()
        bench.delete(record)
        bench.work(death)
        return record

    for death, record in after_every_death(bench, scenario):
        assert bench.statuses(record) == [TERMINAL], death
        assert bench.creates(record) == 0, death


@pytest.mark.rule("PO-03", "DR-23")
def test_a_source_deleted_before_its_mirror_keeps_the_link_through_every_death(make_bench: MakeBench) -> None:
    """The link and its evidence stay; the local row is not made again, and no second one is made at the remote."""
    bench = make_bench(True)

    def scenario(death: Death) -> str:
        record = bench.new_record()
        bench.mirrors.failing = 1
        bench.work(Death(at=-1, how=How.DIES_BEFORE))
        bench.delete(record)
        bench.clock.advance(seconds=60)
        bench.work(death)
        return record

    for death, record in after_every_death(bench, scenario):
        assert bench.statuses(record) == [FINALIZED], death
        assert bench.link(record).mirror_status == "skipped_source_deleted", death
        assert bench.mirror(record) is None, death
        assert bench.creates(record) == 1, death


@pytest.mark.rule("D-15", "LK-07")
def test_a_taken_remote_id_is_kept_through_every_death(make_bench: MakeBench) -> None:
    """A create that is answered with another record's id keeps it under a hold, and the other link stays as it is."""
    bench, owner = make_bench(True), ""

    def scenario(death: Death) -> str:
        nonlocal owner
        owner = bench.linked_record()
        record = bench.new_record()
        same = answer(201, {"id": bench.link(owner).remote_id})
        bench.wire.script.next(same, when=for_record(record, creating))
        bench.work(death)
        return record

    for death, record in after_every_death(bench, scenario):
        assert bench.link(owner).status == FINALIZED, death
        assert bench.link(record) is None, death
        [attempt] = bench.rows(record)
        if is_in_doubt(death):
            assert attempt.status == AMBIGUOUS, death
        else:
            assert (attempt.status, attempt.hold_code) == ("writeback_pending", "locator_conflict"), death
            assert attempt.remote_id == bench.link(owner).remote_id, death


@pytest.mark.rule("AT-01", "AT-04", "GT-10")
def test_a_host_that_rolls_back_leaves_nothing(make_bench: MakeBench) -> None:
    """A reservation lives and dies with the host's transaction, and may be made again."""
    bench = make_bench(True)
    engine = bench.database.engine
    for _ in range(2):
        with engine.connect() as conn, conn.begin() as transaction:
            conn.execute(sa.text("INSERT INTO person (id, name) VALUES ('rolled back', 'x')"))
            [outcome] = bench.runtime.save(conn, "Person", "rolled back", user="u1")
            assert isinstance(outcome, Reserved)
            transaction.rollback()
        assert bench.rows("rolled back") == []
    bench.check("two rollbacks", settled=True)


def test_the_engines_are_what_they_say(engines: Any, tmp_path: Path) -> None:
    """Both databases are really in the matrix."""
    assert {engines(dialect).dialect.name for dialect in DIALECTS} == set(DIALECTS)
