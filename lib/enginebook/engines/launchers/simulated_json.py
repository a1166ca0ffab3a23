"""Answers of the simulated engine under a constraint: the smallest JSON that a schema allows.

Pure, standard library only. Of recursive schemas the required parts alone are made.
"""

from __future__ import annotations

import json
from typing import Any

PIECE = 3  # characters of a simulated token of JSON
DEEPEST = 20
ANY = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def constraint(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema that a request's answer is constrained to, or None."""
    if isinstance(body.get("json_schema"), dict):
        return dict(body["json_schema"])
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return dict(wanted["json_schema"]["schema"])
    return ANY if wanted.get("type") == "json_object" else None


def pieces(schema: dict[str, Any], seed: int) -> list[str]:
    """Return an answer's tokens."""
    text = json.dumps(instance(schema, schema, seed))
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def instance(schema: dict[str, Any], root: dict[str, Any], seed: int, depth: int = 0) -> Any:
    """Return a value that the schema allows; ValueError when it demands endless depth."""
    if depth > DEEPEST:
        raise ValueError("the schema demands endless depth")
    if "$ref" in schema:
        return instance(_at(root, schema["$ref"]), root, seed, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][seed % len(schema["enum"])]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _first_finite(schema[choice], root, seed, depth)
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = "null" if "null" in kind else kind[0]
    return _of_type(kind, schema, root, seed, depth)


def _at(root: dict[str, Any], reference: str) -> dict[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found[part] if part else found
    return dict(found)


def _first_finite(
    choices: list[dict[str, Any]], root: dict[str, Any], seed: int, depth: int
) -> Any:
    for choice in choices:
        try:
            return instance(choice, root, seed, depth + 1)
        except ValueError:
            continue
    raise ValueError("no choice is finite")


def _of_type(kind: str, schema: dict[str, Any], root: dict[str, Any], seed: int, depth: int) -> Any:
    if kind == "object":
        known = schema.get("properties", {})
        wanted = schema.get("required", [])
        return {n: instance(known.get(n, {}), root, seed + i, depth + 1)
                for i, n in enumerate(wanted)}  # fmt: skip
    if kind == "array":
        items = schema.get("items", {"type": "string"})
        return [
            instance(items, root, seed + i, depth + 1) for i in range(schema.get("minItems", 0))
        ]
    if kind in {"integer", "number"}:
        return _number(schema, seed)
    if kind == "boolean":
        return seed % 2 == 0
    return None if kind == "null" else _text(schema, seed)


def _number(schema: dict[str, Any], seed: int) -> int:
    least = int(schema.get("minimum", 0))
    most = int(schema.get("maximum", least + 99))
    return least + seed % (most - least + 1)


def _text(schema: dict[str, Any], seed: int) -> str:
    most = schema.get("maxLength", 8)
    text = f"t{seed % 1000}".ljust(schema.get("minLength", 1), "x")
    return text[:most]
