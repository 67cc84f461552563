"""Options and arguments that several commands share, so that they read alike everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Answer with one JSON document on standard output.", show_default=False)
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="PATH",
        help="The settings file. Default: $PUSHLINK_CONFIG, or pushlink.toml here.",
        show_default=False,
    ),
]
TenantOption: TypeAlias = Annotated[
    str, typer.Option("--tenant", metavar="TENANT", help="The tenant. Default: none.", show_default=False)
]
ObjectArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="OBJECT", help="The source object, as the settings name it.")
]
RecordArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The record's id, as its key type has it.")
]
PageOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--page", metavar="PAGE", help="Go on where the last answer said.", show_default=False),
]
LimitOption: TypeAlias = Annotated[int, typer.Option("--limit", min=1, max=200, help="Rows of one page.")]


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    return "\n\n".join(("Examples:", *(f"  {line}" for line in lines)))
