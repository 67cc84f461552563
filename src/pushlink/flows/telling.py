"""How a failure that nobody expected is told in a log: its type and where it was raised, never what it says.

The text of an exception may quote what was read or sent, a secret among it: a driver's message holds rows, a
transport's a header, a provider's a file. Frames name files and lines only, so the place can be found all the same.
"""

from __future__ import annotations

import traceback
from typing import Final

#: Frames told, counted from where it was raised.
FRAMES_MAX: Final = 8


def told(error: BaseException) -> str:
    """The type of an error, those of its causes, and its innermost frames."""
    kinds: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(kinds) < FRAMES_MAX:
        kinds.append(type(seen).__name__)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    where = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{' from '.join(kinds)} at {where or 'an unknown place'}"
