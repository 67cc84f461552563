"""Tests of packs: each case rendered, its recorded reply interpreted, and both compared with what is expected.

Everything is pure: no database, no network, no credential and no clock. What runs here is what a reservation renders
and what a claim interprets, with the same contracts; so a case that passes says what this release will do.
"""

from __future__ import annotations

import datetime as dt
import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

from pushlink.errors import CallerError, Code
from pushlink.flows.fetching import contract_of_read
from pushlink.packs.cases import (
    CASES_DIRECTORY,
    CaseReply,
    Expected,
    ExpectedLookUp,
    ExpectedRead,
    ExpectedRequest,
    ExpectedVerdict,
    PlacedCase,
    read_cases,
    read_cases_text,
    write_expected,
)
from pushlink.packs.loader import load_pack
from pushlink.protocol.association_calls import call_contract, render_call
from pushlink.protocol.client_ids import make_client_id
from pushlink.protocol.contracts import ActionContract, ProfileContract, StampLookUp
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.extract import extract_first
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import static_headers
from pushlink.protocol.kept import kept_headers
from pushlink.protocol.lookup_verdicts import interpret_lookup
from pushlink.protocol.lookups import BY_STAMP, lookup_named, name_after, render_lookup
from pushlink.protocol.outcome import History, Verdict, interpret
from pushlink.protocol.preconditions import needs_fetch, version_places
from pushlink.protocol.remoteids import Extracted, read_remote_id
from pushlink.protocol.render import applies, render_create, render_fetch, render_update, source_fields
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.snapshots import FrozenRequest, SourceValues, read_time
from pushlink.protocol.stamp_lookups import mark_of, render_stamp_lookup
from pushlink.protocol.states import Operation

#: Nothing of a request has left where one of these is the error; after the others all of it has, unless a case says no.
_BEFORE_THE_REQUEST: Final = frozenset(
    {
        *(WireError.BEFORE_CONNECT, WireError.STOOD_STILL, WireError.RESOLVE, WireError.CONNECT),
        *(WireError.TLS, WireError.CERTIFICATE),
    }
)

_CONTEXT_LINES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One part that is not as expected. `lines` is what people read, a unified diff where the values are long."""

    path: str
    expected: object
    found: object
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """How one case went; `observed` is what came of it, as a case file would write it."""

    name: str
    line: int
    action: str
    passed: bool
    differences: tuple[Difference, ...]
    observed: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCases:
    """How all cases of a pack went. `written` is the file that an update wrote."""

    file: str
    cases_file: str
    pack: str
    version: str
    passed: int
    failed: int
    cases: tuple[CaseView, ...]
    written: str | None

    @property
    def is_passed(self) -> bool:
        """Whether every case went as expected."""
        return self.failed == 0


def run(
    file: str | PathLike[str],
    cases: str | PathLike[str] | None = None,
    *,
    update: bool = False,
    overwrite: bool = False,
) -> RanCases:
    """Run the cases of a pack, from the file that stands beside it unless another is named.

    With `update`, what was observed is written as what is expected: into a new file beside the given one, or over it
    with `overwrite`. Raises `PackError` for files that have something to mend, `CallerError` for a file in the way.
    """
    pack = load_pack(file)
    path = cases_of(file) if cases is None else Path(cases)
    document = read_cases(path, pack)
    results = [(placed, _observe(placed)) for placed in document.cases]
    views = tuple(_view(placed, observed) for placed, observed in results)
    written = None
    if update:
        text = write_expected(document.text, [observed.shown for _, observed in results])
        read_cases_text(text, pack, file=str(path))  # what is written can be read again
        written = str(_write(path, text, overwrite=overwrite))
    failed = sum(not view.passed for view in views)
    return RanCases(
        file=str(file),
        cases_file=str(path),
        pack=pack.pack,
        version=pack.version,
        passed=len(views) - failed,
        failed=failed,
        cases=views,
        written=written,
    )


def cases_of(file: str | PathLike[str]) -> Path:
    """Where the cases of a pack stand: `cases/` beside it, under the same name."""
    path = Path(file)
    return path.parent / CASES_DIRECTORY / path.name


def _write(path: Path, text: str, *, overwrite: bool) -> Path:
    target = path if overwrite else path.with_name(f"{path.stem}.observed{path.suffix}")
    try:
        with target.open("w" if overwrite else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as exc:
        msg = f"{target} is there already, and nothing is written over it."
        raise CallerError(msg, next_step="move it away, or give --force to write over the cases themselves") from exc
    except OSError as exc:
        msg = f"{target} cannot be written: {exc.strerror or type(exc).__name__}."
        raise CallerError(msg) from exc
    return target


# ------------------------------------------------------------------------------------------------ observing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observed:
    """What comes of a case, in the words of an expectation, and the request's body as text."""

    shown: Expected
    body_text: str | None = None


