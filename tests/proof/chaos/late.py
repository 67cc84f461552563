"""`python -m proof.chaos.late SHIFT host|worker|... ARGUMENTS`: a host, or `pushlink`, whose clocks are wrong.

The clock of the database, which all processes share, is later by the seconds that the file SHIFT names at that moment.
The clock of this process alone is off by up to ten minutes either way, for as long as it lives.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from proof.chaos import host
from pushlink.adapters import clock_ids
from pushlink.surfaces import cli

_OFF_S_MAX: Final = 600


def main(shift: str, what: str, *arguments: str) -> None:
    """Move the clocks, then do what was asked for."""
    read = clock_ids.current_time
    clock_ids.current_time = lambda conn: read(conn) + dt.timedelta(seconds=float(Path(shift).read_text()))
    off_s = os.getpid() * 37 % (2 * _OFF_S_MAX) - _OFF_S_MAX
    time.time = _moved(time.time, off_s)
    time.time_ns = _moved(time.time_ns, off_s * 10**9)
    if what == "host":
        host.main(*arguments)
    else:
        sys.argv = ["pushlink", what, *arguments]
        cli.main()


def _moved(clock: Callable[[], Any], by: int) -> Callable[[], Any]:
    return lambda: clock() + by


if __name__ == "__main__":
    main(*sys.argv[1:])
