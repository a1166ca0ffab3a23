"""Distributions and time series from the raw records of load cells, thinned for charts.

A chart of a distribution needs some hundred numbers however many requests there were, and a
timeline no more points than pixels; only these reach the report. Chunks are read a slice of
requests at a time and without their texts, so that memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebook.metrics.requests import chunk_gaps, request_metrics
from enginebook.report import schema

SHARES = tuple(i / 100 for i in range(1, 100))
KEY = ("engine", "scenario", "concurrency", "input_tokens", "output_tokens")
REQUESTS, CHUNKS, SAMPLES = "requests.parquet", "chunks.parquet", "samples.parquet"
TIMES = ("ttft_ms", "tpot_ms", "e2e_ms")
CHUNK_COLUMNS = ("request", "recv_ns", "kind", "tokens")
REQUEST_COLUMNS = (
    "request", "phase", "status", "streamed", "scheduled_ns", "connect_start_ns", "connected_ns",
    "sent_ns", "first_token_ns", "first_output_ns", "last_token_ns", "end_ns",
    "completion_tokens", "client_tokens", "chunks",
)  # fmt: skip
SLICE = 2_000_000
MOST_POINTS = 160
NS_PER_S = 1e9

# (source, name) of raw samples -> (series, unit); counters become rates or shares
GAUGES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("server", "running"): ("running", ""),
    ("server", "waiting"): ("waiting", ""),
    ("server", "kv_usage"): ("kv_usage", "%"),
    ("server", "preemptions"): ("preemptions", ""),
    ("gpu0", "utilisation_percent"): ("gpu_utilisation", "%"),
    ("gpu0", "sm_clock_mhz"): ("gpu_clock", "MHz"),
    ("gpu0", "power_w"): ("power", "W"),
}
SHARE_SERIES = frozenset({"kv_usage"})

Times = npt.NDArray[np.float64]


def heaviest(cells: pl.DataFrame) -> pl.DataFrame:
    """Return (key, block, cell) of the heaviest load of the widest concurrency sweep."""
    if cells.is_empty():
        return cells
    rest = ["scenario", "input_tokens", "output_tokens"]
    widths = cells.group_by(rest, maintain_order=True).agg(pl.col("concurrency").n_unique())
    chosen = widths.sort("concurrency", descending=True, maintain_order=True).head(1)
    swept = cells.join(chosen.select(rest), on=rest, how="semi")
    top = swept.filter(pl.col("concurrency") == pl.col("concurrency").max())
    return top.select(*KEY, "block", "cell").unique(maintain_order=True)


def quantiles(cells: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Return quantiles of per-request times and of gaps between tokens at the heaviest load.

    Parameters
    ----------
    cells
        Frame `cells`; its column ``cell`` names folders below ``folder``.
    folder
        Holds one folder a cell with its wire records; cells without them are left out.

    Returns
    -------
    DataFrame
        Frame `quantiles`: 99 shares an engine and metric, all blocks together.
    """
    rows: list[dict[str, Any]] = []
    for key, group in heaviest(cells).group_by(KEY, maintain_order=True):
        named = dict(zip(KEY, key, strict=True))
        for metric, values in _times(folder, group["cell"].to_list()).items():
            levels = np.quantile(values, SHARES)
            rows += [
                named | {"metric": metric, "q": q, "value": float(v)}
                for q, v in zip(SHARES, levels, strict=True)
            ]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["quantiles"]))


def _times(folder: Path, names: list[str]) -> dict[str, Times]:
    """Return each metric's values in ms over all requests of these cells, unless there is none."""
    found: dict[str, list[Times]] = {name: [] for name in (*TIMES, "itl_ms")}
    for name in names:
        for requests, chunks in _slices(folder / name):
            frame = request_metrics(requests, chunks)
            for metric in TIMES:
                found[metric].append(frame[metric].drop_nulls().cast(pl.Float64).to_numpy())
            found["itl_ms"].append(_token_gaps(requests, chunks))
    whole = {metric: np.concatenate(parts) for metric, parts in found.items() if parts}
    return {metric: values for metric, values in whole.items() if len(values)}


