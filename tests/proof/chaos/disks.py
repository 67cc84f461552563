"""Disks of a few megabytes, which a trouble fills to the last byte."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_MEGABYTE: Final = 2**20
_BLOCK: Final = b"\0" * 4_096


@contextmanager
def own_file_system(place: Path) -> Iterator[None]:
    """Mount memory over this empty directory; `shrink` says how much. `PermissionError` where it may not be done."""
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"no small file system could be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def shrink(place: Path, spare_mb: int) -> None:
    """Leave so many megabytes beside what is there already."""
    bytes_max = shutil.disk_usage(place).used + spare_mb * _MEGABYTE
    subprocess.run(["mount", "-o", f"remount,size={bytes_max}", str(place)], check=True)


def fill(place: Path) -> Path:
    """Fill the file system of this directory; answers the file that does, for whoever removes it."""
    filler = place / "filler"
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(_BLOCK)
    return filler
