"""A child process that applies rebind manifests, to be killed by tests."""

from __future__ import annotations

from migration.many import apply_each
from pushlink.migration import rebind
from pushlink.protocol.rebinding import read_rebind

if __name__ == "__main__":
    apply_each(read_rebind, rebind.apply)
