"""verify: the audit of decisions and the receipts of migrations, held against their chains and against anchors."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pushlink.surfaces.bars import progress_bars
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, examples
from pushlink.surfaces.output import Output

if TYPE_CHECKING:
    from pushlink.operations.verifying import Verified


def verify(
    anchor: Annotated[
        Path | None,
        typer.Option(
            "--anchor",
            metavar="FILE",
            help="Compare with every anchor of this file, and add one when all holds. Keep it on another machine.",
            show_default=False,
        ),
    ] = None,
    public_keys: Annotated[
        bool, typer.Option("--public-keys", help="Show how another machine's settings name the keys to check with.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold decisions and receipts against their chains of hashes, and against anchors; exit 1 when they do not hold."""
    from pushlink.adapters.anchor_file import AnchorFile
    from pushlink.operations import verifying
    from pushlink.store.access import reading
    from pushlink.store.catalog import read_deployment
    from pushlink.store.dialect import current_time

    output = Output(as_json=as_json)
    file = None if anchor is None else AnchorFile(anchor)
    with open_runtime(config) as runtime:
        keys = runtime.anchor_keys() if runtime.settings.audit.keys else None
        if public_keys:
            _show_keys(output, {} if keys is None else keys.public_keys())
            return
        is_added = keys is None or keys.newest is not None
        with reading(runtime.engine) as conn, progress_bars(output) as tell:
            deployment_id = read_deployment(conn).deployment_id
            earlier = [] if file is None else list(file.read(deployment_id=deployment_id))
            refuses = None if keys is None else keys.refuses
            found = verifying.verify(conn, anchors=earlier, refuses=refuses, on_progress=tell)
            if file is not None and found.is_whole and is_added:
                at, sign = current_time(conn), None if keys is None else keys.sign
                file.append(verifying.anchor_of(found, deployment_id=deployment_id, at=at, sign=sign))
    if as_json:
        output.document(found)
    else:
        _show(output, found, anchor if is_added else None, is_asked=anchor is not None)
        if anchor is not None and keys is None:
            output.note("the anchors are not signed: name a key in [audit] of the settings, see docs/deployment.md")
    raise typer.Exit(Exit.OK if found.is_whole else Exit.REFUSED)


def _show_keys(output: Output, keys: Mapping[str, str]) -> None:
    if output.as_json:
        output.document({"public_keys": keys})
        return
    output.say("[audit.keys]", *(f'"{key_id}" = "{key}"' for key_id, key in keys.items()))


def _show(output: Output, found: Verified, added_to: Path | None, *, is_asked: bool) -> None:
    receipts = ", ".join(f"{count} {chain}" for chain, count in found.receipts.items())
    if not found.is_whole:
        output.say(f"The chains do not hold at {found.breaks} places:", style="bold red")
        for one in found.broken:
            place = "" if one.place is None else f" at {one.place}"
            output.say(f"  {one.chain}{place}, {one.kind.value}: {one.says}{f' ({one.entry})' if one.entry else ''}")
        output.note('next: see "the audit" in docs/operations.md')
        return
    output.say(f"{found.actions} decisions, every one in its place; receipts: {receipts}.")
    output.say(f"newest seal: {found.head or 'none yet'}")
    if not is_asked:
        output.note("keep the number and the seal elsewhere (--anchor FILE): no chain shows that its end was cut off")
        return
    signatures = f", {found.signed} of them by their signatures" if found.signed else ""
    output.say(f"{found.anchors} earlier anchors hold{signatures}.")
    if added_to is None:
        output.note("no anchor was added: no key of the settings signs here")
    else:
        output.say(f"One more was added to {added_to}.")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog=examples(
            "pushlink verify",
            "pushlink verify --anchor /mnt/elsewhere/anchors.jsonl --json",
            "pushlink verify --public-keys",
        )
    )(verify)
