"""The `pushlink` command: puts the commands together, and turns every error into words or JSON and an exit code.

Commands import what is heavy when they run, so that `--help` and completion answer at once. Nothing is decided here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from pushlink.errors import CallerError, PushlinkError
from pushlink.surfaces.commands import (
    adopting,
    backfilling,
    deploying,
    keeping,
    mapping,
    operating,
    packs,
    reading,
    saving,
    setup,
    slots,
    verifying,
    watching,
    working,
)
from pushlink.surfaces.exits import Exit, exit_of
from pushlink.surfaces.opening import TYPED
from pushlink.surfaces.options import examples
from pushlink.surfaces.output import Output, error_document


class Surface(TyperGroup):
    """The command group: an expected error is never a traceback, and with `--json` even a typing mistake is JSON."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and leave with an exit code; without `standalone_mode` errors go to the caller."""
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in words
        TYPED.set(" ".join(takewhile(lambda word: not word.startswith("-"), words)))
        try:
            code = super().main(
                args=words,
                prog_name=prog_name,
                complete_var=complete_var,
                standalone_mode=standalone_mode and not as_json,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except Exception as error:
            if not standalone_mode:
                raise
            sys.exit(_reported(error, as_json=as_json))
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else Exit.OK)
        return code


def _reported(error: Exception, *, as_json: bool) -> int:
    output = Output(as_json=as_json)
    if isinstance(error, PushlinkError):
        output.error(error)
        return exit_of(error)
    if (said := getattr(error, "format_message", None)) is not None:  # how the parser calls a mistake in typing
        output.error(CallerError(str(said()), next_step="pushlink --help"))
        return Exit.USAGE
    if isinstance(error, typer.Abort):
        return Exit.INTERRUPTED
    for line in "".join(traceback.format_exception(error)).splitlines():
        output.note(line)
    defect = PushlinkError(
        f"An error that nobody expected: {type(error).__name__}.", next_step="report it with the traceback"
    )
    if as_json:
        output.document(error_document(defect))
    else:
        output.error(defect)
    return Exit.DEFECT


app = typer.Typer(
    name="pushlink",
    cls=Surface,
    help="Push local records to remote APIs: one record, one remote record, and never a silent guess.",
    epilog=examples(
        "pushlink init && pushlink doctor",
        "pushlink save Note 42 --user ann && pushlink worker --until-idle",
        "pushlink explain Note 42",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)

for module in (
    setup,
    packs,
    saving,
    backfilling,
    working,
    reading,
    deploying,
    adopting,
    mapping,
    slots,
    operating,
    watching,
    verifying,
    keeping,
):
    module.register(app)


def main() -> NoReturn:
    """The console script."""
    app()
    raise SystemExit(Exit.OK)
