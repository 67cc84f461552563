"""What lint says about limits: rates with their bursts, circuits, and the order in which records are sent."""

from __future__ import annotations

from pushlink.packs.model import Action
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.contracts import ProfileContract


def check_limits(steps: Steps, profile: ProfileContract) -> Hits:
    """The limits and the circuit of one profile."""
    if profile.limits.rate is None and profile.limits.burst != 1:
        yield Hit("limits", (*steps, "limits", "burst"), "A burst is of a rate. Write rate: 10/s, or remove the burst.")
    if profile.rate_limit.scope == "credential" and profile.credential_ref is None:
        message = "There is no credential to share a limit by. Write remote_account or destination."
        yield Hit("limits", (*steps, "rate_limit", "scope"), message)
    circuit = profile.circuit
    if circuit.failures > 0 and not (circuit.window_ms > 0 and circuit.pause_ms > 0):
        message = "Write a window and a pause above zero, or failures: 0 for a circuit that never opens."
        yield Hit("limits", (*steps, "circuit"), message)


def check_ordering(steps: Steps, action: Action) -> Hits:
    """The order of one action."""
    ordering = action.ordering
    if ordering is not None and (ordering.serialize_per == "field") is (ordering.field is None):
        message = "Name the field with serialize_per: field, and with nothing else."
        yield Hit("ordering", (*steps, "ordering"), message)
