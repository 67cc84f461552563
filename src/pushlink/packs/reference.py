"""What every key of a pack means, once: the JSON Schema and the key tables of `docs/packs.md` are made from this page.

Types and defaults are read from the models. Meanings are sentences, so they are written; a test refuses a key without
one, and a sentence without a key.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pushlink.packs.meanings import LIMITS, TOKENS
from pushlink.packs.model import Action, Destination, Flow, Pack
from pushlink.packs.reference_replays import PROBE_MEANINGS, REPLAY_MEANINGS
from pushlink.protocol import contracts

#: For each model in the order of the document, what its keys mean.
MEANINGS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    Pack: {
        "pack": "The pack's name, for people. It may change.",
        "version": "The pack's version, as in `1.4.0`.",
        "connector_owner_key": "Who owns every link this pack makes. It never changes; a UUID is best.",
        "namespace": "The connector's name in lists and logs. It may change.",
        "profiles": "The ways to reach the remote, by name.",
        "destinations": "The places that records go to.",
        "flows": "What is pushed there.",
    },
    contracts.ProfileContract: {
        "base_url": "Scheme, host, port and base path of the remote, with `{name}` for one of the variables. Every "
        "path is appended to it.",
        "variables": "Values with names, such as a realm, that paths, queries, headers and merged values may use as "
        "`{name}`.",
        "endpoint_class": "A word of your own for the kind of endpoint, such as `sandbox`. A change of it is drift.",
        "destination_scope": "Which tenant or account of the remote this is. A remote id is unique within it.",
        "credential_ref": "Where the secret is found: `env:NAME` or `file:/path`. The secret is never written here.",
        "auth": "How the secret is put on a request.",
        "session": "What is opened before a request: a token and cookies that it must carry.",
        "headers": "Headers that every request of this profile carries: literals, or one of its variables as `{name}`.",
        "active": "Whether the profile may be used. `false` stops its pushes.",
        "path_characters": "Which of `/ \\ ? # %` a remote id may hold in a path. They are percent-encoded.",
        "timeouts": "How long a call may take.",
        "retry": "How a request that was proved not applied is tried again.",
        "body_bytes_max": "The longest body that is sent. A longer one is refused before anything is reserved.",
        "reply_bytes_max": "How much of a reply is kept. All of it is hashed.",
        "remote_processing": "How long the remote may go on working after a call was cut off.",
        "expires_after": "How long a reservation may wait for its first send. Then it is held for an operator.",
        "waives": "Changes of this profile that existing links may live with.",
        "errors": "How answers of this remote are read, after the action's own rules. The first that fits decides.",
        "rate_limit": "How the remote says that it was asked too much, and how long it is left alone then.",
        "sandbox": "Where `pushlink pack certify` may try what the pack claims. Nothing else is ever sent there.",
        "limits": "How much the remote takes. It is kept over all workers of a deployment.",
        "circuit": "When a remote that fails is left alone, and for how long before one request tries it.",
    },
    contracts.Auth: {
        "kind": "`bearer`, `oauth2` and `basic` send an `Authorization` header, `api_key` a header or parameter. With "
        "`mtls` the secret is a certificate and its key in PEM, which is shown in the TLS handshake.",
        "token": "With `oauth2`: how the grant becomes an access token.",
        "prefix": "With `bearer`: the word before the secret. Empty sends the secret alone.",
        "in": "With `api_key`: whether the secret goes into a header or into the query.",
        "name": "With `api_key`: the name of that header or parameter.",
        "username": "With `basic`: the user; the secret is the password. Without it the secret is `user:password`.",
        "secret_is": "With `basic`: `username` sends the secret as the user, with an empty password.",
    },
    **TOKENS,
    contracts.Session: {
        "prefetch": "One GET that opens it. It is made anew when an answer says that the session is over.",
    },
    contracts.Prefetch: {
        "path": "The path of the GET below `base_url`. The profile's own variables stand in it.",
        "query": "Its parameters: names, each with a literal or one `{variable}`.",
        "headers": "Its own headers, beside the profile's: literals, or one of the profile's variables.",
        "capture": "The header that is read from its answer and sent with every request.",
        "cookies": "Whether its cookies are sent as well.",
        "expired": "The session is over, and nothing was done, when one of these holds. It is opened anew, once.",
    },
    contracts.Timeouts: {
        "connect": "The longest time to connect.",
        "total": "The longest time of the whole call. The socket is closed then.",
    },
    contracts.Retry: {
        "attempts": "How often one request is tried, throttled tries not counted.",
        "backoff": "How far apart the tries are.",
    },
    contracts.Backoff: {
        "base": "The first delay; later ones grow.",
        "cap": "The longest delay.",
    },
    contracts.Waivers: {
        "credential_ref": "Another reference reaches the same remote tenant.",
        "credential_generation": "A rotated secret reaches the same remote tenant. Another `destination_scope` "
        "says the opposite.",
        "endpoint": "Another endpoint reaches the same remote tenant.",
        "update_path_same_route": "Another update path is fine while both render the same route.",
    },
    Destination: {
        "destination_slot_id": "The identity of the place. It never changes; a UUID is best.",
        "target_object": "What the remote calls its records there, for people.",
        "profile": "The name of the profile that reaches it.",
    },
    Flow: {
        "flow": "The flow's name, for people.",
        "version": "The flow's version, for people: a number or a text.",
        "actions": "The actions of the flow.",
    },
    Action: {
        "action": "The action's name, for people.",
        "action_slot_id": "The identity of the action. It never changes; a UUID is best.",
        "source_object": "The local object whose records are pushed.",
        "destination": "The `destination_slot_id` of the place they go to.",
        "when": "The action is for a record only when all of these hold.",
        "probe": "How `pushlink pack certify` tries the create at the profile's sandbox.",
        "create": "The one request that creates a remote record.",
        "update": "The request that updates it. Without one, later changes are not pushed.",
        "mappings": "What the bodies hold.",
        "associations": "References to other records whose remote ids the requests carry. New ones go to the end.",
        "limits": "What the remote takes. It is checked before anything is reserved.",
        "ordering": "Records that are sent one after the other, in the order in which they were saved.",
        "mirror": "Local fields that show the remote id.",
        "errors": "How answers are read where the built-in table would be wrong. The first that fits decides.",
    },
    **PROBE_MEANINGS,
    contracts.Condition: {
        "field": "The source field that is looked at.",
        "equals": "The field has this value.",
        "in": "The field has one of these values.",
        "present": "`true`: the field is not empty. `false`: it is empty.",
    },
    contracts.CreateContract: {
        "method": "The HTTP method.",
        "path": "The path below `base_url`. The profile's variables stand in it, `{client_id}` and `{stamp}`.",
        "key_quoting": "How a key is written in the path: `odata_string` puts it in quotes, `odata_guid` wants a GUID.",
        "query": "Parameters behind the path: names, each with a literal or one `{variable}`.",
        "client_id": "The id that the request gives the new record itself, as `{client_id}` in path, query or body.",
        "stamp": "A text that this create alone has, as `{stamp}` in path, query, body or look-up.",
        "idempotency": "The key under which the remote answers a repeat as it answered the first send.",
        "headers": "Headers of this request, as in the profile. One of the same name there is replaced.",
        "prefer": "Preferences (RFC 7240). They change what is answered, and so where an id is found.",
        "precondition": "What must hold at the remote for the request to take effect.",
        "body": "How the body is built around the mapped values.",
        "success": "Which statuses mean done. Any other 2xx parks the attempt: applied, but no id is known.",
        "response": "Where the new record's id is found.",
        "conflict": "Answers that mean that the record exists already. What they name is shown to people, never "
        "adopted.",
        "followup": "What is asked when a success names no id. Without it, or in vain, the create parks.",
        "async": "What is asked when the create is only accepted. Without it, or in vain, the create parks.",
        "repeat": "Why a repeat of the create makes no second record, where no key says so.",
        "lookup": "How the record of a create in doubt is found by its stamp.",
    },
    **REPLAY_MEANINGS,
    contracts.UpdateContract: {
        "method": "The HTTP method.",
        "path": "The path below `base_url`, with `{remote_id}` in it unless the query or the body names the record.",
        "key_quoting": "How a key is written in the path: `odata_string` puts it in quotes, `odata_guid` wants a GUID.",
        "query": "Parameters behind the path: names, each with a literal or one `{variable}`.",
        "headers": "Headers of this request, as in the profile. One of the same name there is replaced.",
        "prefer": "Preferences (RFC 7240). They change what is answered, and so where an id is found.",
        "precondition": "What must hold at the remote for the request to take effect.",
        "body": "How the body is built around the mapped values.",
        "semantics": "What the remote does with fields that are not in the body: keeps them (`merge`, `sparse`) or "
        "clears them (`replace`).",
        "idempotent": "Whether sending the same update again changes nothing more.",
        "creates_if_missing": "Whether the remote would create a record that is gone. A precondition must guard it.",
        "success": "Which statuses mean done.",
        "deleted": "The record is gone when one of these holds. Its link is suspended, nothing is created again.",
        "merged": "Where an answer names the record that this one became. Its link is suspended for a person.",
    },
    contracts.Body: {
        "encoding": "How the body is written.",
        "media_type": "The media type of the body. A form is `application/x-www-form-urlencoded` without it, and takes "
        "no other.",
        "envelope": "A literal skeleton that the values are put into.",
        "insert_at": "The JSON Pointer into the skeleton below which targets start.",
        "arrays": "How a form tells the items of a list apart: `a[]=1`, `a[0]=1`, or `a=1` again and again.",
        "graphql": "The document of a `graphql` body. The mapped values are its variables.",
        "merge": "Values that no record holds, by their place in the body: literals, `{remote_id}`, `{link_version}` "
        "and the profile's variables; `{link_version:integer}` is sent as a number.",
    },
    contracts.GraphQl: {
        "document": "The text that is sent as it stands here.",
        "operation_name": "Which operation of the document is meant.",
    },
    contracts.Success: {
        "status": "The statuses, from 200 to 299.",
        "assert": "What must hold as well before the request counts as done. Otherwise `errors` decide, or it is "
        "unknown.",
    },
    contracts.Response: {
        "id": "Where the id may be, in order. The first result that is not empty decides.",
        "composite": "An id of several parts, in place of `id`.",
        "id_rule": "What an id looks like, and how two of them are compared.",
        "candidates": "Where other answers may name an existing record. It is shown to people, never adopted.",
        "created": "The record was made by this request when all of these hold. Otherwise it existed before, and a "
        "person decides.",
        "version": "Where the record's version is, in order: an ETag or a field. It is kept on the link.",
    },
    contracts.CompositeId: {
        "parts": "Where the parts are. Each must be found.",
        "separator": "What is written between them. No part holds it.",
    },
    contracts.Criterion: {
        "status": "The status is one of these.",
        "header": "The header that is looked at.",
        "pointer": "The JSON Pointer to what is looked at. It is found only in a whole JSON body.",
        "equals": "It is this value: a text, a whole number, true or false.",
        "in": "It is one of these values.",
        "regex": "Its whole text matches this pattern.",
        "absent": "`true`: nothing is there, or null, or an empty text, list or object.",
        "present": "`true`: something is there. It is what is tested when nothing else is written.",
    },
    contracts.Conflict: {
        "when": "All of these hold.",
        "existing_id": "Where the existing record is named.",
        "variant": "Whether it is `live` or `archived` there. It is shown to people.",
        "policy": "`park`: an operator decides. `adopt_if_stamp`: the `lookup` shows whether it is our own.",
    },
    contracts.LookUp: {
        "method": "`POST` where the remote is searched with a body. A look-up changes nothing there.",
        "path": "The path below `base_url`, with `{job}`, `{key}` and the profile's variables.",
        "query": "Parameters behind the path: names, each with a literal or one `{variable}`.",
        "body": "The JSON of a `POST`: literals, and the same variables as whole texts.",
        "job": "Where the create's answer says what to ask for, in order. It fills `{job}`.",
        "key": "The JSON Pointer to what the create's own body has, to find the record by. It fills `{key}`.",
        "status": "The statuses of an answer that is read. Any other one is asked again.",
        "done": "The answer is read for an id when all of these hold. Otherwise it is asked again.",
        "failed": "The remote gave up when one of these holds. The create parks with that as evidence.",
        "only": "The JSON Pointer to a list of what was found. One item is the record, several are nobody's.",
        "id": "Where the id stands in the answer, in order.",
        "every": "How far apart the calls are.",
        "timeout": "How long after the create it is asked at most. `0s` asks once.",
    },
    contracts.Asynchronous: {
        "accepted": "The statuses of a create that is only accepted.",
        "method": "`POST` where the remote is searched with a body. A look-up changes nothing there.",
        "path": "The path below `base_url`, with `{job}`, `{key}` and the profile's variables.",
        "query": "Parameters behind the path: names, each with a literal or one `{variable}`.",
        "body": "The JSON of a `POST`: literals, and the same variables as whole texts.",
        "job": "Where the create's answer says what to ask for, in order. It fills `{job}`.",
        "key": "The JSON Pointer to what the create's own body has, to find the record by. It fills `{key}`.",
        "status": "The statuses of an answer that is read. Any other one is asked again.",
        "done": "The answer is read for an id when all of these hold. Otherwise it is asked again.",
        "failed": "The remote gave up when one of these holds. The create parks with that as evidence.",
        "only": "The JSON Pointer to a list of what was found. One item is the record, several are nobody's.",
        "id": "Where the id stands in the answer, in order.",
        "every": "How far apart the calls are.",
        "timeout": "How long after the create it is asked at most.",
    },
    contracts.Merged: {
        "successor": "Where the other record is named, in order.",
    },
    contracts.ErrorRule: {
        "when": "All of these hold.",
        "on": "Which answers it reads: of a `create`, an `update`, a `lookup`. Without it, creates and updates. On a "
        "`lookup`, `retry_at` asks again and everything else ends the asking.",
        "effect": "`not_applied`: the remote did nothing. `unknown`: it may have.",
        "disposition": "What follows. With `unknown` it is `reconcile`; `gone` and `conflict` suspend a link.",
        "wait": "The shortest wait before it is sent again, with `retry_at`.",
        "because": "Where the remote says so. Operators see it.",
    },
    contracts.RateLimit: {
        "detect": "The answer is a throttle when one of these holds. A 429 is one anyway.",
        "wait": "How long to wait, in order. The first that says something decides; without any, `Retry-After` does.",
        "cap": "The longest wait.",
        "scope": "Whom a throttle is about: that `record`, its destination, all with its credential, its whole "
        "account, or everything at its `base_url` (`endpoint`). `limits` are counted over the same; those of a "
        "`record` over the destination.",
    },
    **LIMITS,
    contracts.Wait: {
        "when": "It counts only when all of these hold.",
        "header": "The header that says it.",
        "pointer": "The JSON Pointer to what says it.",
        "regex": "A pattern of its whole text, with one group around the time.",
        "unit": "What stands there: a time in seconds or milliseconds, a date, or a moment in either since 1970.",
        "fixed": "Always this long.",
        "until": "`utc_midnight`: until the next day begins in UTC.",
    },
    contracts.IdExtractor: {
        "from": "`$response.body#/pointer` or `$response.header.Name`.",
        "regex": "A pattern of the whole text, with one group around the id.",
        "decode": "`percent` undoes percent-encoding.",
        "none": 'Texts that stand there when there is no id, such as `"0"`.',
    },
    contracts.IdRule: {
        "canonical": "How an id is written for comparison.",
        "pattern": "A pattern of the whole id. Another text is no id.",
        "length_max": "The longest id, in characters.",
        "mutable": "An update may give the record another id. It is read where `id` says, and the link follows.",
    },
    contracts.Mapping: {
        "source": "The source field that is read.",
        "constant": "A value that is always the same, in place of a source.",
        "target": "The JSON Pointer to where the value stands in the body.",
        "encode": "How the value is written.",
        "clear": "What is sent when the source field is empty.",
        "sentinel": "What the remote reads as empty, with `clear: sentinel`.",
        "operations": "Which requests carry it.",
        "chars_max": "How many characters its text may have. A longer one is refused, not cut.",
    },
    contracts.Association: {
        "name": "Its name, which is also the variable of the other record's remote id in this action's requests.",
        "source": "The source field that holds the other record's local id. The saver must be allowed to read it.",
        "source_object": "The object of the other record.",
        "action_slot_id": "The action of this pack that pushes the other record.",
        "mode": "`create_inline`: the create carries it. `foreign_key`: create and updates do. `update_only`: updates "
        "do, and the other record must be there first. `call_after`: a call of its own, once both records are there.",
        "target": "The JSON Pointer to where the id stands in the body. Without one it is only a variable.",
        "value": "What stands there: a literal with `{name}` in it, or `{name:integer}`. Without one, the id as text.",
        "clear": "What is sent when the record refers to nothing: `null`, or nothing at all.",
        "call": "The request of `call_after`.",
        "gives_up_after": "How long a create waits for another record that cannot get a remote record. Then it ends. "
        "Without it an operator decides.",
    },
    contracts.AssociationCall: {
        "method": "The method.",
        "path": "The path below `base_url`, with `{remote_id}`, the association's name and the profile's variables.",
        "query": "Parameters behind the path: names, each with a literal or one `{variable}`.",
        "headers": "Headers of this request, beside the profile's.",
        "body": "A JSON body, in which a text such as `{remote_id}` is a placeholder. Without one, none is sent.",
        "success": "When it counts as done.",
    },
    contracts.Limits: {
        "body_bytes": "The longest body of this action, where it is shorter than the profile's.",
        "field_chars": "How many characters any mapped text may have, unless its mapping says so itself.",
    },
    contracts.Encode: {
        "string": "Write a number, a truth value or a time as text.",
        "decimal_string": "Write a number as text with so many digits after the point. Nothing is rounded.",
        "minor_units": "Write a number in its smallest unit: with 2, 19.99 becomes 1999.",
        "date": "Write a calendar date in this form, as in `%Y-%m-%d`.",
        "datetime": "Write a moment in this form, or as `rfc3339`.",
        "zone": "The time zone that a moment is written in. Without one, UTC.",
        "epoch": "Write a moment as seconds (`s`) or milliseconds (`ms`) since 1970.",
        "ms_date": "Write a moment as `/Date(…)/` with milliseconds since 1970.",
        "enum_map": "Write the value that stands beside the source's. A source value without one is refused.",
        "bool_map": "Write these values for true and false.",
        "join": "Write a list as one text, with this between its items.",
        "json_string": "Write the result as JSON inside a text.",
        "wrap": "Put the result into an object below this key.",
        "lower_trim": "Cut blanks at both ends and write small letters, before everything else.",
        "md5_hex": "Write the MD5 digest of the text, as remotes do that name records by it. It protects nothing.",
        "truncate": "Keep so many characters.",
    },
    contracts.CreatePrecondition: {
        "kind": "`if_none_match_star`: nothing is at the address yet. `if_none_exist`: nothing matches the query.",
        "query": "The query of `if_none_exist`: names, each with a literal or one `{variable}`.",
    },
    contracts.UpdatePrecondition: {
        "kind": "`if_match_star`: the record is there. `etag`, `if_unmodified_since`, `version_field`: it has the "
        "version that is sent in a header, or at `pointer` in the body.",
        "pointer": "Where the version stands in the body, with `version_field`.",
        "integer": "Whether it is a number there.",
        "source": "`link_version`: the version of the last answer. `fresh_get`: one that is read before each send.",
        "fetch": "How the current version is read.",
        "grows": "Whether versions are whole numbers that only grow. Then an older one than the link's is never sent.",
        "on_fail": "What else says that the precondition did not hold, beside 412 and, where a version was sent, 428. "
        "One of them is enough.",
        "refetch_once": "Whether a failed update is tried once more with a version that is read then. Otherwise the "
        "link is suspended.",
    },
    contracts.Fetch: {
        "path": "The path that is read. Without one, that of the update.",
        "query": "Its parameters, in place of the update's.",
        "version": "Where the version stands in that answer. Without one, where `response.version` says, or the header "
        "of its kind.",
    },
    contracts.ClientId: {
        "from": "What it is made of: the attempt's `idempotency_key`, or a `field`.",
        "format": "How a key is written: as a UUID, or as a `token` of 32 hexadecimal digits.",
        "field": "The source field, with `from: field`. The saver must be allowed to read it.",
        "encode": "How the field becomes the id.",
    },
    contracts.Mirror: {
        "remote_id_field": "The local field that shows the remote id.",
        "provenance_field": "The local field that shows where the id is from.",
        "provenance_value": "What is written there.",
    },
}

_MS_IN_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One row of a key table."""

    key: str
    type: str
    default: str
    meaning: str


