"""Cases of a pack: records and recorded replies in, requests and verdicts expected out, as strict YAML with places.

A case file is read like a pack: the same YAML, the same findings with line and column, nothing fetched or executed. It
says what one save of one action has to send, and how one recorded answer to it has to be read. Only what stands under
`expect` is compared. Running them is pure and stands in `operations/pack_tests.py`.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from os import PathLike
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, PlainSerializer, ValidationError, model_validator
from ruamel.yaml import YAML

from pushlink.errors import Code, Finding, PackError
from pushlink.packs.explain import explain
from pushlink.packs.loader import FILE_BYTES_MAX, read_text
from pushlink.packs.model import Name, Pack, PackAction
from pushlink.packs.reference import duration_words
from pushlink.packs.tree import Node, parse, value_place, write_path
from pushlink.protocol.declared import Contract, DurationMs, PlainJson
from pushlink.protocol.evidence import WireError
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.snapshots import SourceValue, read_time

#: The cases of `packs/shop.yaml`, unless others are named, stand in `packs/cases/shop.yaml`.
CASES_DIRECTORY: Final = "cases"


def _exact_decimal(text: str) -> str:
    try:
        Decimal(text)
    except InvalidOperation:
        msg = 'write a decimal number as text, such as "12.50"'
        raise ValueError(msg) from None
    return text


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        msg = "write the bytes in base64"
        raise ValueError(msg) from None
    return text


def _iso(kind: type[dt.datetime | dt.date | dt.time], sample: str) -> AfterValidator:
    def check(text: str) -> str:
        try:
            found = kind.fromisoformat(text)
        except ValueError:
            found = None
        if found is None or (isinstance(found, dt.datetime) and found.tzinfo is None):
            msg = f'write it as "{sample}"'
            raise ValueError(msg)
        return text

    return AfterValidator(check)


Decimals: TypeAlias = Annotated[str, AfterValidator(_exact_decimal)]
Instant: TypeAlias = Annotated[str, _iso(dt.datetime, "2026-01-31T12:00:00Z")]
Day: TypeAlias = Annotated[str, _iso(dt.date, "2026-01-31")]
TimeOfDay: TypeAlias = Annotated[str, _iso(dt.time, "12:30:00")]
Base64: TypeAlias = Annotated[str, AfterValidator(_base64)]

#: A duration that is written as a person would: in its largest whole unit.
ReadableMs: TypeAlias = Annotated[DurationMs, PlainSerializer(duration_words, return_type=str)]


class Exact(Contract):
    """A source value that plain YAML cannot say exactly; one of its keys is written."""

    decimal: Decimals | None = None
    datetime: Instant | None = None
    date: Day | None = None
    time: TimeOfDay | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            msg = "write one of `decimal`, `datetime`, `date` and `time`"
            raise ValueError(msg)
        return self

    def value(self) -> SourceValue:
        """The value as a record store reads it."""
        if self.decimal is not None:
            return Decimal(self.decimal)
        if self.datetime is not None:
            return read_time(self.datetime)
        if self.date is not None:
            return dt.date.fromisoformat(self.date)
        return dt.time.fromisoformat(self.time or "")


CaseValue: TypeAlias = bool | int | str | tuple[str, ...] | Exact | None


class CaseHistory(Contract):
    """What is known of the attempt before this reply, where it is not a first send."""

    send_ordinal: Annotated[int, Field(ge=1)] = 1
    in_doubt: bool = False
    live_replay_contract: bool = False
    credential_proven: bool = True
    reauthenticated: bool = False
    retry_count: Annotated[int, Field(ge=0)] = 0
    refetched: bool = False
    finds_stamp: bool = False


class CaseReply(Contract):
    """What came back: an answer, whole or not, or an error of the wire without one."""

    status: Annotated[int, Field(ge=100, le=599)] | None = None
    headers: Mapping[str, str | tuple[str, ...]] = {}
    body: PlainJson = None
    body_text: str | None = None
    body_base64: Base64 | None = None
    truncated: bool = False  # the connection ended in the middle of the body
    error: WireError | None = None
    sent: bool | None = None  # with an error: whether the whole request had left
    received_at: Instant | None = None  # for waits that are dates

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if len(self.model_fields_set & {"body", "body_text", "body_base64"}) > 1:
            msg = "write one of `body`, `body_text` and `body_base64`"
            raise ValueError(msg)
        if (self.status is None) is (self.error is None):
            msg = "write a `status`, or an `error` if there was no answer"
            raise ValueError(msg)
        return self

    def data(self) -> bytes:
        """The body, byte for byte; JSON is written without blanks."""
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64)
        if self.body_text is not None:
            return self.body_text.encode()
        if "body" not in self.model_fields_set:
            return b""
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode()


class ExpectedRequest(Contract):
    """The parts of the request that are compared. Headers that are not named may be anything."""

    method: str | None = None
    path: str | None = None
    headers: Mapping[str, str] = {}
    body: PlainJson = None  # the JSON value
    body_text: str | None = None  # the bytes as UTF-8


class ExpectedRead(Contract):
    """The parts of a request that only reads which are compared."""

    method: str | None = None
    path: str | None = None
    headers: Mapping[str, str] = {}
    body: PlainJson = None  # the JSON value


class ExpectedVerdict(Contract):
    """The parts of the verdict that are compared. A `code` of null means: applied, and its record is known."""

    effect: Effect | None = None
    disposition: Disposition | None = None
    code: Code | None = None
    row: str | None = None
    remote_id: str | None = None
    candidates: tuple[str, ...] = ()
    variant: Literal["live", "archived"] | None = None  # of the record that a declared conflict speaks of
    remote_version: str | None = None
    retry_after: ReadableMs | None = None


class ExpectedLookUp(Contract):
    """What the look-up after an answer asks, and how its recorded answer is read."""

    request: ExpectedRead | None = None
    verdict: ExpectedVerdict | None = None


class Expected(Contract):
    """What has to come of a case. `skipped`: the action's conditions do not hold. `refused`: nothing can be sent."""

    skipped: bool | None = None
    refused: Code | None = None
    read: ExpectedRead | None = None  # the record is read before the update
    request: ExpectedRequest | None = None
    verdict: ExpectedVerdict | None = None
    look_up: ExpectedLookUp | None = None


