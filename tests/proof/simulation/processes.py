"""A worker process of the simulation: what it has claimed goes on effect by effect, and is looked at before it sends.

A real worker commits the steps of its flows in groups (D-17). In some seeds a process does so as well, with the groups
of the library's own driver: which flows come into one is decided there, and only when is decided here.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from proof.simulation.surroundings import Network, is_simulated
from pushlink.flows.claim import ClaimOrder
from pushlink.flows.dispatch import flow_of
from pushlink.flows.drivers import Database, Failed, Patience, Run, Station, is_transient
from pushlink.flows.effects import Tx
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.ports import Secret
from pushlink.store.claims import Turn
from pushlink.store.tables import UtcTime
from pushlink.testing.drain import claims_of
from pushlink.testing.driver import Interleaver

#: What the remote is asked to make of a record, and the one that it refers to.
NAMED: Final = sa.text(
    "SELECT r.body FROM pushlink_push_request r JOIN pushlink_push_attempt a ON a.id = r.attempt_id"
    ' AND a.freeze_count = r."freeze" WHERE a.id = :id'
)
IS_LIVE: Final = sa.text("SELECT count(*) FROM pushlink_remote_link WHERE remote_id = :id AND status = 'finalized'")

#: The link of an update that was let go, and both mappings.
MAY_SEND: Final = sa.text(
    "SELECT l.status, l.source_record_id, l.mapping_fingerprint AS of_link, r.mapping_fingerprint AS of_request"
    " FROM pushlink_push_attempt a JOIN pushlink_remote_link l ON l.slot_key = a.link_key"
    ' JOIN pushlink_push_request r ON r.attempt_id = a.id AND r."freeze" = a.freeze_count'
    " WHERE a.id = :id AND a.operation = 'update'"
)
MAY_REPEAT: Final = sa.text(
    "SELECT first_io_at, last_checkpoint_at FROM pushlink_push_attempt WHERE id = :id AND operation = 'create'"
    " AND in_doubt"
).columns(first_io_at=UtcTime(), last_checkpoint_at=UtcTime())


#: For how long a create in doubt may be sent again by the contract of this world.
REPLAYED_FOR: Final = dt.timedelta(minutes=4)

#: Flows of one group at most.
GROUP_MAX: Final = 4


class Generation:
    """One token for everybody under a generation that can be changed and changed back."""

    def __init__(self) -> None:
        self.current = "generation-1"

    def generation(self, reference: str, *, tenant: str) -> str:
        return self.current

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        return Secret(value="token", generation=self.current)


class Weave(Interleaver):
    """Flows woven effect by effect, or group by group."""

    def step_together(self, name: str) -> list[str]:
        """Commit the next step of a flow with those of others that wait at the same one; who was in the group."""
        waiting = self._next[name]
        if not isinstance(waiting, Patience):
            self.step(name)
            return [name]
        others = {n: p for n in self.alive if isinstance(p := self._next[n], Patience) and p.tx.step == waiting.tx.step}
        names = {id(patience): n for n, patience in others.items()}
        runs = deque(Run(self._flows[n], patience) for n, patience in others.items() if n != name)
        station = Station(waiting.tx.step, deque([Run(self._flows[name], waiting), *runs]))
        group = station.take(GROUP_MAX)
        called = [names[id(run.patience)] for run in group]
        results = self._database.commit(station.step, [run.patience.tx for run in group if run.patience])
        for one, result in zip(called, results, strict=True):
            self.trace.append((one, self.peek(one) or ""))
            self._answer(one, result)
        return called


@dataclass
class Process:
    """One worker process: what it has claimed goes on effect by effect, until it is killed."""

    name: str
    world: World
    database: Database
    network: Network
    is_grouping: bool = False
    has_bosses: bool = False
    paused: bool = False
    priority: float = 0.0
    weave: Weave = field(init=False)
    about: dict[str, str] = field(default_factory=dict)  # flow -> link key
    told: list[tuple[str, str]] = field(default_factory=list)  # link keys and ids that ended flows have read

    def __post_init__(self) -> None:
        self.weave = Weave(self.database, self.network.send)
        self._claims = claims_of(self.world)
        self._steps = Steps(self.world)
        self._count = 0
        self._attempts: dict[str, str] = {}  # flow -> attempt
        self._ids: dict[str, str] = {}  # flow -> the id that its answer named

    @property
    def busy_with(self) -> set[str]:
        """Link keys of the flows that have not ended."""
        return {self.about[name] for name in self.weave.alive}

    def claim(self, limit: int) -> str:
        """Take what is due."""
        order = ClaimOrder(limit=limit, turn=Turn())
        [found] = self.database.commit(self._claims.claim, [Tx(step=self._claims.claim, item=order, key="")])
        if isinstance(found, Failed):
            if not is_simulated(found.error) and not is_transient(found.error):
                raise found.error
            return "claim failed"
        for claimed in found:
            self._count += 1
            name = f"{self.name}.{self._count}"
            self.about[name] = claimed.attempt.link_key
            self._attempts[name] = claimed.attempt.id
            self.weave.add(name, flow_of(claimed, self._steps))
        return f"claimed {len(found)}"

    def step(self, rng: random.Random) -> str:
        """One effect of one of its flows, or of all that wait for the same one."""
        name = rng.choice(self.weave.alive)
        effect = self.weave.peek(name)
        self.network.heard = None
        group = [name]
        if self.is_grouping:
            group = self.weave.step_together(name)
        else:
            self.weave.step(name)
        for flow, error in self.weave.abandoned.items():
            if not is_simulated(error):
                error.add_note(f"{flow} was abandoned")
                raise error
        if self.network.heard is not None:
            self._ids[name] = self.network.heard
        for one in group:
            if effect == "checkpoint" and self.weave.peek(one) == "send":
                self._require_validated(self._attempts[one])
            if one in self._ids and one not in self.weave.alive and one not in self.weave.abandoned:
                self.told.append((self.about[one], self._ids[one]))
        return f"{' '.join(group)} {effect}"

    def _require_validated(self, attempt: str) -> None:
        """What may be sent now is for a usable link with the request's mapping (I10), or within its contract (I3).

        It refers to a record that is there (D-31), and overtakes nothing (D-20).
        """
        with self.database.engine.begin() as conn:
            found = conn.execute(MAY_SEND, {"id": attempt}).one_or_none()
            again = conn.execute(MAY_REPEAT, {"id": attempt}).one_or_none()
            body = json.loads(conn.execute(NAMED, {"id": attempt}).scalar_one()) if self.has_bosses else {}
            boss = body.get("boss")
            is_live = boss is None or conn.execute(IS_LIVE, {"id": boss}).scalar_one()
        if again is not None and again.last_checkpoint_at - again.first_io_at >= REPLAYED_FOR:
            raise AssertionError(f"the create {attempt} is let go again after the end of its replay contract")
        if not is_live:
            raise AssertionError(f"what {body['key']} refers to is let go as {boss}, which no live link has")
        if found is not None and (found.status != "finalized" or found.of_link != found.of_request):
            raise AssertionError(f"the update {attempt} is let go to a link that is {found.status}, or mapped anew")
        if found is not None and self.network.is_overtaken(found.source_record_id):
            raise AssertionError(f"the update {attempt} is let go while an older one is on its way")

    def kill(self) -> None:
        """End every flow where it stands."""
        for name in self.weave.alive:
            self.weave.kill(name)
