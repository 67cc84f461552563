"""pack: check, publish, test, plan, apply, certify and list packs."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, TenantOption, examples
from pushlink.surfaces.output import Output
from pushlink.surfaces.who import ReasonOption, TokenFileOption, typing_now

if TYPE_CHECKING:
    from pushlink.operations.certify import Certified
    from pushlink.operations.pack_tests import RanCases
    from pushlink.operations.packs import AppliedView, CheckedPack
    from pushlink.operations.plans import PlanView
    from pushlink.store.access import Connection
    from pushlink.store.plans import Sample


def schema(as_json: JsonOption = False) -> None:
    """Print the JSON Schema of a pack, for editors and tools."""
    from pushlink.operations import packs

    Output(as_json=as_json).document(packs.schema())


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Pack files.")],
    as_json: JsonOption = False,
) -> None:
    """Check pack files; nothing is installed, and no database is asked."""
    from pushlink.operations import packs

    output = Output(as_json=as_json)
    checked = packs.check(files)
    usable = all(one.is_usable for one in checked)
    if as_json:
        output.document({"usable": usable, "packs": checked})
    else:
        for one in checked:
            _show_checked(output, one)
    raise typer.Exit(Exit.OK if usable else Exit.REFUSED)


def _show_checked(output: Output, one: CheckedPack) -> None:
    for finding in one.findings:
        rule = f" [{finding.rule}]" if finding.rule else ""
        place = f"{finding.file}:{finding.line}:{finding.column}"
        output.say(f"{place}: {finding.severity}: {finding.path or '(document)'}: {finding.message}{rule}")
    if one.is_usable:
        count = "1 action" if one.actions == 1 else f"{one.actions} actions"
        output.say(f"{one.file}: {one.pack} {one.version} can be used, with {count}.")
    else:
        output.say(f"{one.file}: it cannot be used; mend what is listed.")


def run_cases(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pack file.")],
    cases: Annotated[
        Path | None,
        typer.Argument(metavar="CASES", help="The cases. Default: cases/ beside the pack.", show_default=False),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write what is observed as expected, into a new file.", show_default=False)
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --update: write over the cases themselves.", show_default=False)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run recorded replies through a pack: which requests it makes, and how it reads the answers; nothing is sent."""
    from pushlink.operations import pack_tests

    output = Output(as_json=as_json)
    done = pack_tests.run(file, cases, update=update, overwrite=force)
    if as_json:
        output.document({"tested": done})
    else:
        _show_tested(output, done)
    raise typer.Exit(Exit.OK if done.is_passed or update else Exit.REFUSED)


def _show_tested(output: Output, done: RanCases) -> None:
    for case in done.cases:
        output.say(f"{done.cases_file}:{case.line}: {'ok' if case.passed else 'failed'}: {case.name}")
        output.say(*(f"    {line}" for difference in case.differences for line in difference.lines))
    output.say(f"{done.pack} {done.version}: {done.passed} cases passed, {done.failed} failed.")
    if done.written is not None:
        output.say(f"What was observed is written to {done.written}.")


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pack file.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit.", show_default=False)
    ] = "",
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Install a pack, or its newer version, for a tenant; applying the same file again changes nothing."""
    from pushlink.operations import packs
    from pushlink.store.access import writing

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, writing(runtime.engine) as conn:
        now = runtime.world.clock.now(conn)
        done = packs.apply(
            conn,
            file,
            tenant=tenant,
            install_ids=runtime.world.ids.fresh,
            actor=_administrator(conn, token_file, tenant, now),
            now=now,
            reason=reason.strip() or packs.APPLY_REASON,
        )
    if as_json:
        output.document({"applied": done})
    else:
        _show_applied(output, done)


def uninstall(
    pack: Annotated[str, typer.Argument(metavar="PACK", help="The pack, as `pack list` names it.")],
    revision: Annotated[
        int, typer.Option("--revision", metavar="N", min=1, help="The revision of its install that you looked at.")
    ],
    reason: ReasonOption,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """End a pack's install: nothing of it is sent any more; links and attempts stay, and wait."""
    from pushlink.operations import packs
    from pushlink.store.access import writing

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, writing(runtime.engine) as conn:
        now = runtime.world.clock.now(conn)
        who = _administrator(conn, token_file, tenant, now)
        ended = packs.uninstall(conn, pack, tenant=tenant, revision=revision, reason=reason, actor=who, now=now)
    if as_json:
        output.document({"uninstalled": ended})
    else:
        output.say(f"{ended.pack} {ended.version} is uninstalled; its links stay, and are not updated.")


