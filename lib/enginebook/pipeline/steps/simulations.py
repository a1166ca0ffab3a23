"""Frame `simulations`: what no engine measured here, computed from laws or from measured steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from enginebook.errors import InputError
from enginebook.load.lengths import parse_lengths
from enginebook.physics.paging import kv_utilisation
from enginebook.physics.queueing import (
    CHUNK_TOKENS,
    Served,
    StepTimes,
    colocated,
    disaggregated,
    poisson_arrivals,
)
from enginebook.pipeline.steps.frames import loads_frame
from enginebook.scenarios import Disaggregation, KvSimulation
from enginebook.stats import mean_interval
from enginebook.stats.metrics import is_share
from enginebook.study import Study

SCHEMA: dict[str, Any] = {
    "scenario": pl.String,
    "kind": pl.String,
    "label": pl.String,
    "x": pl.Float64,
    "x_name": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "source": pl.String,
}
REPEATS = 5  # draws of one law, for the interval
REQUESTS = 800  # of one queue
LEAST_LOADS = 2  # a step time by batch takes two batches


def simulate(study: Study, points: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return one row a simulated figure.

    Parameters
    ----------
    points
        Frame `points`: the step times that a queue is made of.
    cells
        Frame `cells`; a point whose every cell failed its gate is no step time.

    Returns
    -------
    polars.DataFrame
        Intervals are over draws of the simulation, not over measurements. A null value stands where
        an estimate was asked for and the study holds no figures for it; `source` says which.
    """
    rows: list[dict[str, Any]] = []
    for scenario in study.of_kind("kv_simulation", "disaggregation"):
        if isinstance(scenario, KvSimulation):
            rows += _kv_rows(scenario, study.seed)
        elif isinstance(scenario, Disaggregation):
            rows += disaggregation_estimate(scenario, study, _plain(study, points, cells))
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(scenario: KvSimulation | Disaggregation, values: Sequence[float], **more: Any) -> Any:
    found = mean_interval(values)
    numbers = {"value": found.value, "low": found.low, "high": found.high}
    if is_share(str(more["metric"])):
        numbers = {k: None if v is None else min(1.0, max(0.0, v)) for k, v in numbers.items()}
    return {"scenario": scenario.name, "kind": scenario.kind, **numbers, **more}


# -- memory ----------------------------------------------------------------------------------------
def _kv_rows(scenario: KvSimulation, seed: int) -> Iterator[dict[str, Any]]:
    for lengths in scenario.lengths:
        drawn = [_draw(lengths, scenario, seed + i) for i in range(REPEATS)]
        source = (
            f"simulated: {REPEATS} x {scenario.sequences} requests, input {lengths}, output "
            f"{scenario.output_lengths} tokens"
        )
        for longest in scenario.max_len:
            for policy in scenario.policies:
                shares = [kv_utilisation(i, o, policy, longest) for i, o in drawn]
                label = policy if len(scenario.lengths) == 1 else f"{policy}, {lengths}"
                where = {"label": label, "x": float(longest), "x_name": "max_len"}
                yield _row(scenario, shares, **where, metric="kv_utilisation_share", source=source)


def _draw(lengths: str, scenario: KvSimulation, seed: int) -> tuple[list[int], list[int]]:
    rng = np.random.default_rng(seed)
    laws = parse_lengths(lengths), parse_lengths(scenario.output_lengths)
    inputs, outputs = ([law.draw(rng) for _ in range(scenario.sequences)] for law in laws)
    return inputs, outputs


