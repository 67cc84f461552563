"""pushlink: one logical action on one local record owns exactly one remote record.

These are the public names; everything else may move between releases. Each is imported when it is first asked for, so
that a command which needs none of them starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pushlink.bootstrap import Parts, Runtime
    from pushlink.errors import (
        CallerError,
        Code,
        ConfigurationError,
        Contended,
        PackError,
        ProtocolViolation,
        PushlinkError,
        Unavailable,
    )
    from pushlink.flows.outcomes import About, Deferred, Outcome, Queued, Refused, Reserved, Unchanged
    from pushlink.settings import Settings
    from pushlink.worker import Tally, Worker, WorkerOptions

_HOME = {
    "bootstrap": ("Parts", "Runtime"),
    "errors": (
        "CallerError",
        "Code",
        "ConfigurationError",
        "Contended",
        "PackError",
        "ProtocolViolation",
        "PushlinkError",
        "Unavailable",
    ),
    "flows.outcomes": ("About", "Deferred", "Outcome", "Queued", "Refused", "Reserved", "Unchanged"),
    "settings": ("Settings",),
    "worker": ("Tally", "Worker", "WorkerOptions"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "About",
    "CallerError",
    "Code",
    "ConfigurationError",
    "Contended",
    "Deferred",
    "Outcome",
    "PackError",
    "Parts",
    "ProtocolViolation",
    "PushlinkError",
    "Queued",
    "Refused",
    "Reserved",
    "Runtime",
    "Settings",
    "Tally",
    "Unavailable",
    "Unchanged",
    "Worker",
    "WorkerOptions",
]


def __getattr__(name: str) -> Any:
    """A public name, from the module it lives in."""
    module = _MODULE_OF.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"pushlink.{module}"), name)
