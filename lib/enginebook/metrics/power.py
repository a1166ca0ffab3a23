"""Energy of the GPUs that did the work, over the steady window of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from enginebook.metrics.sampling import NS_PER_S, energy_j, series


def energy_figures(samples: pl.DataFrame, steady: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean power and energy a token inside a steady window.

    Energy is the difference of the driver's own counter (interpolated at the window's ends), and
    where a GPU has no counter the trapezoid over its power samples. GPUs that hold no memory of
    the engine are left out where the driver tells; else those that were idle throughout.

    Parameters
    ----------
    samples
        Frame with t_ns, source, name, value.
    steady
        Of ``steady_state``.

    Returns
    -------
    dict
        ``power_w`` (sum over GPUs, W), ``j_per_output_token`` (J), ``energy_j``, ``tokens`` (in
        the window) and ``samples``; None where unknown, as on a host without GPUs.
    """
    begin, end = steady["begin_ns"], steady["end_ns"]
    empty = {"power_w": None, "j_per_output_token": None, "energy_j": None}
    if begin is None or end is None:
        return empty | {"tokens": 0, "samples": 0}
    rate = steady["output_tokens_per_s"]
    tokens = round(rate * steady["seconds"]) if rate is not None else 0
    gpus = working_gpus(samples, (begin, end))
    parts = [_energy(samples, gpu, (begin, end)) for gpu in gpus]
    known = [p for p in parts if p is not None]
    if not known or len(known) < len(parts):
        return empty | {"tokens": tokens, "samples": 0}
    total = sum(known)
    return {
        "power_w": total * NS_PER_S / (end - begin),
        "j_per_output_token": total / tokens if tokens else None,
        "energy_j": total,
        "tokens": tokens,
        "samples": sum(_count(samples, gpu, (begin, end)) for gpu in gpus),
    }


def working_gpus(samples: pl.DataFrame, window_ns: tuple[int, int]) -> list[str]:
    """Return the sources (``gpu0`` ...) that took part in a run."""
    inside = samples.filter(pl.col("t_ns").is_between(*window_ns))
    gpus = inside.filter(pl.col("source").str.starts_with("gpu"))
    for name in ("engine_memory_bytes", "utilisation_percent"):
        used = gpus.filter((pl.col("name") == name) & (pl.col("value") > 0))["source"]
        if len(used):
            return sorted(used.unique().to_list())
    return sorted(gpus["source"].unique().to_list())


def _energy(samples: pl.DataFrame, gpu: str, window_ns: tuple[int, int]) -> float | None:
    t_ns, counter = series(samples, gpu, "energy_j")
    inside = len(t_ns) > 1 and t_ns[0] <= window_ns[0] and window_ns[1] <= t_ns[-1]
    if inside:
        at = np.interp(np.asarray(window_ns, np.float64), t_ns, counter)
        return float(at[1] - at[0])
    return energy_j(*series(samples, gpu, "power_w"), window_ns)


def _count(samples: pl.DataFrame, gpu: str, window_ns: tuple[int, int]) -> int:
    rows = samples.filter((pl.col("source") == gpu) & pl.col("t_ns").is_between(*window_ns))
    return rows["t_ns"].n_unique()
