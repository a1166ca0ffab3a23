"""Samples (t_ns, source, name, value) to figures: who used the CPU, energy, clocks, the queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

NS_PER_S = 1e9
# NVML clock event reasons that mean the GPU was held back (not: idle, or a user's setting).
_HELD_BACK = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
}


def series(
    samples: pl.DataFrame, source: str, name: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return (t_ns, value) of one metric, ascending in time."""
    rows = samples.filter((pl.col("source") == source) & (pl.col("name") == name)).sort("t_ns")
    return rows["t_ns"].to_numpy(), rows["value"].to_numpy()


def energy_j(
    t_ns: npt.NDArray[np.int64],
    power_w: npt.NDArray[np.float64],
    window_ns: tuple[int, int] | None = None,
) -> float | None:
    """Return the energy under samples of power by the trapezoid rule, or None if it is unknown.

    The window must lie inside the samples; power at its ends is interpolated.
    """
    if len(t_ns) < 2:  # noqa: PLR2004 - one sample spans no time
        return None
    begin, end = window_ns or (int(t_ns[0]), int(t_ns[-1]))
    if begin < t_ns[0] or end > t_ns[-1] or end <= begin:
        return None
    inside = t_ns[(t_ns > begin) & (t_ns < end)]
    grid = np.concatenate([[begin], inside, [end]]).astype(np.float64)
    return float(np.trapezoid(np.interp(grid, t_ns, power_w), grid) / NS_PER_S)


def summarise_samples(
    samples: pl.DataFrame, window_ns: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the figures of a run's samples.

    Returns
    -------
    dict
        ``busy_cpu_share, engine_cpu_share, client_cpu_share, others_cpu_share`` (of all processors
        of the machine, 0 to 1), ``engine_rss_peak_bytes``, ``server`` (gauges: maxima, and
        differences of counters), ``gpus`` (one dict each), ``samples``. None where unknown.
    """
    if window_ns is not None:
        samples = samples.filter(pl.col("t_ns").is_between(*window_ns))
    return {
        **_cpu(samples),
        "engine_rss_peak_bytes": _peak(samples, "engine", "rss_bytes"),
        "server": _server(samples),
        "gpus": _gpus(samples),
        "samples": len(series(samples, "cpu", "busy_s")[0]),
    }


def _difference(samples: pl.DataFrame, source: str, name: str) -> float | None:
    _, values = series(samples, source, name)
    return float(values[-1] - values[0]) if len(values) > 1 else None


def _peak(samples: pl.DataFrame, source: str, name: str) -> float | None:
    _, values = series(samples, source, name)
    return float(values.max()) if len(values) and values.max() > 0 else None


def _cpu(samples: pl.DataFrame) -> dict[str, float | None]:
    total = _difference(samples, "cpu", "total_s")
    parts = {
        "busy_cpu_share": _difference(samples, "cpu", "busy_s"),
        "engine_cpu_share": _difference(samples, "engine", "cpu_s"),
        "client_cpu_share": _difference(samples, "client", "cpu_s"),
    }
    shares: dict[str, float | None] = {
        k: v / total if v is not None and total else None for k, v in parts.items()
    }
    busy, engine, client = shares.values()
    known = busy is not None and engine is not None and client is not None
    # whole ticks of the kernel's clock can make the parts exceed the sum by a little
    shares["others_cpu_share"] = max(0.0, busy - engine - client) if known else None  # type: ignore[operator]
    return shares


def _server(samples: pl.DataFrame) -> dict[str, float | None]:
    hits, asked = (_difference(samples, "server", f"prefix_{k}") for k in ("hits", "queries"))
    return {
        "running_max": _peak(samples, "server", "running"),
        "waiting_max": _peak(samples, "server", "waiting"),
        "kv_usage_max": _peak(samples, "server", "kv_usage"),
        "prefix_hits": hits,
        "prefix_hit_share": hits / asked if hits is not None and asked else None,
        "preemptions": _difference(samples, "server", "preemptions"),
    }


def _gpus(samples: pl.DataFrame) -> list[dict[str, Any]]:
    names = samples.filter(pl.col("source").str.starts_with("gpu"))["source"].unique().sort()
    return [_gpu(samples, name) for name in names]


def _gpu(samples: pl.DataFrame, gpu: str) -> dict[str, Any]:
    counter = _difference(samples, gpu, "energy_j")
    sampled = energy_j(*series(samples, gpu, "power_w"))
    masks = series(samples, gpu, "throttle_mask")[1].astype(np.int64)
    held = [why for bit, why in _HELD_BACK.items() if len(masks) and np.any(masks & bit)]
    return {
        "energy_j": counter if counter is not None else sampled,
        "energy_source": "counter" if counter is not None else "power samples" if sampled else None,
        "memory_used_peak_bytes": _peak(samples, gpu, "memory_used_bytes"),
        "engine_memory_peak_bytes": _peak(samples, gpu, "engine_memory_bytes"),
        "utilisation_mean_percent": _mean(samples, gpu, "utilisation_percent"),
        "power_mean_w": _mean(samples, gpu, "power_w"),
        "sm_clock_mean_mhz": _mean(samples, gpu, "sm_clock_mhz"),
        "temperature_max_c": _peak(samples, gpu, "temperature_c"),
        "held_back_by": held,
    }


def _mean(samples: pl.DataFrame, source: str, name: str) -> float | None:
    _, values = series(samples, source, name)
    return float(values.mean()) if len(values) else None
