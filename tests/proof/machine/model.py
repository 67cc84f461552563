"""The model: what the host, the remote and the operator do to one record, and what can be seen of it afterwards.

It knows no leases, no transactions and no retries: a worker works until nothing is left to do. The pack that it speaks
of has no replay contract and no idempotent updates, so whatever may have been applied waits for a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: What a request meets: whether it takes effect at the remote, and what is known of it afterwards.
FAULTS: Final[dict[str, tuple[bool, str]]] = {
    "plain": (True, "done"),
    "reply lost": (True, "doubt"),
    "request lost": (False, "doubt"),
    "error with effect": (True, "doubt"),
    "error without effect": (False, "doubt"),
    "rejected": (False, "refused"),
    "throttled": (False, "again"),
    "not reached": (False, "again"),
}

DOUBT, FAILED = "ambiguous_remote_effect", "terminal_failed"


@dataclass(slots=True)
class Story:
    """One record. `None`: there is no such thing."""

    host: str | None = None
    create: str | None = None  # pending, in doubt, failed, finalized
    link: str | None = None  # finalized, suspended_drift, retired
    update: str | None = None  # in doubt, failed; the others come and go within one `work`
    wanted: str | None = None  # the newest value that a save let through
    applied: str | None = None  # the value that the remote is known to have
    tried: str | None = None  # the value of the update that is in doubt
    refused: str | None = None  # the value that the remote did not want
    remote: list[str] = field(default_factory=list)  # what it holds, one entry for each of its records of this key
    faults: dict[str, list[str]] = field(default_factory=lambda: {"POST": [], "PATCH": []})

    # ------------------------------------------------------------------------------ the host

    def save(self, name: str) -> None:
        """Write and save. A slot that a retired link has closed takes no intent, nor does a create that failed."""
        self.host = name
        if self.link == "retired" or self.create == FAILED:
            return
        self.wanted = name
        self.create = self.create or "pending"
        if self.update == FAILED and self._may_update():
            self.update = None

    def delete(self) -> None:
        """Delete and say so: what was not sent ends, everything else stays."""
        self.host = None
        if self.create == "pending":
            self.create = FAILED
        if self.link is not None and self.update is None:
            self.wanted = self.applied

    # ------------------------------------------------------------------------------ the worker

    def work(self) -> None:
        """Do whatever can be done without a person."""
        while self.create == "pending":
            self._send_create()
        while self._may_update():
            self._send_update()

    def _send_create(self) -> None:
        applies, known = self._meet("POST")
        if applies:
            self.remote.append(self.wanted or "")
        if known == "done":
            self._link()
        elif known != "again":
            self.tried = self.wanted
            self.create = DOUBT if known == "doubt" else FAILED

    def _link(self) -> None:
        self.create, self.link, self.applied = "finalized", "finalized", self.wanted

    def _may_update(self) -> bool:
        stands = self.link == "finalized" and self.update != DOUBT and self.host is not None
        return stands and self.wanted not in {self.applied, self.refused}

    def _send_update(self) -> None:
        applies, known = self._meet("PATCH")
        if applies:
            self.remote[-1] = self.wanted or ""
        if known == "done":
            self.applied, self.refused, self.update = self.wanted, None, None
        elif known == "refused":
            self.refused, self.update = self.wanted, FAILED
        elif known == "doubt":
            self.tried, self.update = self.wanted, DOUBT

    def _meet(self, method: str) -> tuple[bool, str]:
        return FAULTS[self.faults[method].pop(0) if self.faults[method] else "plain"]

    # ------------------------------------------------------------------------------ the operator

    def verbs(self) -> list[str]:
        """What an honest operator may decide now, after looking at the remote, and when the settle time is over."""
        at_remote = bool(self.remote)
        may = {
            "adopt": self.create == DOUBT and at_remote,
            "absent": self.create == DOUBT and not at_remote,
            "supersede": self.create == FAILED and not at_remote and self.host is not None,
            "applied": self.update == DOUBT and at_remote and self.remote[-1] == self.tried,
            "resend": self.update == DOUBT,
            "release-version": self.update == FAILED,
            "suspend": self.link == "finalized",
            "revalidate": self.link == "suspended_drift",
            "retire": self.link in {"finalized", "suspended_drift"},
        }
        return [verb for verb, is_allowed in may.items() if is_allowed]

    def decide(self, verb: str) -> None:
        """Decide; workers go on from there."""
        match verb:
            case "adopt":
                self.create, self.link, self.applied = "finalized", "finalized", self.tried
            case "absent":
                self.create = FAILED
            case "supersede":
                self.create, self.wanted = "pending", self.host
            case "applied":
                self.update, self.applied = None, self.tried
            case "resend":
                self.update = None
            case "release-version":
                self.refused = None
            case "suspend":
                self.link = "suspended_drift"
            case "revalidate":
                self.link = "finalized"
            case "retire":
                self.link, self.update = "retired", None

    # ------------------------------------------------------------------------------ what can be seen

    def seen(self) -> dict[str, object]:
        """What is compared."""
        return {
            "host": self.host,
            "create": self.create,
            "link": self.link,
            "update": self.update,
            "remote": list(self.remote),
        }
