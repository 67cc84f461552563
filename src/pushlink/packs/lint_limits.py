"""What lint says about limits: rates with their bursts, circuits, and the order in which records are sent."""

from __future__ import annotations

from pushlink.packs import grammar
from pushlink.packs.model import Action
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.contracts import Auth, ProfileContract


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


def check_token(steps: Steps, auth: Auth) -> Hits:
    """How an OAuth grant becomes a token: from an encrypted endpoint, under a name that its secrets stand behind."""
    token, here = auth.token, (*steps, "token")
    if auth.kind == "oauth2" and token is None:
        yield Hit("auth", steps, "`oauth2` needs a token: url, grant and client_id.")
    if token is None:
        return
    origin, _, _ = token.url.partition("?")
    for problem in grammar.base_url_problems(origin):
        yield Hit("base-url", (*here, "url"), problem)
    if token.url.startswith("http://") and not grammar.is_loopback_or_private(token.url):
        yield Hit("plain-http", (*here, "url"), "The grant crosses the network in the clear. Use https.")
    for index, criterion in enumerate(token.same_account):
        if criterion.pointer is None or criterion.absent:
            message = "Test something that stands in the body of the token's answer, such as a pointer that equals it."
            yield Hit("auth", (*here, "same_account", index), message)
    if token.client_secret_ref is None:
        return
    if token.grant == "client_credentials":
        message = "The client's secret is the grant itself here: credential_ref names it."
        yield Hit("auth", (*here, "client_secret_ref"), message)
    if unnamed := grammar.credential_ref_problem(token.client_secret_ref):
        yield Hit("credential-ref", (*here, "client_secret_ref"), unnamed)


def check_ordering(steps: Steps, action: Action) -> Hits:
    """The order of one action."""
    ordering = action.ordering
    if ordering is not None and (ordering.serialize_per == "field") is (ordering.field is None):
        message = "Name the field with serialize_per: field, and with nothing else."
        yield Hit("ordering", (*steps, "ordering"), message)
