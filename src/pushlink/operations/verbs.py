"""The verbs that may follow a state: what each does, and the command to type.

What anybody may type is listed here; what an operator may decide comes from `protocol/verbs.py`, with a command that
names the row and the version that was seen.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pushlink.protocol.verbs import VERBS
from pushlink.protocol.verbs import Verb as Decidable


@dataclass(frozen=True, slots=True)
class _Known:
    says: str
    command: tuple[str, ...]
    about_record: bool = True  # the command takes the object and the id


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb that a state allows, and the command that carries it out."""

    name: str
    says: str
    command: str


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
    "deployment confirm": _Known(
        "Say that this database is the right one and leave recovery mode.",
        ("deployment", "confirm", "--reason", "REASON"),
        about_record=False,
    ),
    "deployment clear": _Known(
        "After a confirmation: say that records without a link may be created.",
        ("deployment", "clear", "--reason", "REASON"),
        about_record=False,
    ),
}


def verbs(names: Iterable[str], *, source_object: str, record_id: str, tenant: str) -> tuple[Verb, ...]:
    """The named verbs for one record, with the commands to type."""
    return tuple(
        Verb(name=name, says=_VERBS[name].says, command=_command(_VERBS[name], source_object, record_id, tenant))
        for name in dict.fromkeys(names)
    )


def decisions(allowed: Iterable[Decidable], *, target_id: str, row_version: int, tenant: str) -> tuple[Verb, ...]:
    """What an operator may decide about one row, as it was seen, with the commands to type."""
    return tuple(
        Verb(name=verb.value, says=VERBS[verb].says, command=decision_command(verb, target_id, row_version, tenant))
        for verb in allowed
    )


def decision_command(verb: Decidable, target_id: str, row_version: int, tenant: str) -> str:
    """The command of one decision; the words in capitals are for the operator to fill in."""
    name, _, settles_by = verb.value.partition(" ")
    argument = VERBS[verb].argument
    option = f"--{settles_by}" if settles_by else _OPTIONS.get(verb)
    words = ["pushlink", name, target_id]
    words += [] if option is None else [option] if argument is None else [option, argument]
    words += ["--row-version", str(row_version), "--reason", "REASON"]
    words += ["--tenant", tenant] if tenant else []
    return shlex.join(words)


#: How the argument of a verb is given where it is not one of the `reconcile` family.
_OPTIONS: Final[Mapping[Decidable, str]] = {
    Decidable.DISPOSE: "--id",
    Decidable.RELOCATE: "--to",
    Decidable.REPAIR_LANE: "--lane",
}


def _command(known: _Known, source_object: str, record_id: str, tenant: str) -> str:
    words = ["pushlink", *known.command]
    if known.about_record:
        words += [source_object, "--id", record_id] if words[-1] == "--object" else [source_object, record_id]
        words += ["--user", "USER"] if known.command == ("save",) else []
        words += ["--tenant", tenant] if tenant else []
    return shlex.join(words)
