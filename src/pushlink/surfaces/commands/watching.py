"""stuck, export, and principals: what waits for people, what is there, and who may decide."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import datetime as dt
import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pushlink.errors import CallerError
from pushlink.surfaces.documents import new_file
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime, world_if_any
from pushlink.surfaces.options import ConfigOption, JsonOption, LimitOption, PageOption, TenantOption, examples
from pushlink.surfaces.output import Output, time_shown
from pushlink.surfaces.who import ReasonOption, TokenFileOption, typing_now

if TYPE_CHECKING:
    from pushlink.operations.waiting import StuckGroup


class ExportKind(StrEnum):
    """What an export may hold."""

    LINK = "link"
    ATTEMPT = "attempt"
    EVENT = "event"


class RoleChoice(StrEnum):
    """What a principal may do; each may do what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


def stuck(
    cause: Annotated[
        str | None,
        typer.Option("--cause", metavar="CAUSE", help="Only this one, a page at a time.", show_default=False),
    ] = None,
    page: PageOption = None,
    limit: LimitOption = 50,
    samples: Annotated[int, typer.Option("--samples", min=0, max=200, help="Rows shown of each cause.")] = 5,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Leave with {Exit.PARKED.value} when anything waits.")
    ] = False,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """List everything that waits for a person, by cause, with what may be decided and the safe command to type first.

    Remotes that are left alone stand behind it: nobody has to do anything about those.
    """
    from pushlink.operations import waiting
    from pushlink.operations.remotes import held_back
    from pushlink.store.access import reading
    from pushlink.store.dialect import current_time

    if page is not None and cause is None:
        raise CallerError("A page is one of a cause.", next_step="name it with --cause")
    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        world = world_if_any(runtime)
        with reading(runtime.engine) as conn:
            now = current_time(conn) if world is None else world.clock.now(conn)
            if cause is None:
                groups = waiting.stuck(conn, world=world, tenant=tenant, samples=samples, now=now)
            else:
                groups = (waiting.stuck_page(conn, cause, world=world, tenant=tenant, page=page, limit=limit, now=now),)
            remotes = held_back(conn, tenant=tenant, now=now)
    if as_json:
        output.document({"groups": groups, "remotes": remotes, "waiting": sum(group.count for group in groups)})
    else:
        _show_stuck(output, groups, tenant)
        output.say(*(f"{remote.destination_slot_id}: {remote.sentence}" for remote in remotes))
        if world is None:
            output.note("the secret or a policy is missing: nothing was compared with the catalogue; see doctor")
    raise typer.Exit(Exit.PARKED if exit_code and groups else Exit.OK)


