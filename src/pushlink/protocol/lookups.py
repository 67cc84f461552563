"""Look-ups of a create: what to ask when its answer did not name the record, and what the answer to that says.

A look-up only reads. It may show the record, and then the create is finished; it never proves that nothing was made. So
whatever it says instead of an id ends in "nobody knows": at once when the remote says that it gave up, else when the
declared time is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.contracts import ActionContract, KeyQuoting, LookUp, ProfileContract
from pushlink.protocol.criteria import all_hold, any_holds
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import extract_first, read_body
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import static_headers
from pushlink.protocol.jsontext import Number
from pushlink.protocol.paths import render_path
from pushlink.protocol.placeholders import Unfilled, Variables, fill
from pushlink.protocol.remoteids import Extracted, NoId, read_remote_id
from pushlink.protocol.replies import Effect
from pushlink.protocol.states import AttemptStatus, Operation

#: What a look-up's path, query and body may name beside the variables of its profile.
JOB: Final = "job"
KEY: Final = "key"

#: The media type of a look-up that has a body.
_JSON: Final = "application/json"


#: The name of the look-up of a create in doubt.
BY_STAMP: Final = "lookup"

_AFTER: Final = {Effect.ACCEPTED_PENDING.value: "async", Effect.NOT_APPLIED.value: BY_STAMP}


class Shown(StrEnum):
    """What the answer to a look-up shows."""

    RECORD = "record"
    NOT_YET = "not_yet"
    FAILED = "failed"
    SEVERAL = "several"  # more than one record fits; nobody picks
    NO_ID = "no_id"  # it is done, and names no usable id
    NOTHING = "nothing"  # a whole answer, in which nothing has our stamp


def row_of(shown: Shown) -> str:
    """The row of a verdict on a look-up, as it is stored."""
    return f"look-up shows {shown.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """One answer to a look-up, read; the id is there for a record only."""

    shown: Shown
    remote_id: str | None = None
    canonical_id: str | None = None


def may_be_looked_up(operation: Operation, status: AttemptStatus) -> bool:
    """Whether an attempt is a create whose answer is stored and waits to be understood."""
    return operation is Operation.CREATE and status is AttemptStatus.POST_SENT


def lookup_named(action: ActionContract, name: str) -> LookUp | None:
    """The look-up of this name: the key that it stands at in a pack."""
    create = action.create
    return {"async": create.asynchronous, "followup": create.followup, BY_STAMP: create.lookup}.get(name)


def name_after(effect: object) -> str:
    """Which look-up follows such an answer to a create."""
    return _AFTER.get(str(effect), "followup")


def is_accepted(action: ActionContract, reply: StoredReply) -> bool:
    """Whether an answer has a status that the pack declares as accepted only."""
    contract = action.create.asynchronous
    return contract is not None and reply.status in contract.accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRequest:
    """One look-up as it is sent; its body is empty for a GET."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def render_lookup(
    lookup: LookUp, profile: ProfileContract, *, answer: StoredReply, body: bytes
) -> LookUpRequest | RenderFailure:
    """The request that asks: route and body, filled from the create's answer and from its own body."""
    variables = _variables(lookup, profile, answer, body)
    return variables if isinstance(variables, RenderFailure) else fill_lookup(lookup, profile, variables)


def fill_lookup(
    lookup: LookUp, profile: ProfileContract, variables: Variables, *, quoting: KeyQuoting = "none"
) -> LookUpRequest | RenderFailure:
    """The request of a look-up with these variables in its route and body."""
    path = render_path(
        lookup.path,
        variables,
        base_url=profile.base_url,
        path_characters=profile.path_characters,
        query=lookup.query,
        quoting=quoting,
    )
    headers = static_headers(profile)
    if isinstance(path, RenderFailure):
        return path
    if isinstance(headers, RenderFailure):
        return headers
    if lookup.body is None:
        return LookUpRequest(method=lookup.method, path=path, headers=headers, body=b"")
    filled = fill(lookup.body, variables)
    if isinstance(filled, Unfilled):
        message = f"The body of a look-up cannot be made: {filled.name}: {filled.problem}."
        return RenderFailure(code=Code.FREEZE_FAILED, message=message, evidence={"name": filled.name})
    data = jsontext.write(filled).encode()
    return LookUpRequest(method=lookup.method, path=path, headers=(*headers, ("Content-Type", _JSON)), body=data)


def _variables(lookup: LookUp, profile: ProfileContract, answer: StoredReply, body: bytes) -> Variables | RenderFailure:
    variables: dict[str, str | None] = {**profile.variables}
    for name, wanted, found in (
        (JOB, bool(lookup.job), extract_first(lookup.job, answer)),
        (KEY, lookup.key is not None, text_in_body(lookup.key, body)),
    ):
        if wanted and not found:
            message = f"There is no {name} to look the record up by."
            return RenderFailure(code=Code.PATH_UNUSABLE, message=message, evidence={"name": name})
        if wanted:
            variables[name] = found
    return variables


def read_lookup(action: ActionContract, lookup: LookUp, reply: StoredReply) -> LookedUp:
    """What an answer to a look-up shows; one that cannot be read shows nothing yet."""
    if reply.status is None or not reply.trace.request_started:
        return LookedUp(shown=Shown.NOT_YET)
    if any_holds(lookup.failed, reply):
        return LookedUp(shown=Shown.FAILED)
    if reply.status not in lookup.status or not all_hold(lookup.done, reply):
        return LookedUp(shown=Shown.NOT_YET)
    if lookup.only is not None:
        body = read_body(reply)
        items = None if isinstance(body, NoId) else jsontext.resolve(body, lookup.only)
        if not isinstance(items, list) or len(items) != 1:
            return LookedUp(shown=Shown.SEVERAL if isinstance(items, list) and items else Shown.NOT_YET)
    text = extract_first(lookup.id, reply)
    if text is None:
        return LookedUp(shown=Shown.NO_ID if lookup.done else Shown.NOT_YET)
    found = read_remote_id(action, text)
    if not isinstance(found, Extracted):
        return LookedUp(shown=Shown.NO_ID)
    return LookedUp(shown=Shown.RECORD, remote_id=found.remote_id, canonical_id=found.canonical)


def text_in_body(pointer: str | None, body: bytes) -> str | None:
    """What stands at a place of the create's own body, as text."""
    if pointer is None:
        return None
    try:
        found = jsontext.resolve(jsontext.read(body), pointer)
    except ValueError:
        return None
    return found.text if isinstance(found, Number) else found if isinstance(found, str) else None