def _administrator(conn: Connection, token_file: Path | None, tenant: str, now: dt.datetime) -> str:
    """Who does this: an administrator of the tenant, since a pack says where requests and credentials go."""
    from pushlink.operations.principals import Role

    return typing_now(conn, token_file, now=now).require(Role.ADMIN, tenant=tenant).name


def _show_applied(output: Output, done: AppliedView) -> None:
    tenant = f" for tenant {done.tenant}" if done.tenant else ""
    if not done.is_changed:
        output.say(f"{done.pack} {done.version} is installed{tenant} already, exactly so.")
        return
    verb = "is installed" if done.is_new_incarnation else f"is applied (revision {done.install_revision})"
    output.say(f"{done.pack} {done.version} {verb}{tenant}; catalogue revision {done.catalog_revision}.")
    for name in ("added", "returned", "dropped", "moved"):
        slots: tuple[str, ...] = getattr(done, f"{name}_slots")
        output.say(*(f"  {name} slot {slot}" for slot in slots))


def plan(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pack file.")],
    samples: Annotated[int, typer.Option("--samples", min=0, max=50, help="Records shown of each surface.")] = 5,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Leave with {Exit.PARKED.value} when something would stop going on.")
    ] = False,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what applying a pack would change for slots, links and attempts; nothing is written."""
    from pushlink.operations import plans
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        world = runtime.world
        found = plans.plan(conn, file, tenant=tenant, world=world, now=world.clock.now(conn), samples=samples)
    if as_json:
        output.document({"plan": found})
    else:
        _show_plan(output, found)
    raise typer.Exit(Exit.PARKED if exit_code and found.stops_something else Exit.OK)


def _show_plan(output: Output, plan: PlanView) -> None:
    tenant = f" for tenant {plan.tenant}" if plan.tenant else ""
    if not plan.is_changed:
        output.say(f"{plan.pack} {plan.version} is installed{tenant} already, exactly so.")
    else:
        verb = "would be installed" if plan.is_new_incarnation else f"would be revision {plan.revision} of its install"
        output.say(f"{plan.pack} {plan.version} {verb}{tenant}.")
    for name in ("added", "returned", "dropped", "moved"):
        slots: tuple[str, ...] = getattr(plan, f"{name}_slots")
        output.say(*(f"  {name} slot {slot}" for slot in slots))
    counts = [
        (name, count.fate, count.before, count.after)
        for name in ("links", "creates", "updates")
        for count in getattr(plan, name)
    ]
    if counts:
        output.table(("rows", "fate", "now", "after"), counts)
    for surface in plan.surfaces:
        output.say(
            f"{surface.rule} {surface.surface}: {surface.says}",
            f"  links {surface.links} (now {surface.links_before}): {surface.link_verdict};"
            f" creates {surface.creates} (now {surface.creates_before}): {surface.create_verdict}",
            *(_sample_shown(sample) for sample in surface.samples),
        )
    for blocked in plan.creates_blocked:
        output.say(
            f"D-29 {blocked.source_object}: new records of the action {blocked.action_slot_id} would reserve nothing:"
            f" {', '.join(blocked.replaced)} still owns {blocked.links} links and {blocked.creates} creates.",
            *(_sample_shown(sample) for sample in blocked.samples),
        )


def _sample_shown(sample: Sample) -> str:
    owns = f" owns {sample.remote_id}" if sample.remote_id is not None else ""
    return f"    {sample.source_object} {sample.record_id}{owns}"


def list_(config: ConfigOption = None, tenant: TenantOption = "", as_json: JsonOption = False) -> None:
    """List the packs of a tenant, those that were uninstalled too."""
    from pushlink.operations import packs
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        installs = packs.installs(conn, tenant=tenant)
    if as_json:
        output.document({"installs": installs})
    elif not installs:
        output.say("No pack is installed. next: pushlink pack apply FILE")
    else:
        output.table(
            ("pack", "version", "status", "revision", "namespace", "owner", "updated"),
            [
                (i.pack, i.version, i.status, i.revision, i.namespace, i.connector_owner_key, i.updated_at)
                for i in installs
            ],
        )


def certify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pack file.")],
    profile: Annotated[str, typer.Option("--profile", metavar="P", help="The profile whose sandbox is asked.")],
    action: Annotated[str, typer.Option("--action", metavar="A", help="The action whose create is tried.")],
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Prove a replay contract at the sandbox that the pack names: one create sent twice, counted, read, deleted."""
    from pushlink.operations import certify as certifying
    from pushlink.operations.principals import Role
    from pushlink.store.access import reading, writing

    output = Output(as_json=as_json)
    claim = certifying.read_claim(file, profile=profile, action=action)
    with open_runtime(config) as runtime:
        world = runtime.world
        with reading(runtime.engine) as conn:
            now = world.clock.now(conn)
            who = typing_now(conn, token_file, now=now).require(Role.OPERATOR, tenant=tenant)
        with runtime.sender() as send:
            trial = certifying.try_claim(claim, world, tenant=tenant, send=send, at=now)
        with writing(runtime.engine) as conn:
            done = certifying.keep_result(
                conn,
                claim,
                trial,
                actor=who.name,
                valid_for_ms=runtime.settings.contracts.valid_for_ms,
                now=world.clock.now(conn),
            )
    if as_json:
        output.document({"certified": done})
    else:
        _show_certified(output, done)
    raise typer.Exit(Exit.OK if done.passed else Exit.REFUSED)


