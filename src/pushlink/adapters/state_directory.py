"""The state directory: what a machine remembers of its database, outside of that database.

`deployment.json` names the deployment, how often an operator has confirmed it, and the highest mark of checkpoints that
this directory has seen. It is replaced whole and flushed to the disk before `keep` returns, so that a database which
was put back to an earlier day is found out at the next start (D-36). Processes that share a directory take turns.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pushlink.errors import ConfigurationError, Unavailable
from pushlink.ports import StateSeen

FILE_NAME: Final = "deployment.json"
LOCK_NAME: Final = "deployment.lock"

_FORMAT: Final = 1
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700


class StateDirectory:
    """The port `StateKeeper` on a directory of its owner's alone; it is made when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def seen(self) -> StateSeen:
        """What is known, after making the directory and its file if need be. Raises `ConfigurationError`."""
        known = self._read()
        if known is not None:
            return known
        with self._turn():
            known = self._read()
            return known or self._write(_fresh())

    def keep(self, seen: StateSeen) -> None:
        """Make `seen` durable. A mark is never lowered, and what a later confirmation wrote is left as it is.

        Raises `Unavailable` when the disk does not take it.
        """
        with self._turn():
            known = self._read()
            if known is not None and not _is_news(known, seen):
                return
            self._write(seen)

    def _read(self) -> StateSeen | None:
        try:
            text = (self.path / FILE_NAME).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as exc:
            raise self._unusable(type(exc).__name__) from exc
        try:
            content = json.loads(text)
            if content.pop("format") != _FORMAT:
                raise self._unusable("its format is of another release")
            return StateSeen(**content)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise self._unusable("it is no document of pushlink's") from exc

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"The state file {self.path / FILE_NAME} cannot be read: {why}.",
            evidence={"file": str(self.path / FILE_NAME)},
            next_step="restore the file; without it nobody can tell whether the database was put back",
        )

    def _write(self, seen: StateSeen) -> StateSeen:
        document = {
            "format": _FORMAT,
            "state_id": seen.state_id,
            "deployment_id": seen.deployment_id,
            "confirmations": seen.confirmations,
            "mark": seen.mark,
        }
        beside = self.path / f".{FILE_NAME}.{os.getpid()}"
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                os.fchmod(descriptor, _FILE_MODE)
                stream.write(json.dumps(document, indent=1) + "\n")
                stream.flush()
                os.fsync(descriptor)
            beside.replace(self.path / FILE_NAME)
            self._sync_directory()
        except OSError as exc:
            raise Unavailable(
                f"The state directory {self.path} does not take a file: {exc.strerror or type(exc).__name__}.",
                evidence={"directory": str(self.path)},
                next_step="make room, or mend its owner and mode",
            ) from exc
        return seen

    def _sync_directory(self) -> None:
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One writer at a time, among threads and processes alike: each opens the lock file for itself."""
        try:
            self.path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            descriptor = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT, _FILE_MODE)
        except OSError as exc:
            raise Unavailable(
                f"The state directory {self.path} cannot be used: {exc.strerror or type(exc).__name__}.",
                evidence={"directory": str(self.path)},
                next_step="make it, for the user that workers run as",
            ) from exc
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _fresh() -> StateSeen:
    return StateSeen(state_id=secrets.token_hex(16), deployment_id=None, mark=0, confirmations=0)


def _is_news(known: StateSeen, seen: StateSeen) -> bool:
    if known.deployment_id != seen.deployment_id:
        return True
    return (seen.confirmations, seen.mark) > (known.confirmations, known.mark)
