"""The decisions of operators: one command for each verb, with the row, the version that was seen, and the reason."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from pushlink.errors import CallerError
from pushlink.protocol.states import Lane
from pushlink.protocol.verbs import VERBS, Target, Verb
from pushlink.surfaces.commands.slots import retire_all
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, TenantOption, examples
from pushlink.surfaces.output import Output
from pushlink.surfaces.who import ApproverFileOption, ReasonOption, TokenFileOption, approving, typing_now

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.operations.actions import Done, OperatorTerms
    from pushlink.operations.actions_bulk import Bulk
    from pushlink.store.access import Connection

AttemptArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="ATTEMPT", help="The attempt's id, as `explain` and `attempts` show it.")
]
LinkArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="LINK", help="The link's id, as `explain` and `links` show it.")
]
VersionOption: TypeAlias = Annotated[
    int, typer.Option("--row-version", metavar="N", min=1, help="The version of the row that you looked at.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typed:
    """What every decision's command is given."""

    row_version: int
    reason: str
    token_file: Path | None
    approver_file: Path | None
    config: Path | None
    tenant: str
    as_json: bool


def _decide(verb: Verb, target_id: str, typed: _Typed, **more: Any) -> None:
    """Make one decision in a transaction of its own, and show what it changed."""
    from pushlink.operations.actions import Decision, act
    from pushlink.operations.principals import Role
    from pushlink.store.access import commit

    output = Output(as_json=typed.as_json)
    with open_runtime(typed.config) as runtime:
        world, tenant = runtime.world, typed.tenant

        def decide(conn: Connection) -> Done:
            now = world.clock.now(conn)
            who = typing_now(conn, typed.token_file, now=now).require(Role.OPERATOR, tenant=tenant)
            decision = Decision(
                verb=verb,
                target_id=target_id,
                row_version=typed.row_version,
                actor=who.name,
                reason=typed.reason,
                tenant=tenant,
                approver=approving(conn, typed.approver_file, tenant=tenant, now=now),
                **more,
            )
            return act(conn, world, decision, terms=_terms(runtime), now=now)

        done = commit(runtime.engine, decide)
    _show_done(output, done, tenant)


def _terms(runtime: Runtime) -> OperatorTerms:
    from pushlink.operations.actions import OperatorTerms

    operators = runtime.settings.operators
    return OperatorTerms(pause_max_ms=operators.pause_max_ms, second_principal=operators.second_principal)


def _show_done(output: Output, done: Done, tenant: str) -> None:
    if output.as_json:
        output.document(done)
        return
    output.say(f"{done.verb}: {done.source_object} {done.record_id} was {done.before}, is {done.after}.", style="bold")
    if done.remote_id is not None:
        output.say(f"  remote id  {done.remote_id}")
    if done.made is not None:
        output.say(f"  now due    {done.made}")
    output.say(*(f"  note       {note}" for note in done.notes))
    of_tenant = f" --tenant {tenant}" if tenant else ""
    output.note(f"next: pushlink explain {done.source_object} {done.record_id}{of_tenant}")


# ------------------------------------------------------------------------------------------------ reconcile


