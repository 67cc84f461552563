"""A policy as data: who is a user, what a role may read, and which rows are shared, out of one strict YAML document.

It is read as packs are: YAML 1.2, no duplicate or unknown keys, no anchors, and every mistake with its file, line and
column. The language only ever grants; what no line grants is denied. `docs/authority.md` is its manual.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from pushlink.adapters.objects import ApiName
from pushlink.errors import CallerError, Code, ConfigurationError, Finding
from pushlink.packs.explain import explain
from pushlink.packs.tree import Node, Steps, parse, value_place, write_path
from pushlink.ports import RecordStore
from pushlink.protocol.contracts import Condition, Contract

#: Bytes of a policy file; ten thousand users take about a tenth of it.
FILE_BYTES_MAX: Final = 8_388_608

RoleName: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]
_Hit: TypeAlias = tuple[Steps, str]


def _listed_fields(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    if value == "all":
        return None
    msg = "write `all`, or a list of field names"
    raise ValueError(msg)


#: Field names, or None for the word `all`; an empty document value is neither.
_ReadableFields: TypeAlias = Annotated[
    tuple[ApiName, ...] | None, BeforeValidator(_listed_fields, json_schema_input_type=Literal["all"] | list[str])
]


class Rows(StrEnum):
    """Which rows of an object a grant covers."""

    ALL = "all"
    OWN = "own"
    OWN_AND_SUBORDINATES = "own_and_subordinates"


class Grant(Contract):
    """What a role may read of one object, `fields` None meaning every field.

    `owner_field` holds the user id of a row's owner, as text or integer.
    """

    read: bool = True
    fields: _ReadableFields
    rows: Rows
    owner_field: ApiName | None = None


class Role(Contract):
    """A set of grants. `inherits` adds the grants of other roles; `parent` is the role above, whose users lead ours."""

    parent: RoleName | None = None
    inherits: tuple[RoleName, ...] = ()
    objects: dict[ApiName, Grant] = Field(default_factory=dict)


class User(Contract):
    """One person or service, by the id that the application passes to `save`."""

    roles: tuple[RoleName, ...] = ()
    active: bool = True


class Share(Contract):
    """Opens the rows for which all of `when` holds, and whose owner has the role `owned_by`, to the roles in `with`.

    A share opens rows only: which fields are seen there is what the grants of those roles say.
    """

    object: ApiName
    to: Annotated[tuple[RoleName, ...], Field(alias="with", min_length=1)]
    when: tuple[Condition, ...] = ()
    owned_by: RoleName | None = None
    owner_field: ApiName | None = None


class Policy(Contract):
    """A whole policy; `policy` is the version of the language."""

    policy: Literal[1]
    roles: dict[RoleName, Role]
    users: dict[Annotated[str, Field(min_length=1)], User]
    sharing: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """A policy that holds together, and where its parts stand in the file."""

    file: str
    policy: Policy
    root: Node = field(repr=False)


def read_policy(path: str | PathLike[str]) -> PolicyDocument:
    """The policy in a file; raises `ConfigurationError` (`policy_invalid`) whose evidence has every finding."""
    file = str(path)
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise _invalid(file, [_whole(file, f"The policy is larger than {FILE_BYTES_MAX} bytes.")])
        return read_policy_text(data.decode("utf-8"), file=file)
    except OSError as exc:
        raise _invalid(file, [_whole(file, f"The file cannot be read: {exc.strerror or type(exc).__name__}.")]) from exc
    except UnicodeDecodeError as exc:
        raise _invalid(file, [_whole(file, "The file is not UTF-8 text. Save it in that encoding.")]) from exc


def read_policy_text(text: str, *, file: str = "<policy>") -> PolicyDocument:
    """The policy in a text; raises `ConfigurationError` (`policy_invalid`) whose evidence has every finding."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        raise _invalid(file, [_whole(file, "The policy is empty. Start it with `policy: 1`.")])
    root, findings = parse(text, file)
    if root is None or findings:
        raise _invalid(file, findings)
    try:
        # By way of JSON: only there does strict mode take lists for tuples and text for enumerations.
        policy = Policy.model_validate_json(json.dumps(root.plain()), by_alias=True, by_name=False)
    except ValidationError as exc:
        raise _invalid(file, list(explain(exc, Policy, root, file))) from None
    document = PolicyDocument(file=file, policy=policy, root=root)
    found = _located(document, (hit for check in _CHECKS for hit in check(policy)))
    if found:
        raise _invalid(file, found)
    return document


def check_names(document: PolicyDocument, records: RecordStore) -> tuple[Finding, ...]:
    """The objects and fields of the policy that the record store does not declare, each with its place."""
    return tuple(_located(document, _unknown_names(document.policy, records)))


def _unknown_names(policy: Policy, records: RecordStore) -> Iterator[_Hit]:
    declared: dict[str, frozenset[str] | None] = {}

    def known(name: str) -> frozenset[str] | None:
        if name not in declared:
            try:
                declared[name] = records.fields(name)
            except CallerError:
                declared[name] = None
        return declared[name]

    for steps, name, used in _uses(policy):
        fields = known(name)
        if fields is None:
            yield steps, f"There is no source object {name}. Declare it in the settings, or mend the name."
            continue
        for field_steps, field_name in used:
            if field_name not in fields:
                yield (*steps, *field_steps), f"{name} declares no field {field_name}."


