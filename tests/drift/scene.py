"""One deployment with a record at every point of its life, on which a change is made and its effect is read.

Every record is one case of the contract: a link that is saved afterwards, an update and a create that wait, each of
them again between its validation and its checkpoint and once more on the wire, a create in doubt, one whose mirror is
due, a record that nobody ever pushed, and one whose earlier create was superseded. What comes of them is told in a few
words, read from the tables and from the remote's log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from flows.stage import PACK, SECRET, TOKEN, Paused, Stage
from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.flows.outcomes import Outcome, Refused
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.ports import AuthorityDecision, AuthorityRequest
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs
from pushlink.testing.messages import creating
from pushlink.testing.scripted import ScriptedTransport

SAVED, QUEUED, UNSENT, DOUBTED, MIRRORED, CHECKED, CHECKED_UPDATE, SENT, SENT_UPDATE, NEW, AGAIN = range(1, 12)

#: The cells of a row, in the order in which they are shown, and the record that each is read from.
CELLS: Final[Mapping[str, int]] = {
    "save": SAVED,
    "update": QUEUED,
    "update checked": CHECKED_UPDATE,
    "update sent": SENT_UPDATE,
    "create": UNSENT,
    "create checked": CHECKED,
    "create sent": SENT,
    "doubt": DOUBTED,
    "mirror": MIRRORED,
    "new": NEW,
    "again": AGAIN,
}


class Readers:
    """An authority whose grants a test takes back: everybody reads everything until then."""

    def __init__(self) -> None:
        self.denied: frozenset[str] = frozenset()
        self.left: frozenset[str] = frozenset()
        self.hidden: frozenset[str] = frozenset()  # record ids that nobody may read

    def decide_reads(self, conn: sa.Connection, requests: Sequence[AuthorityRequest]) -> list[AuthorityDecision | None]:
        return [
            AuthorityDecision(
                user_active=request.user_id not in self.left,
                row_readable=request.ref.record_id not in self.hidden,
                allowed_fields=tuple(name for name in request.fields if name not in self.denied),
                denied_fields=tuple(name for name in request.fields if name in self.denied),
                policy_digest=f"{sorted(self.denied)}",
            )
            for request in requests
        ]

    def users_active(self, conn: sa.Connection, user_ids: Sequence[str]) -> list[bool]:
        return [user not in self.left for user in user_ids]


@dataclass(slots=True)
class Scene:
    """The stage with its cases. `change` gets the scene and may do whatever people and remotes do."""

    stage: Stage
    readers: Readers
    environment: dict[str, str]  # where credentials stand
    pack: Mapping[str, Any]
    workers_die: bool = False
    flows: dict[int, Paused] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------ before

    def set_up(self) -> None:
        """Bring each record to its point."""
        stage = self.stage
        stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=creating)
        self._save(AGAIN)
        stage.drain()
        self._supersede(AGAIN)
        for number in (SAVED, QUEUED, CHECKED_UPDATE, SENT_UPDATE):
            self._save(number)
        stage.drain()
        stage.remote.script.next(verbs.store_then_close(), when=creating)
        self._save(DOUBTED)
        stage.drain()
        for number in (MIRRORED, CHECKED, SENT):
            self._save(number)
        for number in (CHECKED_UPDATE, SENT_UPDATE):
            self._save(number, name="changed")
        self.flows = {int(claimed.source.record_id): stage.paused_of(claimed) for claimed in stage.claim()}
        for number in (MIRRORED, SENT, SENT_UPDATE):
            self.flows[number].to_send().step()
        self.flows.pop(MIRRORED).step()  # the result is stored; its worker dies before the mirror
        self._save(UNSENT)
        self._save(QUEUED, name="changed")
        stage.put(NEW, name=f"Person {NEW}", email=f"p{NEW}@example.com")
        self.names = {number: stage.link(number)["names"] for number in (SAVED, QUEUED)}

    def link_id(self, number: int) -> str:
        """The remote id of a linked record."""
        return str(self.stage.link(number)["remote_id"])

    # ------------------------------------------------------------------------------------------ after

    def observe(self, change: Callable[[Scene], object]) -> dict[str, str]:
        """Make the change, let everything happen that will, and say what came of each record."""
        stage = self.stage
        before = {number: self._sends_of(number) for number in CELLS.values()}
        change(self)
        between = {} if self.workers_die else self._finish_flows()
        said = {number: self._try(number) for number in (SAVED, NEW, AGAIN)}
        for _ in range(3):
            stage.clock_forward()
            stage.drain()
        told = {number: self._tell(number, said.get(number), before[number]) for number in CELLS.values()}
        return {
            cell: f"{between[number]}, then {told[number]}" if number in between else told[number]
            for cell, number in CELLS.items()
        }

    def _finish_flows(self) -> dict[int, str]:
        given_back: dict[int, str] = {}
        for number, flow in self.flows.items():
            flow.finish()
            row = self._newest(number)
            if row is not None and number in (CHECKED, CHECKED_UPDATE) and row["status"] == "pending":
                given_back[number] = "given back"
        return given_back

    def _try(self, number: int) -> list[Outcome]:
        values = {"name": "after"} if self.stage.person(number) is not None else {}
        return self.stage.save_all(number, **values)

    def _tell(self, number: int, said: list[Outcome] | None, sent_before: int) -> str:
        row, link = self._newest(number), self._link(number)
        refusals = sorted({str(one.code) for one in said or [] if isinstance(one, Refused)})
        words = [f"refused {code}" for code in refusals]
        if not words and row is not None:
            words = [self._fate(row)]
        if row is not None and row["operation"] == "create" and link is not None and number not in (SAVED, QUEUED):
            words.append(f"mirror {link['mirror_status']}")
        if link is not None and link["status"] == "suspended_drift":
            words.append("link suspended")
        if link is not None and link["names"] != self.names.get(number, link["names"]):
            words.append("names refreshed")
        if self._sends_of(number) > sent_before + 1:
            words.append(f"sent {self._sends_of(number) - sent_before} times")
        return ", ".join(words)

    def _fate(self, row: dict[str, Any]) -> str:
        match row["status"]:
            case "finalized":
                return "sent" if row["operation"] == "update" else "created" if self._as_frozen(row) else "created anew"
            case "pending":
                return f"held {row['hold_code']}" if row["hold_code"] else "waits"
            case "superseded":
                return f"ended {row['reason_code']}"
            case "terminal_failed":
                return f"failed {row['reason_code']}"
            case "ambiguous_remote_effect":
                return "in doubt"
            case "writeback_pending":
                return f"held {row['hold_code']}"
        return str(row["status"])

    def _as_frozen(self, row: dict[str, Any]) -> bool:
        """Whether what was sent is what the reservation froze, byte for byte."""
        [frozen] = self.stage.rows("push_request", attempt_id=row["id"])
        body = frozen["body"].encode() if isinstance(frozen["body"], str) else bytes(frozen["body"])
        return any(
            (sent.method, sent.path, sent.body) == (frozen["method"], frozen["path"], body)
            for sent in self.stage.remote.sent
        )

    def _newest(self, number: int) -> dict[str, Any] | None:
        keys = [slot["link_key"] for slot in self.stage.rows("push_slot", source_record_id=str(number))]
        found = [row for row in self.stage.attempts() if row["link_key"] in keys]
        return max(found, key=lambda row: (row["ordinal"] == 0, row["version"], row["ordinal"]), default=None)

    def _link(self, number: int) -> dict[str, Any] | None:
        return next(iter(self.stage.rows("remote_link", source_record_id=str(number))), None)

    def _sends_of(self, number: int) -> int:
        mark = f"p{number}@example.com".encode()
        return sum(1 for sent in self.stage.remote.sent if mark in sent.body)

    def _save(self, number: int, **values: Any) -> None:
        self.stage.save(number, **{"name": f"Person {number}", "email": f"p{number}@example.com", **values})

    def _supersede(self, number: int) -> None:
        row = self._newest(number)
        assert row is not None
        decision = Decision(
            verb=Verb.SUPERSEDE, target_id=row["id"], actor="olga", reason="a test", row_version=row["row_version"]
        )
        with self.stage.engine.begin() as conn:
            act(conn, self.stage.world, decision, terms=OperatorTerms(), now=self.stage.clock.now(conn))


Change: TypeAlias = Callable[[Scene], object]


def open_scene(
    engine: sa.Engine,
    home: Path,
    *,
    pack: Mapping[str, Any] = PACK,
    remote: Callable[[], ScriptedTransport] | None = None,
) -> Scene:
    """A scene with every record at its point; `remote` makes another one than the usual."""
    readers = Readers()
    environment = {"PEOPLE_TOKEN": TOKEN, "OTHER_TOKEN": "another-token"}
    credentials = EnvironmentFileCredentials(SECRET.encode(), environment=environment)
    stage = Stage(engine, home, pack=pack, authority=readers, remote=remote and remote(), credentials=credentials)
    scene = Scene(stage, readers, environment, dict(pack))
    scene.set_up()
    return scene
