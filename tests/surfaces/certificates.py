"""A pack that claims a replay contract, over a shop, and the command that tries the claim, as it is typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pushlink.testing.collection import Dedupe, RemoteOptions
from pushlink.testing.remote import FaultyRemote
from surfaces.conftest import TOKEN, Shop

CLAIM = """\
          idempotency:
            name: Idempotency-Key
            lifetime: 1h
            receipt: [{header: Idempotent-Replayed, equals: "true"}]
            mismatch: [{status: [422]}]
"""
PROBE = """\
        probe:
          values: {title: "{nonce}", body: a trial}
          read: /notes/{remote_id}
          delete: /notes/{remote_id}
          count: {path: /notes, query: {title: "{nonce}"}, items: /records}
"""


@contextmanager
def sandbox(*, honours: bool) -> Iterator[FaultyRemote]:
    """A remote that keeps the claim, or takes the key and ignores it."""
    options = RemoteOptions(token=TOKEN, dedupe=Dedupe() if honours else None)
    with FaultyRemote(options) as remote:
        yield remote


def claiming(shop: Shop, address: str) -> Path:
    """The shop's pack with a claim, a probe, and a sandbox at this address."""
    text = shop.pack.read_text()
    text = text.replace(
        "    auth: {kind: bearer}\n", f"    auth: {{kind: bearer}}\n    sandbox: {{base_url: {address}}}\n"
    )
    text = text.replace("          path: /notes\n", f"          path: /notes\n{CLAIM}")
    text = text.replace("        mappings:\n", f"{PROBE}        mappings:\n")
    path = shop.home / "claiming.yaml"
    path.write_text(text)
    return path


def certify(shop: Shop, address: str, *, code: int = 0) -> Any:
    """The command's document."""
    pack = claiming(shop, address)
    answer = shop.run("pack", "certify", pack, "--profile", "main", "--action", "push_note", "--json")
    assert answer.code == code, answer.out + answer.err
    return answer.document


def documents(shop: Shop) -> dict[str, Any]:
    """What the command answers with."""
    with sandbox(honours=True) as remote:
        return {"pushlink pack certify": certify(shop, remote.base_url)}
