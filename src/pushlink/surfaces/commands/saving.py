"""save and push: reserving what a record wants to have pushed, and dispatching it right here."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pushlink.errors import CallerError, Contended
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime, record_of, world_if_any
from pushlink.surfaces.options import (
    ConfigOption,
    JsonOption,
    ObjectArgument,
    RecordArgument,
    TenantOption,
    examples,
)
from pushlink.surfaces.output import Output, inline_json, plain_object

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.flows.outcomes import Outcome
    from pushlink.ports import RecordRef

#: Times that a save is run again after it lost a race to other writers.
TRIES: Final = 10


def save(
    source_object: ObjectArgument,
    record_id: RecordArgument,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="On whose authority.", show_default=False)] = "",
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Reserve the pushes of a record on a user's authority; a worker sends them. `backfill` saves all records."""
    output = Output(as_json=as_json)
    if not user:
        raise CallerError("A save needs the user on whose authority it reads.", next_step="add --user USER")
    with open_runtime(config) as runtime:
        outcomes = _save(runtime, record_of(runtime, source_object, record_id), user=user, tenant=tenant)
    _show_outcomes(output, outcomes)
    refused = any(_name(outcome) == "refused" for outcome in outcomes)
    raise typer.Exit(Exit.REFUSED if refused else Exit.OK)


def _save(runtime: Runtime, ref: RecordRef, *, user: str, tenant: str) -> list[Outcome]:
    """Save in a transaction of pushlink's own engine, again when another writer was quicker."""
    from pushlink.store.access import writing

    for left in reversed(range(TRIES)):
        try:
            with writing(runtime.engine) as conn:
                return runtime.save(conn, ref, user=user, tenant=tenant)
        except Contended:
            if left == 0:
                raise
    return []


def _name(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    """One flat shape for all outcomes; what one does not have is null."""
    about = outcome.about
    names = ("attempt_id", "ordinal", "version", "waits_for", "code", "message", "evidence", "next_verbs")
    found = {name: getattr(outcome, name, None) for name in (*names, "wanted_version")}
    shown = {
        "outcome": _name(outcome),
        "tenant": about.tenant,
        "source_object": about.source_object,
        "record_id": about.record_id,
        "action": about.action,
        "link_key": about.link_key,
    }
    return plain_object({**shown, **found})


def _show_outcomes(output: Output, outcomes: Sequence[Outcome]) -> None:
    documents = [_outcome_document(outcome) for outcome in outcomes]
    if output.as_json:
        output.document({"outcomes": documents})
        return
    if not documents:
        output.say("No action of an installed pack concerns this record now.")
    for one in documents:
        output.say(f"{one['outcome']}: {one['action'] or one['source_object']}: {_said(one)}")
        if one["code"]:
            output.say(*(f"  {name}: {inline_json(value)}" for name, value in (one["evidence"] or {}).items()))
            if one["next_verbs"]:
                output.say(f"  next: {', '.join(one['next_verbs'])}")


def _said(one: dict[str, Any]) -> str:
    match one["outcome"]:
        case "reserved":
            return f"create {one['ordinal']} is reserved as attempt {one['attempt_id']}."
        case "deferred":
            return f"create {one['ordinal']} waits for another record (attempt {one['attempt_id']})."
        case "queued" if one["waits_for"]:
            return f"version {one['version']} is wanted and waits ({one['waits_for']})."
        case "queued":
            return f"version {one['version']} goes with update attempt {one['attempt_id']}."
        case "unchanged":
            return f"nothing to send; version {one['version']} has these values."
        case _:
            kept = f" The values are kept as version {one['wanted_version']}." if one["wanted_version"] else ""
            return f"{one['code']}: {one['message']}{kept}"


# ------------------------------------------------------------------------------------------------ push


def push(
    source_object: ObjectArgument,
    record_id: RecordArgument,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Dispatch what is due of one record now, and wait for the answer; save it first."""
    from pushlink.flows.inline import CLAIMABLE, Standing
    from pushlink.operations.explain import explain
    from pushlink.operations.reads import attempt_view
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        ref = record_of(runtime, source_object, record_id)
        dispatched = runtime.push(ref, tenant=tenant)
        with reading(runtime.engine) as conn:
            now = runtime.world.clock.now(conn)
            explained = explain(
                conn, ref.source_object, ref.record_id, tenant=tenant, now=now, world=world_if_any(runtime)
            )
    shown = [
        {
            "standing": one.standing,
            **plain_object(
                {"attempt": attempt_view(one.attempt, source_object=ref.source_object, record_id=ref.record_id)}
            ),
        }
        for one in dispatched
    ]
    waits = any(
        one.standing in {Standing.NOT_DUE, Standing.IN_WORK, Standing.OTHER_LANE} or one.attempt.status in CLAIMABLE
        for one in dispatched
    )
    states = {action.action: action.state for action in explained.actions}
    if as_json:
        output.document({"attempts": shown, "states": states, "needs_person": explained.needs_person})
    else:
        if not dispatched:
            output.say("Nothing is due of this record.")
        for one in dispatched:
            attempt = one.attempt
            why = f" ({attempt.hold_code or attempt.reason_code})" if attempt.hold_code or attempt.reason_code else ""
            remote = f", remote id {attempt.remote_id}" if attempt.remote_id else ""
            output.say(f"{one.standing}: {attempt.operation} {attempt.id}: {attempt.status.value}{why}{remote}")
        if explained.needs_person:
            output.say(f"It needs a person: pushlink explain {source_object} {record_id}")
    raise typer.Exit(Exit.PARKED if explained.needs_person else Exit.UNAVAILABLE if waits else Exit.OK)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            "pushlink save Note 42 --user ann",
            "pushlink save Note 42 --user ann --tenant north --json",
        )
    )(save)
    app.command(epilog=examples("pushlink save Note 42 --user ann && pushlink push Note 42"))(push)