def reconcile(
    attempt: Annotated[
        str | None, typer.Argument(metavar="[ATTEMPT]", help="The attempt's id; left out with --csv.")
    ] = None,
    adopt: Annotated[
        str | None, typer.Option("--adopt", metavar="ID", help=VERBS[Verb.ADOPT].says, show_default=False)
    ] = None,
    absent: Annotated[bool, typer.Option("--absent", help=VERBS[Verb.ABSENT].says)] = False,
    lookup: Annotated[bool, typer.Option("--lookup", help=VERBS[Verb.LOOKUP].says)] = False,
    replay: Annotated[bool, typer.Option("--replay", help=VERBS[Verb.REPLAY].says)] = False,
    reinterpret: Annotated[bool, typer.Option("--reinterpret", help=VERBS[Verb.REINTERPRET].says)] = False,
    applied: Annotated[bool, typer.Option("--applied", help=VERBS[Verb.APPLIED].says)] = False,
    resend: Annotated[bool, typer.Option("--resend", help=VERBS[Verb.RESEND].says)] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Many decisions from a file; see docs/operations.md."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --csv: say what would become of each row.")] = False,
    all_or_nothing: Annotated[
        bool, typer.Option("--all-or-nothing", help="With --csv: only if no row is refused.")
    ] = False,
    row_version: Annotated[
        int | None,
        typer.Option("--row-version", metavar="N", min=1, help="The version of the row that you looked at."),
    ] = None,
    reason: ReasonOption = "",
    token_file: TokenFileOption = None,
    approver_token_file: ApproverFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Settle what is in doubt: name the remote record, say that there is none, or read the answers again."""
    asked = {
        Verb.ADOPT: adopt is not None,
        Verb.ABSENT: absent,
        Verb.LOOKUP: lookup,
        Verb.REPLAY: replay,
        Verb.REINTERPRET: reinterpret,
        Verb.APPLIED: applied,
        Verb.RESEND: resend,
    }
    chosen = [verb for verb, is_asked in asked.items() if is_asked]
    typed = _typed(row_version or 0, reason, token_file, config, tenant, as_json, approver_token_file)
    if csv is not None:
        if attempt is not None or chosen:
            raise CallerError("A file names its attempts and verbs itself.", next_step="leave them out beside --csv")
        _reconcile_many(csv, typed, dry_run=dry_run, all_or_nothing=all_or_nothing)
        return
    if attempt is None or len(chosen) != 1 or row_version is None:
        raise CallerError(
            "Name one attempt, one way to settle it, and the row version that you looked at.",
            next_step="pushlink reconcile --help",
        )
    _decide(chosen[0], attempt, typed, argument=adopt)


def _reconcile_many(file: Path, typed: _Typed, *, dry_run: bool, all_or_nothing: bool) -> None:
    from pushlink.operations.actions_bulk import act_many, read_decisions
    from pushlink.operations.principals import Role
    from pushlink.store.access import reading, writing

    output = Output(as_json=typed.as_json)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise CallerError(f"The file {file} cannot be read as UTF-8 text.", next_step="correct --csv") from exc
    with open_runtime(typed.config) as runtime:
        world = runtime.world
        with reading(runtime.engine) as conn:
            now = world.clock.now(conn)
            who = typing_now(conn, typed.token_file, now=now).require(Role.OPERATOR, tenant=typed.tenant)
            approver = approving(conn, typed.approver_file, tenant=typed.tenant, now=now)
        rows = read_decisions(text, actor=who.name, tenant=typed.tenant, approver=approver)
        done = act_many(
            lambda: writing(runtime.engine),
            world,
            rows,
            terms=_terms(runtime),
            dry_run=dry_run,
            all_or_nothing=all_or_nothing,
        )
    if typed.as_json:
        output.document(done)
    else:
        _show_bulk(output, done, dry_run=dry_run)
    raise typer.Exit(Exit.REFUSED if done.refused else Exit.OK)


def _show_bulk(output: Output, done: Bulk, *, dry_run: bool) -> None:
    output.table(
        ("line", "attempt", "verb", "outcome", "now", "code", "message"),
        [(r.line, r.attempt_id, r.verb, r.outcome, r.after, r.code, r.message) for r in done.rows],
    )
    if dry_run:
        output.say(f"A dry run: {done.done} would be done, {done.refused} refused; nothing was changed.")
    elif done.applied:
        output.say(f"{done.done} done, {done.refused} refused.")
    else:
        output.say(f"Nothing was changed: {done.refused} refused.")


# ------------------------------------------------------------------------------------------------ attempts


def supersede(
    attempt: AttemptArgument,
    row_version: VersionOption,
    reason: ReasonOption,
    reserve: Annotated[
        bool, typer.Option("--reserve", help="Reserve the newest wanted version at once, under its author's authority.")
    ] = False,
    token_file: TokenFileOption = None,
    approver_token_file: ApproverFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Free the place of a create that ended without a remote record, for another create."""
    typed = _typed(row_version, reason, token_file, config, tenant, as_json, approver_token_file)
    _decide(Verb.SUPERSEDE, attempt, typed, reserve=reserve)


