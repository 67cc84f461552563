"""A trial of a replay contract at a sandbox: make one record, send its create again, count, read, take it away.

It knows no database. It sends what a worker would send, with a key that no attempt has, and reads each answer as a
worker would after a lost first one. What speaks against the claim is a list of sentences; whether it is empty is the
result. The record is taken away again whatever was found, and what could not be is named.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pushlink.errors import CallerError
from pushlink.packs.model import PackAction, Probe
from pushlink.ports import WireRequest
from pushlink.protocol import jsontext
from pushlink.protocol.client_ids import make_client_id
from pushlink.protocol.contracts import ProfileContract, StampLookUp
from pushlink.protocol.criteria import any_holds
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import read_body
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import static_headers
from pushlink.protocol.kept import kept_headers
from pushlink.protocol.lookups import LookUpRequest, Shown
from pushlink.protocol.outcome import History, Verdict, interpret
from pushlink.protocol.paths import render_path
from pushlink.protocol.placeholders import CLIENT_ID, REMOTE_ID
from pushlink.protocol.remoteids import NoId
from pushlink.protocol.render import render_create, source_fields
from pushlink.protocol.repeats import has_receipt
from pushlink.protocol.replay import first_sent_header, own_texts, terms_of
from pushlink.protocol.replies import Effect
from pushlink.protocol.snapshots import FrozenRequest, SourceValues
from pushlink.protocol.stamp_lookups import mark_of, read_stamped, render_stamp_lookup
from pushlink.protocol.states import Operation

Send: TypeAlias = Callable[[WireRequest], StoredReply]

#: What stands in the texts of a probe where no two trials may be alike.
NONCE: Final = "nonce"

#: An index is asked again so often while its lag lasts.
LOOK_EVERY_S: Final = 1.0

_GONE: Final = frozenset({404, 410})
_DONE: Final = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a trial found. `problems` speak against the claim; `left_over` are records that could not be taken away."""

    problems: tuple[str, ...]
    steps: tuple[str, ...]
    requests: int
    left_over: tuple[str, ...]

    @property
    def is_passed(self) -> bool:
        """Whether nothing speaks against the claim."""
        return not self.problems


@dataclass(slots=True, kw_only=True)
class _Trying:
    """One trial on its way."""

    action: PackAction
    profile: ProfileContract
    probe: Probe
    tenant: str
    key: str
    nonce: str
    send: Send
    wait: Callable[[float], None]
    at: dt.datetime
    ids: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    requests: int = 0


def try_contract(
    action: PackAction,
    profile: ProfileContract,
    *,
    tenant: str,
    key: str,
    nonce: str,
    send: Send,
    wait: Callable[[float], None],
    at: dt.datetime,
) -> Trial:
    """Try the contract of an action at the place that `profile` reaches; nobody else uses `key` and `nonce`.

    Raises `CallerError` where the pack does not say enough to make a record.
    """
    probe = action.probe
    if probe is None:
        raise _cannot("The action has no `probe`: nobody knows how to make, read and delete a record.")
    if probe.count is None and action.contract.create.lookup is None:
        raise _cannot("The probe has no `count`, and the create no `lookup`: nobody could count what was made.")
    trying = _Trying(
        action=action, profile=profile, probe=probe, tenant=tenant, key=key, nonce=nonce, send=send, wait=wait, at=at
    )
    request = _rendered(trying, nonce)
    try:
        _try(trying, request)
    finally:
        left_over = _take_away(trying)
    return Trial(
        problems=tuple(trying.problems),
        steps=tuple(trying.steps),
        requests=trying.requests,
        left_over=left_over,
    )


def _try(trying: _Trying, request: FrozenRequest) -> None:
    create = trying.action.contract.create
    remote_id = _create(trying, request, "the create", in_doubt=False)
    if remote_id is None:
        return
    if create.lookup is not None:
        _look(trying, request, create.lookup)
    if terms_of(create) is not None:
        _repeat(trying, request, remote_id)
        if create.idempotency is not None and create.idempotency.mismatch:
            _another_body(trying)
    _read_back(trying, remote_id)
    _count(trying, request)


# ------------------------------------------------------------------------------------------------ what is tried


def _create(trying: _Trying, request: FrozenRequest, what: str, *, in_doubt: bool) -> str | None:
    """Send the create, and the id that its answer names; `None` where a worker would not know it."""
    reply, verdict = _send_create(trying, request, in_doubt=in_doubt)
    trying.steps.append(f"{what}: {verdict.row} ({_seen(reply)}), {verdict.effect.value}")
    if verdict.effect is not Effect.APPLIED or verdict.remote_id is None:
        trying.problems.append(f"{what.capitalize()} was not answered with a record: {verdict.row} ({_seen(reply)}).")
        return None
    return verdict.remote_id


