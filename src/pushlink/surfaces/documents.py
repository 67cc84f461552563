"""What commands over manifests share: reading and writing the file, who applies it, and a bar of progress."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeAlias

import typer

from pushlink.errors import CallerError
from pushlink.surfaces.output import Output
from pushlink.surfaces.who import typing_now

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime

OutOption: TypeAlias = Annotated[
    Path, typer.Option("-o", "--out", metavar="FILE", help="The file to write; it must not exist.")
]
OperationOption: TypeAlias = Annotated[
    str,
    typer.Option("--operation", metavar="ID", help="The operation's id. Default: a fresh one.", show_default=False),
]
ApprovedByOption: TypeAlias = Annotated[str, typer.Option("--approved-by", metavar="WHO", help="Who decided that.")]


def read_text(path: Path) -> str:
    """The text of a file that somebody named; raises `CallerError` for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"The file {str(path)!r} cannot be read: {error}.") from error


def write_new(path: Path, text: str) -> None:
    """Write a manifest into a file that is not there yet."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError as error:
        said = f"The file {str(path)!r} is there already; a manifest is never written over."
        raise CallerError(said, next_step="name another file") from error
    except OSError as error:
        raise CallerError(f"The file {str(path)!r} cannot be written: {error}.") from error


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[TextIO]:
    """A file to write; one that is there is refused, or with `overwrite` replaced at the end, by the whole new one.

    What fails on the way leaves no half of a file behind.
    """
    written = path.with_name(f"{path.name}.{os.getpid()}.part") if overwrite else path
    try:
        with written.open("x", encoding="utf-8", newline="") as file:
            try:
                yield file
            except BaseException:
                written.unlink()
                raise
        written.replace(path)
    except FileExistsError as error:
        said = f"The file {str(error.filename)!r} is there already; nothing was written."
        raise CallerError(said, next_step="name another file, or add --overwrite") from error
    except OSError as error:
        raise CallerError(f"The file {str(path)!r} cannot be written: {error}.") from error


def operator_of(runtime: Runtime, token_file: Path | None, tenant: str) -> str:
    """Who types this, shown to be an operator of a manifest's tenant."""
    from pushlink.operations.principals import Role
    from pushlink.store.access import reading

    with reading(runtime.engine) as conn:
        who = typing_now(conn, token_file, now=runtime.world.clock.now(conn))
    return who.require(Role.OPERATOR, tenant=tenant).name


@contextmanager
def progress(output: Output, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with counts and a rate on a terminal; told how many are done with."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: object) -> Text:
            return Text(f"{getattr(task, 'speed', None) or 0.0:>7.0f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=output.err, transient=True, disable=not output.err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