def _observe(placed: PlacedCase) -> _Observed:
    case, action = placed.case, placed.action
    read = case.source_values()
    # A call is made for a record that was pushed already: its conditions were asked then.
    if case.operation != "call" and not applies(action.when, SourceValues(values=read)):
        return _Observed(shown=Expected(skipped=True))
    mapped = dict.fromkeys(source_fields(action.contract, None if case.operation == "call" else case.operation)) | read
    values = SourceValues(values=mapped)
    found = _read(placed)
    shown: dict[str, object] = {} if found is None else {"read": found.asked}
    if found is not None and (found.refused or found.verdict):
        ended = {"refused": found.refused} if found.refused else {"verdict": found.verdict}
        return _Observed(shown=Expected.model_validate(shown | ended))
    request = _render(placed, values, case.remote_version if found is None else found.version)
    if isinstance(request, RenderFailure):
        return _Observed(shown=Expected.model_validate(shown | {"refused": request.code}))
    shown["request"] = _request_shown(request)
    if case.reply is not None:
        contract = _read_as(placed)
        reply = _reply(case.reply, contract, action.profile)
        verdict = interpret(
            Operation.CREATE if case.operation == "create" else Operation.UPDATE,
            contract,
            action.profile,
            reply,
            _history(placed, values),
            received_at=_received_at(case.reply),
        )
        shown["verdict"] = _verdict_shown(verdict)
        is_looked_for = case.look_up is not None and action.contract.create.lookup is not None
        if verdict.disposition is Disposition.LOOK_UP or (is_looked_for and verdict.effect is not Effect.APPLIED):
            shown["look_up"] = _look_up(placed, request, verdict, reply)
    return _Observed(shown=Expected.model_validate(shown), body_text=_text(request))


def _read_as(placed: PlacedCase) -> ActionContract:
    """What the reply is read by: the action, or the update that a call of one of its associations is."""
    action, name = placed.action.contract, placed.case.association
    return action if name is None else call_contract(action, name) or action


