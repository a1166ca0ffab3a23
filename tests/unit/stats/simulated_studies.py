"""Studies with known truth: engines whose noise is like that of real ones."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from scipy.signal import lfilter

BETWEEN_RUNS = 0.01  # sd of what one start of an engine is faster or slower than another
HOST = 0.02  # sd of what a block does to both engines alike
WITHIN = 0.15  # coefficient of variation of single requests
REQUESTS = 64
PAIR_SD = math.sqrt(2 * (BETWEEN_RUNS**2 + WITHIN**2 * 3 / REQUESTS))  # AR(0.5) triples variance


def heavy_tailed(rng, shape):
    """Return Student t with 4 degrees of freedom, scaled to a variance of 1."""
    return rng.standard_t(4, shape) / math.sqrt(2)


def run_means(rng, shape, phi=0.5):
    """Return log means of runs: heavy-tailed starts, autocorrelated requests inside."""
    noise = rng.standard_normal((*shape, REQUESTS + 20)) * math.sqrt(1 - phi**2)
    requests = WITHIN * lfilter([1], [1, -phi], noise, axis=-1)[..., 20:]
    return BETWEEN_RUNS * heavy_tailed(rng, shape) + requests.mean(axis=-1)


def log_values(rng, studies, blocks, effect):
    """Return (studies, blocks) log values of engines a and b; a is better by the effect."""
    host = HOST * heavy_tailed(rng, (studies, blocks))
    a = host + run_means(rng, (studies, blocks)) + math.log1p(effect)
    return a, host + run_means(rng, (studies, blocks))


def cells_frame(logs, metric="output_tokens_per_s", level=1000.0):
    """Return a cells frame; every study is a scenario of its own."""
    frames = []
    for engine, values in logs.items():
        studies, blocks = values.shape
        study, block = np.meshgrid(np.arange(studies), np.arange(blocks), indexing="ij")
        frames.append(
            pl.DataFrame(
                {
                    "engine": [engine] * values.size,
                    "scenario": [f"s{i}" for i in study.ravel()],
                    "block": block.ravel(),
                    "value": level * np.exp(values.ravel()),
                }
            )
        )
    return pl.concat(frames).with_columns(
        concurrency=pl.lit(8, pl.Int64),
        input_tokens=pl.lit(64, pl.Int64),
        output_tokens=pl.lit(32, pl.Int64),
        metric=pl.lit(metric),
        n=pl.lit(64, pl.Int64),
        gate_ok=pl.lit(value=True),
        flags=pl.lit([], pl.List(pl.String)),
        cell=pl.lit("0" * 12),
    )
