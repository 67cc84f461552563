"""adopt: links for records that an older integration has pushed: plan a manifest, apply it, take it back."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from pushlink.errors import CallerError, Code
from pushlink.surfaces.bars import progress_bars
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime
from pushlink.surfaces.options import ConfigOption, JsonOption, ObjectArgument, TenantOption, examples
from pushlink.surfaces.output import Output, inline_json
from pushlink.surfaces.who import ApproverFileOption, ReasonOption, TokenFileOption, approving, typing_now

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.protocol.adoption import Pair
    from pushlink.protocol.adoption_manifest import Totals

ManifestArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="MANIFEST", help="The manifest, as `pushlink adopt plan` wrote it.")
]
ResultsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--results", metavar="FILE", help="Write what became of each row, one JSON line a row.", show_default=False
    ),
]
ShowOption: TypeAlias = Annotated[
    int, typer.Option("--show-refused", min=0, max=10_000, metavar="N", help="Refused rows to list.")
]

#: The places of one row's line in a file of results, and of a row that is listed.
_ROW = ("record_id", "link_key", "result", "detail")


def plan(
    source_object: ObjectArgument,
    action: Annotated[
        str, typer.Option("--action", metavar="SLOT", help="The action_slot_id of the action that takes them over.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The file to write; it must not exist.")],
    fields: Annotated[
        str,
        typer.Option(
            "--fields",
            metavar="ID:MARK",
            help="The fields that hold the remote id and the mark of its origin. Default: those of the mirror.",
            show_default=False,
        ),
    ] = "",
    older: Annotated[
        list[str] | None,
        typer.Option(
            "--older",
            metavar="ID:MARK",
            help="Fields of an even older integration; may be repeated.",
            show_default=False,
        ),
    ] = None,
    mark: Annotated[
        list[str] | None,
        typer.Option(
            "--mark",
            metavar="TEXT",
            help="A mark that means this action and destination; may be repeated. Default: the mirror's own.",
            show_default=False,
        ),
    ] = None,
    elsewhere: Annotated[
        list[str] | None,
        typer.Option(
            "--elsewhere",
            metavar="TEXT",
            help="A mark that means another destination; may be repeated.",
            show_default=False,
        ),
    ] = None,
    destination: Annotated[
        str,
        typer.Option(
            "--destination",
            metavar="FIELD=TEXT",
            help="A field that says where a record was pushed, and its value for the destination of now.",
            show_default=False,
        ),
    ] = "",
    verify_remote: Annotated[
        bool, typer.Option("--verify-remote", help="Ask the remote for each record that would be adopted.")
    ] = False,
    rate: Annotated[float, typer.Option("--rate", min=0.1, max=1_000, help="Such requests a second, at most.")] = 5.0,
    show_refused: ShowOption = 10,
    operation: Annotated[
        str,
        typer.Option("--operation", metavar="ID", help="The operation's id. Default: a fresh one.", show_default=False),
    ] = "",
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a manifest that says of each record with a legacy id whether it is adopted, or why not."""
    from pushlink.migration import adopt
    from pushlink.migration.adopt_apply import read_manifest
    from pushlink.migration.adopt_verify import asking

    output = Output(as_json=as_json)
    field, _, value = destination.partition("=")
    with open_runtime(config) as runtime:
        asked = adopt.Asked(
            source_object=source_object,
            action_slot_id=action,
            operation_id=operation or runtime.world.ids.fresh(),
            tenant=tenant,
            current=_pair(fields) if fields else None,
            older=tuple(_pair(text) for text in older or ()),
            markers=tuple(mark or ()),
            elsewhere=tuple(elsewhere or ()),
            destination_field=field,
            destination_value=value,
        )
        remote = asking(runtime.world, runtime.transport(), rate=rate) if verify_remote else nullcontext()
        with remote as verification, progress_bars(output) as tell:
            totals = adopt.plan(
                runtime.engine,
                runtime.world,
                runtime.records,
                asked,
                out,
                verification=verification,
                on_progress=tell,
            )
    listed = list(read_manifest(out).refused(show_refused))
    _show_plan(
        output, out, asked.operation_id, totals, [_listed(one.record_id, one.because, one.detail) for one in listed]
    )
    raise typer.Exit(Exit.REFUSED if _is_refused(totals) else Exit.OK)


