"""slot: what slots there are, and manifests that move everything of one slot to another."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pushlink.errors import CallerError
from pushlink.surfaces.documents import (
    ApprovedByOption,
    OperationOption,
    OutOption,
    operator_of,
    progress,
    read_text,
    write_new,
)
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, TenantOption, examples
from pushlink.surfaces.output import Output
from pushlink.surfaces.who import ReasonOption, TokenFileOption, approving, typing_now

if TYPE_CHECKING:
    from pushlink.migration.rebind import Done
    from pushlink.operations.slots import SlotRetired


def list_(config: ConfigOption = None, tenant: TenantOption = "", as_json: JsonOption = False) -> None:
    """List every slot of a tenant that was ever seen, what became of it, and what stands under it."""
    from pushlink.operations.slots import list_slots
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        found = list_slots(conn, tenant=tenant)
    if as_json:
        output.document(found)
        return
    output.table(
        ("kind", "slot", "name", "object", "status", "pushes to", "before", "links", "creates", "successor"),
        [
            (
                s.kind,
                s.slot_id,
                s.name,
                s.source_object,
                s.status,
                s.destination_slot_id,
                ", ".join(s.former_destinations),
                s.links,
                s.creates,
                s.successor,
            )
            for s in found.slots
        ],
    )
    output.say(f"catalogue revision {found.catalog_revision}")


def plan(
    old: Annotated[str, typer.Option("--from", metavar="SLOT", help="The action slot whose rows are to move.")],
    new: Annotated[str, typer.Option("--to", metavar="SLOT", help="The action slot of a pack that gets them.")],
    reason: ReasonOption,
    approval: Annotated[
        Path, typer.Option("--approval", metavar="FILE", help="The text in which the two were called one lineage.")
    ],
    approved_by: ApprovedByOption,
    out: OutOption,
    from_destination: Annotated[
        str | None,
        typer.Option("--from-destination", metavar="SLOT", help="Where it pushed to, if that was more than one place."),
    ] = None,
    from_owner: Annotated[
        str | None, typer.Option("--from-owner", metavar="KEY", help="Whose it was, if it was another pack's.")
    ] = None,
    operation: OperationOption = "",
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write the manifest that moves everything of one slot to another; whatever is in the way is named instead."""
    from pushlink.migration import rebind
    from pushlink.protocol.documents import approve
    from pushlink.protocol.rebinding import write_rebind

    output = Output(as_json=as_json)
    approved = approve(approved_by, read_text(approval))
    ask = rebind.Ask(
        tenant=tenant, from_action=old, to_action=new, from_destination=from_destination, from_owner=from_owner
    )
    with open_runtime(config) as runtime:
        manifest, done = rebind.plan(
            runtime.engine,
            ask,
            operation_id=operation or runtime.world.ids.fresh(),
            reason=reason,
            approval=approved,
            now=runtime.world.clock.now,
        )
    write_new(out, write_rebind(manifest))
    _show(output, done, file=out)