class Case(Contract):
    """One save of one action, and one answer to it."""

    name: Name
    object: Name
    action: Name | None = None  # needed only where several actions push the object
    operation: Literal["create", "update", "call"] = "create"
    association: Name | None = None  # of a call: the association that it sets
    values: Mapping[str, CaseValue] = {}  # a mapped field that is not written here is empty
    associated: Mapping[str, str] = {}  # remote ids of other records, by association; one not written refers to none
    remote_id: str | None = None
    remote_version: str | None = None
    idempotency_key: str = "00000000-0000-4000-8000-000000000001"
    history: CaseHistory = CaseHistory()
    read: CaseReply | None = None  # what a read before the update answers; without it, `remote_version` was read
    reply: CaseReply | None = None
    look_up: CaseReply | None = None  # what a look-up after the reply answers
    expect: Expected = Expected()

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if (self.operation == "create") is (self.remote_id is not None):
            msg = "write `remote_id` for an update or a call, and for nothing else"
            raise ValueError(msg)
        if (self.operation == "call") is (self.association is None):
            msg = "write `association` for a call, and for nothing else"
            raise ValueError(msg)
        if self.association is not None and self.association not in self.associated:
            msg = "write the other record's remote id, below `associated`"
            raise ValueError(msg)
        if self.read is not None and self.operation != "update":
            msg = "only an update reads its record before it is sent"
            raise ValueError(msg)
        if self.look_up is not None and (self.operation != "create" or self.reply is None):
            msg = "a look-up follows the reply to a create"
            raise ValueError(msg)
        return self

    def source_values(self) -> dict[str, SourceValue]:
        """The written values as a record store reads them."""
        return {name: value.value() if isinstance(value, Exact) else value for name, value in self.values.items()}


class CaseFile(Contract):
    """All cases of one file."""

    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCase:
    """A case, the line that it begins in, and the action of the pack that it is about."""

    case: Case
    line: int
    action: PackAction


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDocument:
    """A file of cases that fit a pack, with the text that it was read from."""

    file: str
    text: str
    cases: tuple[PlacedCase, ...]