def apply(
    file: ManifestArgument,
    reason: ReasonOption,
    results: ResultsOption = None,
    show_refused: ShowOption = 10,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Adopt what was planned, in batches; after a kill the same command goes on, and done again it changes nothing."""
    from pushlink.migration import adopt_apply

    output = Output(as_json=as_json)
    read = adopt_apply.read_manifest(file)
    with open_runtime(config) as runtime, _rows(results, show_refused) as rows, progress_bars(output) as tell:
        done = adopt_apply.apply(
            runtime.engine,
            runtime.world,
            read,
            actor=_operator(runtime, token_file, read.header.tenant),
            reason=reason,
            on_progress=lambda count: tell("apply", count, read.totals.adoptable),
            on_result=lambda entry, result, detail: rows.take(entry.record_id, entry.link_key, result, detail),
        )
    if as_json:
        output.document({"adoption": done, "refused_rows": rows.listed})
    else:
        output.say(f"Operation {done.operation_id}: {done.adopted} adopted, {done.already_adopted} adopted before.")
        _say_refused(output, done.refused, rows.listed)
        if done.refused:
            output.say("next: make a new plan for what was refused")
    raise typer.Exit(Exit.REFUSED if done.refused else Exit.OK)


def rollback(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's id, from its manifest.")],
    reason: ReasonOption,
    results: ResultsOption = None,
    show_refused: ShowOption = 10,
    token_file: TokenFileOption = None,
    approver_token_file: ApproverFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Take back what an operation adopted and nothing has touched since: links end, and their slots are free again."""
    from pushlink.migration import adopt_rollback
    from pushlink.store.access import reading

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime, _rows(results, show_refused) as rows, progress_bars(output) as tell:
        actor = _operator(runtime, token_file, tenant)
        with reading(runtime.engine) as conn:
            approver = approving(conn, approver_token_file, tenant=tenant, now=runtime.world.clock.now(conn))
        _require_consent(runtime, actor, approver)
        ordered = adopt_rollback.Ordered(
            operation_id=operation, tenant=tenant, actor=actor, reason=reason, approver=approver
        )
        done = adopt_rollback.roll_back(
            runtime.engine,
            runtime.world,
            ordered,
            on_progress=lambda count, total: tell("rollback", count, total),
            on_result=lambda one, result, detail: rows.take(one.source_record_id, one.link_key, result, detail),
        )
    if as_json:
        output.document({"adoption_rollback": done, "refused_rows": rows.listed})
    else:
        before = f", {done.already_rolled_back} taken back before" if done.already_rolled_back else ""
        output.say(f"Operation {done.operation_id}: {done.rolled_back} of {done.links} links are taken back{before}.")
        _say_refused(output, done.refused, rows.listed)
    raise typer.Exit(Exit.REFUSED if done.refused else Exit.OK)


# ------------------------------------------------------------------------------------------------ who, and what


def _operator(runtime: Runtime, token_file: Path | None, tenant: str) -> str:
    """Who types this, shown to be an operator of the tenant."""
    from pushlink.operations.principals import Role
    from pushlink.store.access import reading

    with reading(runtime.engine) as conn:
        who = typing_now(conn, token_file, now=runtime.world.clock.now(conn))
    return who.require(Role.OPERATOR, tenant=tenant).name


def _require_consent(runtime: Runtime, actor: str, approver: str | None) -> None:
    """A rollback releases slots, which needs a second principal where the settings ask for one."""
    if approver == actor:
        raise CallerError("The one who agrees is the one who asks.", next_step="let another principal agree")
    if runtime.settings.operators.second_principal and approver is None:
        raise CallerError(
            "A rollback releases slots, and that needs a second principal who agrees.",
            code=Code.NOT_ALLOWED_NOW,
            evidence={"needs": "approver"},
            next_step="add --approver-token-file FILE",
        )


def _pair(text: str) -> Pair:
    from pushlink.protocol.adoption import Pair

    remote_id, colon, provenance = text.partition(":")
    if not (remote_id and colon and provenance):
        raise CallerError(f"{text!r} is no pair of fields.", next_step="write ID:MARK, two names of fields")
    return Pair(remote_id=remote_id, provenance=provenance)


def _is_refused(totals: Totals) -> bool:
    """Whether anything but links of before keeps a record from being adopted."""
    from pushlink.protocol.adoption import Because

    return bool(totals.refused.keys() - {Because.ALREADY_LINKED.value})


# ------------------------------------------------------------------------------------------------ what is shown


class _Rows:
    """What became of each row: to a file, and the first refused ones for the answer."""

    def __init__(self, file: Any, shown_max: int) -> None:
        self._file = file
        self._shown_max = shown_max
        self.listed: list[dict[str, str]] = []

    def take(self, record_id: str, link_key: str, result: str, detail: str) -> None:
        """One row."""
        row = dict(zip(_ROW, (record_id, link_key, result, detail), strict=True))
        if self._file is not None:
            self._file.write(inline_json(row) + "\n")
        if detail and len(self.listed) < self._shown_max:
            self.listed.append(_listed(record_id, result, detail))


@contextmanager
def _rows(path: Path | None, shown_max: int) -> Iterator[_Rows]:
    if path is None:
        yield _Rows(None, shown_max)
        return
    try:
        file = path.open("w", encoding="utf-8")  # a run that goes on tells of every row again
    except OSError as error:
        raise CallerError(f"The file {str(path)!r} cannot be made: {error}.") from error
    with file:
        yield _Rows(file, shown_max)


def _listed(record_id: str, because: str, detail: str) -> dict[str, str]:
    return {"record_id": record_id, "because": because, "detail": detail}


def _show_plan(output: Output, path: Path, operation_id: str, totals: Totals, listed: list[dict[str, str]]) -> None:
    if output.as_json:
        shown = {"file": path, "operation_id": operation_id, **_plain(totals)}
        output.document({"adoption_plan": shown, "refused_rows": listed})
        return
    output.say(f"{path}: operation {operation_id}", f"  digest {totals.digest}")
    output.say(f"{totals.records} records: {totals.adoptable} to adopt, {totals.empty} without anything of old.")
    _say_refused(output, totals.refused, listed)
    output.say(f"next: pushlink adopt apply {path} --reason REASON")


def _plain(totals: Totals) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(totals)


def _say_refused(output: Output, refused: Mapping[str, int], listed: list[dict[str, str]]) -> None:
    output.say(*(f"  {because}: {count}" for because, count in sorted(refused.items())))
    output.say(*(f"    {row['record_id']}: {row['because']}: {row['detail']}" for row in listed))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    adopt = typer.Typer(help="Adoption: links for records that an older integration has pushed.", no_args_is_help=True)
    adopt.command(
        epilog=examples(
            "pushlink adopt plan Note --action 91c4... -o adopt.jsonl",
            "pushlink adopt plan Note --action 91c4... --older old_id:old_mark --verify-remote -o adopt.jsonl",
        )
    )(plan)
    adopt.command(
        epilog=examples("pushlink adopt apply adopt.jsonl --reason 'the old sync is off' --results rows.jsonl")
    )(apply)
    adopt.command(epilog=examples("pushlink adopt rollback 0190f3... --reason 'planned with the wrong mark'"))(rollback)
    app.add_typer(adopt, name="adopt")
