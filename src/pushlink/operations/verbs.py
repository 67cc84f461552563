"""The verbs that may follow a state: what each does, and the command to type where this release has one.

A verb without a command is named all the same, so that nobody mends a row by hand in the meantime: the state allows it,
and a later release brings the command. Command templates take an object, a record id and a tenant.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class _Known:
    says: str
    command: tuple[str, ...] | None = None
    about_record: bool = True  # the command takes the object and the id


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb that a state allows. `command` is `None` where this release has none yet."""

    name: str
    says: str
    command: str | None


_VERBS: Final[Mapping[str, _Known]] = {
    "save": _Known("Reserve what this record wants to have pushed.", ("save",)),
    "push": _Known("Dispatch what is due of this record now, on this terminal.", ("push",)),
    "worker": _Known("Run a worker; it recovers, claims and sends.", ("worker",), about_record=False),
    "attempts": _Known("List the attempts of this record.", ("attempts", "--object")),
    "explain": _Known("Say why this record is where it is.", ("explain",)),
    "history": _Known("Show everything that happened to this record.", ("history",)),
    "doctor": _Known("Check the deployment.", ("doctor",), about_record=False),
    "pack list": _Known("Show which packs are installed.", ("pack", "list"), about_record=False),
    "pack apply": _Known("Install a pack, or its newer version.", ("pack", "apply", "FILE"), about_record=False),
    "reconcile adopt": _Known("Take over the remote record whose id you name; nothing is sent."),
    "reconcile confirm-absent": _Known("Say, after looking, that the remote has no such record; nothing is sent."),
    "reconcile applied": _Known("Say, after looking, that the update was applied."),
    "reconcile resend": _Known("Give the doubtful update up and send the newest version again."),
    "supersede": _Known("Free the record's place for another create."),
    "revalidate": _Known("Accept the configuration of now for this link, after looking at the differences."),
    "suspend": _Known("Stop updates of this link until somebody revalidates it."),
    "relocate": _Known("Point the link to the remote record that took the place of the old one."),
    "retire": _Known("End the link; its remote record is left alone."),
    "release-slot": _Known("Allow another create for a record whose link is retired."),
    "release-version": _Known("Allow the refused version to be sent once more."),
    "unhold": _Known("Let a held attempt go on."),
    "abandon": _Known("End an attempt that was never sent."),
    "dispose": _Known("Set a known remote id aside as evidence, so that the attempt can end."),
    "repair-lane": _Known("Move a row of an unknown lane to a known one."),
    "deployment confirm": _Known("Say that this database is the right one and leave recovery mode."),
}


def verbs(names: Iterable[str], *, source_object: str, record_id: str, tenant: str) -> tuple[Verb, ...]:
    """The named verbs for one record, with the commands to type."""
    return tuple(
        Verb(name=name, says=_VERBS[name].says, command=_command(_VERBS[name], source_object, record_id, tenant))
        for name in dict.fromkeys(names)
    )


def _command(known: _Known, source_object: str, record_id: str, tenant: str) -> str | None:
    if known.command is None:
        return None
    words = ["pushlink", *known.command]
    if known.about_record:
        words += [source_object, "--id", record_id] if words[-1] == "--object" else [source_object, record_id]
        words += ["--user", "USER"] if known.command == ("save",) else []
        words += ["--tenant", tenant] if tenant else []
    return shlex.join(words)
