"""The file of anchors: JSON Lines that are only added to, on a disk that who writes the database cannot write."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pushlink.errors import CallerError, Unavailable
from pushlink.protocol.anchors import LINE_BYTES_MAX, Anchor, read_anchor

_MODE: Final = 0o600


class AnchorFile:
    """Anchors of one deployment, as they were added."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, *, deployment_id: str) -> Iterator[tuple[int, Anchor]]:
        """Each anchor with the number of its line; none where there is no file.

        Raises `CallerError` for a line that is none of this deployment's.
        """
        try:
            with self.path.open("rb") as file:
                number = 0
                while line := file.readline(LINE_BYTES_MAX + 1):
                    number += 1
                    anchor = read_anchor(line)
                    if isinstance(anchor, str):
                        raise self._refused(number, anchor)
                    if anchor.deployment_id != deployment_id:
                        raise self._refused(number, f"it is of the deployment {anchor.deployment_id}")
                    yield number, anchor
        except FileNotFoundError:
            return
        except OSError as exc:
            raise self._unavailable("read", exc) from exc

    def append(self, line: bytes) -> None:
        """Add an anchor and flush it to the disk. Raises `Unavailable` when the disk does not take it."""
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if os.write(handle, line) != len(line):
                    raise OSError("the disk took a part of it")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as exc:
            raise self._unavailable("write", exc) from exc

    def _refused(self, number: int, why: str) -> CallerError:
        return CallerError(
            f"Line {number} of {self.path} cannot be used: {why}.",
            evidence={"file": str(self.path), "line": number},
            next_step="look who changed it; a file of anchors is added to by `pushlink verify` alone",
        )

    def _unavailable(self, verb: str, exc: OSError) -> Unavailable:
        return Unavailable(
            f"{self.path} cannot be {'read' if verb == 'read' else 'written'}: {exc.strerror or exc}.",
            evidence={"file": str(self.path)},
            next_step="name a file in a directory that exists and that you may write",
        )