def apply(
    file: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The manifest, as `slot rebind plan` wrote it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Lock and check everything, then roll back.")] = False,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply a manifest whole, in one transaction; applied already, only verify that."""
    from pushlink.migration import rebind
    from pushlink.protocol.rebinding import read_rebind

    output = Output(as_json=as_json)
    manifest = read_rebind(read_text(file))
    with open_runtime(config) as runtime, progress(output, "rebind", len(manifest.members)) as on_progress:
        done = rebind.apply(
            runtime.engine,
            manifest,
            actor=operator_of(runtime, token_file, manifest.tenant),
            now=runtime.world.clock.now,
            dry_run=dry_run,
            on_progress=on_progress,
        )
    _show(output, done)


def _show(output: Output, done: Done, *, file: Path | None = None) -> None:
    if output.as_json:
        output.document({"rebind": done})
        return
    said = {
        "applicable": f"Nothing is in the way of operation {done.operation_id}; nothing was written to the database.",
        "applied": f"Operation {done.operation_id} is applied.",
        "already_applied": f"Operation {done.operation_id} was applied before, exactly so.",
    }
    old, new = (f"{s.action_slot_id} -> {s.destination_slot_id}" for s in (done.old, done.new))
    output.say(said[done.verdict.value], f"  {old}  becomes  {new}")
    output.say(f"  {done.members} records, {done.links} links, {done.attempts} attempts, digest {done.digest}")
    if file is not None:
        output.say(f"next: pushlink slot rebind apply {file}")
    elif done.old_status is not None:
        output.say(f"  the slot {done.old.action_slot_id} is {done.old_status} now")
        output.say("next: pushlink stuck    # links that were suspended stay so until they are revalidated")


# ------------------------------------------------------------------------------------------------ in bulk


def retire_all(
    slot: str,
    *,
    links: int | None,
    reason: str,
    release: bool,
    dry_run: bool,
    token_file: Path | None,
    approver_file: Path | None,
    config: Path | None,
    tenant: str,
    as_json: bool,
) -> None:
    """`pushlink retire --slot`: every link of a slot, each by itself."""
    from pushlink.operations.actions import OperatorTerms
    from pushlink.operations.principals import Role
    from pushlink.operations.slots import RetireSlot, list_slots, retire_slot
    from pushlink.store.access import reading, writing

    output = Output(as_json=as_json)
    if links is None and not dry_run:
        raise CallerError(
            "Retiring a whole slot names how many links were looked at.",
            next_step=f"pushlink retire --slot {slot} --dry-run says how many; then --links N",
        )
    begun = time.monotonic()
    with open_runtime(config) as runtime:
        world = runtime.world
        with reading(runtime.engine) as conn:
            now = world.clock.now(conn)
            who = typing_now(conn, token_file, now=now).require(Role.OPERATOR, tenant=tenant)
            approver = approving(conn, approver_file, tenant=tenant, now=now)
            total = sum(s.links for s in list_slots(conn, tenant=tenant).slots if s.slot_id == slot)
        operators = runtime.settings.operators
        asked = RetireSlot(
            tenant=tenant,
            slot=slot,
            links=links,
            actor=who.name,
            reason=reason,
            approver=approver,
            release=release,
        )
        with progress(output, "retire", total) as on_progress:
            done = retire_slot(
                lambda: writing(runtime.engine),
                world,
                asked,
                terms=OperatorTerms(pause_max_ms=operators.pause_max_ms, second_principal=operators.second_principal),
                dry_run=dry_run,
                on_progress=on_progress,
            )
    if as_json:
        output.document(done)
    else:
        _show_retired(output, done, seconds=time.monotonic() - begun)
    raise typer.Exit(Exit.REFUSED if done.refused or done.left else Exit.OK)


def _show_retired(output: Output, done: SlotRetired, *, seconds: float) -> None:
    shown = [row for row in done.retired if row.outcome != "done"]
    if shown:
        output.table(
            ("kind", "id", "record", "outcome", "code", "message"),
            [(r.kind, r.id, f"{r.source_object} {r.record_id}", r.outcome, r.code, r.message) for r in shown],
        )
    if done.applied:
        rate = done.done / max(seconds, 0.001)
        output.say(f"{done.done} of {done.links} links retired, {done.refused} refused ({rate:.0f}/s).")
        output.say(f"The slot {done.slot} is {done.status}; {done.left} creates under it are not over.")
    else:
        output.say(
            f"A dry run: {done.done} of {done.links} links would be retired, {done.refused} refused;"
            f" {done.left} creates are not over. Nothing was changed."
        )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    slot = typer.Typer(help="Slots: what stands under each, and moving one to its successor.", no_args_is_help=True)
    slot.command(name="list", epilog=examples("pushlink slot list", "pushlink slot list --tenant north --json"))(list_)
    rebind = typer.Typer(help="Move everything of one slot to another, by a manifest.", no_args_is_help=True)
    rebind.command(
        epilog=examples(
            "pushlink slot rebind plan --from act-1 --to act-2 --reason 'the slot got another id'"
            " --approval approval.md --approved-by 'Olga Owner' -o rebind.json"
        )
    )(plan)
    rebind.command(
        epilog=examples("pushlink slot rebind apply rebind.json --dry-run", "pushlink slot rebind apply rebind.json")
    )(apply)
    slot.add_typer(rebind, name="rebind")
    app.add_typer(slot, name="slot")