def _uses(policy: Policy) -> Iterator[tuple[Steps, str, list[_Hit]]]:
    """Every place that names an object, with the fields that it names."""
    for role_name, role in policy.roles.items():
        for name, grant in role.objects.items():
            used: list[_Hit] = [(("fields", index), listed) for index, listed in enumerate(grant.fields or ())]
            used += [(("owner_field",), grant.owner_field)] if grant.owner_field else []
            yield ("roles", role_name, "objects", name), name, used
    for index, share in enumerate(policy.sharing):
        used = [(("when", place, "field"), condition.field) for place, condition in enumerate(share.when)]
        used += [(("owner_field",), share.owner_field)] if share.owner_field else []
        yield ("sharing", index), share.object, used


# --------------------------------------------------------------------------------------- checks


def _check_roles_exist(policy: Policy) -> Iterator[_Hit]:
    for steps, name in _named_roles(policy):
        if name not in policy.roles:
            yield steps, f"There is no role `{name}`. Roles are: {', '.join(sorted(policy.roles)) or '(none)'}."


def _named_roles(policy: Policy) -> Iterator[_Hit]:
    for user_id, user in policy.users.items():
        yield from ((("users", user_id, "roles", index), name) for index, name in enumerate(user.roles))
    for role_name, role in policy.roles.items():
        if role.parent is not None:
            yield ("roles", role_name, "parent"), role.parent
        yield from ((("roles", role_name, "inherits", index), name) for index, name in enumerate(role.inherits))
    for place, share in enumerate(policy.sharing):
        yield from ((("sharing", place, "with", index), name) for index, name in enumerate(share.to))
        if share.owned_by is not None:
            yield ("sharing", place, "owned_by"), share.owned_by


def _check_circles(policy: Policy) -> Iterator[_Hit]:
    for name, role in policy.roles.items():
        if name in above(policy, name):
            yield ("roles", name, "parent"), "This role is above itself. Remove one `parent` of the circle."
        if role.inherits and any(name in inherited(policy, [other]) for other in role.inherits):
            yield ("roles", name, "inherits"), "This role inherits from itself. Remove one entry of the circle."


def _check_owners(policy: Policy) -> Iterator[_Hit]:
    for role_name, role in policy.roles.items():
        for name, grant in role.objects.items():
            if grant.rows is not Rows.ALL and grant.owner_field is None:
                yield ("roles", role_name, "objects", name), f"`rows: {grant.rows}` needs an `owner_field`."
    for index, share in enumerate(policy.sharing):
        if share.owned_by is not None and share.owner_field is None:
            yield ("sharing", index), "`owned_by` needs an `owner_field`."


def _check_shares(policy: Policy) -> Iterator[_Hit]:
    for index, share in enumerate(policy.sharing):
        if not share.when and share.owned_by is None:
            yield ("sharing", index), "This would share every row. Write `when` or `owned_by`, or grant `rows: all`."
        for place, condition in enumerate(share.when):
            if condition.equals is None and condition.one_of is None and condition.present is None:
                message = (
                    "This condition tests nothing. Write `equals`, `in` or `present`; for empty, `present: false`."
                )
                yield ("sharing", index, "when", place), message


_CHECKS: Final[tuple[Callable[[Policy], Iterable[_Hit]], ...]] = (
    _check_roles_exist,
    _check_circles,
    _check_owners,
    _check_shares,
)


# --------------------------------------------------------------------------------------- the role graph


def above(policy: Policy, role_name: str) -> frozenset[str]:
    """The roles that lead a role, by way of `parent`; names without a role lead nowhere."""
    seen: set[str] = set()
    role = policy.roles.get(role_name)
    while role is not None and role.parent is not None and role.parent not in seen:
        seen.add(role.parent)
        role = policy.roles.get(role.parent)
    return frozenset(seen)


def inherited(policy: Policy, role_names: Iterable[str]) -> frozenset[str]:
    """The roles themselves, and those whose grants they inherit."""
    seen: set[str] = set()
    waiting = list(role_names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            role = policy.roles.get(name)
            waiting.extend(role.inherits if role is not None else ())
    return frozenset(seen)


# --------------------------------------------------------------------------------------- findings


def _located(document: PolicyDocument, hits: Iterable[_Hit]) -> list[Finding]:
    findings = []
    for steps, message in hits:
        line, column = value_place(document.root, steps)
        findings.append(Finding(file=document.file, line=line, column=column, path=write_path(steps), message=message))
    return findings


def _whole(file: str, message: str) -> Finding:
    return Finding(file=file, line=0, column=0, path="", message=message)


def _invalid(file: str, findings: Sequence[Finding]) -> ConfigurationError:
    ordered = sorted(findings, key=lambda finding: (finding.line, finding.column))
    count = "one thing" if len(ordered) == 1 else f"{len(ordered)} things"
    evidence: Mapping[str, object] = {"findings": [str(finding) for finding in ordered]}
    return ConfigurationError(
        f"The policy {file} has {count} to mend. The first: {ordered[0]}",
        code=Code.POLICY_INVALID,
        evidence=evidence,
        next_step="mend the policy and run `pushlink doctor`",
    )
