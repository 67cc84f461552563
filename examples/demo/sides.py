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
    """A runtime over a database in `folder`, and a remote that accepts its token."""
    token = secrets.token_urlsafe(24)
    os.environ["CRM_TOKEN"] = token  # where the pack looks for it: credential_ref is env:CRM_TOKEN
    (folder / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    remote = Remote(token)
    pl = Runtime.from_settings(
        database_url=f"sqlite:///{folder / 'crm.db'}",
        secret_file=folder / "secret",
        authority={"kind": "policy", "file": HERE / "policy.yaml"},
        egress={"allow_loopback": True},
    )
    pl.bind(Person, "Person")
    pl.bind(Organisation, "Organisation")
    try:
        yield pl, remote
    finally:
        pl.close()
        remote.close()
