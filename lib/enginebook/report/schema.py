"""Columns of every frame that the report reads, and a reader that holds files to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from enginebook.errors import InputError

Schema = Mapping[str, Any]

LOAD: dict[str, Any] = {
    "scenario": pl.String,
    "concurrency": pl.Int64,
    "input_tokens": pl.Int64,
    "output_tokens": pl.Int64,
}
INTERVAL: dict[str, Any] = {"low": pl.Float64, "high": pl.Float64}

SCHEMAS: Mapping[str, Schema] = MappingProxyType(
    {
        "cells": {
            "engine": pl.String, "block": pl.Int64, **LOAD, "metric": pl.String,
            "value": pl.Float64, "n": pl.Int64, "gate_ok": pl.Boolean,
            "flags": pl.List(pl.String), "cell": pl.String,
        },
        "points": {
            "engine": pl.String, **LOAD, "metric": pl.String, "n_blocks": pl.Int64,
            "value": pl.Float64, **INTERVAL,
        },
        "comparisons": {
            **LOAD, "metric": pl.String, "engine_a": pl.String, "engine_b": pl.String,
            "n_pairs": pl.Int64, "ratio": pl.Float64, **INTERVAL, "verdict": pl.String,
            "reason": pl.String, "blocks_needed": pl.Int64, "margin": pl.Float64,
        },
        "launches": {
            "engine": pl.String, "block": pl.Int64, "phase": pl.String,
            "start_s": pl.Float64, "end_s": pl.Float64, "source": pl.String,
        },
        "memory": {
            "engine": pl.String, "component": pl.String, "bytes": pl.Int64, "source": pl.String,
            "state": pl.String,
        },
        "loads": {
            **LOAD, "family": pl.String, "title": pl.String, "kind": pl.String,
            "rate": pl.Float64, "arrival": pl.String, "prefix_tokens": pl.Int64,
            "prefix_share": pl.Float64, "turns": pl.Int64, "think_time_s": pl.Float64,
            "answer_format": pl.String, "schema_name": pl.String, "trace": pl.String,
            "trace_speed": pl.Float64, "cache": pl.String, "search": pl.Boolean,
        },
        "arms": {
            "engine": pl.String, "engine_id": pl.String, "recipe": pl.String, "arm": pl.String,
            "model": pl.String, "version": pl.String, "simulated": pl.Boolean,
            "options": pl.String,
        },
        "starts": {
            "engine": pl.String, "scenario": pl.String, "arm": pl.String, "repeat": pl.Int64,
            "phase": pl.String, "seconds": pl.Float64, "source": pl.String,
        },
        "swaps": {
            "engine": pl.String, "scenario": pl.String, "repeat": pl.Int64,
            "to_model": pl.String, "stop_s": pl.Float64, "ready_s": pl.Float64,
            "first_token_s": pl.Float64, "outage_s": pl.Float64, "failed": pl.Int64,
            "clients": pl.Int64,
        },
        "probes": {
            "engine": pl.String, "scenario": pl.String, "topic": pl.String, "probe": pl.String,
            "claim": pl.String, "ok": pl.Boolean, "value": pl.String, "source": pl.String,
        },
        "simulations": {
            "scenario": pl.String, "kind": pl.String, "label": pl.String, "x": pl.Float64,
            "x_name": pl.String, "metric": pl.String, "value": pl.Float64, **INTERVAL,
            "source": pl.String,
        },
        "installs": {
            "engine": pl.String, "version": pl.String, "seconds": pl.Float64, "bytes": pl.Int64,
            "packages": pl.Int64, "torch": pl.String, "kind": pl.String, "reused": pl.Boolean,
        },
        "claims": {
            "claim_id": pl.String, "topic": pl.String, "statement": pl.String,
            "claimed": pl.String, "rule": pl.String, "scenario": pl.String,
            "physics_verdict": pl.String, "verdict": pl.String, "measured": pl.String,
            **INTERVAL, "n": pl.Int64, "reason": pl.String,
        },
        "audit": {
            "engine": pl.String, "block": pl.Int64, **LOAD, "metric": pl.String,
            "efficiency": pl.Float64, "mbu": pl.Float64, "mfu": pl.Float64, "verdict": pl.String,
        },
        "limits": {**LOAD, "metric": pl.String, **INTERVAL, "source": pl.String},
        "quantiles": {
            "engine": pl.String, **LOAD, "metric": pl.String, "q": pl.Float64,
            "value": pl.Float64,
        },
        "samples": {
            "engine": pl.String, "block": pl.Int64, **LOAD, "series": pl.String,
            "unit": pl.String, "t_s": pl.Float64, "value": pl.Float64,
        },
    }
)  # fmt: skip
"""Frame name to columns. ``limits``: what physics allows, ``low`` and ``high`` bounding the limit
itself (a ceiling for rates, a floor for times). ``quantiles``: values at shares ``q`` of requests.
``samples``: time series of one load cell, ``t_s`` seconds since its start."""


def empty(name: str) -> pl.DataFrame:
    """Return a frame of the right columns without a row."""
    return pl.DataFrame(schema=dict(SCHEMAS[name]))


def conform(name: str, frame: pl.DataFrame, source: str) -> pl.DataFrame:
    """Return a frame with exactly the columns and types of its name.

    Raises
    ------
    InputError
        When columns are missing or hold what cannot be cast.
    """
    schema = SCHEMAS[name]
    if name == "memory" and "state" not in frame.columns:  # before states were told apart
        frame = frame.with_columns(state=pl.lit("ready"))
    if name == "comparisons" and "margin" not in frame.columns:  # before it was kept by row
        frame = frame.with_columns(margin=pl.lit(None, pl.Float64))
    missing = [column for column in schema if column not in frame.columns]
    if missing:
        raise InputError(
            f"{source}: no column {', '.join(missing)} (it has {', '.join(frame.columns)})",
            "run the compare stage again with this version of Enginebook",
        )
    try:
        return frame.select(pl.col(column).cast(kind) for column, kind in schema.items())
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{source}: a column has the wrong type: {error}",
            "run the compare stage again with this version of Enginebook",
        ) from error


def read(name: str, path: Path) -> pl.DataFrame:
    """Read one frame; an absent file is an empty frame."""
    if not path.is_file():
        return empty(name)
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"{path} cannot be read: {error}", "remove it and run the study again"
        ) from error
    return conform(name, frame, str(path))
