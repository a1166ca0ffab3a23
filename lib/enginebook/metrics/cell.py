"""One load cell's records, samples and objectives as flat metrics, ready for a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from enginebook.metrics.goodput import goodput, limits_of
from enginebook.metrics.power import energy_figures
from enginebook.metrics.requests import request_metrics
from enginebook.metrics.summary import HasFrames, cached_share, span_s
from enginebook.metrics.validity import validity
from enginebook.metrics.window import in_flight, steady_state

Metrics = dict[str, tuple[float | None, int]]
_POINTS = ("mean", "p50", "p90", "p95", "p99", "max")


def cell_metrics(
    summary: Mapping[str, Any],
    cell: Mapping[str, Any] | None = None,
    samples: pl.DataFrame | None = None,
    *,
    records: HasFrames | None = None,
    search: Mapping[str, Any] | None = None,
) -> Metrics:
    """Return a cell's flat metrics: name to (value or None, samples behind it).

    ``ttft_ms["p50"]`` of the summary becomes ``ttft_p50_ms``; rates keep their names. What needs
    more than the summary is there when it is given: without ``records`` the summary's metrics are
    all. A metric that does not apply to the cell is absent; one that applies and is unknown is
    None.

    Parameters
    ----------
    summary
        Of ``summarise``.
    cell
        The cell's fields (``slo``, ``concurrency``, ``turns``, ``answer_format`` ...); None reads
        what it can from the workload in the records.
    samples
        The frame of samples.parquet, for energy.
    records
        The cell's wire records.
    search
        What ``find_capacity`` returned, where the cell is a search.

    Returns
    -------
    dict
        With records also ``goodput_per_s.NAME`` and ``slo_share.NAME`` for each objective,
        ``capacity_per_s.NAME``, ``valid_json_share``, ``time_per_valid_answer_ms``,
        ``cached_share``, ``ttft_turn_first_p50_ms``, ``ttft_turn_last_p50_ms``,
        ``sessions_per_s``, ``energy_j_per_output_token``, ``power_w``, ``in_flight_max`` and
        ``window_share`` (of the run that was steady).
    """
    found = summary_metrics(summary)
    if records is not None:
        asked: Mapping[str, Any] = cell if cell is not None else _asked(records)
        frame = request_metrics(records.requests, records.chunks)
        found |= _objectives(records, asked)
        found |= _answers(records, asked)
        found |= _turns(frame)
        known = _completed(frame).drop_nulls(["cached_tokens", "prompt_tokens"])
        found["cached_share"] = (cached_share(frame), len(known))
        found |= _load(frame, records, asked, samples)
    if search is not None:
        found |= _capacity(search)
    return found


def summary_metrics(summary: Mapping[str, Any]) -> Metrics:
    """Return the metrics that stand in a summary."""
    found: Metrics = {}
    completed = int(summary["requests"]["completed"])
    for name in ("requests_per_s", "output_tokens_per_s", "input_tokens_per_s", "duration_s"):
        found[name] = (summary[name], completed)
    for key, value in summary.items():
        if key.endswith("_ms") and isinstance(value, Mapping) and "n" in value:
            base = key.removesuffix("_ms")
            for point in _POINTS:
                found[f"{base}_{point}_ms"] = (value[point], int(value["n"]))
    per_chunk = summary["icl_ms"].get("tokens_per_chunk")
    found["tokens_per_chunk"] = (per_chunk, int(summary["icl_ms"]["n"]))
    return found


def _asked(records: HasFrames) -> Mapping[str, Any]:
    workload: Mapping[str, Any] = records.instrument.get("workload") or {}
    return workload


def _objectives(records: HasFrames, asked: Mapping[str, Any]) -> Metrics:
    found: Metrics = {}
    for slo in asked.get("slo") or ():
        kept = goodput(records, limits_of(slo))
        found[f"goodput_per_s.{slo['name']}"] = (kept["per_s"], kept["intended"])
        found[f"slo_share.{slo['name']}"] = (kept["share"], kept["intended"])
    return found


def _capacity(search: Mapping[str, Any]) -> Metrics:
    probes = len(search.get("probes") or ())
    return {f"capacity_per_s.{search['slo']}": (search["capacity_per_s"], probes)}


def _answers(records: HasFrames, asked: Mapping[str, Any]) -> Metrics:
    """Return how many answers were valid JSON, where JSON was asked for."""
    checked = validity(records, asked)
    if checked is None:
        return {}
    return {
        "valid_json_share": (checked["share"], checked["sent"]),
        "time_per_valid_answer_ms": (checked["time_per_valid_ms"], checked["valid"]),
    }


def _completed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("status").cast(pl.String) == "completed")


def _turns(frame: pl.DataFrame) -> Metrics:
    """Return TTFT of the first and the last turn, and finished sessions a second."""
    last = frame["turn"].drop_nulls().to_numpy().max() if frame["turn"].count() else 0
    if frame["session"].count() == 0 or last == 0:
        return {}
    done = _completed(frame).drop_nulls("session")
    found: Metrics = {}
    for name, turn in (("first", 0), ("last", int(last))):
        values = done.filter(pl.col("turn") == turn)["ttft_ms"].drop_nulls().to_numpy()
        middle = float(np.median(values)) if len(values) else None
        found[f"ttft_turn_{name}_p50_ms"] = (middle, len(values))
    whole = done.group_by("session").len().filter(pl.col("len") == last + 1)
    span = span_s(frame)
    found["sessions_per_s"] = (len(whole) / span if span else None, len(whole))
    return found


def _load(
    frame: pl.DataFrame,
    records: HasFrames,
    asked: Mapping[str, Any],
    samples: pl.DataFrame | None,
) -> Metrics:
    """Return how many requests were in flight, how long that was steady, and what it took."""
    steady = steady_state(records.requests, records.chunks, asked.get("concurrency") or None)
    counts = in_flight(frame).count
    span = span_s(frame)
    share = steady["seconds"] / span if steady["seconds"] is not None and span else None
    most = float(counts.max()) if len(counts) else None
    found: Metrics = {"in_flight_max": (most, len(frame)), "window_share": (share, len(frame))}
    if samples is not None:
        power = energy_figures(samples, steady)
        found["energy_j_per_output_token"] = (power["j_per_output_token"], power["tokens"])
        found["power_w"] = (power["power_w"], power["samples"])
    return found
