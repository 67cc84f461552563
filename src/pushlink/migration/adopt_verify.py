"""Adoption, verified: the remote is asked for each record that would be adopted, slowly, and changed by nothing.

One GET a record, on the route on which the pack reads a record before an update, or on the update's own; through the
ordinary transport with its credentials and egress rules, and never with a transaction open. The answer is judged by the
rules of the pack, as an answer to an update is. What is not shown is not adopted.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pushlink.errors import CallerError
from pushlink.flows.fetching import contract_of_read
from pushlink.flows.world import World
from pushlink.ports import Transport, WireRequest
from pushlink.protocol.adoption import Because, Claim, Refusal
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.kept import kept_headers
from pushlink.protocol.outcome import History, Verdict, interpret
from pushlink.protocol.render import render_read
from pushlink.protocol.replies import Disposition
from pushlink.protocol.snapshots import ProfileSnapshot
from pushlink.protocol.states import Operation
from pushlink.store.active import ActiveAction

#: Requests for one record until nobody waits for an answer any more.
TRIES_MAX: Final = 4

#: No answer makes the plan wait longer than this before the next request.
PAUSE_S_MAX: Final = 60.0

#: Records that are asked for until one of them shows that the credential is accepted: before, "not there" says nothing.
UNPROVEN_MAX: Final = 100

_REASONS: Final = {
    Disposition.GONE: Because.REMOTE_MISSING,
    Disposition.CONFLICT: Because.REMOTE_MISMATCH,
}


class RemoteVerification:
    """Asks a remote, at most `rate` times a second. It owns an event loop until it is closed."""

    def __init__(
        self,
        world: World,
        transport: Transport,
        *,
        rate: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._transport = transport
        self._pause_s = 1.0 / rate
        self._sleep = sleep
        self._clock = clock
        self._due = 0.0
        self._runner = asyncio.Runner()

    def ask(self, action: ActiveAction, claim: Claim) -> Refusal | None:
        """What the remote says against a claim; `None` when it shows the record."""
        verdict = None
        for _ in range(TRIES_MAX):
            verdict = self._judge(action, claim, self._send(action, claim))
            if verdict.disposition not in {Disposition.RETRY_AT, Disposition.REAUTH_ONCE, Disposition.RECONCILE}:
                break
            self._wait(verdict.retry_after_ms)
        if verdict is None:
            msg = "a remote is asked at least once"
            raise TypeError(msg)
        if verdict.disposition is Disposition.FINALIZE:
            return self._compare(claim, verdict)
        because = _REASONS.get(verdict.disposition, Because.REMOTE_UNKNOWN)
        return Refusal(because=because, detail=f"{verdict.row} ({verdict.evidence.get('status')})")

    def prove(self, action: ActiveAction, claims: Iterable[Claim]) -> None:
        """Ask until an answer proves the credential, so that it does not hang on the order which ids are missing."""
        for claim in itertools.islice(claims, UNPROVEN_MAX):
            if self.ask(action, claim) is None:
                return

    def close(self) -> None:
        """Give back the sockets and the event loop."""
        self._runner.run(self._transport.close())
        self._runner.close()

    def _send(self, action: ActiveAction, claim: Claim) -> StoredReply:
        path = render_read(action.contract, action.profile, claim.remote_id)
        if isinstance(path, RenderFailure):
            raise CallerError(path.message, evidence=path.evidence, next_step="plan without --verify-remote")
        request = WireRequest(
            profile=action.profile,
            tenant=action.slots.tenant,
            method="GET",
            path=path,
            headers=tuple(action.profile.headers.items()),
            body=b"",
            fresh_connection=False,
            keep_headers=kept_headers(action.contract, action.profile),
        )
        self._pace()
        return self._runner.run(self._transport.send(request))

    def _judge(self, action: ActiveAction, claim: Claim, reply: StoredReply) -> Verdict:
        profile = ProfileSnapshot(
            contract=action.profile, credential_generation=self._world.generation(action.profile, action.slots.tenant)
        )
        tenant = action.slots.tenant
        history = History(credential_proven=self._world.accepted(tenant, profile), canonical_id=claim.canonical)
        verdict = interpret(Operation.UPDATE, contract_of_read(action.contract), action.profile, reply, history)
        if verdict.disposition is Disposition.FINALIZE:
            self._world.note_accepted(tenant, profile)
        return verdict

    @staticmethod
    def _compare(claim: Claim, verdict: Verdict) -> Refusal | None:
        if verdict.canonical_id in {None, claim.canonical}:
            return None
        return Refusal(because=Because.REMOTE_MISMATCH, detail=f"the record there has the id {verdict.remote_id!r}")

    def _pace(self) -> None:
        now = self._clock()
        if now < self._due:
            self._sleep(self._due - now)
        self._due = max(now, self._due) + self._pause_s

    def _wait(self, asked_ms: int | None) -> None:
        self._sleep(min(PAUSE_S_MAX, max(self._pause_s, (asked_ms or 0) / 1_000)))


@contextmanager
def asking(world: World, transport: Transport, *, rate: float) -> Iterator[RemoteVerification]:
    """A verification that is closed at the end."""
    verification = RemoteVerification(world, transport, rate=rate)
    try:
        yield verification
    finally:
        verification.close()
