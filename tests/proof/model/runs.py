"""The runs of the model: which must find nothing, which must find a violation, which must reach a state.

A rule's run switches that one rule off. The smallest variant that shows the violation is chosen, so that the trace is
short; `EVERYTHING` are the runs with every rule in force, the larger ones for `make model` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the checker: the file, its switches, and what they are for."""

    file: str
    flags: tuple[str, ...]
    says: str


#: Every rule in force: no state breaks an invariant.
HOLDS: Final = (
    Run("create.pml", (), "no contract"),
    Run("create.pml", ("CLAIMS=3", "CRASHES=1"), "no contract, three claims"),
    Run("create.pml", ("SNAPSHOT",), "gates read before the reserving transaction"),
    Run("create.pml", ("FAILING_OVER", "RESTORING"), "a failover and a restored backup"),
    Run("create.pml", ("CONTRACT",), "a replay contract"),
    Run("update.pml", ("CLAIMS=2",), "updates"),
    Run("update.pml", ("CLAIMS=2", "CRASHES=0", "MANIFEST"), "updates beside a mapping manifest"),
    Run("update.pml", ("CLAIMS=2", "CRASHES=0", "RETIRING"), "updates while the link is retired"),
    Run("lanes.pml", (), "deferred children, foreign lanes"),
    Run("manifest.pml", (), "two crossing manifests, repeated"),
)

#: One rule switched off: the checker must find what the rule is there for.
FAILS: Final = (
    *(
        Run("create.pml", ("CRASHES=0", f"NO_{rule}"), rule)
        for rule in ("FENCE", "LATE", "SETTLE", "CONFLICT", "HELDONLY", "PROOF", "REREAD")
    ),
    Run("create.pml", ("CRASHES=0", "SNAPSHOT", "NO_INDEX"), "INDEX"),
    Run("create.pml", ("CRASHES=0", "FAILING_OVER", "NO_TIMELINE"), "TIMELINE"),
    Run("create.pml", ("CRASHES=0", "RESTORING", "NO_RESTORED"), "RESTORED"),
    *(
        Run("create.pml", ("CRASHES=0", "CONTRACT", f"NO_{rule}"), rule)
        for rule in ("STICKY", "LIFETIME", "VALIDATION")
    ),
    *(
        Run("update.pml", ("CLAIMS=2", "CRASHES=0", f"NO_{rule}"), rule)
        for rule in ("FENCE", "SENT", "WANTED", "ONE", "BLOCK", "SETTLE", "REFUSED")
    ),
    *(Run("update.pml", ("CLAIMS=2", "CRASHES=0", "MANIFEST", f"NO_{rule}"), rule) for rule in ("AGAIN", "STANDS")),
    *(Run("lanes.pml", (f"NO_{rule}",), rule) for rule in ("LANES", "TARGET", "BLOCKED", "CYCLE", "SPLIT")),
    *(Run("manifest.pml", (f"NO_{rule}",), rule) for rule in ("ORDER", "ATOMIC", "TUPLE", "CHAIN", "UNDERLOCK")),
)

#: States that a model without them would be empty of; the checker must find a way to each.
REACHED: Final = (
    Run("create.pml", ("CRASHES=0", "REACH=st[1]==FINALIZED"), "a create ends finalized"),
    Run("create.pml", ("CRASHES=0", "REACH=st[2]==FINALIZED"), "a superseded create's successor ends finalized"),
    Run("create.pml", ("CRASHES=0", "REACH=st[1]==AMBIGUOUS_REMOTE_EFFECT"), "a create is in doubt"),
    Run("create.pml", ("CRASHES=0", "REACH=late[1]!=0"), "late evidence"),
    Run("create.pml", ("CRASHES=0", "REACH=conflict[1]"), "a locator conflict"),
    Run("create.pml", ("REACH=st[1]==FINALIZED&&crashes==1",), "finalized in spite of a crash"),
    Run("create.pml", ("CRASHES=0", "REACH=st[1]==SUPERSEDED&&st[2]==AMBIGUOUS_REMOTE_EFFECT"), "in doubt twice"),
    Run("create.pml", ("CRASHES=0", "REACH=st[1]==PENDING&&poison[1]"), "poison"),
    Run("create.pml", ("CRASHES=0", "CONTRACT", "REACH=st[1]==FINALIZED&&posts==2"), "finalized by a replay"),
    Run("create.pml", ("CRASHES=0", "RESTORING", "REACH=restored&&st[1]==FINALIZED"), "finalized after a restore"),
    Run("update.pml", ("CRASHES=0", "REACH=acknowledged==2&&value==2"), "the second version is acknowledged"),
    Run("update.pml", ("CRASHES=0", "REACH=link==SUSPENDED_DRIFT"), "a suspended link"),
    Run("update.pml", ("CRASHES=0", "MANIFEST", "REACH=stale!=0"), "a version of a mapping that is gone"),
    Run("lanes.pml", ("REACH=st[0]==FINALIZED&&st[1]==FINALIZED",), "both children end finalized"),
    Run("lanes.pml", ("REACH=hold[0]==ASSOCIATION_MOVED",), "a parent that moved"),
    Run("manifest.pml", ("REACH=was_applied[1]&&was_applied[2]",), "both manifests apply"),
    Run("manifest.pml", ("REACH=verdict[1]==ALREADY_APPLIED",), "a repeat is told so"),
)
