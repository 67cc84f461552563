"""Why something could not be rendered: a value that a gate turns into a refusal, never an exception.

A failure names fields, targets and rules. No source value is ever part of its message or evidence, because its reader
may not be allowed to see it (AU-05).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pushlink.errors import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderFailure:
    """What could not be rendered, with its stable code; nothing was sent and nothing was changed."""

    code: Code
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
