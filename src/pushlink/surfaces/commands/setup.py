"""init, doctor, db: making a deployment, and finding out what is wrong with one."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pushlink.errors import CallerError, ConfigurationError, Finding, PushlinkError
from pushlink.surfaces import samples
from pushlink.surfaces.exits import Exit
from pushlink.surfaces.opening import open_runtime, world_if_any
from pushlink.surfaces.options import ConfigOption, JsonOption, examples
from pushlink.surfaces.output import Output, inline_json

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.operations.health import Check, Subject
    from pushlink.store.access import Connection

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class AuthorityKind(StrEnum):
    """Who says what a user may read."""

    POLICY = "policy"
    ALLOW_ALL = "allow_all"


# ------------------------------------------------------------------------------------------------ init


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIRECTORY]", help="Where to; it is made if need be.")] = Path(),
    authority: Annotated[
        AuthorityKind, typer.Option("--authority", help="A policy file, or everybody reads everything.")
    ] = AuthorityKind.POLICY,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="Default: a file there.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files; an existing secret is kept.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write settings, a secret, a sample policy and a sample pack with its tests."""
    output = Output(as_json=as_json)
    home = directory.resolve()
    secret_there = (home / samples.SECRET_NAME).exists()
    contents = _contents(home, authority, database_url)
    if secret_there and force:
        contents = {name: text for name, text in contents.items() if name != samples.SECRET_NAME}
    there = sorted(name for name in contents if (home / name).exists())
    if there and not force:
        raise CallerError(
            f"There is a deployment already: {', '.join(there)}.",
            evidence={"directory": str(home), "files": there},
            next_step="use another directory, or --force",
        )
    try:
        _write_all(home, contents)
    except OSError as error:
        raise ConfigurationError(
            f"The files cannot be written: {error.strerror or type(error).__name__}.",
            evidence={"directory": str(home)},
            next_step="choose a directory that you may write to",
        ) from error
    steps = _next_steps(directory)
    if as_json:
        output.document({"directory": home, "written": sorted(contents), "next": steps})
        return
    output.say(*(f"wrote {home / name}" for name in sorted(contents)), "", "Next:", *(f"  {step}" for step in steps))


def _contents(home: Path, authority: AuthorityKind, database_url: str | None) -> dict[str, str]:
    with_policy = authority is AuthorityKind.POLICY
    address = database_url or samples.default_database_url(str(home))
    settings = samples.settings(
        database_url=json.dumps(address)[1:-1],
        authority=samples.AUTHORITY_POLICY if with_policy else samples.AUTHORITY_ALLOW_ALL,
    )
    pack = samples.pack(owner=str(uuid.uuid4()), destination=str(uuid.uuid4()), action=str(uuid.uuid4()))
    found = {
        samples.SETTINGS_NAME: settings,
        samples.SECRET_NAME: secrets.token_hex(samples.SECRET_BYTES) + "\n",
        samples.PACK_NAME: pack,
        samples.CASES_NAME: samples.cases(),
    }
    return found | ({samples.POLICY_NAME: samples.policy()} if with_policy else {})


def _write_all(home: Path, contents: Mapping[str, str]) -> None:
    """All files or none: they are written whole beside their places, and only then put there."""
    home.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".pushlink-init-", dir=home))
    fresh = [home / name for name in contents if not (home / name).exists()]
    try:
        for number, text in enumerate(contents.values()):
            _write(stage / str(number), text)
        for number, name in enumerate(contents):
            (home / name).parent.mkdir(exist_ok=True)
            mode = 0o600 if name == samples.SECRET_NAME else 0o644
            (stage / str(number)).chmod(mode)
            (stage / str(number)).replace(home / name)
    except OSError:
        for path in fresh:
            path.unlink(missing_ok=True)
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _next_steps(directory: Path) -> list[str]:
    steps = [] if directory == Path() else [f"cd {directory}"]
    return [
        *steps,
        "edit pushlink.toml (where records are) and packs/notes.yaml (the remote)",
        "pushlink db upgrade",
        "pushlink pack check packs/notes.yaml",
        "pushlink pack test packs/notes.yaml",
        "pushlink pack apply packs/notes.yaml",
        "pushlink doctor",
        "pushlink save Note ID --user me",
        "pushlink worker",
    ]


# ------------------------------------------------------------------------------------------------ doctor


