"""rekey, erase, prune: what keeps a database small, and what it holds of records out of reach."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, examples
from pushlink.surfaces.output import Output, time_shown
from pushlink.surfaces.who import ReasonOption, TokenFileOption, typing_now

if TYPE_CHECKING:
    from pushlink.operations.keeping import OnProgress, Rekeyed, Removed, Run
    from pushlink.settings import AtRestSettings

BatchOption: TypeAlias = Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Rows in one transaction.")]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Count, and change nothing.", show_default=False)
]
AfterDaysOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--after-days",
        min=1,
        max=36_500,
        metavar="N",
        help="How many days ago a row ended. Default: as [at_rest] of the settings says.",
        show_default=False,
    ),
]


def rekey(
    reason: ReasonOption,
    dry_run: DryRunOption = False,
    batch: BatchOption = 500,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Seal every content with the newest key that is plain or sealed with another; killed, the same command goes on."""
    from pushlink.operations import keeping

    output = Output(as_json=as_json)
    with _running(output, config, token_file, reason, batch=batch, dry_run=dry_run) as (run, _):
        done = keeping.rekey(run)
    if as_json:
        output.document({"rekey": done, "is_whole": done.is_whole})
    else:
        _show_rekeyed(output, done)
    raise typer.Exit(Exit.PARKED if done.unreadable else Exit.OK)


def _show_rekeyed(output: Output, done: Rekeyed) -> None:
    if not done.is_dry_run:
        output.say(f"sealed with {done.key}: {_counted(done.sealed)}")
    rows = [(kind, key or "(plain)", count) for kind, keys in done.keys.items() for key, count in sorted(keys.items())]
    output.table(("content", "key", "rows"), rows)
    if done.unreadable:
        output.say(f"{done.unreadable} contents cannot be read and were left as they are:", style="bold red")
        output.say(*(f"  {line}" for line in done.shown), "next: see body_unreadable in docs/operations.md")
    elif done.is_whole:
        output.say("Nothing is plain, and no other key is in use: older keys may leave the settings.")


def erase(
    reason: ReasonOption,
    after_days: AfterDaysOption = None,
    dry_run: DryRunOption = False,
    batch: BatchOption = 500,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase bodies, answers and values of what ended long ago; digests, sizes and every decision are kept."""
    from pushlink.operations import keeping

    output = Output(as_json=as_json)
    with _running(output, config, token_file, reason, batch=batch, dry_run=dry_run) as (run, declared):
        done = keeping.erase(run, days=declared.erase_after_days if after_days is None else after_days)
    _show_removed(output, done, "erase", "erased")


def prune(
    reason: ReasonOption,
    after_days: AfterDaysOption = None,
    dry_run: DryRunOption = False,
    batch: BatchOption = 500,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete updates and backfills that ended long ago and decide nothing any more, with what told of them."""
    from pushlink.operations import keeping

    output = Output(as_json=as_json)
    with _running(output, config, token_file, reason, batch=batch, dry_run=dry_run) as (run, declared):
        done = keeping.prune(run, days=declared.prune_after_days if after_days is None else after_days)
    _show_removed(output, done, "prune", "deleted")


def _show_removed(output: Output, done: Removed, verb: str, word: str) -> None:
    if output.as_json:
        output.document({verb: done})
        return
    said = f"would be {word}" if done.is_dry_run else word
    output.say(f"of what ended before {time_shown(done.before)}, {said}: {_counted(done.counts)}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing"


@contextmanager
def _running(
    output: Output, config: Path | None, token_file: Path | None, reason: str, *, batch: int, dry_run: bool
) -> Iterator[tuple[Run, AtRestSettings]]:
    """A run of an administrator of every tenant, and what the settings say of it."""
    from pushlink.operations.keeping import Run
    from pushlink.operations.principals import Role
    from pushlink.store.access import writing

    with open_runtime(config) as runtime:
        world = runtime.world
        with writing(runtime.engine) as conn:
            who = typing_now(conn, token_file, now=world.clock.now(conn)).require(Role.ADMIN, tenant=None)
        with _progress(output) as told:
            run = Run(
                engine=runtime.engine,
                world=world,
                actor=who.name,
                reason=reason,
                batch=batch,
                dry_run=dry_run,
                on_progress=told,
            )
            try:
                yield run, runtime.settings.at_rest
            except KeyboardInterrupt:
                output.note("Interrupted between two batches or in one; the same command goes on.")
                raise typer.Exit(Exit.INTERRUPTED) from None


@contextmanager
def _progress(output: Output) -> Iterator[OnProgress]:
    """Counts and rate on a terminal, while it goes on."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[says]}"),
        TextColumn("{task.fields[rate]:>7.0f}/s"),
        console=output.err,
        transient=True,
        disable=not output.err.is_terminal,
    )
    began = time.monotonic()
    with bar:
        task = bar.add_task("", says="", rate=0.0)

        def told(counts: Mapping[str, int]) -> None:
            seconds = max(time.monotonic() - began, 0.001)
            bar.update(task, says=_counted(counts), rate=sum(counts.values()) / seconds)

        yield told


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    commands: tuple[tuple[Callable[..., None], tuple[str, ...]], ...] = (
        (rekey, ('pushlink rekey --reason "the yearly rotation"', 'pushlink rekey --dry-run --reason "a look"')),
        (
            erase,
            ('pushlink erase --reason "nightly"', 'pushlink erase --after-days 90 --dry-run --json --reason "a look"'),
        ),
        (
            prune,
            ('pushlink prune --reason "nightly"', 'pushlink prune --after-days 365 --dry-run --reason "a look"'),
        ),
    )
    for command, lines in commands:
        app.command(epilog=examples(*lines))(command)