def _slices(cell: Path) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Yield a cell's records, so many requests at a time that chunks stay about `SLICE` rows."""
    if not ((cell / REQUESTS).is_file() and (cell / CHUNKS).is_file()):
        return
    requests = pl.read_parquet(cell / REQUESTS, columns=list(REQUEST_COLUMNS)).sort("request")
    stored = pl.scan_parquet(cell / CHUNKS).select(CHUNK_COLUMNS)
    rows = int(stored.select(pl.len()).collect().item())
    size = -(-len(requests) // max(1, -(-rows // SLICE)))
    for part in requests.iter_slices(size) if size else ():
        first, last = part["request"][0], part["request"][-1]
        yield part, stored.filter(pl.col("request").is_between(first, last)).collect()


def _token_gaps(requests: pl.DataFrame, chunks: pl.DataFrame) -> Times:
    """Return the time between tokens: tokens of one chunk share the time since the chunk before."""
    gaps = chunk_gaps(chunks, requests)
    known = np.isfinite(gaps.tokens) & (gaps.tokens >= 1)
    counts = gaps.tokens[known].astype(np.int64)
    return np.repeat(gaps.gap_ms[known] / counts, counts)


def samples(cells: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Return time series of each engine's heaviest cell in the first block.

    Returns
    -------
    DataFrame
        Frame `samples`: the server's gauges, GPU 0 and the processors' share in use.
    """
    first = heaviest(cells)
    if not first.is_empty():
        first = first.filter(pl.col("block") == pl.col("block").min().over("engine"))
    rows: list[dict[str, Any]] = []
    for named in first.iter_rows(named=True):
        path = folder / named.pop("cell") / SAMPLES
        if path.is_file():
            for series, unit, times, values in _series(pl.read_parquet(path)):
                rows += [
                    named | {"series": series, "unit": unit, "t_s": t, "value": v}
                    for t, v in zip(times, values, strict=True)
                ]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["samples"]))


def _series(raw: pl.DataFrame) -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Yield (series, unit, seconds since the first sample, values)."""
    if raw.is_empty():
        return
    begin = int(raw["t_ns"].to_numpy().min())
    for (source, name), (series, unit) in GAUGES.items():
        t_s, values = _raw_series(raw, source, name, begin)
        if len(values):
            factor = 100.0 if series in SHARE_SERIES else 1.0
            yield series, unit, *_thinned(t_s, values * factor)
    busy_t, busy = _raw_series(raw, "cpu", "busy_s", begin)
    _, total = _raw_series(raw, "cpu", "total_s", begin)
    if len(busy) == len(total) and len(busy) > 1:
        # differences over many samples: the kernel counts in ticks of 10 ms
        step = max(1, len(busy) // MOST_POINTS)
        used, whole = np.diff(busy[::step]), np.diff(total[::step])
        share = np.divide(used, whole, out=np.zeros_like(used), where=whole > 0)
        yield "cpu_share", "%", *_thinned(busy_t[::step][1:], 100.0 * share)


def _raw_series(raw: pl.DataFrame, source: str, name: str, begin: int) -> tuple[Times, Times]:
    rows = raw.filter(pl.col("source") == source, pl.col("name") == name).sort("t_ns")
    return (rows["t_ns"].to_numpy() - begin) / NS_PER_S, rows["value"].to_numpy()


def _thinned(t_s: Times, values: Times) -> tuple[list[float], list[float]]:
    """Return at most `MOST_POINTS` points: means over equal groups of neighbours."""
    size = -(-len(values) // MOST_POINTS)
    starts = np.arange(0, len(values), size)
    counts = np.diff(np.append(starts, len(values)))
    means = np.add.reduceat(values, starts) / counts
    return [round(float(t), 3) for t in t_s[starts]], [round(float(v), 4) for v in means]
