"""Who types a command: the principal of a token, or the local user of a deployment that has no principals yet.

A token comes from the variable `PUSHLINK_TOKEN` or from a file, never from the command line, where other users of the
machine and the shell's history could read it.
"""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import datetime as dt
import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from pushlink.errors import CallerError, Code

if TYPE_CHECKING:
    from pushlink.operations.principals import Identity
    from pushlink.store.access import Connection

TOKEN_VARIABLE: Final = "PUSHLINK_TOKEN"  # noqa: S105 - the name of a variable

TokenFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"Whose decision it is: a file with the token. Default: ${TOKEN_VARIABLE}.",
        show_default=False,
    ),
]
ApproverFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--approver-token-file",
        metavar="FILE",
        help="Who agrees: a file with the token of an approver.",
        show_default=False,
    ),
]
ReasonOption: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit: what was looked at and found.")
]


def typing_now(conn: Connection, token_file: Path | None, *, now: dt.datetime) -> Identity:
    """Whoever types this command."""
    from pushlink.operations.principals import identify

    token = _token(token_file) if token_file is not None else os.environ.get(TOKEN_VARIABLE) or None
    return identify(conn, token, local_user=getpass.getuser(), now=now)


def approving(conn: Connection, token_file: Path | None, *, tenant: str, now: dt.datetime) -> str | None:
    """The name of whoever agrees; raises `CallerError` unless it is an approver of this tenant."""
    from pushlink.operations.principals import Role, identify

    if token_file is None:
        return None
    found = identify(conn, _token(token_file), local_user="", now=now)
    return found.require(Role.APPROVER, tenant=tenant).name


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CallerError(
            f"The token file {file} cannot be read.", code=Code.TOKEN_REFUSED, next_step="write the token into it"
        ) from exc