def dispose(
    attempt: AttemptArgument,
    row_version: VersionOption,
    reason: ReasonOption,
    remote_id: Annotated[str, typer.Option("--id", metavar="ID", help="The remote id to set aside.")],
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a remote id aside as evidence: one that another link owns, or that a late answer named."""
    typed = _typed(row_version, reason, token_file, config, tenant, as_json)
    _decide(Verb.DISPOSE, attempt, typed, argument=remote_id)


def repair_lane(
    attempt: AttemptArgument,
    row_version: VersionOption,
    reason: ReasonOption,
    lane: Annotated[Lane, typer.Option("--lane", help="The lane to move it to.")],
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Move an attempt of a lane that this release does not know to one that it does."""
    _decide(
        Verb.REPAIR_LANE, attempt, _typed(row_version, reason, token_file, config, tenant, as_json), argument=lane.value
    )


# ------------------------------------------------------------------------------------------------ links


def relocate(
    link: LinkArgument,
    row_version: VersionOption,
    reason: ReasonOption,
    to: Annotated[str, typer.Option("--to", metavar="ID", help="The remote record that took the old one's place.")],
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Point a link to another remote record, after a merge or a change of its id."""
    _decide(Verb.RELOCATE, link, _typed(row_version, reason, token_file, config, tenant, as_json), argument=to)


def retire(
    link: Annotated[str | None, typer.Argument(metavar="[LINK]", help="The link's id; left out with --slot.")] = None,
    row_version: Annotated[
        int | None,
        typer.Option("--row-version", metavar="N", min=1, help="The version of the row that you looked at."),
    ] = None,
    reason: ReasonOption = "",
    slot: Annotated[
        str | None, typer.Option("--slot", metavar="SLOT", help="Every link of this action slot instead of one link.")
    ] = None,
    links: Annotated[
        int | None, typer.Option("--links", metavar="N", min=0, help="With --slot: the links that you looked at.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --slot: say what would become of each.")] = False,
    release: Annotated[bool, typer.Option("--release", help="Free the record's place as well.")] = False,
    token_file: TokenFileOption = None,
    approver_token_file: ApproverFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """End a link, or every link of a slot; remote records are left alone, and places stay closed unless released."""
    if slot is not None and link is None and row_version is None:
        retire_all(
            slot,
            links=links,
            reason=reason,
            release=release,
            dry_run=dry_run,
            token_file=token_file,
            approver_file=approver_token_file,
            config=config,
            tenant=tenant,
            as_json=as_json,
        )
        return
    if link is None or row_version is None or slot is not None or links is not None or dry_run:
        raise CallerError(
            "Name one link and the row version that you looked at, or a slot and how many links it had.",
            next_step="pushlink retire --help",
        )
    typed = _typed(row_version, reason, token_file, config, tenant, as_json, approver_token_file)
    _decide(Verb.RETIRE, link, typed, release=release)


def release_slot(
    link: LinkArgument,
    row_version: VersionOption,
    reason: ReasonOption,
    token_file: TokenFileOption = None,
    approver_token_file: ApproverFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Allow another create for a record whose link is retired."""
    typed = _typed(row_version, reason, token_file, config, tenant, as_json, approver_token_file)
    _decide(Verb.RELEASE_SLOT, link, typed)


def declare_independent(
    slot: Annotated[str, typer.Argument(metavar="SLOT", help="The id of an action slot that is in use.")],
    catalog_revision: Annotated[
        int,
        typer.Option("--catalog-revision", metavar="N", min=1, help="The revision at which you looked: `slot list`."),
    ],
    reason: ReasonOption,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say that an action slot replaces no other one, so that it may create beside links of older slots."""
    from pushlink.operations.principals import Role
    from pushlink.operations.slots import declare_independent as declare
    from pushlink.store.access import writing

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, writing(runtime.engine) as conn:
        world = runtime.world
        who = typing_now(conn, token_file, now=world.clock.now(conn)).require(Role.OPERATOR, tenant=tenant)
        done = declare(
            conn, world, slot, tenant=tenant, actor=who.name, reason=reason, catalog_revision=catalog_revision
        )
    if as_json:
        output.document(done)
        return
    output.say(f"{slot} replaces no other slot; new records may be created through it.")
    output.say(*(f"  beside {other}, which still owns something" for other in done.beside))


def _about_row(verb: Verb) -> Callable[..., None]:
    """The command of a decision that has to be told nothing but its row: an attempt, or a link."""

    def command(
        target: AttemptArgument,
        row_version: VersionOption,
        reason: ReasonOption,
        token_file: TokenFileOption = None,
        config: ConfigOption = None,
        tenant: TenantOption = "",
        as_json: JsonOption = False,
    ) -> None:
        _decide(verb, target, _typed(row_version, reason, token_file, config, tenant, as_json))

    command.__doc__ = VERBS[verb].says
    if VERBS[verb].target is Target.LINK:
        command.__annotations__["target"] = LinkArgument
    return command


#: Decisions that need nothing but their row; what each does is said by the table of verbs.
_PLAIN: Final = (
    Verb.UNHOLD,
    Verb.ABANDON,
    Verb.RELEASE_VERSION,
    Verb.VALIDATE_CREATE,
    Verb.SUSPEND,
    Verb.REVALIDATE,
)


def _typed(
    row_version: int,
    reason: str,
    token_file: Path | None,
    config: Path | None,
    tenant: str,
    as_json: bool,
    approver_file: Path | None = None,
) -> _Typed:
    return _Typed(
        row_version=row_version,
        reason=reason,
        token_file=token_file,
        approver_file=approver_file,
        config=config,
        tenant=tenant,
        as_json=as_json,
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            'pushlink reconcile ATTEMPT --adopt 6001 --row-version 4 --reason "found by its e-mail address"',
            'pushlink reconcile ATTEMPT --absent --row-version 4 --reason "not there, ticket 17"',
            "pushlink reconcile --csv decisions.csv --dry-run",
        )
    )(reconcile)
    why = '--row-version 5 --reason "ticket 17"'
    commands: dict[str, tuple[Callable[..., None], str]] = {
        "supersede": (supersede, f"pushlink supersede ATTEMPT --reserve {why}"),
        "dispose": (dispose, f"pushlink dispose ATTEMPT --id 7 {why}"),
        "repair-lane": (repair_lane, f"pushlink repair-lane ATTEMPT --lane configured {why}"),
        "relocate": (relocate, f"pushlink relocate LINK --to 7002 {why}"),
        "retire": (
            retire,
            f'pushlink retire LINK --release {why}\n\n  pushlink retire --slot act-1 --dry-run --reason "ticket 17"',
        ),
        "release-slot": (release_slot, f"pushlink release-slot LINK {why}"),
        "declare-independent": (
            declare_independent,
            'pushlink declare-independent SLOT --catalog-revision 7 --reason "another purpose"',
        ),
    }
    for verb in _PLAIN:
        example = f"pushlink {verb.value} {VERBS[verb].target.value.upper()} {why}"
        commands[verb.value] = (_about_row(verb), example)
    order = [verb.value for verb in VERBS]
    for name in sorted(commands, key=lambda name: order.index(name) if name in order else len(order)):
        command, example = commands[name]
        app.command(name=name, epilog=examples(example))(command)