def _received_at(recorded: CaseReply) -> dt.datetime | None:
    return None if recorded.received_at is None else read_time(recorded.received_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The read before an update, and the version that it found, or what it ended the update with."""

    asked: ExpectedRead
    version: str | None = None
    verdict: ExpectedVerdict | None = None
    refused: Code | None = None


def _read(placed: PlacedCase) -> _Read | None:
    """What an update reads before it is sent, as the flow of an update does; `None` where it reads nothing."""
    case, action = placed.case, placed.action
    update = action.contract.update
    is_refused = case.history.refetched
    if case.remote_id is None or update is None or case.operation == "call":
        return None
    if not needs_fetch(update, link_version=case.remote_version, is_refused=is_refused):
        return None
    path = render_fetch(action.contract, action.profile, case.remote_id, associated=case.associated)
    headers = static_headers(action.profile)
    if isinstance(path, RenderFailure):
        return _Read(asked=ExpectedRead(), refused=path.code)
    if isinstance(headers, RenderFailure):
        return _Read(asked=ExpectedRead(), refused=headers.code)
    asked = ExpectedRead(method="GET", path=path, headers=dict(headers))
    if case.read is None:
        return _Read(asked=asked, version=case.remote_version)
    reply = _reply(case.read, action.contract, action.profile)
    verdict = interpret(
        Operation.UPDATE,
        contract_of_read(action.contract),
        action.profile,
        reply,
        replace(_history(placed, SourceValues(values={})), in_doubt=False),
        received_at=_received_at(case.read),
    )
    if (verdict.effect, verdict.disposition) != (Effect.APPLIED, Disposition.FINALIZE):
        return _Read(asked=asked, verdict=_verdict_shown(verdict))
    version = extract_first(version_places(update, action.contract.create), reply)
    return _Read(asked=asked, version=version, refused=Code.FREEZE_FAILED if version is None else None)


def _look_up(placed: PlacedCase, request: FrozenRequest, verdict: Verdict, answer: StoredReply) -> ExpectedLookUp:
    """What the answer to a create makes the runtime ask, and what the recorded answer to that says."""
    case, action = placed.case, placed.action
    name = name_after(verdict.effect) if verdict.disposition is Disposition.LOOK_UP else BY_STAMP
    lookup = lookup_named(action.contract, name)
    if lookup is None:
        return ExpectedLookUp()
    own = _history(placed, SourceValues(values=case.source_values())).client_id
    mark = mark_of(action.contract.create, case.idempotency_key, own)
    if isinstance(lookup, StampLookUp):
        asked = render_stamp_lookup(
            lookup,
            action.contract.create,
            action.profile,
            idempotency_key=case.idempotency_key,
            client_id=own,
            body=request.body,
        )
    else:
        asked = render_lookup(lookup, action.profile, answer=answer, body=request.body)
    if isinstance(asked, RenderFailure):
        return ExpectedLookUp()
    shown: dict[str, object] = {"method": asked.method, "path": asked.path, "headers": dict(asked.headers)}
    if asked.body:
        shown["body"] = json.loads(asked.body)
    found: dict[str, object] = {"request": ExpectedRead.model_validate(shown)}
    if case.look_up is not None:
        reply = _reply(case.look_up, action.contract, action.profile)
        said = interpret_lookup(
            action.contract,
            action.profile,
            name,
            reply,
            send_ordinal=case.history.send_ordinal,
            received_at=_received_at(case.look_up),
            mark=mark,
        )
        found["verdict"] = _verdict_shown(said)
    return ExpectedLookUp.model_validate(found)


def _render(placed: PlacedCase, values: SourceValues, version: str | None) -> FrozenRequest | RenderFailure:
    case, action = placed.case, placed.action
    contract, profile = action.contract, action.profile
    if case.remote_id is None:
        key = case.idempotency_key
        return render_create(contract, profile, values, idempotency_key=key, associated=case.associated)
    if (name := case.association) is not None:
        return render_call(contract, profile, name, case.remote_id, other_id=case.associated[name])
    return render_update(contract, profile, values, case.remote_id, remote_version=version, associated=case.associated)


def _history(placed: PlacedCase, values: SourceValues) -> History:
    case, contract = placed.case, placed.action.contract
    known = read_remote_id(contract, case.remote_id) if case.remote_id is not None else None
    own = make_client_id(contract, values, case.idempotency_key) if case.remote_id is None else None
    return History(
        **case.history.model_dump(),
        canonical_id=known.canonical if isinstance(known, Extracted) else case.remote_id,
        client_id=own if isinstance(own, str) else None,
    )


def _reply(case: CaseReply, action: ActionContract, profile: ProfileContract) -> StoredReply:
    """The recorded reply as a transport would have stored it: no other header, no byte more."""
    if case.status is None:
        started = case.error not in _BEFORE_THE_REQUEST
        sent = started and case.sent is not False
        trace = WireTrace(connected=started, request_started=started, request_sent=sent)
        return StoredReply(trace=trace, error=case.error, error_text="a recorded error")
    kept = frozenset(kept_headers(action, profile))
    listed = [(name.lower(), value) for name, value in case.headers.items()]
    headers = [(name, one) for name, value in listed for one in ((value,) if isinstance(value, str) else value)]
    data = case.data()
    is_long = len(data) > profile.reply_bytes_max
    return StoredReply(
        trace=WireTrace(
            connected=True,
            request_started=True,
            request_sent=True,
            response_started=True,
            response_complete=not case.truncated,
        ),
        error=WireError.READ if case.truncated else None,
        error_text="closed in the middle of the body" if case.truncated else "",
        status=case.status,
        headers=tuple((name, value) for name, value in headers if name in kept),
        body=data[: profile.reply_bytes_max],
        body_complete=not case.truncated and not is_long,
        body_size=len(data),
        body_digest=hashlib.sha256(data).hexdigest() if data else "",
    )


def _request_shown(request: FrozenRequest) -> ExpectedRequest:
    shown: dict[str, object] = {"method": request.method, "path": request.path, "headers": dict(request.headers)}
    try:
        document = json.loads(request.body)
        return ExpectedRequest.model_validate(shown | {"body": document})
    except ValueError:  # no JSON, or a number in it that a case file cannot say
        return ExpectedRequest.model_validate(shown | {"body_text": _text(request)})


def _text(request: FrozenRequest) -> str:
    return request.body.decode("utf-8", "replace")


def _verdict_shown(verdict: Verdict) -> ExpectedVerdict:
    shown: dict[str, object] = {
        "effect": verdict.effect,
        "disposition": verdict.disposition,
        "code": verdict.code,
        "row": verdict.row,
    }
    more = {
        "remote_id": verdict.remote_id,
        "candidates": verdict.candidates or None,
        "variant": verdict.evidence.get("variant"),
        "remote_version": verdict.remote_version,
        "retry_after": None if verdict.retry_after_ms is None else f"{verdict.retry_after_ms}ms",
    }
    return ExpectedVerdict.model_validate(shown | {name: value for name, value in more.items() if value is not None})


# ------------------------------------------------------------------------------------------------ comparing


def _view(placed: PlacedCase, observed: _Observed) -> CaseView:
    differences = tuple(_differences(placed.case.expect, observed))
    return CaseView(
        name=placed.case.name,
        line=placed.line,
        action=placed.action.names.action,
        passed=not differences,
        differences=differences,
        observed=observed.shown.model_dump(mode="json", exclude_unset=True),
    )


def _differences(expected: Expected, observed: _Observed) -> Iterator[Difference]:
    """Every written part of an expectation that is not so. One that expects nothing proves nothing."""
    wanted = expected.model_dump(mode="json", exclude_unset=True)
    found = observed.shown.model_dump(mode="json")
    if found["request"] is not None:
        found["request"]["body_text"] = observed.body_text
    if not any(wanted.values()):
        yield _difference("expect", "a request or a verdict", "nothing; --update writes what was observed")
        return
    for name in ("skipped", "refused"):
        if (wanted.get(name) or None) != (found[name] or None):
            yield _difference(name, wanted.get(name), found[name])
    for name, parts, seen in _compared(wanted, found):
        if seen is None:
            yield _difference(name, parts, _absent(found, name))
            continue
        yield from _part_differences(name, parts, seen)


_Parts: TypeAlias = Mapping[str, object]


def _compared(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, _Parts, _Parts | None]]:
    """Each request and verdict that is expected, with what came of it."""
    for name in ("read", "request", "verdict"):
        if wanted.get(name) is not None:
            yield name, wanted[name], found[name]
    for name, parts in (wanted.get("look_up") or {}).items():
        yield f"look_up.{name}", parts, (found["look_up"] or {}).get(name)


def _absent(found: Mapping[str, object], name: str) -> str:
    if found["skipped"]:
        return "no request: the conditions of the action do not hold"
    if found["refused"]:
        return f"no request: it is refused with {found['refused']}"
    if name == "read":
        return "no read: the update is sent without one"
    if name.startswith("look_up"):
        return "no look-up: none is declared, none is due, or the case has no answer to it"
    return f"no {name}: the case has no reply"


def _part_differences(name: str, wanted: Mapping[str, object], found: Mapping[str, object]) -> Iterator[Difference]:
    for part, value in wanted.items():
        if part == "headers" and isinstance(value, dict):
            yield from _header_differences(name, value, found[part])
        elif found[part] != value:
            yield _difference(f"{name}.{part}", value, found[part])


def _header_differences(name: str, wanted: Mapping[str, object], found: object) -> Iterator[Difference]:
    sent = {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else {}
    for header, value in wanted.items():
        if sent.get(header.lower()) != value:
            yield _difference(f"{name}.headers.{header}", value, sent.get(header.lower()))


def _difference(path: str, expected: object, found: object) -> Difference:
    old, new = _pretty(expected), _pretty(found)
    if len(old) == len(new) == 1:
        lines = [f"{path}: expected {old[0]}, found {new[0]}"]
    else:
        diff = difflib.unified_diff(old, new, n=_CONTEXT_LINES, lineterm="")
        lines = [f"{path}: - expected, + found", *(f"  {line}" for line in diff if line[:3] not in {"---", "+++"})]
    return Difference(path=path, expected=expected, found=found, lines=tuple(lines))


def _pretty(value: object) -> list[str]:
    if isinstance(value, str) and "\n" in value:
        return value.splitlines()
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
