"""Exit codes: the few that scripts can rely on. `docs/cli.md` shows the same table, and a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from pushlink.errors import CallerError, Code, ConfigurationError, PushlinkError, Unavailable


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    CONFIGURATION = 3
    UNAVAILABLE = 4
    PARKED = 5
    DEFECT = 6
    INTERRUPTED = 130


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.OK: "Done.",
    Exit.REFUSED: "The command ran and the answer is no: a refused save, a pack with errors, a failed check.",
    Exit.USAGE: "The call is wrong: an unknown option, object or record id.",
    Exit.CONFIGURATION: "Settings, policy, pack, credentials or the database's tables have to be mended first.",
    Exit.UNAVAILABLE: "Something did not answer, or is not due yet; the same command may be run again later.",
    Exit.PARKED: "Something needs a person; see `pushlink explain`.",
    Exit.DEFECT: "A defect of pushlink; please report it with what was shown.",
    Exit.INTERRUPTED: "Interrupted from the keyboard, or by a second signal (then 128 and the signal's number).",
}

#: Codes that say no to a call that is right in itself.
_REFUSALS: Final = frozenset(
    {Code.RECOVERY_MODE, Code.NOT_ALLOWED_NOW, Code.STALE_VERSION, Code.TOKEN_REFUSED, Code.NOT_PERMITTED}
)


def exit_of(error: PushlinkError) -> Exit:
    """The exit code that an error becomes."""
    if error.code in _REFUSALS:
        return Exit.REFUSED
    match error:
        case CallerError():
            return Exit.USAGE
        case ConfigurationError():
            return Exit.CONFIGURATION
        case Unavailable():
            return Exit.UNAVAILABLE
        case _:
            return Exit.DEFECT
