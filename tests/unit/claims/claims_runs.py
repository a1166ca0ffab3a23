"""Runs with known truth for the judge: engines whose curves are given, blocks with small noise."""

from __future__ import annotations

import numpy as np
import polars as pl

GPU_HOST = {
    "gpus": [{"name": "NVIDIA H200", "memory_bytes": 150_754_820_096}],
    "cpu": {"model": "Xeon"},
}
CPU_HOST = {"gpus": [], "cpu": {"model": "AMD EPYC"}}


def study(*engines, model="llama-3.1-8b", **options):
    """Return a study as a manifest holds it."""
    return {
        "study": "test",
        "model": {"name": model},
        "engines": [{"name": e, "recipe": e, "options": options} for e in engines],
    }


def run_cells(
    curves,
    *,
    metric="output_tokens_per_s",
    axis="concurrency",
    scenario="sweep",
    blocks=6,
    sd=0.005,
    seed=0,
    **more,
):
    """Return a cells frame.

    Parameters
    ----------
    curves
        Engine label to {axis value: true metric}.
    """
    rng = np.random.default_rng(seed)
    host = rng.normal(0, 0.02, blocks)
    rows = [
        {
            "engine": engine,
            "scenario": scenario,
            "block": block,
            "concurrency": 1,
            "input_tokens": 512,
            "output_tokens": 128,
            "metric": metric,
            "value": float(value * np.exp(host[block] + rng.normal(0, sd))),
            "n": 64,
            "gate_ok": True,
        }
        | {axis: at}
        | more
        for engine, curve in curves.items()
        for at, value in curve.items()
        for block in range(blocks)
    ]
    return pl.DataFrame(rows)