def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check the deployment: settings, secret, database, packs, credentials, and what waits."""
    from pushlink.operations.health import Check, Verdict, examine

    output = Output(as_json=as_json)
    checks: list[Check] = []
    try:
        with open_runtime(config) as runtime:
            message = f"The settings are read, for the database {_address(runtime)}."
            checks.append(Check(name="settings", verdict=Verdict.OK, message=message))
            checks += examine(_subject(runtime))
    except PushlinkError as error:
        checks.append(
            Check(
                name="settings",
                verdict=Verdict.FAIL,
                message=error.message,
                evidence={"code": error.code.value, **error.evidence},
                next_step=error.next_step,
            )
        )
    failed = any(check.verdict is Verdict.FAIL for check in checks)
    if as_json:
        output.document({"healthy": not failed, "checks": checks})
    else:
        _show_checks(output, checks)
    raise typer.Exit(Exit.REFUSED if failed else Exit.OK)


def _show_checks(output: Output, checks: Sequence[Check]) -> None:
    for check in checks:
        word = check.verdict.value
        output.say(f"{word:<5}{check.name}: {check.message}", style=_STYLES[word])
        if word != "ok":
            output.say(*(f"       {name}: {inline_json(value)}" for name, value in check.evidence.items()))
        if check.next_step:
            output.say(f"       next: {check.next_step}")


def _address(runtime: Runtime) -> str:
    return runtime.engine.url.render_as_string(hide_password=True)


def _subject(runtime: Runtime) -> Subject:
    from pushlink.operations.health import Subject
    from pushlink.store import schema
    from pushlink.store.access import reading, translated

    settings = runtime.settings

    def database() -> AbstractContextManager[Connection]:
        return reading(runtime.engine, check_schema=False)

    def state() -> schema.SchemaState:
        with translated():
            return schema.check(runtime.engine)

    def names(conn: Connection) -> list[str]:
        runtime.records.reflect(conn)
        return [declared.name for declared in runtime.records.objects()]

    from_environment = bool(os.environ.get("PUSHLINK_SECRET"))
    file = None if from_environment or settings.secret_file is None else settings.resolve(settings.secret_file)
    return Subject(
        secret=settings.secret,
        secret_file=file,
        database=database,
        schema=state,
        authority=partial(_authority_line, runtime),
        policy_findings=partial(_policy_findings, runtime),
        read_objects=names,
        credentials=lambda: runtime.world.credentials,
        now=lambda: dt.datetime.now(dt.UTC),
        world=lambda: world_if_any(runtime),
        state=lambda: None if runtime.state is None else runtime.state.seen(),
    )


def _authority_line(runtime: Runtime) -> str:
    authority = runtime.world.authority
    summary = getattr(authority, "summary", None)
    return str(summary()) if summary is not None else f"{type(authority).__name__} of the application"


def _policy_findings(runtime: Runtime, conn: Connection) -> Sequence[Finding]:
    from pushlink.adapters.policy import PolicyAuthority
    from pushlink.adapters.policy_document import check_names

    authority = runtime.world.authority
    if not isinstance(authority, PolicyAuthority):
        return ()
    runtime.records.reflect(conn)
    return check_names(authority.document, runtime.records)


# ------------------------------------------------------------------------------------------------ db


def upgrade(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Bring the database to this release's tables; safe to run twice, and from several hosts at once."""
    from pushlink.store import schema
    from pushlink.store.access import reading
    from pushlink.store.revision import current_revision

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        with reading(runtime.engine, check_schema=False) as conn:
            before = current_revision(conn)
        schema.upgrade(runtime.engine)
        after = schema.check(runtime.engine).current
    if as_json:
        output.document({"before": before, "after": after, "is_changed": before != after})
    elif before == after:
        output.say(f"Nothing to do: the tables are at revision {after}.")
    else:
        output.say(f"The tables are at revision {after} now (before: {before or 'none'}).")


def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Compare the database's tables with this release's, without changing anything."""
    from pushlink.store import schema

    output = Output(as_json=as_json)
    with open_runtime(config) as runtime:
        state = schema.check(runtime.engine)
    if as_json:
        output.document(
            {
                "current": state.current,
                "head": state.head,
                "pending": state.pending,
                "differences": state.differences,
                "is_current": state.is_current,
            }
        )
    elif state.is_current:
        output.say(f"The tables are those of this release, at revision {state.current}.")
    else:
        output.say(f"The tables are at revision {state.current or 'none'}; this release needs {state.head}.")
        output.say(*(f"  {difference}" for difference in state.differences))
        output.say("next: pushlink db upgrade" if state.pending else "next: restore the tables from a backup")
    raise typer.Exit(Exit.OK if state.is_current else Exit.REFUSED)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=examples("pushlink init", "pushlink init crm --authority allow_all"))(init)
    app.command(
        epilog=examples("pushlink doctor", "pushlink doctor --json | jq '.checks[] | select(.verdict != \"ok\")'")
    )(doctor)
    db = typer.Typer(help="The database's tables.", no_args_is_help=True)
    db.command(epilog=examples("pushlink db upgrade"))(upgrade)
    db.command(epilog=examples("pushlink db check || pushlink db upgrade"))(check)
    app.add_typer(db, name="db")
