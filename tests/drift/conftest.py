"""The stage of the flows' tests, for what needs no whole scene."""

from __future__ import annotations

from flows.conftest import make_stage, stage

__all__ = ["make_stage", "stage"]
