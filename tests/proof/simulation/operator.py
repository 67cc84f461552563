"""The operator of a simulated deployment: an honest one, who looks before he speaks.

He declares absent only what no process and no request on its way can still create, which is what a settle time stands
for, and he finds what is there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from proof.simulation.faults import Fault
from proof.simulation.surroundings import NOTHING, live_record
from pushlink.errors import CallerError, PushlinkError
from pushlink.flows.operating import Decision, OperatorTerms
from pushlink.migration import revalidate
from pushlink.operations import waiting
from pushlink.operations.actions import act
from pushlink.protocol.documents import Approval
from pushlink.protocol.snapshots import Digest
from pushlink.protocol.verbs import Verb

if TYPE_CHECKING:
    from proof.simulation.universe import Universe

#: Tenants for which anything may wait for a person at all; the list of it is asked for only then.
WAITS: Final = (
    "SELECT tenant FROM pushlink_push_attempt WHERE hold_code IS NOT NULL OR dispatch_lane = 'lane of tomorrow'"
    " OR status IN ('ambiguous_remote_effect', 'terminal_failed')"
    " UNION SELECT tenant FROM pushlink_remote_link WHERE status = 'suspended_drift' ORDER BY 1"
)

#: What the simulated operator takes off the list; newer mappings and saves settle the rest.
SETTLED_KINDS: Final = frozenset({"doubtful", "failed", "held", "refused", "retried", "stranded", "suspended"})

#: Updates that a manifest has to wait for (D-21).
ON_ITS_WAY: Final = (
    "SELECT id FROM pushlink_push_attempt WHERE link_key = :key AND operation = 'update'"
    " AND status IN ('processing', 'post_sent', 'ambiguous_remote_effect')"
)

TERMS: Final = OperatorTerms(pause_max_ms=600_000)

#: How often an operator looks at any link at all, and accepts it as it is, or wants no more of it.
LOOKED_AT: Final = 0.1

#: How often an operator lets a record's attempts go on, or abandons them, before he gives up on what they wait for.
UNHELD_MAX: Final = 3


class Operator:
    """Who takes rows off the list of what is stuck, and accepts what changed."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._unheld: Counter[str] = Counter()
        self._manifests = 0

    def operate(self) -> str:
        """The operator takes one row off the list of what is stuck."""
        if self._universe.rng.random() < LOOKED_AT:
            retires = self._universe.retires and self._universe.rng.random() < 0.2
            return self.decide_about_link(Verb.RETIRE if retires else Verb.REVALIDATE)
        rows = self.stuck()
        if not rows:
            return self.accept_mapping()
        tenant, row = self._universe.rng.choice(rows)
        return self.settle(tenant, row)

    def stuck(self) -> list[tuple[str, Any]]:
        """Everything that waits for a person."""
        with self._universe.engine.begin() as conn:
            groups = [
                (tenant, group)
                for tenant in conn.execute(sa.text(WAITS)).scalars().all()
                for group in waiting.stuck(
                    conn, world=self._universe.runtime.world, tenant=tenant, samples=50, now=self._universe.clock.now()
                )
            ]
        return [(tenant, row) for tenant, group in groups if group.kind in SETTLED_KINDS for row in group.rows]

    def settle(self, tenant: str, row: Any) -> str:
        """Decide about one row by what is true at the remote."""
        found = live_record(self._universe.wire, row.record_id)
        offered = {verb.name for verb in row.verbs}
        for verb, argument in self._wishes(row, found):
            if verb in offered:
                if verb in {Verb.UNHOLD, Verb.ABANDON} and self._is_hopeless(row):
                    return self._give_up(row, tenant)
                said = self._act(verb, row.target_id, row.row_version, tenant, argument)
                if "refused" not in said:
                    return said
        return f"operator leaves {row.record_id} {row.target}"

    def decide_about_link(self, verb: Verb, record: str | None = None) -> str:
        """Somebody stops, accepts or ends a link that is in use: the one of a record, or any."""
        with self._universe.engine.begin() as conn:
            query = sa.text(
                "SELECT id, tenant, row_version, source_record_id FROM pushlink_remote_link"
                " WHERE status = 'finalized' ORDER BY id"
            )
            links = [link for link in conn.execute(query).all() if record in {None, link.source_record_id}]
        if not links:
            return NOTHING
        link = self._universe.rng.choice(links)
        return self._act(verb, link.id, link.row_version, link.tenant)

    def accept_mapping(self) -> str:
        """A manifest for every link whose mapping is not the catalogue's any more."""
        if not self._universe.faults.struck[Fault.MAPPING]:
            return NOTHING
        for tenant in self._universe.tenants:
            with self._universe.engine.begin() as conn:
                [action] = self._universe.runtime.world.catalog.read(conn).actions_for(tenant, "Person")
                query = sa.text(
                    "SELECT link_key FROM pushlink_remote_link WHERE status = 'finalized' AND tenant = :t"
                    " AND NOT (mapping_fingerprint = :mapping AND validated_install_id = :install) ORDER BY 1"
                )
                now = {"t": tenant, "mapping": action.mapping_fingerprint, "install": action.install_id}
                keys = list(conn.execute(query, now).scalars())
            for key in keys:
                self._manifests += 1
                try:
                    manifest = revalidate.make_manifest(
                        self._universe.engine,
                        [key],
                        tenant=tenant,
                        operation_id=f"op-{self._manifests}",
                        reason="mapping",
                        approval=Approval(who="op", digest=Digest("sha256:" + "0" * 64)),
                    )
                    revalidate.apply(self._universe.engine, manifest, actor="op", now=self._universe.clock.now)
                except PushlinkError:
                    continue
                self._require_still(key)
                return f"manifest for {key[:8]}"
        return NOTHING

    def accept_configuration(self) -> None:
        """Somebody looks at what changed and accepts it for every link, as a runbook has it after a rotation."""
        if not any(self._universe.faults.struck[fault] for fault in (Fault.CREDENTIAL, Fault.MAPPING, Fault.RESTORED)):
            return
        with self._universe.engine.begin() as conn:
            query = sa.text(
                "SELECT id, tenant, row_version FROM pushlink_remote_link WHERE status = 'finalized' ORDER BY id"
            )
            links = conn.execute(query).all()
        for link in links:
            self._universe.trace.append(self._act(Verb.REVALIDATE, link.id, link.row_version, link.tenant))

    def _give_up(self, row: Any, tenant: str) -> str:
        """Stop a link whose update comes back for ever; of one that referred to somebody, save the record without."""
        record = row.record_id
        if not self._universe.served[record] - {None}:
            return self.decide_about_link(Verb.SUSPEND, record)
        if self._universe.bosses.pop(record, None) is None or record in self._universe.deleted:
            return f"operator leaves {record} {row.target}"  # the next save takes its place
        return self._universe.save_as(record, tenant, self._universe.names[record])

    def _wishes(self, row: Any, found: Any) -> list[tuple[Verb, str | None]]:
        quiet = not self._may_still_send(row.record_id)
        remote_id = found.id if found is not None else None
        wishes: list[tuple[Verb, str | None]] = []
        if row.target == "link":
            if found is not None:
                return [(Verb.REVALIDATE, None)]
            return [(Verb.RETIRE, None)] if self._universe.retires else []
        if self._universe.rng.random() < 0.5:
            wishes.append((Verb.REPLAY, None))
        if remote_id is not None:
            wishes.append((Verb.ADOPT, remote_id))
            if quiet and found.document.get("name") == self._universe.names.get(row.record_id):
                wishes.append((Verb.APPLIED, None))
        elif quiet:
            wishes.append((Verb.ABSENT, None))
        if quiet:
            wishes += [(Verb.RESEND, None), (Verb.SUPERSEDE, None)]
        wishes += [(Verb.REINTERPRET, None)] if quiet else []
        wishes += [(Verb.RELEASE_VERSION, None)] if self._universe.rng.random() < 0.5 else []  # or he leaves it refused
        wishes += [(Verb.DISPOSE, None)]
        wishes += self._universe.rng.sample([(Verb.UNHOLD, None), (Verb.ABANDON, None)], 2)
        return wishes

    def _is_hopeless(self, row: Any) -> bool:
        """Whether a record's attempts were let go on or abandoned again and again, and came back each time."""
        self._unheld[row.record_id] += 1
        return self._unheld[row.record_id] > UNHELD_MAX

    def _may_still_send(self, record: str) -> bool:
        """Whether a request about a record is on its way, or a process holds it in its hands."""
        key = self._universe.link_key(record)
        busy = any(key in process.busy_with for process in self._universe.processes)
        return busy or self._universe.network.is_underway(record)

    def _act(self, verb: Verb, target: str, version: int, tenant: str, argument: str | None = None) -> str:
        if verb is Verb.DISPOSE:
            argument = self._known_id(target)
        decision = Decision(
            verb=verb,
            target_id=target,
            row_version=version,
            actor="op",
            reason="it was looked at",
            tenant=tenant,
            argument=argument,
            approver="second",
            reserve=verb is Verb.SUPERSEDE and self._universe.rng.random() < 0.5,
        )
        try:
            with self._universe.engine.begin() as conn:
                done = act(conn, self._universe.runtime.world, decision, terms=TERMS, now=self._universe.clock.now())
        except CallerError as refused:
            return f"{verb} refused: {refused.code}"
        return f"{verb} {done.record_id}: {done.before} to {done.after}"

    def _known_id(self, attempt: str) -> str:
        with self._universe.engine.begin() as conn:
            query = sa.text("SELECT remote_id FROM pushlink_push_attempt WHERE id = :id")
            return conn.execute(query, {"id": attempt}).scalar_one_or_none() or "none"

    def _require_still(self, key: str) -> None:
        with self._universe.engine.begin() as conn:
            found = conn.execute(sa.text(ON_ITS_WAY), {"key": key}).scalars().all()
        if found:
            raise AssertionError(f"the link {key} was mapped anew while its update {found[0]} may be on its way")
