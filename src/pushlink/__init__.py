"""pushlink: one logical action on one local record owns exactly one remote record.

These are the public names; everything else may move between releases.
"""

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
