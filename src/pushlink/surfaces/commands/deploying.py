"""deployment: what its workers may take, whether this database is the right one, and what follows (DL-03, D-36)."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, examples
from pushlink.surfaces.output import Output
from pushlink.surfaces.who import ReasonOption, TokenFileOption, typing_now

if TYPE_CHECKING:
    import datetime as dt

    from pushlink.bootstrap import Runtime
    from pushlink.operations.deployments import DeploymentView
    from pushlink.store.access import Connection


ConfirmationsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--confirmations",
        metavar="N",
        min=0,
        help="How often it was confirmed when you looked: `deployment show`. Refused when that has changed.",
        show_default=False,
    ),
]


class Switch(StrEnum):
    """Whether something is switched on."""

    ON = "on"
    OFF = "off"


def show(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the database's identity beside what this machine knows of it."""
    from pushlink.operations import deployments
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, reading(runtime.engine) as conn:
        view = deployments.show(conn, runtime.world)
    if as_json:
        output.document({"deployment": view, "is_guarded": view.is_guarded})
    else:
        _show(output, view)


def _show(output: Output, view: DeploymentView) -> None:
    output.say(f"deployment {view.deployment_id}: {view.mode}, confirmed {view.confirmations} times")
    if view.uncleared_since is not None:
        output.say(f"new records wait since {view.uncleared_since.isoformat()}, for `pushlink deployment clear`")
    if view.general_worker != Switch.ON:
        output.say("the general worker is off: workers take only creates that wait for another record")
    if view.settings_name is not None:
        output.say(f"the settings name {view.settings_name}")
    if view.state is None:
        output.say("no state directory: nobody notices here when an older database is restored")
        return
    known = view.state.deployment_id or "no deployment yet"
    output.say(f"this machine knows {known}, mark {view.state.mark} (the database: {view.mark or 0})")


def general_worker(
    state: Annotated[Switch, typer.Argument(help="Whether workers take everything that is due.")],
    reason: ReasonOption,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let workers take everything that is due, or (off) only creates that wait for another record."""
    from pushlink.operations import deployments

    output = Output(as_json=as_json)
    is_on = state is Switch.ON
    with open_runtime(config) as runtime, _deciding(runtime, token_file) as (conn, who, now):
        changed = deployments.switch_general_worker(conn, on=is_on, actor=who, reason=reason, now=now)
    if as_json:
        output.document({"is_changed": changed})
        return
    output.say(f"The general worker is {state.value}{'' if changed else ' already'}.")
    if not is_on:
        output.say("next: dispatch what is due of one record by `pushlink push OBJECT ID`")


def recover(
    reason: ReasonOption, token_file: TokenFileOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Enter recovery mode by hand: nothing is sent and nothing saved until somebody confirms."""
    from pushlink.operations import deployments

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, _deciding(runtime, token_file) as (conn, who, now):
        changed = deployments.recover(conn, actor=who, reason=reason, now=now)
    if as_json:
        output.document({"is_changed": changed})
    else:
        output.say("The deployment is in recovery mode now." if changed else "It was in recovery mode already.")


def confirm(
    reason: ReasonOption,
    confirmations: ConfirmationsOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that this database is the right one: what may have been sent becomes doubtful, and workers go on."""
    from pushlink.operations import deployments

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        with _deciding(runtime, token_file) as (conn, who, now):
            done = deployments.confirm(conn, runtime.world, actor=who, reason=reason, now=now, seen=confirmations)
        if runtime.state is not None and done.keep is not None:
            runtime.state.keep(done.keep)
    if as_json:
        output.document({"doubted": done.doubted, "recovered": done.recovered, "confirmations": done.confirmations})
        return
    output.say(
        f"The deployment is running. {done.doubted} creates are in doubt now, {done.recovered} claims were ended.",
        "Records without a link are not created yet. When it is known what the lost time held:",
        "next: pushlink deployment clear --reason REASON",
    )


def clear(
    reason: ReasonOption,
    confirmations: ConfirmationsOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """After a confirmation: let records without a link be created again."""
    from pushlink.operations import deployments

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, _deciding(runtime, token_file) as (conn, who, now):
        changed = deployments.clear(conn, actor=who, reason=reason, now=now, seen=confirmations)
    if as_json:
        output.document({"is_changed": changed})
    elif changed:
        output.say("Records without a link are created again.", "next: pushlink backfill OBJECT --user USER")
    else:
        output.say("Nothing stood in their way.")


@contextmanager
def _deciding(runtime: Runtime, token_file: Path | None) -> Iterator[tuple[Connection, str, dt.datetime]]:
    """A transaction, the administrator of every tenant who decides in it, and its moment."""
    from pushlink.operations.principals import Role
    from pushlink.store.access import writing

    with writing(runtime.engine) as conn:
        now = runtime.world.clock.now(conn)
        yield conn, typing_now(conn, token_file, now=now).require(Role.ADMIN, tenant=None).name, now


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="What workers may take, and whether this database is the right one.", no_args_is_help=True)
    group.command(epilog=examples("pushlink deployment show"))(show)
    group.command(epilog=examples('pushlink deployment general-worker off --reason "the host dispatches by itself"'))(
        general_worker
    )
    group.command(epilog=examples('pushlink deployment recover --reason "restored from Monday\'s backup"'))(recover)
    group.command(epilog=examples('pushlink deployment confirm --confirmations 0 --reason "the restore is complete"'))(
        confirm
    )
    group.command(epilog=examples('pushlink deployment clear --confirmations 1 --reason "compared with the remote"'))(
        clear
    )
    app.add_typer(group, name="deployment")
