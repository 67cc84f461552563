"""The stage of the flows' tests, and the command line's shop."""

from __future__ import annotations

from flows.conftest import make_stage, stage
from surfaces.conftest import _logs_as_they_were, local_shop, remote, shop

__all__ = ["_logs_as_they_were", "local_shop", "make_stage", "remote", "shop", "stage"]
