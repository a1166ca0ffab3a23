"""A small set of JSON schemas that answers are constrained to, from a flat object to recursion.

Texts, lists and numbers are bounded, so that a model that would ramble comes to an end inside the
grammar; only the depth of ``recursive`` is not, because bounded depth would not be recursion. Each
engine's grammar compiler takes every keyword used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

Schema = dict[str, Any]
FORMATS = ("text", "json_object", "json_schema", "json_schema_each")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHADES = ["pale", "dark", "deep", "dull", "warm", "cold", "grey", "rusty", "faded", "bright",
           "dusty", "misty", "amber", "smoky", "chalky", "golden", "muted", "olive", "pearl",
           "russet"]  # fmt: skip
_COLOURS = ["red", "blue", "green", "ochre", "violet", "teal", "umber", "ivory", "plum", "slate"]


def _text(most: int = 20) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": most}


def _whole(most: int, least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _flat() -> Schema:
    return _object(
        name=_text(),
        place=_text(),
        year=_whole(2100, 1000),
        broken={"type": "boolean"},
        kind={"enum": ["tool", "vessel", "paper", "machine", "other"]},
    )


def _nested() -> Schema:
    address = _object(street=_text(16), number=_whole(999, 1))
    site = _object(town=_text(16), address=address)
    return _object(item=_text(16), count=_whole(99, 1), site=site)


def _enum200() -> Schema:
    colours = [f"{shade} {colour}" for shade, colour in product(_SHADES, _COLOURS)]
    return _object(colour={"enum": colours}, certain={"type": "boolean"})


def _array() -> Schema:
    row = _object(thing=_text(12), weight_kg=_whole(500, 1))
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": 4}
    return _object(crates=rows)


def _recursive() -> Schema:
    inside: Schema = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/part"}]}
    part = _object(part=_text(12), inside=inside)
    return {"$defs": {"part": part}, **_object(whole={"$ref": "#/$defs/part"})}


SCHEMAS: Mapping[str, Schema] = {
    "flat": _flat(),
    "nested": _nested(),
    "enum200": _enum200(),
    "array": _array(),
    "recursive": _recursive(),
}
DEFAULT = "flat"


def schema_of(form: str, name: str | None, seed: int, request: int) -> Schema | None:
    """Return the schema that one request's answer must meet, or None for plain text.

    Parameters
    ----------
    form
        One of ``FORMATS``. With ``json_schema_each`` the names of all properties carry a mark of
        seed and request: no two requests of a run have the same grammar, and none can be answered
        from a cache of compiled grammars.
    name
        A key of ``SCHEMAS``; None is ``flat``.
    """
    if form == "text":
        return None
    if form == "json_object":
        return {"type": "object"}
    schema = SCHEMAS[name or DEFAULT]
    return _marked(schema, mark(seed, request)) if form == "json_schema_each" else schema


def mark(seed: int, request: int) -> str:
    """Return a short text that no other request of the run has (warm-up requests count down)."""
    number = 2 * request if request >= 0 else -2 * request - 1
    return f"{_base36(seed % 36**3)}{_base36(number)}"


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits


def _marked(value: Any, text: str) -> Any:
    """Return a schema with a mark on the name of each property."""
    if isinstance(value, list):
        return [_marked(item, text) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _marked(item, text) for key, item in value.items()}
    if "properties" in found:
        found["properties"] = {f"{k}_{text}": v for k, v in found["properties"].items()}
        found["required"] = [f"{name}_{text}" for name in value["required"]]
    return found
