"""The stage of the flows' tests."""

from __future__ import annotations

from flows.conftest import make_stage, stage

__all__ = ["make_stage", "stage"]
