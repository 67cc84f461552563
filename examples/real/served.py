"""What the real servers have in common: a process on loopback, a log with a line for each request, and an end.

A server says how it is started and how its records are read; everything here is the same for all of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

START_S_MAX = 90.0
#: A server may write a request's line after its answer: a log is read when it has not grown for so long.
QUIET_S = 0.3

#: A process with these lines first ends when its standard input does, so that it never outlives the run.
GUARD = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
"""

#: A write in the form that most servers log, after the common log format: "POST /path HTTP/1.1" 201
_WRITE = re.compile(r'"(POST|PUT|PATCH|DELETE) \S+ HTTP/1\.[01]" ([0-9]{3})\b')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Served:
    """One server that a Python program starts; see `remotes.Remote` for what a run asks of it."""

    #: Its name in the names of files.
    name = ""
    #: A path that answers, with whatever status, when it is ready.
    ready_path = "/"
    #: The bearer token that it takes, made anew for each run; empty where it takes no credential.
    secret = ""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def program(self) -> tuple[str, list[str]]:
        """The Python program that serves, and its arguments."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Write what the server reads when it starts."""

    def make_places(self) -> None:
        """Make the places for the records, once it runs."""

    def start(self) -> str:
        """Start it, wait until it answers, and begin its log; answers with its address."""
        self.prepare()
        program, arguments = self.program()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", GUARD + program, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._wait_until_ready()
        self.make_places()
        self.begin_log()
        return self.url

    def begin_log(self) -> None:
        """Forget the requests so far: the counts begin with what pushlink sends. The log is appended to."""
        self.log.write_bytes(b"")

    def requests(self) -> Counter[str]:
        """The writes in the log, by method and status."""
        text = _COLOUR.sub("", settled(self.log))
        return Counter(f"{method} {status}" for method, status in _WRITE.findall(text))

    def marks(self, source_object: str) -> Mapping[str, object]:
        """The records themselves, where a server keeps no mark of a write."""
        return self.records(source_object)

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every record by remote id."""
        raise NotImplementedError

    def stop(self) -> float:
        """Close its standard input, and read its bill: the seconds of CPU that it took."""
        if self._process is None:
            return 0.0
        if self._process.stdin is not None:
            self._process.stdin.close()
        ended, self._process = self._process, None
        if ended.returncode is not None:
            return 0.0  # it ended by itself, and its bill is paid
        _, _, usage = os.wait4(ended.pid, 0)
        ended.returncode = 0
        return usage.ru_utime + usage.ru_stime

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, str], Any]:
        """A request of our own, past pushlink; answers with the headers and the JSON."""
        data = None if body is None else json.dumps(body).encode()
        own = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        if self.secret:
            own["Authorization"] = f"Bearer {self.secret}"
        request = Request(self.url + path, data=data, method=method, headers=own)  # noqa: S310 - our own address
        with urlopen(request, timeout=60) as response:  # noqa: S310 - the same
            text = response.read()
            return response.headers, json.loads(text) if text and method != "HEAD" else None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                with urlopen(self.url + self.ready_path, timeout=10):  # noqa: S310 - our own address
                    return
            except HTTPError:
                return  # it answers, and that is all that is asked
            except (URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        self.stop()
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-2_000:]
        msg = f"{self.name} did not start; its log ends:\n{tail}"
        raise RuntimeError(msg)


def settled(log: Path) -> str:
    """The text of a log that nobody writes to at the moment."""
    size = -1
    while (grown := log.stat().st_size) != size:
        size = grown
        time.sleep(QUIET_S)
    return log.read_text(encoding="utf-8", errors="replace")
