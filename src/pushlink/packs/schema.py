"""The JSON Schema (2020-12) of a pack document: for editors, and for tools that write packs.

It is made from the models, with the meanings of `reference.py`. It refuses every document that the loader refuses for
its shape; what lint knows, and what only the text shows (duplicate keys, anchors, a number with a fraction that is
whole, as 1.0), is beyond a schema.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from pushlink.packs.model import Pack
from pushlink.packs.reference import MEANINGS, duration_words, title
from pushlink.protocol.contracts import DURATION_PATTERN, INTEGER_MAX

#: Names this schema; a change that refuses what was accepted before gets another number.
SCHEMA_ID: Final = "urn:pushlink:schema:pack:1"

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

#: Literal values of an envelope: JSON without fractions.
_PLAIN_JSON: Final[dict[str, Any]] = {
    "title": "Plain JSON",
    "description": "Text, a whole number, true, false, null, a list or an object of these.",
    "anyOf": [
        {"type": ["string", "boolean", "null"]},
        {"type": "integer"},
        {"type": "array", "items": {"$ref": "#/$defs/PlainJson"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/PlainJson"}},
    ],
}


def pack_schema() -> dict[str, Any]:
    """A fresh copy of the schema; equal on every machine."""
    made = Pack.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = made.pop("$defs")
    definitions["Body"]["properties"]["envelope"]["anyOf"][0] = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/PlainJson"},
    }
    for pattern in definitions["Body"]["properties"]["merge"]["patternProperties"]:
        definitions["Body"]["properties"]["merge"]["patternProperties"][pattern] = {"$ref": "#/$defs/PlainJson"}
    definitions["PlainJson"] = _PLAIN_JSON
    definitions.pop("JsonValue", None)
    for model, meanings in MEANINGS.items():
        definition = made if model is Pack else definitions[model.__name__]
        definition["title"] = title(model)
        definition["description"] = inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]
        for key, meaning in meanings.items():
            definition["properties"][key]["description"] = meaning
    schema = {"$schema": DIALECT, "$id": SCHEMA_ID, **made, "$defs": definitions}
    for part in _objects(schema):
        if part.get("$ref") == "#/$defs/JsonValue":
            part["$ref"] = "#/$defs/PlainJson"
        if part.get("type") == "integer":
            part.setdefault("minimum", -INTEGER_MAX)
            part.setdefault("maximum", INTEGER_MAX)
        if "patternProperties" in part:
            part["additionalProperties"] = False
        if part.get("pattern") == DURATION_PATTERN and isinstance(part.get("default"), int):
            part["default"] = duration_words(part["default"])
    return schema


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for below in value.values():
            yield from _objects(below)
    elif isinstance(value, list):
        for below in value:
            yield from _objects(below)
