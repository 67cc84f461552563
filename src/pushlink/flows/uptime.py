"""How long this machine has been up, suspension included: the clock that tells a process that it stood still.

It compares moments of one machine alone and decides nothing about leases, which are the database's. Between the commit
of a checkpoint and the first byte it is all there is: a process that was stopped there must not go on as if nothing
had happened.
"""

from __future__ import annotations

import time
from typing import Final

# Linux keeps a clock that goes on while the machine is suspended; elsewhere the monotonic one has to do.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_s() -> float:
    """Seconds since some moment before this process began; never goes back."""
    return time.clock_gettime(_CLOCK)
