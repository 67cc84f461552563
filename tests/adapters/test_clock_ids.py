from __future__ import annotations

import datetime as dt
import threading

import pytest
import sqlalchemy as sa

from pushlink.adapters.clock_ids import DatabaseClock, RandomIds
from pushlink.adapters.memory import START, FixedClock, SequentialIds


@pytest.mark.rule("D-13")
def test_the_clock_is_the_databases_and_moves_within_a_transaction(engine: sa.Engine) -> None:
    """It is read where it is asked for, not at the start of the transaction, and does not depend on this machine."""
    clock = DatabaseClock()
    with engine.begin() as conn:
        first = clock.now(conn)
        later = clock.now(conn)
        for _ in range(1000):
            if later > first:
                break
            later = clock.now(conn)
    assert later > first
    assert first.tzinfo is dt.UTC
    assert abs(first - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_identities_sort_by_when_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while the machine's clock stands still or is set back."""
    moments = iter([2_000_000_000, 2_000_000_000, 1_000_000_000, 1_000_000_000, 3_000_000_000])
    monkeypatch.setattr("pushlink.adapters.clock_ids.time.time_ns", lambda: next(moments))
    ids = RandomIds()
    made = [ids.fresh() for _ in range(5)]
    assert made == sorted(made)
    assert len(set(made)) == 5
    assert all(len(each) == 32 and int(each, 16) > 0 for each in made)


def test_identities_of_many_threads_and_instances_never_meet() -> None:
    shared, made = RandomIds(), []

    def make() -> None:
        own = RandomIds()
        made.extend([shared.fresh() for _ in range(2000)] + [own.fresh() for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(made)) == 16_000


@pytest.mark.rule("D-12")
def test_tokens_are_random_and_never_repeat() -> None:
    ids = RandomIds()
    tokens = {ids.token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in tokens)
    assert len({token[0] for token in tokens}) == 16


def test_the_clock_in_memory_moves_only_when_told() -> None:
    clock = FixedClock()
    assert clock.now() == clock.now() == START
    assert clock.advance(seconds=90) == START + dt.timedelta(seconds=90)
    clock.set(dt.datetime(2024, 7, 1, 12, 0, tzinfo=dt.timezone(dt.timedelta(hours=2))))
    assert clock.now() == dt.datetime(2024, 7, 1, 10, 0, tzinfo=dt.UTC)
    for naive in (lambda: clock.set(dt.datetime(2024, 7, 1)), lambda: FixedClock(dt.datetime(2024, 7, 1))):  # noqa: DTZ001
        with pytest.raises(ValueError, match="zone"):
            naive()


def test_the_ids_in_memory_count() -> None:
    ids = SequentialIds()
    assert [int(ids.fresh(), 16) for _ in range(3)] == [1, 2, 3]
    tokens = [ids.token() for _ in range(3)]
    assert all(len(token) == 32 and token.startswith("f") for token in tokens)
    assert len(set(tokens)) == 3