def key_rows(model: type[BaseModel]) -> tuple[KeyRow, ...]:
    """The rows of one model, in the order in which its meanings are written."""
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    return tuple(
        KeyRow(key=key, type=_type_words(fields[key]), default=_default_words(fields[key]), meaning=meaning)
        for key, meaning in MEANINGS[model].items()
    )


def reachable(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and all models below it, each once."""
    seen: dict[type[BaseModel], None] = {}
    waiting = [model]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen[current] = None
            for info in current.model_fields.values():
                waiting.extend(_models_in(info.annotation))
    yield from seen


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _type_words(info: FieldInfo) -> str:
    if any(isinstance(part, BeforeValidator) for part in info.metadata) or _is_duration(info.annotation):
        return "text or whole number" if info.annotation is str else "duration"
    return _words(info.annotation)


def _is_duration(annotation: object) -> bool:
    return annotation == contracts.DurationMs or any(_is_duration(argument) for argument in get_args(annotation))


def _words(annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(arguments[0])
    if origin in {Union, types.UnionType}:
        return " or ".join(dict.fromkeys(_words(argument) for argument in arguments if argument is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        item = _words(arguments[0])
        return f"list of ({item})" if " or " in item else f"list of {item}"
    if origin is dict:
        return f"keys, each with {_words(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{title(annotation)}](#{title(annotation).lower().replace(' ', '-')})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    return {str: "text", int: "whole number", bool: "true or false"}.get(annotation, "plain JSON")  # type: ignore[call-overload,no-any-return]


def _default_words(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=False)
    if default is None or default is PydanticUndefined:
        return "none"
    if _type_words(info) == "duration":
        return f"`{duration_words(int(default))}`"
    if isinstance(default, BaseModel):
        written = default.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return f"`{json.dumps(written)}`" if written else "its own defaults"
    if isinstance(default, Enum):
        return f"`{default.value}`"
    return f"`{json.dumps(default)}`" if default not in ("", (), {}) else "empty"


def duration_words(milliseconds: int) -> str:
    """A duration as a pack writes it, in its largest whole unit."""
    for unit, factor in _MS_IN_UNITS:
        if milliseconds % factor == 0:
            return f"{milliseconds // factor}{unit}"
    return f"{milliseconds}ms"


def title(model: type[BaseModel]) -> str:
    """The name of a model in a heading: `IdExtractor` is "Id extractor", contracts lose their surname."""
    name = model.__name__.removesuffix("Contract")
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip().capitalize()
