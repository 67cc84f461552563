"""links, attempts, explain, history: what is where, why, and since when."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus, Operation
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime, record_of, world_if_any
from pushlink.surfaces.options import (
    ConfigOption,
    JsonOption,
    LimitOption,
    ObjectArgument,
    PageOption,
    RecordArgument,
    TenantOption,
    examples,
)
from pushlink.surfaces.output import Output, inline_json, plain, time_shown

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.operations.explain import ActionState, Explanation
    from pushlink.operations.reads import AttemptView, LinkView, Moment, Page

T = TypeVar("T")

#: Digits of an attempt id that tell attempts of one record apart.
_SHORT_ID: Final = 12

_ObjectOption = Annotated[
    str | None, typer.Option("--object", metavar="OBJECT", help="Only of this source object.", show_default=False)
]
_IdOption = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Only of this record; needs --object.", show_default=False)
]


def links(
    source_object: _ObjectOption = None,
    record_id: _IdOption = None,
    status: Annotated[
        list[LinkStatus] | None, typer.Option("--status", help="Only these; may be repeated.", show_default=False)
    ] = None,
    page: PageOption = None,
    limit: LimitOption = 50,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """List links: which local record owns which remote record. Newest first."""
    from pushlink.operations.reads import list_links
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        found = list_links(
            conn,
            tenant=tenant,
            source_object=source_object,
            record_id=_canonical(runtime, source_object, record_id),
            statuses=status or (),
            page=page,
            limit=limit,
        )
    _show_page(output, "links", found, _links_table)


def _links_table(output: Output, rows: Sequence[LinkView]) -> None:
    output.table(
        ("object", "record", "remote id", "target", "status", "mirror", "reason", "updated"),
        [
            (
                r.source_object,
                r.record_id,
                r.remote_id,
                r.target_object,
                r.status,
                r.mirror_status,
                r.reason,
                r.updated_at,
            )
            for r in rows
        ],
    )


def attempts(
    source_object: _ObjectOption = None,
    record_id: _IdOption = None,
    status: Annotated[
        list[AttemptStatus] | None, typer.Option("--status", help="Only these; may be repeated.", show_default=False)
    ] = None,
    operation: Annotated[
        Operation | None, typer.Option("--operation", help="Creates or updates only.", show_default=False)
    ] = None,
    hold: Annotated[Hold | None, typer.Option("--hold", help="Only those under this hold.", show_default=False)] = None,
    page: PageOption = None,
    limit: LimitOption = 50,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """List create and update attempts, newest first."""
    from pushlink.operations.reads import list_attempts
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        found = list_attempts(
            conn,
            tenant=tenant,
            source_object=source_object,
            record_id=_canonical(runtime, source_object, record_id),
            operation=operation,
            statuses=status or (),
            hold=hold,
            page=page,
            limit=limit,
        )
    _show_page(output, "attempts", found, _attempts_table)


def _attempts_table(output: Output, rows: Sequence[AttemptView]) -> None:
    output.table(
        ("attempt", "object", "record", "operation", "status", "hold", "reason", "sends", "remote id", "updated"),
        [
            (
                r.id,
                r.source_object,
                r.record_id,
                r.operation,
                r.status,
                r.hold,
                r.reason,
                r.send_count,
                r.remote_id,
                r.updated_at,
            )
            for r in rows
        ],
    )


def explain(
    source_object: ObjectArgument,
    record_id: RecordArgument,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Leave with {Exit.PARKED.value} when somebody has to act.")
    ] = False,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say why a record is where it is: state, cause, evidence, since when, what it waits for, what may be done."""
    from pushlink.operations.explain import explain as ask
    from pushlink.store.access import reading
    from pushlink.store.dialect import current_time

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        ref = record_of(runtime, source_object, record_id)
        world = world_if_any(runtime)
        with reading(runtime.engine) as conn:
            found = ask(conn, ref.source_object, ref.record_id, tenant=tenant, now=current_time(conn), world=world)
    if as_json:
        document = plain(found)
        output.document({**document, "needs_person": found.needs_person} if isinstance(document, dict) else document)
    else:
        _show_explanation(output, found)
    raise typer.Exit(Exit.PARKED if exit_code and found.needs_person else Exit.OK)