def _show_certified(output: Output, done: Certified) -> None:
    output.say(f"{done.pack}, {done.action} at {done.remote}: {', '.join(done.classes)}")
    output.say(*(f"  {step}" for step in done.steps))
    output.say(*(f"  left over at the sandbox: {remote_id}" for remote_id in done.left_over))
    if done.passed:
        output.say(f"Certified until {done.expires_at:%Y-%m-%d}, as long as its create stays as it is.", style="bold")
    else:
        output.say("Not certified:", style="bold")
        output.say(*(f"  {problem}" for problem in done.problems))
        output.note("creates in doubt park as if nothing were declared; mend the pack, or ask the vendor")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    pack = typer.Typer(help="Packs: remote APIs as data.", no_args_is_help=True)
    pack.command(epilog=examples("pushlink pack schema > pack.schema.json"))(schema)
    pack.command(epilog=examples("pushlink pack check packs/*.yaml"))(check)
    pack.command(
        name="test",
        epilog=examples("pushlink pack test packs/notes.yaml", "pushlink pack test packs/notes.yaml --update"),
    )(run_cases)
    pack.command(
        epilog=examples(
            "pushlink pack plan packs/notes.yaml",
            "pushlink pack plan packs/notes.yaml --tenant north --exit-code --json",
        )
    )(plan)
    pack.command(
        epilog=examples("pushlink pack apply packs/notes.yaml", "pushlink pack apply packs/notes.yaml --tenant north")
    )(apply)
    pack.command(
        epilog=examples("pushlink pack certify packs/notes.yaml --profile main --action push_note"),
    )(certify)
    pack.command(epilog=examples('pushlink pack uninstall notes --revision 3 --reason "the connection ends"'))(
        uninstall
    )
    pack.command(name="list", epilog=examples("pushlink pack list", "pushlink pack list --tenant north --json"))(list_)
    app.add_typer(pack, name="pack")
