"""The pytest plugin: a faulty remote, runtimes in a directory of the test's own, and a drain. Nothing to import.

    def test_a_lost_answer_never_makes_a_second_record(pushlink_remote, pushlink_runtime, pushlink_drain):
        runtime = pushlink_runtime(PACK, bind={"Person": Person}, metadata=Base.metadata)
        pushlink_remote.next(store_then_close(), when=creating)
        with Session(runtime.engine) as session:
            ...
        pushlink_drain(runtime)
        assert pushlink_remote.creates == 1

pytest loads this module with every run in which pushlink is installed, so it imports nothing until a fixture is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.testing.remote import FaultyRemote
    from pushlink.worker import Tally


@pytest.fixture
def pushlink_remote() -> Iterator[FaultyRemote]:
    """A remote on a free port of this machine: `next`, `always`, `records`, `creates_by`, `log`. See `docs/testing.md`.

    For other options than the usual ones open a `FaultyRemote(RemoteOptions(...))` in a `with`.
    """
    from pushlink.testing.remote import FaultyRemote  # noqa: PLC0415  (loaded when it is asked for)

    with FaultyRemote() as remote:
        yield remote


@pytest.fixture
def pushlink_runtime(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Runtime]]:
    """A function that makes runtimes, each over a database of its own; see `open_runtime` for what it takes.

    The profiles of its pack speak to `pushlink_remote` unless a `base_url` is given, or `None` to leave them alone.
    """
    from pushlink.testing.drain import open_runtime  # noqa: PLC0415

    opened: list[Runtime] = []

    def open_(pack: Any = None, **more: Any) -> Runtime:
        directory = tmp_path / f"pushlink-{len(opened) + 1}"
        directory.mkdir()
        if pack is not None and "base_url" not in more:
            more["base_url"] = request.getfixturevalue("pushlink_remote").base_url
        opened.append(open_runtime(directory, pack=pack, **more))
        return opened[-1]

    yield open_
    for runtime in opened:
        runtime.close()


@pytest.fixture
def pushlink_drain() -> Callable[..., Tally]:
    """A function that runs a runtime's worker until nothing is due; see `drain`."""
    from pushlink.testing.drain import drain  # noqa: PLC0415

    return drain