def _show_stuck(output: Output, groups: Sequence[StuckGroup], tenant: str) -> None:
    if not groups:
        output.say("Nothing waits for a person.")
    for group in groups:
        since = f", since {time_shown(group.oldest)}" if group.oldest is not None else ""
        output.say(f"{group.count} {group.cause}{since}", style="bold yellow")
        output.say(f"  {group.says} {group.reason}".rstrip())
        if group.next_step:
            output.say(f"  advice  {group.next_step}")
        for row in group.rows:
            output.say(f"  {row.note or f'{row.source_object} {row.record_id}, {row.target} {row.target_id}'}")
            output.say(f"    first {row.first.name}: {row.first.command}", style="bold")
            output.say(*(f"    may {verb.name}: {verb.command}" for verb in row.verbs if verb != row.first))
        if group.next_page is not None:
            of_tenant = f" --tenant {shlex.quote(tenant)}" if tenant else ""
            output.note(f"more: pushlink stuck --cause {group.cause} --page {group.next_page}{of_tenant}")


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; - is standard output.")],
    kind: Annotated[
        list[ExportKind] | None, typer.Option("--kind", help="Only these; may be repeated.", show_default=False)
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="KEY", help="Go on behind this id; with one --kind.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write links, attempts and events as JSON Lines, in the order of their ids; no frozen values, no tokens."""
    from pushlink.operations import waiting
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    kinds = [one.value for one in kind] if kind else list(waiting.EXPORTED)
    to_stdout = str(file) == "-"
    if as_json and to_stdout:
        raise CallerError("With --json standard output is for the summary.", next_step="name a file")
    if after is not None and (len(kinds) != 1 or (kinds == ["event"] and not after.isdecimal())):
        raise CallerError("--after is the id of a row of the one --kind.", next_step="name one --kind and its last id")
    lines = 0
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        found = waiting.export(conn, tenant=tenant, kinds=kinds, after=after)
        if to_stdout:
            for line in found:
                sys.stdout.write(line + "\n")
                lines += 1
        else:
            with new_file(file, overwrite=overwrite) as out:
                for line in found:
                    out.write(line + "\n")
                    lines += 1
    if as_json:
        output.document({"file": str(file), "lines": lines})
    elif not to_stdout:
        output.say(f"{lines} lines in {file}.")


# ------------------------------------------------------------------------------------------------ principals


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for the audit; it is never given twice.")],
    role: Annotated[RoleChoice, typer.Option("--role", help="What it may do.")],
    expires_days: Annotated[
        int | None, typer.Option("--expires-days", min=1, max=3_650, help="When its token ends.", show_default=False)
    ] = None,
    reason: ReasonOption = "principal add",
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="TENANT", help="Only for this tenant. Default: for all.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Define a principal and show its token, once. The first one has to be an administrator."""
    from pushlink.operations import principals
    from pushlink.store.access import writing

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, writing(runtime.engine) as conn:
        now = runtime.world.clock.now(conn)
        added = principals.add(
            conn,
            typing_now(conn, token_file, now=now),
            name=name,
            role=principals.Role(role.value),
            tenant=tenant,
            lasts=None if expires_days is None else dt.timedelta(days=expires_days),
            reason=reason,
            ids=runtime.world.ids.fresh,
            now=now,
        )
    if as_json:
        output.document({"principal": added.principal, "token": added.token})
    else:
        output.note(f"{added.principal.name} is {added.principal.role}. This is the only time that its token is shown:")
        output.say(added.token)


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token ends.")],
    reason: ReasonOption,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a principal for good."""
    from pushlink.operations import principals
    from pushlink.store.access import writing

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, writing(runtime.engine) as conn:
        now = runtime.world.clock.now(conn)
        by = typing_now(conn, token_file, now=now)
        revoked = principals.revoke(conn, by, name=name, reason=reason, now=now)
    if as_json:
        output.document({"principal": revoked})
    else:
        output.say(f"{name} is revoked.")


def list_(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the principals, revoked ones too."""
    from pushlink.operations import principals
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        found = principals.list_all(conn)
    if as_json:
        output.document({"principals": found})
    elif not found:
        output.say("No principal is defined: whoever can run this command on this machine may decide everything.")
    else:
        output.table(
            ("name", "role", "tenant", "created", "expires", "revoked"),
            [(p.name, p.role, p.tenant, p.created_at, p.expires_at, p.revoked_at) for p in found],
        )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog=examples(
            "pushlink stuck", "pushlink stuck --exit-code --json", "pushlink stuck --cause held/drift --limit 200"
        )
    )(stuck)
    app.command(epilog=examples("pushlink export all.jsonl", "pushlink export - --kind link | gzip > links.jsonl.gz"))(
        export
    )
    principal = typer.Typer(help="Principals: who may decide what.", no_args_is_help=True)
    principal.command(
        epilog=examples("pushlink principal add root --role admin", "pushlink principal add olga --role operator")
    )(add)
    principal.command(epilog=examples('pushlink principal revoke olga --reason "left the team"'))(revoke)
    principal.command(name="list", epilog=examples("pushlink principal list"))(list_)
    app.add_typer(principal, name="principal")