# -- prefill and decode apart ----------------------------------------------------------------------
def _plain(study: Study, points: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the points of plain closed loops in which some block did the work."""
    loads = loads_frame(study).filter(
        (pl.col("kind") == "closed_loop")
        & (pl.col("answer_format") == "text")
        & (pl.col("cache") == "cold")
    )
    keys = ["scenario", "concurrency", "input_tokens", "output_tokens"]
    valid = cells.filter("gate_ok").select("engine", *keys).unique()
    kept = points.join(loads.select(keys).unique(), on=keys, how="semi")
    return kept.join(valid, on=["engine", *keys], how="semi")


def disaggregation_estimate(
    scenario: Disaggregation, study: Study, points: pl.DataFrame
) -> list[dict[str, Any]]:
    """Return how each engine would serve on two devices, colocated and apart, by load.

    A load of 1 is what the colocated pair carries with its largest measured batch.
    """
    rows: list[dict[str, Any]] = []
    for engine in [e.name for e in study.engines]:
        try:
            times, source = step_times(points.filter(engine=engine), scenario)
        except InputError as error:
            rows.append(_no_estimate(scenario, engine, error.message))
            continue
        for layout in scenario.layouts:
            for load in scenario.loads:
                where = {"label": f"{engine}, {layout}", "x": load, "x_name": "load"}
                served = _served(scenario, times, layout, load, study.seed)
                for metric, values in _figures(scenario, served).items():
                    row = _row(scenario, values, **where, metric=metric, source=source)
                    rows.append(row)
    return rows


def _no_estimate(scenario: Disaggregation, engine: str, why: str) -> dict[str, Any]:
    return dict.fromkeys(SCHEMA) | {
        "scenario": scenario.name,
        "kind": scenario.kind,
        "label": engine,
        "metric": "ttft_p50_ms",
        "source": f"no estimate: {why}",
    }


def step_times(points: pl.DataFrame, scenario: Disaggregation) -> tuple[StepTimes, str]:
    """Return one engine's step times, and what they were made of.

    Parameters
    ----------
    points
        Of one engine, plain closed loops only. The prompt's time is the median TTFT of one stream
        at the input length nearest to the scenario's, scaled by tokens; the steps are the median
        times per token of the series with most loads.

    Raises
    ------
    InputError
        When there is no prompt's time alone on the device, or there are fewer than two batches.
    """
    alone = points.filter(metric="ttft_p50_ms", concurrency=1).drop_nulls("value")
    if alone.is_empty():
        raise InputError("the study measured no time to first token with one stream")
    apart = (pl.col("input_tokens").log() - float(np.log(scenario.input_tokens))).abs()
    first = alone.sort(apart, maintain_order=True).row(0, named=True)
    steps = _curve(points.filter(metric="tpot_p50_ms").drop_nulls("value"))
    tokens = int(first["input_tokens"])
    prefill_s = first["value"] / 1e3 * scenario.input_tokens / tokens
    times = StepTimes(prefill_s, tuple(steps), tuple(v / 1e3 for v in steps.values()))
    source = (
        f"estimate: queue of measured steps (1 to {times.most} streams), prompt scaled from "
        f"{tokens} tokens, chunks of {CHUNK_TOKENS}, no time to move the cache"
    )
    return times, source


def _curve(points: pl.DataFrame) -> Mapping[int, float]:
    """Return time per token by batch; a larger batch is never taken to be faster."""
    curves = points.group_by("scenario", "input_tokens", "output_tokens", maintain_order=True)
    found = [group.sort("concurrency") for _, group in curves]
    best = max(found, key=len, default=points)
    if len(best) < LEAST_LOADS:
        raise InputError("the study measured times per token at fewer than two concurrencies")
    rising = np.maximum.accumulate(best["value"].to_numpy())
    return dict(zip(best["concurrency"].to_list(), rising.tolist(), strict=True))


def _served(
    scenario: Disaggregation, times: StepTimes, layout: str, load: float, seed: int
) -> list[Served]:
    rate = load * 2 * times.requests_per_s(scenario.output_tokens)
    out = []
    for repeat in range(REPEATS):
        arrivals = poisson_arrivals(REQUESTS, rate, seed + repeat)
        if layout == "colocated":
            out.append(colocated(times, arrivals, scenario.input_tokens, scenario.output_tokens))
        else:
            out.append(disaggregated(times, arrivals, scenario.output_tokens))
    return out


def _figures(scenario: Disaggregation, served: Sequence[Served]) -> dict[str, list[float]]:
    found = {
        "ttft_p95_ms": [float(np.quantile(s.ttft_s, 0.95)) * 1e3 for s in served],
        "tpot_p50_ms": [float(np.median(s.tpot_s)) * 1e3 for s in served],
    }
    for slo in scenario.slo:
        limits = tuple(
            None if v is None else v / 1e3 for v in (slo.ttft_ms, slo.tpot_ms, slo.e2e_ms)
        )
        found[f"slo_share.{slo.name}"] = [s.share(limits, scenario.output_tokens) for s in served]
    return found
