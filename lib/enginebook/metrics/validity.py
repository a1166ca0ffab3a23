"""Are the answers what was asked for: JSON, and JSON of the given schema."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import orjson
import polars as pl

from enginebook.metrics.requests import request_metrics
from enginebook.metrics.schemas import schema_of
from enginebook.metrics.summary import HasFrames

_ANSWER_KINDS = ["content", "whole"]
_DEEP = 20_000


def validity(records: HasFrames, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how many answers are valid, or None when no JSON was asked for.

    An answer is valid when it was completed, parses as a JSON object and meets the schema that
    its own request carried. With plain-text answers to JSON tasks (no constraint) any JSON object
    is valid. Reasoning does not belong to the answer.

    Parameters
    ----------
    asked
        ``answer_format``, ``schema_name``, ``prompts`` and ``seed`` of the workload; the workload
        that the records themselves name goes before it.

    Returns
    -------
    dict
        ``sent, completed, valid`` (counts), ``share`` of valid answers among all requests that were
        sent, and ``time_per_valid_ms`` (summed request time over valid answers: what one costs its
        sender, invalid attempts included); None without answers.
    """
    workload = {**asked, **(records.instrument.get("workload") or {})}
    form = workload.get("answer_format") or "text"
    if form == "text" and workload.get("prompts") != "json":
        return None
    frame = request_metrics(records.requests, records.chunks)
    good = set(valid_requests(records, workload))
    done = frame.filter(pl.col("status").cast(pl.String) == "completed")
    valid = sum(r in good for r in done["request"])
    spent_ms = float(done["e2e_ms"].sum() or 0.0)
    return {
        "sent": len(frame),
        "completed": len(done),
        "valid": valid,
        "share": valid / len(frame) if len(frame) else None,
        "time_per_valid_ms": spent_ms / valid if valid else None,
    }


def valid_requests(records: HasFrames, workload: Mapping[str, Any]) -> list[int]:
    """Return the requests whose answers meet what they were asked for, measured ones only."""
    texts = (
        records.chunks.filter(pl.col("kind").is_in(_ANSWER_KINDS) & (pl.col("request") >= 0))
        .sort("request", "seq")
        .group_by("request", maintain_order=True)
        .agg(text=pl.col("text").drop_nulls().str.join(""))
    )
    check = checker(workload)
    with _deep_recursion():
        return [request for request, text in texts.iter_rows() if check(request, text)]


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Let a deeply nested answer be checked: the validator calls itself for each level."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def checker(workload: Mapping[str, Any]) -> Callable[[int, str], bool]:
    """Return a function that says whether a request's answer is valid."""
    form = workload.get("answer_format") or "text"
    name, seed = workload.get("schema_name"), int(workload.get("seed") or 0)

    def check(request: int, text: str) -> bool:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(value, dict):
            return False
        schema = schema_of(form, name, seed, request)
        return schema is None or _validator(orjson.dumps(schema)).is_valid(value)

    return check


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - only where schemas are used

    return Draft202012Validator(orjson.loads(schema))