def _seen(reply: StoredReply) -> str:
    """The status of an answer, or why there is none."""
    return f"status {reply.status}" if reply.status is not None else reply.error_text or f"error: {reply.error}"


def _send_create(trying: _Trying, request: FrozenRequest, *, in_doubt: bool) -> tuple[StoredReply, Verdict]:
    contract = trying.action.contract
    own = first_sent_header(contract.create, trying.at)
    reply = _ask(trying, request.method, request.path, (*request.headers, *own), request.body)
    history = History(
        send_ordinal=2 if in_doubt else 1,
        in_doubt=in_doubt,
        live_replay_contract=in_doubt,
        credential_proven=in_doubt,
        client_id=_client_id(trying),
    )
    verdict = interpret(Operation.CREATE, contract, trying.profile, reply, history)
    if verdict.remote_id is not None:
        trying.ids[verdict.remote_id] = None
    return reply, verdict


def _repeat(trying: _Trying, request: FrozenRequest, remote_id: str) -> None:
    """The same bytes again, read as after a lost first answer: the same record, and no other one."""
    contract = trying.action.contract
    reply, verdict = _send_create(trying, request, in_doubt=True)
    trying.steps.append(f"the same bytes again: {verdict.row} ({_seen(reply)}), {verdict.effect.value}")
    if verdict.effect is not Effect.APPLIED or verdict.remote_id is None:
        trying.problems.append(f"The repeat was not answered as the pack says: {verdict.row}.")
    elif verdict.remote_id != remote_id:
        trying.problems.append(f"The repeat made a second record: {remote_id} and {verdict.remote_id}.")
    elif _wants_receipt(trying) and not has_receipt(contract, reply):
        trying.problems.append("The answer to the repeat has no receipt, which the pack says that it has.")


def _wants_receipt(trying: _Trying) -> bool:
    key = trying.action.contract.create.idempotency
    return key is not None and bool(key.receipt)


def _another_body(trying: _Trying) -> None:
    """Another body under the same key: the remote has to notice."""
    key = trying.action.contract.create.idempotency
    if key is None:
        return
    reply, verdict = _send_create(trying, _rendered(trying, trying.nonce[::-1]), in_doubt=True)
    trying.steps.append(f"another body under the key: {verdict.row} ({_seen(reply)})")
    if not any_holds(key.mismatch, reply):
        trying.problems.append(f"Another body under the same key was not refused as the pack says: {verdict.row}.")


def _look(trying: _Trying, request: FrozenRequest, lookup: StampLookUp) -> None:
    """The record is found by its stamp while the declared lag lasts, and a stamp of nobody finds nothing."""
    shown, asked_s = _ask_by_stamp(trying, request, lookup, trying.key), 0.0
    while shown is not Shown.RECORD and asked_s < lookup.lag_ms / 1_000:
        trying.wait(LOOK_EVERY_S)
        asked_s += LOOK_EVERY_S
        shown = _ask_by_stamp(trying, request, lookup, trying.key)
    trying.steps.append(f"the look-up by the stamp, after {asked_s:g} s: {shown.value}")
    if shown is not Shown.RECORD:
        lag = f"after its lag of {lookup.lag_ms / 1_000:g} s" if lookup.lag_ms else "at once"
        trying.problems.append(f"The look-up did not show the one record {lag}: {shown.value}.")
    nobody = str(uuid.uuid5(uuid.UUID(trying.key), "a key that no create has"))
    found = _ask_by_stamp(trying, request, lookup, nobody)
    trying.steps.append(f"the look-up by a stamp of nobody: {found.value}")
    if found is not Shown.NOTHING:
        trying.problems.append(f"The look-up by a stamp that nothing has was not answered with nothing: {found.value}.")


def _ask_by_stamp(trying: _Trying, request: FrozenRequest, lookup: StampLookUp, key: str) -> Shown:
    contract = trying.action.contract
    client_id = _client_id(trying, key)
    asked = render_stamp_lookup(
        lookup, contract.create, trying.profile, idempotency_key=key, client_id=client_id, body=request.body
    )
    if isinstance(asked, RenderFailure):
        raise _cannot(asked.message)
    reply = _ask_lookup(trying, asked)
    return read_stamped(contract, lookup, reply, mark_of(contract.create, key, client_id)).shown


