"""backfill: every record of an object, or what changed lately, saved in batches that survive being killed."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pushlink.errors import CallerError
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, ObjectArgument, TenantOption, examples
from pushlink.surfaces.output import Output, plain_object, time_shown

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from pushlink.operations.backfill import Backfill, Begun, Progress
    from pushlink.store.backfill import BackfillRow

#: Seconds between two looks at what workers made of it meanwhile.
LOOK_S: Final = 2.0


def backfill(
    source_object: ObjectArgument,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="On whose authority.", show_default=False)] = "",
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WATERMARK",
            help="Only what changed since: a moment (2024-05-01T00:00:00Z), a duration (2h), or a number.",
            show_default=False,
        ),
    ] = None,
    updated: Annotated[
        str | None,
        typer.Option(
            "--updated",
            metavar="COLUMN",
            help="The column that tells when a row changed. Default: as the settings declare.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=5_000, help="Records in one transaction.")] = 500,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, even if a run is unfinished.")] = False,
    show_refused: Annotated[
        int, typer.Option("--show-refused", min=0, metavar="N", help="Refused records to list; --json lists all.")
    ] = 10,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Save every record of an object, or what changed lately; run it again after a crash and it goes on."""
    from pushlink.operations.backfill import Asked, Backfill

    output = Output(as_json=as_json)
    if not user:
        raise CallerError("A backfill needs the user on whose authority it reads.", next_step="add --user USER")
    if updated is not None and since is None:
        raise CallerError("--updated says by which column --since is meant.", next_step="add --since WATERMARK")
    asked = Asked(source_object=source_object, user=user, tenant=tenant, since=since, updated=updated)
    watch = _Watch(started=time.monotonic())
    with open_runtime(config) as runtime:
        world = runtime.world
        work = Backfill(
            engine=runtime.engine, scan=runtime.records, save=runtime.save_many, clock=world.clock, ids=world.ids
        )
        begun = work.begin(asked, restart=restart)
        if begun.resumed:
            output.note(f"Going on with the run of {time_shown(begun.run.started_at)}, {begun.run.records} records in.")
        last = _go_on(output, work, begun, watch, batch=batch)
        found = work.progress(last)
        refusals = work.refusals(last, limit=None if as_json else show_refused)
        if as_json:
            output.document(_document(begun, found, watch) | {"refusals": refusals})
        else:
            _show(output, found, watch)
            output.say(*(f"    {r.source_record_id} {r.action}: {r.code}: {r.message}" for r in refusals))
            if show_refused and sum(found.refused.values()) > len(refusals):
                output.say("    ... more with --show-refused N, all with --json")
    raise typer.Exit(_exit(found))


@dataclass(slots=True)
class _Watch:
    started: float
    seconds: float = 0.0
    records: int = 0  # of this process


def _go_on(output: Output, work: Backfill, begun: Begun, watch: _Watch, *, batch: int) -> BackfillRow:
    """Step by step to the end. From the keyboard it is interrupted between two batches or in one; both are safe."""
    run, before = begun.run, begun.run.records
    with _bar(output) as bar:
        task = bar.add_task("backfill", total=run.expected, completed=0, says="", rate=0.0)
        looked = 0.0
        try:
            while run.ended_at is None:
                run = work.step(run, batch=batch)
                watch.seconds = time.monotonic() - watch.started
                watch.records = run.records - before
                rate = watch.records / max(watch.seconds, 0.001)
                bar.update(task, completed=run.records + run.unusable, rate=rate)
                if output.err.is_terminal and watch.seconds - looked > LOOK_S:
                    looked = watch.seconds
                    bar.update(task, says=_in_short(work.progress(run)))
        except KeyboardInterrupt:
            output.note(f"Interrupted after {run.records} of about {run.expected} records; the same command goes on.")
            raise typer.Exit(Exit.INTERRUPTED) from None
    return run


def _in_short(found: Progress) -> str:
    run, standing = found.run, found.standing
    return (
        f"{run.reserved} reserved, {run.queued} queued, {run.unchanged} unchanged, {run.refused} refused"
        f" | {standing.finalized} finalized, {standing.parked} parked"
    )


def _outcomes(run: BackfillRow) -> dict[str, int]:
    return {name: getattr(run, name) for name in ("reserved", "deferred", "queued", "unchanged", "refused")}


def _document(begun: Begun, found: Progress, watch: _Watch) -> dict[str, Any]:
    run = found.run
    return plain_object(
        {
            "id": run.id,
            "source_object": run.source_object,
            "tenant": run.tenant,
            "user": run.user_id,
            "since": run.since,
            "updated_column": run.updated_column,
            "resumed": begun.resumed,
            "started_at": run.started_at,
            "ended_at": run.ended_at,
            "expected": run.expected,
            "records": run.records,
            "outcomes": _outcomes(run),
            "refused": found.refused,
            "unconcerned": run.unconcerned,
            "unusable": run.unusable,
            "creates": {field.name: getattr(found.standing, field.name) for field in fields(found.standing)},
            "seconds": round(watch.seconds, 3),
        }
    )


def _show(output: Output, found: Progress, watch: _Watch) -> None:
    run, standing = found.run, found.standing
    rate = watch.records / max(watch.seconds, 0.001)
    output.say(f"{run.records} records, {watch.records} of them now in {watch.seconds:.1f} s ({rate:.0f}/s).")
    output.say(*(f"  {name}: {count}" for name, count in _outcomes(run).items() if count))
    output.say(*(f"    {code}: {count}" for code, count in found.refused.items()))
    if run.unconcerned:
        output.say(f"  {run.unconcerned} records are of no concern to any action of an installed pack.")
    if run.unusable:
        output.say(f"  {run.unusable} rows have no id of the declared type, or no time of their change.")
    output.say(
        f"Creates reserved since it began: {standing.finalized} finalized, {standing.waiting} waiting or in work,"
        f" {standing.held} held, {standing.parked} parked."
    )


def _exit(found: Progress) -> Exit:
    if found.run.refused or found.run.unusable:
        return Exit.REFUSED
    return Exit.PARKED if found.standing.parked or found.standing.held else Exit.OK


def _bar(output: Output) -> Bar:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>7.0f}/s"),
        TextColumn("{task.fields[says]}"),
        TimeRemainingColumn(),
        console=output.err,
        transient=True,
        disable=not output.err.is_terminal,
    )


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog=examples(
            "pushlink backfill Note --user nightly",
            "pushlink backfill Note --user nightly --since 2h",
            "pushlink backfill Note --user nightly --since 2024-05-01T00:00:00Z --updated changed_at --json",
        )
    )(backfill)
