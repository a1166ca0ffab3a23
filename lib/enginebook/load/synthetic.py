"""Traces made from parameters: traffic shaped like that of public traces, without their files.

``synthetic-conversation``
    Lengths are lognormal with the means and medians of the Azure LLM inference trace of 2023
    (conversation: input 1,155 and 1,020 tokens, output 211 and 129); arrivals are a gamma process
    of mean rate 5 a second whose rate swings by a half about its mean, one "day" in ten minutes.
``synthetic-prefix``
    Prompts made of 512-token blocks, as Mooncake's traces have them: a new conversation opens with
    one of a few system prompts (popular ones oftener), and most later requests repeat a
    conversation's blocks and add to them. Shaped like such traffic, not fitted to a file.

A trace is a function of its name and a seed: every engine gets the same requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enginebook.errors import InputError
from enginebook.load.arrivals import unit_gaps
from enginebook.load.traces import MOONCAKE_BLOCK_TOKENS, Trace
from enginebook.load.workload import BUILTIN

_STREAM = 51
_GRID_PER_PERIOD = 200
_RECENT = 200  # conversations that may still go on
Floats = npt.NDArray[np.float64]
Keys = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Shape:
    """Parameters of a synthetic trace. Lengths in tokens, times in seconds.

    Attributes
    ----------
    rate, arrival_cv
        Mean arrivals a second and coefficient of variation of their gaps.
    swing, period_s
        The rate is ``rate * (1 + swing * sin(2 pi t / period_s))``.
    input_median, input_mean, output_median, output_mean
        Of lognormal distributions.
    continues, groups, group_blocks
        Share of requests that go on with an earlier conversation; number of system prompts, and
        blocks in each. No groups: prompts share nothing.
    """

    rate: float
    arrival_cv: float
    swing: float
    period_s: float
    input_median: float
    input_mean: float
    output_median: float
    output_mean: float
    continues: float = 0.0
    groups: int = 0
    group_blocks: int = 0


SHAPES: Mapping[str, Shape] = {
    "synthetic-conversation": Shape(5.0, 1.5, 0.5, 600.0, 1020, 1155, 129, 211),
    "synthetic-prefix": Shape(
        3.0, 1.5, 0.5, 600.0, 6900, 12000, 220, 340, continues=0.75, groups=16, group_blocks=2
    ),
}


def builtin_trace(name: str, seed: int, requests: int | None, seconds: float | None) -> Trace:
    """Return a synthetic trace of so many requests, or of so much time.

    Raises
    ------
    InputError
        When there is no trace of that name, or no end is given.
    """
    shape = SHAPES.get(name.removeprefix(BUILTIN))
    if shape is None:
        known = ", ".join(BUILTIN + n for n in SHAPES)
        raise InputError(f"no built-in trace {name!r}", f"use one of {known}, or a file")
    if requests is None and seconds is None:
        raise InputError(f"{name} has no end of its own", "give requests or a duration")
    rng = np.random.default_rng([seed, _STREAM])
    count = requests or _enough(shape, float(seconds or 0.0))
    offsets = arrivals(shape, count, rng)
    inputs = _lognormal(shape.input_median, shape.input_mean, count, rng)
    outputs = _lognormal(shape.output_median, shape.output_mean, count, rng)
    keys = _block_keys(shape, inputs, rng) if shape.groups else ()
    return Trace(offsets - offsets[0], inputs, outputs, keys)


def _enough(shape: Shape, seconds: float) -> int:
    expected = shape.rate * (1 + shape.swing) * seconds
    return math.ceil(expected + 10 * (1 + shape.arrival_cv) * math.sqrt(expected + 1) + 10)


def arrivals(shape: Shape, count: int, rng: np.random.Generator) -> Floats:
    """Return arrival times in s, shape (count,): a unit-rate process stretched by the swing."""
    events = np.cumsum(unit_gaps(count, shape.arrival_cv, rng))
    span_s = events[-1] / (shape.rate * (1 - shape.swing)) + shape.period_s
    points = math.ceil(span_s / shape.period_s * _GRID_PER_PERIOD) + 1
    grid = np.linspace(0.0, span_s, points)
    turn = 2 * math.pi / shape.period_s
    due = shape.rate * (grid + shape.swing / turn * (1 - np.cos(turn * grid)))
    return np.interp(events, due, grid)


def _lognormal(
    median: float, mean: float, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    sigma = math.sqrt(2 * math.log(mean / median))
    values = np.round(rng.lognormal(math.log(median), sigma, count))
    return np.maximum(values, 1).astype(np.int64)


def _block_keys(shape: Shape, inputs: npt.NDArray[np.int64], rng: np.random.Generator) -> Keys:
    """Return each request's blocks; those that go on with a conversation repeat its blocks."""
    talks: list[tuple[int, ...]] = []
    found: list[tuple[int, ...]] = []
    fresh = shape.groups * shape.group_blocks
    popular = 1.0 / np.arange(1, shape.groups + 1)
    popular /= popular.sum()
    for length in inputs:
        need = math.ceil(int(length) / MOONCAKE_BLOCK_TOKENS)
        talk = _earlier(talks, need, rng) if rng.random() < shape.continues else None
        group = int(rng.choice(shape.groups, p=popular))
        opening = tuple(range(group * shape.group_blocks, (group + 1) * shape.group_blocks))
        begun = talks[talk] if talk is not None else opening
        more = max(0, need - len(begun))
        keys = (*begun, *range(fresh, fresh + more))[:need]
        fresh += more
        found.append(keys)
        if talk is None:
            talks.append(keys)
        else:
            talks[talk] = keys
    return tuple(found)


def _earlier(talks: list[tuple[int, ...]], need: int, rng: np.random.Generator) -> int | None:
    """Return a recent conversation that a prompt of so many blocks can go on with, or None."""
    first = max(0, len(talks) - _RECENT)
    able = [i for i in range(first, len(talks)) if len(talks[i]) < need]
    return able[int(rng.integers(len(able)))] if able else None