def _read_back(trying: _Trying, remote_id: str) -> None:
    reply = _ask_path(trying, "GET", trying.probe.read, _names(trying, remote_id), {})
    trying.steps.append(f"reading it back: {_seen(reply)}")
    if reply.status not in _DONE:
        trying.problems.append(f"The record cannot be read back: {_seen(reply)}.")


def _count(trying: _Trying, request: FrozenRequest) -> None:
    """The remote's own count of what was made, whatever its answers said."""
    count, lookup = trying.probe.count, trying.action.contract.create.lookup
    if count is None:
        if lookup is not None and (shown := _ask_by_stamp(trying, request, lookup, trying.key)) is not Shown.RECORD:
            trying.problems.append(f"In the end the look-up does not show exactly one record: {shown.value}.")
        return
    query = {name: text.replace(f"{{{NONCE}}}", trying.nonce) for name, text in count.query.items()}
    reply = _ask_path(trying, "GET", count.path, _names(trying, next(iter(trying.ids), "")), query)
    body = read_body(reply)
    items = None if isinstance(body, NoId) else jsontext.resolve(body, count.items)
    found = len(items) if isinstance(items, list) and reply.status in _DONE else None
    trying.steps.append(f"counting: {'no list' if found is None else found}, {_seen(reply)}")
    if found != 1:
        trying.problems.append(f"The remote counts {'nothing that is a list' if found is None else found}, wanted 1.")


def _take_away(trying: _Trying) -> tuple[str, ...]:
    left = []
    for remote_id in trying.ids:
        reply = _ask_path(trying, trying.probe.delete_method, trying.probe.delete, _names(trying, remote_id), {})
        trying.steps.append(f"taking {remote_id} away: {_seen(reply)}")
        if reply.status not in _DONE and reply.status not in _GONE:
            left.append(remote_id)
    return tuple(left)


# ------------------------------------------------------------------------------------------------ requests


def _rendered(trying: _Trying, nonce: str) -> FrozenRequest:
    contract = trying.action.contract
    values = _values(trying, nonce)
    request = render_create(contract, trying.profile, values, idempotency_key=trying.key)
    if isinstance(request, RenderFailure):
        raise _cannot(f"The probe makes no request: {request.message}")
    return request


def _values(trying: _Trying, nonce: str) -> SourceValues:
    written = {
        name: value.replace(f"{{{NONCE}}}", nonce) if isinstance(value, str) else value
        for name, value in trying.probe.values.items()
    }
    empty = dict.fromkeys(source_fields(trying.action.contract, "create"))
    return SourceValues(values={**empty, **written})


def _client_id(trying: _Trying, key: str | None = None) -> str | None:
    made = make_client_id(trying.action.contract, _values(trying, trying.nonce), key or trying.key)
    return made if isinstance(made, str) else None


def _names(trying: _Trying, remote_id: str) -> Mapping[str, str | None]:
    own = own_texts(trying.action.contract.create, trying.key)
    return {
        **trying.profile.variables,
        **own,
        CLIENT_ID: _client_id(trying),
        REMOTE_ID: remote_id,
        NONCE: trying.nonce,
    }


def _ask_path(
    trying: _Trying, method: str, template: str, names: Mapping[str, str | None], query: Mapping[str, str]
) -> StoredReply:
    profile = trying.profile
    path = render_path(
        template,
        names,
        base_url=profile.base_url,
        path_characters=profile.path_characters,
        query=query,
        quoting=trying.action.contract.create.key_quoting,
    )
    headers = static_headers(profile)
    if isinstance(path, RenderFailure):
        raise _cannot(path.message)
    if isinstance(headers, RenderFailure):
        raise _cannot(headers.message)
    return _ask(trying, method, path, headers, b"")


def _ask_lookup(trying: _Trying, asked: LookUpRequest) -> StoredReply:
    return _ask(trying, asked.method, asked.path, asked.headers, asked.body)


def _ask(trying: _Trying, method: str, path: str, headers: tuple[tuple[str, str], ...], body: bytes) -> StoredReply:
    trying.requests += 1
    return trying.send(
        WireRequest(
            profile=trying.profile,
            tenant=trying.tenant,
            method=method,
            path=path,
            headers=headers,
            body=body,
            fresh_connection=True,
            keep_headers=kept_headers(trying.action.contract, trying.profile),
        )
    )


def _cannot(message: str) -> CallerError:
    return CallerError(message, next_step="mend the action's `probe` in the pack: see docs/packs.md")