def _show_explanation(output: Output, found: Explanation) -> None:
    tenant = f" of tenant {found.tenant}" if found.tenant else ""
    output.say(f"{found.source_object} {found.record_id}{tenant}", style="bold")
    output.say(*(f"note: {note}" for note in found.notes))
    for action in found.actions:
        output.say("")
        _show_action(output, action)
    if not found.actions:
        output.say("Nothing is known about it.")


def _show_action(output: Output, action: ActionState) -> None:
    where = f" -> {action.target_object}" if action.target_object else ""
    output.say(f"{action.action}{where}: {action.state}", style="bold yellow" if action.needs_person else "bold green")
    code = f" [{action.cause.code}]" if action.cause.code else ""
    output.say(f"  cause      {action.cause.sentence}{code}")
    if action.since is not None:
        output.say(f"  since      {time_shown(action.since)}")
    output.say(f"  waits for  {action.waits_for}")
    if action.remote_id is not None:
        output.say(f"  remote id  {action.remote_id}")
    if action.versions is not None:
        v = action.versions
        note = f" ({v.note})" if v.note else ""
        output.say(f"  versions   wanted {v.wanted}, acknowledged {v.acknowledged}, refused {v.refused}{note}")
    for name, value in action.evidence.items():
        shown = value if isinstance(value, list) else [value]
        output.say(*(f"  evidence   {name}: {inline_json(item)}" for item in shown))
    if action.cause.next_step:
        output.say(f"  advice     {action.cause.next_step}")
    for need in action.needs:
        named = "/".join(part for part in (need.kind, need.code, need.about) if part)
        output.say(f"  needs      a person: {named}; first {need.first.name}: {need.first.command}", style="bold")
    for verb in action.verbs:
        output.say(f"  may        {verb.name}: {verb.command}", f"               {verb.says}")


def history(
    source_object: ObjectArgument,
    record_id: RecordArgument,
    page: PageOption = None,
    limit: LimitOption = 50,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show everything that happened to a record, oldest first: transitions, replies, and what people did."""
    from pushlink.operations.reads import history as ask
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        ref = record_of(runtime, source_object, record_id)
        with reading(runtime.engine) as conn:
            found = ask(conn, ref.source_object, ref.record_id, tenant=tenant, page=page, limit=limit)
    _show_page(output, "history", found, _history_table)


def _history_table(output: Output, rows: Sequence[Moment]) -> None:
    output.table(
        ("at", "what", "event", "from", "to", "reason", "actor", "attempt", "evidence"),
        [
            (
                r.at,
                r.subject,
                r.event,
                r.from_status,
                r.to_status,
                r.reason,
                r.actor,
                r.attempt_id and r.attempt_id[-_SHORT_ID:],
                inline_json(r.evidence) if r.evidence else "",
            )
            for r in rows
        ],
    )


def _show_page(output: Output, name: str, found: Page[T], table: Callable[[Output, Sequence[T]], None]) -> None:
    if output.as_json:
        output.document({name: found.rows, "next_page": found.next_page})
        return
    if found.rows:
        table(output, found.rows)
    else:
        output.say("Nothing is there.")
    if found.next_page:
        output.note(f"more: --page {found.next_page}")


def _canonical(runtime: Runtime, source_object: str | None, record_id: str | None) -> str | None:
    """The canonical text of an id that somebody typed; an object that is not declared any more keeps the text."""
    from pushlink.errors import CallerError, Code

    if record_id is None:
        return None
    if source_object is None:
        raise CallerError("An id means nothing without its object.", next_step="add --object OBJECT")
    try:
        return record_of(runtime, source_object, record_id).record_id
    except CallerError as error:
        if error.code is Code.OBJECT_UNKNOWN:
            return record_id
        raise


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=examples("pushlink links --object Note", "pushlink links --status suspended_drift --json"))(
        links
    )
    app.command(
        epilog=examples(
            "pushlink attempts --status ambiguous_remote_effect --status terminal_failed",
            "pushlink attempts --hold drift",
            "pushlink attempts --object Note --id 42",
        )
    )(attempts)
    app.command(epilog=examples("pushlink explain Note 42", "pushlink explain Note 42 --exit-code --json"))(explain)
    app.command(epilog=examples("pushlink history Note 42", "pushlink history Note 42 --limit 200 --json"))(history)
