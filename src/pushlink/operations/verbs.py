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

#: Where a command names how often the deployment was confirmed, as it was seen.
_SEEN: Final = "N"


@dataclass(frozen=True, slots=True)
class Known:
    """One command that is no decision."""

    says: str
    command: tuple[str, ...]
    about_record: bool = True  # the command takes the object and the id
    of_tenant: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb that a state allows, and the command that carries it out."""

    name: str
    says: str
    command: str


#: What anybody may type.
GENERAL: Final[Mapping[str, Known]] = {
    "save": Known("Reserve what this record wants to have pushed.", ("save",)),
    "push": Known("Dispatch what is due of this record now, on this terminal.", ("push",)),
    "worker": Known("Run a worker; it recovers, claims and sends.", ("worker",), about_record=False, of_tenant=False),
    "attempts": Known("List the attempts of this record.", ("attempts", "--object")),
    "explain": Known("Say why this record is where it is.", ("explain",)),
    "history": Known("Show everything that happened to this record.", ("history",)),
    "doctor": Known("Check the deployment.", ("doctor",), about_record=False, of_tenant=False),
    "pack list": Known("Show which packs are installed.", ("pack", "list"), about_record=False),
    "pack certify": Known(
        "Prove the contract of a create at the sandbox of its pack.",
        ("pack", "certify", "FILE", "--profile", "PROFILE", "--action", "ACTION"),
        about_record=False,
    ),
    "mapping manifest": Known(
        "Write a manifest that lets links follow the mapping of now.",
        (
            *("mapping", "manifest", "--links", "KEYS", "--reason", "REASON", "--approval", "APPROVAL"),
            *("--approved-by", "WHO", "--out", "MANIFEST"),
        ),
        about_record=False,
    ),
    "slot list": Known(
        "Show every slot, what became of it and what stands under it.", ("slot", "list"), about_record=False
    ),
    "pack apply": Known("Install a pack, or its newer version.", ("pack", "apply", "FILE"), about_record=False),
    "deployment confirm": Known(
        "Say that this database is the right one and leave recovery mode.",
        ("deployment", "confirm", "--confirmations", _SEEN, "--reason", "REASON"),
        about_record=False,
        of_tenant=False,
    ),
    "deployment clear": Known(
        "After a confirmation: say that records without a link may be created.",
        ("deployment", "clear", "--confirmations", _SEEN, "--reason", "REASON"),
        about_record=False,
        of_tenant=False,
    ),
}


def verbs(names: Iterable[str], *, source_object: str, record_id: str, tenant: str, seen: int = 0) -> tuple[Verb, ...]:
    """The named verbs for one record, with the commands to type; `seen` is how often the deployment was confirmed."""
    return tuple(
        Verb(name=name, says=known.says, command=_command(known, source_object, record_id, tenant, seen))
        for name in dict.fromkeys(names)
        for known in [GENERAL[name]]
    )


def decisions(
    allowed: Iterable[Decidable], *, target_id: str, row_version: int, tenant: str, remote_id: str | None = None
) -> tuple[Verb, ...]:
    """What an operator may decide about one row, as it was seen, with the commands to type.

    `remote_id` is the one id that is known for the row; without it the operator fills it in.
    """

    def command(verb: Decidable) -> str:
        return decision_command(verb, target_id, row_version, tenant, argument=remote_id if verb in _KNOWN_ID else None)

    return tuple(Verb(name=verb.value, says=VERBS[verb].says, command=command(verb)) for verb in allowed)


def decision_command(
    verb: Decidable, target_id: str, row_version: int, tenant: str, *, argument: str | None = None
) -> str:
    """The command of one decision; the words in capitals are for the operator to fill in."""
    name, _, settles_by = verb.value.partition(" ")
    argument = argument or VERBS[verb].argument
    option = f"--{settles_by}" if settles_by else _OPTIONS.get(verb)
    words = ["pushlink", name, target_id]
    words += [] if option is None else [option] if argument is None else [option, argument]
    words += ["--row-version", str(row_version), "--reason", "REASON"]
    words += ["--tenant", tenant] if tenant else []
    return shlex.join(words)


#: Decisions about a remote id that the row itself may know.
_KNOWN_ID: Final = frozenset({Decidable.ADOPT, Decidable.DISPOSE})

#: How the argument of a verb is given where it is not one of the `reconcile` family.
_OPTIONS: Final[Mapping[Decidable, str]] = {
    Decidable.DISPOSE: "--id",
    Decidable.RELOCATE: "--to",
    Decidable.REPAIR_LANE: "--lane",
}


def _command(known: Known, source_object: str, record_id: str, tenant: str, seen: int) -> str:
    words = ["pushlink", *(str(seen) if word == _SEEN else word for word in known.command)]
    if known.about_record:
        words += [source_object, "--id", record_id] if words[-1] == "--object" else [source_object, record_id]
        words += ["--user", "USER"] if known.command == ("save",) else []
    words += ["--tenant", tenant] if tenant and known.of_tenant else []
    return shlex.join(words)
