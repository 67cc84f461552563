"""Opening a deployment for a command: settings, runtime, record ids. Heavy modules are imported here, when needed."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pushlink.errors import CallerError, Code, PushlinkError

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.flows.world import World
    from pushlink.ports import RecordRef

#: The command and its arguments as they were typed, without options, for the audit of what was not permitted.
TYPED: Final[ContextVar[str]] = ContextVar("typed", default="")


@contextmanager
def open_runtime(config: Path | None) -> Iterator[Runtime]:
    """The runtime of the settings; its engine is closed at the end, and database trouble becomes pushlink's errors.

    A token, or a principal, that was refused inside is written into the audit here, after the command's own transaction
    has ended.
    """
    from pushlink.bootstrap import Runtime
    from pushlink.store.access import made, translated

    runtime = Runtime.from_settings(config)
    try:
        made(lambda: runtime.engine)
        with translated():
            yield runtime
    except PushlinkError as error:
        if error.code in {Code.TOKEN_REFUSED, Code.NOT_PERMITTED}:
            _tell_of_refusal(runtime, error)
        raise
    finally:
        runtime.close()


def _tell_of_refusal(runtime: Runtime, error: PushlinkError) -> None:
    from pushlink.operations.principals import TokenRefused, record_not_permitted, record_refusal
    from pushlink.store.access import writing

    user = getpass.getuser()
    with writing(runtime.engine) as conn:
        now = runtime.world.clock.now(conn)
        if isinstance(error, TokenRefused):
            record_refusal(conn, error, local_user=user, now=now)
        elif isinstance(error, CallerError) and "principal" in error.evidence:
            record_not_permitted(conn, error, command=TYPED.get(), local_user=user, now=now)


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
