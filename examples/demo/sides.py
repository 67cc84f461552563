"""The two sides of the demo: the remote's process, and a runtime over the CRM's database."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from crm import Organisation, Person

from pushlink import Runtime

HERE = Path(__file__).resolve().parent
#: What decides who may read what; step 7 refers to it.
POLICY = HERE / "policy.yaml"
#: Names of files in the demo's folder.
DATABASE, SETTINGS, SECRET, TOKEN = "crm.db", "pushlink.toml", "secret", "token"


class Remote:
    """The remote's process as the demo asks it, behind pushlink's back."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "remote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "REMOTE_TOKEN": token},
            text=True,
        )
        first_line = self._process.stdout.readline() if self._process.stdout else ""
        self.url = first_line.strip()
        if not self.url:
            msg = "the remote did not start"
            raise SystemExit(msg)

    def get(self, path: str) -> Any:
        """What the remote answers to a GET."""
        headers = {"Authorization": f"Bearer {self._token}"}
        with urlopen(Request(self.url + path, headers=headers), timeout=10) as response:  # noqa: S310 - our own address
            return json.load(response)

    def counts(self) -> Counter[str]:
        """How many creates and updates had an effect."""
        return Counter(self.get("/-/counts"))

    def close(self) -> None:
        """End the process by closing its standard input."""
        self._process.communicate(timeout=10)


@contextmanager
def both_sides(folder: Path) -> Iterator[tuple[Runtime, Remote]]:
    """A runtime over settings that are written into `folder`, and a remote that accepts the token beside them."""
    for name in [name for name in os.environ if name.startswith("PUSHLINK_")]:
        del os.environ[name]  # a variable wins over the file, and a demo must not reach a real database
    token = secrets.token_urlsafe(24)
    write_private(folder / TOKEN, token)
    write_private(folder / SECRET, secrets.token_hex(32))
    (folder / SETTINGS).write_text(settings(folder), encoding="utf-8")
    remote = Remote(token)
    pl = Runtime.from_settings(folder / SETTINGS)
    pl.bind(Person, "Person")
    pl.bind(Organisation, "Organisation")
    try:
        yield pl, remote
    finally:
        pl.close()
        remote.close()


def settings(folder: Path) -> str:
    """What `pushlink init` would write, for these tables: the command line works with it after the demo."""
    return f"""\
database_url = {json.dumps(f"sqlite:///{folder / DATABASE}")}
secret_file = {json.dumps(SECRET)}
state_directory = "state"

[authority]
kind = "policy"
file = {json.dumps(str(POLICY))}

[egress]
allow_loopback = true

[objects.Person]
table = "people"
key = [{{column = "id", type = "integer"}}]

[objects.Organisation]
table = "organisations"
key = [{{column = "id", type = "integer"}}]
"""


def write_private(file: Path, text: str) -> None:
    """A file that only its owner may read."""
    file.touch(mode=0o600)
    file.write_text(text, encoding="ascii")
