"""Thousands of links without thousands of pushes, and a child process that applies a manifest over them."""

from __future__ import annotations

import datetime as dt
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pushlink.errors import PushlinkError
from pushlink.migration import batches, revalidate
from pushlink.protocol.identity import link_key, locator_key
from pushlink.protocol.manifest import read_manifest
from pushlink.protocol.snapshots import LinkKey, Slots
from pushlink.store.dialect import create_engine
from pushlink.store.tables import METADATA

SLOTS = Slots(
    tenant="",
    connector_owner_key="owner-1",
    action_slot_id="act-1",
    destination_slot_id="dest-1",
    source_object="Person",
)
FIRST = 100_000


def copies(engine: sa.Engine, link: dict[str, Any], count: int) -> list[LinkKey]:
    """That many links, slots and finalized creates, like one that was really pushed; their keys in order."""
    tables = {name: METADATA.tables[f"pushlink_{name}"] for name in ("remote_link", "push_slot", "push_attempt")}
    keys: list[LinkKey] = []
    with engine.begin() as conn:
        like = {
            name: dict(conn.execute(sa.select(table).where(table.c.link_key == link["link_key"])).mappings().one())
            for name, table in tables.items()
        }
        for start in range(0, count, 1_000):
            made: dict[str, list[dict[str, Any]]] = {name: [] for name in tables}
            for number in range(FIRST + start, FIRST + min(start + 1_000, count)):
                key = link_key(SLOTS, str(number))
                keys.append(key)
                about = {"link_key": key, "source_record_id": str(number)}
                remote = {"remote_id": f"r{number}", "remote_id_canonical": f"r{number}"}
                where = locator_key(SLOTS, scope=link["destination_scope"], canonical_id=f"r{number}")
                made["remote_link"].append(
                    like["remote_link"]
                    | about
                    | remote
                    | {"id": f"link-{number}", "slot_key": key, "locator_key": where}
                )
                made["push_slot"].append(like["push_slot"] | about)
                made["push_attempt"].append(
                    like["push_attempt"]
                    | {"id": f"attempt-{number}", "link_key": key, "create_key": key, "remote_id": f"r{number}"}
                )
            for name, table in tables.items():
                conn.execute(table.insert(), made[name])
    return sorted(keys)


def apply_each(read: Callable[[str], Any], apply: Callable[..., Any]) -> None:
    """Apply manifests: `url batch manifest...`; says when it begins, after each batch, and how each one ended."""
    url, batch, *manifests = sys.argv[1:]
    batches.SIZE = int(batch)  # type: ignore[misc]
    signal.alarm(120)
    engine = create_engine(url)
    for path in manifests:
        manifest = read(Path(path).read_text(encoding="utf-8"))
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        try:
            done = apply(engine, manifest, actor="child", now=_now, on_progress=_tell)
        except PushlinkError as error:
            sys.stdout.write(f"refused {error.code.value}\n")
        else:
            sys.stdout.write(f"{done.verdict.value}\n")
        sys.stdout.flush()
    engine.dispose()


def _now(_conn: sa.Connection) -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _tell(done: int) -> None:
    sys.stdout.write(f"at {done}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    apply_each(read_manifest, revalidate.apply)
