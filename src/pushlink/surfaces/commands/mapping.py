"""mapping: manifests that move the mapping of finalized links: make one, rehearse it, apply it, make the way back."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pushlink.surfaces.documents import (
    ApprovedByOption,
    OperationOption,
    OutOption,
    operator_of,
    progress,
    read_text,
    write_new,
)
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, TenantOption, examples
from pushlink.surfaces.output import Output
from pushlink.surfaces.who import TokenFileOption

if TYPE_CHECKING:
    from pushlink.migration.revalidate import Done
    from pushlink.protocol.manifest import Manifest
    from pushlink.protocol.snapshots import LinkKey

ManifestArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="MANIFEST", help="The manifest, as `pushlink mapping manifest` wrote it.")
]


def manifest(
    links: Annotated[Path, typer.Option("--links", metavar="FILE", help="Link keys, one a line; # begins a remark.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for receipts and audit.")],
    approval: Annotated[
        Path, typer.Option("--approval", metavar="FILE", help="The text in which the mappings were called equal.")
    ],
    approved_by: ApprovedByOption,
    out: OutOption,
    operation: OperationOption = "",
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a manifest that brings the listed links to the mapping of now; the database is only read."""
    from pushlink.migration import revalidate
    from pushlink.protocol.manifest import approve

    output = Output(as_json=as_json)
    keys = _keys(links)
    approved = approve(approved_by, read_text(approval))
    with open_runtime(config) as runtime:
        made = revalidate.make_manifest(
            runtime.engine,
            keys,
            tenant=tenant,
            operation_id=operation or runtime.world.ids.fresh(),
            reason=reason,
            approval=approved,
        )
    _write(output, made, out)


def validate(
    file: ManifestArgument, token_file: TokenFileOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Take all locks, check all that apply checks, and roll back; answers with the receipts that would be written."""
    from pushlink.migration import revalidate

    output = Output(as_json=as_json)
    read = _read(file)
    with open_runtime(config) as runtime, progress(output, "validate", len(read.members)) as on_progress:
        found = revalidate.validate(
            runtime.engine,
            read,
            actor=operator_of(runtime, token_file, read.tenant),
            now=runtime.world.clock.now,
            on_progress=on_progress,
        )
    if as_json:
        output.document({"mapping": found.done, "receipts": found.receipts})
    else:
        _show(output, found.done)


def apply(
    file: ManifestArgument, token_file: TokenFileOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Apply a manifest whole, in one transaction; applied already, only verify that."""
    from pushlink.migration import revalidate

    output = Output(as_json=as_json)
    read = _read(file)
    with open_runtime(config) as runtime, progress(output, "apply", len(read.members)) as on_progress:
        done = revalidate.apply(
            runtime.engine,
            read,
            actor=operator_of(runtime, token_file, read.tenant),
            now=runtime.world.clock.now,
            on_progress=on_progress,
        )
    if as_json:
        output.document({"mapping": done})
    else:
        _show(output, done)


def rollback_manifest(
    file: ManifestArgument,
    out: OutOption,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why. Default: names the operation.", show_default=False)
    ] = "",
    operation: OperationOption = "",
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the manifest that takes one back, before it is applied or after; nothing is written to the database."""
    from pushlink.migration import revalidate

    output = Output(as_json=as_json)
    read = _read(file)
    with open_runtime(config) as runtime:
        made = revalidate.make_rollback(
            runtime.engine,
            read,
            operation_id=operation or runtime.world.ids.fresh(),
            actor=operator_of(runtime, token_file, read.tenant),
            now=runtime.world.clock.now,
            reason=reason,
        )
    _write(output, made, out)


def _keys(path: Path) -> list[LinkKey]:
    from pushlink.protocol.snapshots import LinkKey

    lines = (line.partition("#")[0].strip() for line in read_text(path).splitlines())
    return [LinkKey(line) for line in lines if line]


def _read(path: Path) -> Manifest:
    from pushlink.protocol.manifest import read_manifest

    return read_manifest(read_text(path))


def _write(output: Output, made: Manifest, path: Path) -> None:
    from pushlink.protocol.manifest import write_manifest

    write_new(path, write_manifest(made))
    shown = {
        "file": path,
        "operation_id": made.operation_id,
        "tenant": made.tenant,
        "digest": made.digest,
        "members": len(made.members),
        "reason": made.reason,
        "approved_by": made.approval.who,
        "approval_digest": made.approval.digest,
    }
    if output.as_json:
        output.document({"manifest": shown})
    else:
        output.say(f"{path}: operation {made.operation_id} over {len(made.members)} links.", f"  digest {made.digest}")
        output.say(f"next: pushlink mapping validate {path}")


def _show(output: Output, done: Done) -> None:
    said = {
        "applicable": f"Nothing is in the way of operation {done.operation_id}; nothing was written.",
        "applied": f"Operation {done.operation_id} is applied.",
        "already_applied": f"Operation {done.operation_id} was applied before, exactly so.",
    }
    output.say(said[done.verdict.value], f"  {done.members} links, digest {done.digest}")
    if done.superseded:
        output.say(f"  {done.superseded} of them were moved on by a later operation since.")
    if done.current < done.members:
        output.say(f"  {done.members - done.current} of them get a mapping that is not the catalogue's of now.")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    mapping = typer.Typer(help="Mapping manifests: let links follow a changed mapping.", no_args_is_help=True)
    mapping.command(
        epilog=examples(
            "pushlink mapping manifest --links keys.txt --reason 'field renamed' --approval approval.md"
            " --approved-by 'Olga Owner' -o move.json"
        )
    )(manifest)
    mapping.command(epilog=examples("pushlink mapping validate move.json --json > rehearsal.json"))(validate)
    mapping.command(epilog=examples("pushlink mapping apply move.json"))(apply)
    mapping.command(
        name="rollback-manifest", epilog=examples("pushlink mapping rollback-manifest move.json -o back.json")
    )(rollback_manifest)
    app.add_typer(mapping, name="mapping")
