"""A child process that applies rebind manifests, to be killed by tests."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from migration.many import _now, _tell
from pushlink.errors import PushlinkError
from pushlink.migration import batches, rebind
from pushlink.protocol.rebinding import read_rebind
from pushlink.store.dialect import create_engine


def main() -> None:
    """Apply manifests: `url batch manifest...`; says when it begins, after each batch, and how each one ended."""
    url, batch, *manifests = sys.argv[1:]
    batches.SIZE = int(batch)  # type: ignore[misc]
    signal.alarm(120)
    engine = create_engine(url)
    for path in manifests:
        manifest = read_rebind(Path(path).read_text(encoding="utf-8"))
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        try:
            done = rebind.apply(engine, manifest, actor="child", now=_now, on_progress=_tell)
        except PushlinkError as error:
            sys.stdout.write(f"refused {error.code.value}\n")
        else:
            sys.stdout.write(f"{done.verdict.value}\n")
        sys.stdout.flush()
    engine.dispose()


if __name__ == "__main__":
    main()
