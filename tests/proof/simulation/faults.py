"""What may go wrong in a simulation, and how often: every seed draws its own mixture."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """One kind of trouble. Each is off in about half of all seeds."""

    # the process
    KILL = "kill"
    PAUSE = "pause"  # it stands still while everybody else goes on, often past its lease
    # the database
    ROLLED_BACK = "rolled back"  # the connection goes before the commit
    COMMIT_UNHEARD = "commit unheard"  # the commit happens, and its answer is lost
    SERIALIZATION = "serialization failure"
    DEADLOCK = "deadlock"
    BUSY = "busy"
    DISK_FULL = "disk full"
    RESTORED = "restored"  # an older backup takes the database's place
    # the clock of the database
    CLOCK_FORWARD = "clock forward"
    CLOCK_BACK = "clock back"
    # the network
    NOT_CONNECTED = "not connected"
    REQUEST_LOST = "request lost"
    REQUEST_LATE = "request late"  # it arrives after everybody has stopped waiting for it
    REPLY_LOST = "reply lost"
    REPLY_TRUNCATED = "reply truncated"
    # the remote
    ERROR_DONE = "error with effect"
    ERROR_UNDONE = "error without effect"
    THROTTLED = "throttled"
    REFUSED = "refused"
    UNAUTHORISED = "unauthorised"
    FOREIGN_ID = "foreign id"  # it answers with the id of a record that another link owns
    DUPLICATE = "duplicate"  # it says that the record is there already, and names another one
    GONE = "gone"  # somebody deletes a record there
    # the configuration
    CREDENTIAL = "credential changed"
    MAPPING = "mapping changed"
    SOURCE_DELETED = "source deleted"
    SUSPENDED = "suspended"  # an operator stops a link
    FOREIGN_LANE = "unknown lane"  # a newer release has put a row into a lane that nobody here knows


#: Faults that meet a request on its way, and those that meet a transaction.
ON_THE_WIRE: Final = (
    Fault.NOT_CONNECTED,
    Fault.REQUEST_LOST,
    Fault.REQUEST_LATE,
    Fault.REPLY_LOST,
    Fault.REPLY_TRUNCATED,
    Fault.ERROR_DONE,
    Fault.ERROR_UNDONE,
    Fault.THROTTLED,
    Fault.REFUSED,
    Fault.UNAUTHORISED,
    Fault.FOREIGN_ID,
    Fault.DUPLICATE,
)
IN_A_TRANSACTION: Final = (
    Fault.ROLLED_BACK,
    Fault.COMMIT_UNHEARD,
    Fault.SERIALIZATION,
    Fault.DEADLOCK,
    Fault.BUSY,
    Fault.DISK_FULL,
)
IN_THE_WORLD: Final = tuple(fault for fault in Fault if fault not in {*ON_THE_WIRE, *IN_A_TRANSACTION})

#: The rates between which a seed draws each of its faults.
RATE_MIN: Final = 0.01
RATE_MAX: Final = 0.3


@dataclass(slots=True)
class Faults:
    """The mixture of one seed, and how often each kind has struck."""

    rates: dict[Fault, float]
    rng: random.Random
    struck: Counter[Fault] = field(default_factory=Counter)
    healed: bool = False

    @classmethod
    def draw(cls, rng: random.Random) -> Faults:
        """Half of the kinds, each at a rate of its own: what is rare in one seed is common in another."""
        rates = {}
        for fault in Fault:
            on, rate = rng.random() < 0.5, math.exp(rng.uniform(math.log(RATE_MIN), math.log(RATE_MAX)))
            if on:
                rates[fault] = rate
        return cls(rates, rng)

    def strike(self, *kinds: Fault, scale: float = 1.0) -> Fault | None:
        """Which of these happens now, if any; counts it."""
        if self.healed:
            return None
        for fault in kinds:
            if self.rng.random() < scale * self.rates.get(fault, 0.0):
                self.struck[fault] += 1
                return fault
        return None

    def undo(self, fault: Fault) -> None:
        """It could not happen after all."""
        self.struck[fault] -= 1
