"""The request of a create that refers to other records: completed under the claim, once their remote ids are known.

What a save leaves of a deferred create is not a request but what one is made of: its first freeze has the mapped values
in the place of a body, so that they are encrypted, erased and kept as a body is, and neither route nor headers, so that
nothing can send it. The complete request is another freeze, written with the checkpoint that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pushlink.errors import Code
from pushlink.flows.associations import with_targets
from pushlink.flows.claimed import ClaimedCreate
from pushlink.protocol.associations import (
    Vector,
    carried_by,
    placed_values,
    read_vector,
    remote_ids,
    write_vector,
)
from pushlink.protocol.body import complete_json
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.render import render_create
from pushlink.protocol.snapshots import FrozenRequest, SourceValues, digest_bytes
from pushlink.protocol.states import CreateEvent, Hold, Lane
from pushlink.protocol.waiting import HOLD_OF, Standing, Target, worst
from pushlink.store.rows import RequestRow, read_headers, write_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a create is not sent now, and what becomes of it."""

    event: CreateEvent
    code: Code
    detail: Mapping[str, object]
    hold: Hold | None = None
    awaits: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """A request that may be sent: whether it is still to be written, and whom it refers to."""

    request: RequestRow
    is_new: bool = False
    targets: tuple[Target, ...] = ()


def unfinished_request(method: str, values: SourceValues) -> FrozenRequest:
    """What is frozen of a create that waits for another record."""
    data = values.document().text.encode()
    return FrozenRequest(method=method, path="", headers=(), body=data, body_digest=digest_bytes(data))


def complete_create(claimed: ClaimedCreate) -> Complete | Stop:
    """The request of this claim, with the remote ids of now; or what stands in its way."""
    request, contract = claimed.request, claimed.action.contract
    if not contract.associations:
        return Complete(request=request)
    is_deferred = claimed.attempt.dispatch_lane == Lane.DEFERRED_ASSOCIATION.value
    vector = read_vector(request.association_vector)
    if is_deferred and len(vector) != len(contract.associations):
        detail = {"because": "the vector of what it refers to is not whole", "entries": len(vector)}
        return Stop(event=_failed(claimed), code=Code.FREEZE_FAILED, detail=detail)
    if (stop := _stop(claimed)) is not None:
        return stop
    current = with_targets(claimed.vector, claimed.targets)
    if _ids(vector) == _ids(current) and not _is_unfinished(request):
        return Complete(request=request, targets=claimed.targets)
    if claimed.attempt.in_doubt:
        detail = {"because": "what it refers to is another remote record than the one that was sent"}
        return Stop(event=CreateEvent.DOUBT, code=Code.ASSOCIATION_MISSING, detail=detail)
    if vector and not is_deferred:
        return _moved(claimed)
    completed = _render(claimed, current) if is_deferred else _complete_older(claimed, current)
    if isinstance(completed, RenderFailure):
        detail = {"message": completed.message, **completed.evidence}
        return Stop(event=CreateEvent.FAIL_VALIDATION, code=completed.code, detail=detail)
    row = replace(
        request,
        freeze=claimed.attempt.freeze_count + 1,
        method=completed.method,
        path=completed.path,
        headers=write_headers(completed.headers),
        body=completed.body,
        body_digest=completed.body_digest,
        association_vector=write_vector(current),
        created_at=claimed.attempt.updated_at,
    )
    return Complete(request=row, is_new=True, targets=claimed.targets)


def _stop(claimed: ClaimedCreate) -> Stop | None:
    """The hold that the worst target calls for; an attempt in doubt is not held, it is parked."""
    target = worst(claimed.targets)
    if target is None:
        return None
    if claimed.attempt.in_doubt:
        return Stop(event=CreateEvent.DOUBT, code=Code.ASSOCIATION_MISSING, detail=target.evidence())
    return Stop(
        event=CreateEvent.GIVE_BACK,
        code=Code.ASSOCIATION_MISSING,
        detail=target.evidence(),
        hold=HOLD_OF[target.standing],
        awaits=tuple(each for each in claimed.targets if each.standing is not Standing.READY),
    )


def _moved(claimed: ClaimedCreate) -> Stop:
    """A body that was complete at its save names a remote record that is not the one any more (D-31)."""
    return Stop(
        event=CreateEvent.GIVE_BACK,
        code=Code.ASSOCIATION_MISSING,
        detail={"because": "relocated", "record": _first_record(claimed)},
        hold=Hold.ASSOCIATION_MOVED,  # for a person: the other record is there, so nothing that happens to it ends this
    )


def _first_record(claimed: ClaimedCreate) -> str:
    before = {entry.name: entry.remote_id for entry in read_vector(claimed.request.association_vector) if entry}
    changed = next(t for t in claimed.targets if before.get(t.reference.name) != t.reference.remote_id)
    return f"{changed.reference.source_object} {changed.reference.record_id}"


def _failed(claimed: ClaimedCreate) -> CreateEvent:
    return CreateEvent.DOUBT if claimed.attempt.in_doubt else CreateEvent.FAIL_VALIDATION


def _is_unfinished(request: RequestRow) -> bool:
    return request.path == ""


def _ids(vector: Vector) -> dict[str, str | None]:
    return {reference.name: reference.remote_id for reference in carried_by(vector, "create")}


def _render(claimed: ClaimedCreate, vector: Vector) -> FrozenRequest | RenderFailure:
    contract, origin = claimed.action.contract, claimed.origin
    if origin is None or origin.body is None:
        return RenderFailure(code=Code.FREEZE_FAILED, message="The values that were frozen at the save are gone.")
    values = SourceValues.read(bytes(origin.body).decode())
    return render_create(
        contract,
        claimed.profile.contract,
        values,
        idempotency_key=claimed.request.idempotency_key,
        associated=remote_ids(vector, contract),
    )


def _complete_older(claimed: ClaimedCreate, vector: Vector) -> FrozenRequest | RenderFailure:
    """The body of an attempt of before vectors, with the ids of what its record refers to now (DL-13)."""
    request, contract = claimed.request, claimed.action.contract
    placed = placed_values(contract, "create", remote_ids(vector, contract))
    if isinstance(placed, RenderFailure):
        return placed
    data = complete_json(contract.create.body, bytes(request.body or b""), placed)
    if isinstance(data, RenderFailure):
        return data
    return FrozenRequest(
        method=request.method,
        path=request.path,
        headers=read_headers(request.headers),
        body=data,
        body_digest=digest_bytes(data),
    )