def read_cases(path: str | PathLike[str], pack: Pack) -> CaseDocument:
    """The cases of a file for a pack; raises `PackError` with every finding."""
    file = str(path)
    text, finding = read_text(path, "a file of cases")
    if finding is not None:
        raise _refused(file, [finding])
    return read_cases_text(text, pack, file=file)


def read_cases_text(text: str, pack: Pack, *, file: str = "<text>") -> CaseDocument:
    """The cases in a text for a pack; raises `PackError` with every finding."""
    if len(text.encode("utf-8", "surrogatepass")) > FILE_BYTES_MAX:
        message = f"The file is larger than {FILE_BYTES_MAX} bytes. Split it."
        raise _refused(file, [Finding(file=file, line=0, column=0, path="", message=message)])
    root, findings = parse(text, file)
    if root is None:
        raise _refused(file, findings)
    try:
        found = CaseFile.model_validate_json(json.dumps(root.plain()), by_alias=True, by_name=False)
    except ValidationError as error:
        raise _refused(file, [*findings, *explain(error, CaseFile, root, file)]) from None
    placed, misfits = _fit(found, pack, root, file)
    if findings or misfits:
        raise _refused(file, [*findings, *misfits])
    return CaseDocument(file=file, text=text, cases=tuple(placed))


def write_expected(text: str, expected: Sequence[Expected]) -> str:
    """The same file with these expectations, one for each case; comments and the order of keys stay."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    document = yaml.load(text)
    for case, expect in zip(document["cases"], expected, strict=True):
        case["expect"] = expect.model_dump(mode="json", exclude_unset=True)
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _fit(found: CaseFile, pack: Pack, root: Node, file: str) -> tuple[list[PlacedCase], list[Finding]]:
    """Each case with its action, and what does not fit the pack."""
    placed: list[PlacedCase] = []
    findings: list[Finding] = []
    seen: dict[str, int] = {}
    for number, case in enumerate(found.cases):
        steps = ("cases", number)
        line = value_place(root, steps)[0]
        for key, message in _misfits(case, pack, seen):
            where = value_place(root, (*steps, key))
            path = write_path((*steps, key))
            findings.append(Finding(file=file, line=where[0], column=where[1], path=path, message=message))
        seen.setdefault(case.name, line)
        chosen = _actions(case, pack)
        if len(chosen) == 1:
            placed.append(PlacedCase(case=case, line=line, action=chosen[0]))
    return placed, findings


def _actions(case: Case, pack: Pack) -> list[PackAction]:
    pushed = [action for action in pack.actions() if action.slots.source_object == case.object]
    return [action for action in pushed if case.action in {None, action.names.action}]


def _misfits(case: Case, pack: Pack, seen: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The key, and what is wrong there."""
    if case.name in seen:
        yield "name", f"The case of line {seen[case.name]} has this name already. Give each its own."
    chosen = _actions(case, pack)
    objects = sorted({action.slots.source_object for action in pack.actions()})
    if not chosen and case.object not in objects:
        yield "object", f"No action of the pack pushes it. Known are: {', '.join(objects)}."
    elif not chosen:
        yield "action", "The pack has no action of this name for the object."
    elif len(chosen) > 1:
        names = ", ".join(action.names.action for action in chosen)
        yield "object", f"Several actions push it. Add `action`, one of {names}."
    else:
        yield from _association_misfits(case, chosen[0])


def _association_misfits(case: Case, action: PackAction) -> Iterator[tuple[str, str]]:
    declared = {association.name: association for association in action.contract.associations}
    for name in sorted(case.associated.keys() - declared.keys()):
        known = ", ".join(declared) or "none"
        yield "associated", f"The action has no association {name}. It has: {known}."
    if case.association in declared and declared[case.association].call is None:
        yield "association", "This association has no `call`."


def _refused(file: str, findings: Sequence[Finding]) -> PackError:
    ordered = tuple(sorted(findings, key=lambda finding: (finding.line, finding.column)))
    count = "one thing" if len(ordered) == 1 else f"{len(ordered)} things"
    first = f" The first: {ordered[0]}" if ordered else ""
    message = f"The cases {file} have {count} to mend.{first}"
    return PackError(message, findings=ordered, next_step="mend what is listed, and run pack test again")
