"""Opening a deployment for a command: settings, runtime, record ids. Heavy modules are imported here, when needed."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pushlink.errors import PushlinkError

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.flows.world import World
    from pushlink.ports import RecordRef


@contextmanager
def open_runtime(config: Path | None) -> Iterator[Runtime]:
    """The runtime of the settings; its engine is closed at the end, and database trouble becomes pushlink's errors."""
    from pushlink.bootstrap import Runtime
    from pushlink.store.access import made, translated

    runtime = Runtime.from_settings(config)
    try:
        made(lambda: runtime.engine)
        with translated():
            yield runtime
    finally:
        runtime.close()


def record_of(runtime: Runtime, source_object: str, text: str) -> RecordRef:
    """The record that somebody typed; raises `CallerError` for an unknown object or an id of another type."""
    from pushlink.ports import RecordRef

    return RecordRef(source_object=source_object, record_id=runtime.records.id_from_text(source_object, text))


def world_if_any(runtime: Runtime) -> World | None:
    """The runtime's world, or `None` when a secret or a policy is missing: reading goes on with less to say."""
    try:
        return runtime.world
    except PushlinkError:
        return None
