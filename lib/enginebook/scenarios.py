"""Scenarios: what a study does to its engines, as data. Each kind is one general mechanism."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from enginebook.cells import AnswerFormat, CacheState, Cell, Precision, PromptKind, Slo
from enginebook.fields import (
    AsList,
    Frozen,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    Slug,
)
from enginebook.models import ModelSpec, model_from_text

IntAxis = Annotated[list[PositiveInt], AsList, Field(min_length=1)]
CountAxis = Annotated[list[NonNegativeInt], AsList, Field(min_length=1)]
RateAxis = Annotated[list[PositiveFloat], AsList, Field(min_length=1)]
TimeAxis = Annotated[list[NonNegativeFloat], AsList, Field(min_length=1)]
ShareAxis = Annotated[list[Share], AsList, Field(min_length=1)]
FormatAxis = Annotated[list[AnswerFormat], AsList, Field(min_length=1)]
NameAxis = Annotated[list[Slug | None], AsList, Field(min_length=1)]
TextAxis = Annotated[list[str], AsList, Field(min_length=1)]
StartArm = Literal["warm", "cold_page_cache", "cold_compile_cache"]
StartArms = Annotated[list[StartArm], AsList, Field(min_length=1)]
Layout = Literal["colocated", "disaggregated"]


class Base(Frozen):
    """What every scenario has.

    Attributes
    ----------
    name
        Unique in the study; part of every series' name.
    answers
        Claims that it tests, by id or glob (``THR-*``).
    only, skip
        Labels of engines that it is for, or not for; by default it is for all.
    blocks
        Take part in so many blocks only; by default in all. Costly scenarios on which no verdict
        rests need not be repeated as often.
    """

    name: Slug
    kind: str
    title: str = ""
    answers: list[str] = Field(default_factory=list)
    only: list[Slug] = Field(default_factory=list)
    skip: list[Slug] = Field(default_factory=list)
    blocks: PositiveInt | None = None

    def wants(self, engine: str) -> bool:
        """Return whether the scenario is for this engine."""
        return engine not in self.skip and (not self.only or engine in self.only)


class Load(Base):
    """A family of load cells: the product of its axes under one load model.

    Lengths are in tokens. A cell has ``requests_per_stream`` times the concurrency, but at least
    ``min_requests`` and at most ``max_requests`` measured requests; ``warmup_per_stream`` requests
    a stream (or in all, where nothing limits the streams) come before them and are kept out of
    every figure.
    """

    input_tokens: IntAxis = [64]
    output_tokens: IntAxis = [32]
    min_requests: PositiveInt = 8
    max_requests: PositiveInt | None = None
    max_seconds: PositiveFloat = 600.0
    warmup_per_stream: NonNegativeInt = 1
    prompts: PromptKind = "text"
    answer_format: FormatAxis = ["text"]
    schema_name: NameAxis = [None]
    prefix_tokens: CountAxis = [0]
    prefix_share: ShareAxis = [1.0]
    prefix_groups: PositiveInt = 1
    cache: CacheState = "cold"
    slo: list[Slo] = Field(default_factory=list)
    precision: Precision | None = None

    def cells(self, engine: str, block: int, seed: int) -> list[Cell]:
        """Return the cells of this scenario for one engine and block, lightest first."""
        if not self.wants(engine) or (self.blocks is not None and block >= self.blocks):
            return []
        return [self._cell(point, block, seed) for point in self._points()]

    def axes(self) -> dict[str, list[Any]]:
        """Return the further axes: each one with several values has its part in series' names."""
        return {
            "prefix_tokens": self.prefix_tokens,
            "prefix_share": self.prefix_share,
            "answer_format": self.answer_format,
            "schema_name": self.schema_name,
        }

    def loads(self) -> list[dict[str, Any]]:
        """Return the inner axis, how much load: fields of a cell, lightest first."""
        raise NotImplementedError

    def _points(self) -> Iterator[dict[str, Any]]:
        axes = self.axes()
        seen: set[tuple[Any, ...]] = set()
        for outer in product(*axes.values()):
            chosen = _without_meaningless(dict(zip(axes, outer, strict=True)))
            key = tuple(chosen.items())
            if key in seen:  # a prefix of no length has no share: one cell stands for all
                continue
            seen.add(key)
            series = ".".join([self.name, *_suffix(axes, chosen)])
            for i, o, load in product(self.input_tokens, self.output_tokens, self.loads()):
                inputs = i + chosen["prefix_tokens"]
                place = {"scenario": series, "input_tokens": inputs, "output_tokens": o}
                yield {**chosen, **load, **place}

    def _cell(self, point: dict[str, Any], block: int, seed: int) -> Cell:
        first = [point[k] for k in _FIRST]
        fields = {
            "family": None if point["scenario"] == self.name else self.name,
            "block": block,
            "seed": _cell_seed(seed, block, *first),
            "max_seconds": self.max_seconds,
            "prompts": self.prompts,
            "prefix_groups": self.prefix_groups,
            "cache": self.cache,
            "slo": self.slo,
            "precision": self.precision,
        }
        return Cell(**fields, **point)

    def _count(self, wanted: float) -> int:
        count = max(self.min_requests, math.ceil(wanted))
        return count if self.max_requests is None else min(count, self.max_requests)


class ClosedLoop(Load):
    """N streams; each sends its next request when the answer to the last one is there."""

    kind: Literal["closed_loop"] = "closed_loop"
    concurrency: IntAxis = [1]
    requests_per_stream: PositiveInt = 4

    def loads(self) -> list[dict[str, Any]]:
        """Return concurrency, requests and warm-up requests."""
        return [
            {
                "kind": self.kind,
                "concurrency": c,
                "requests": self._count(self.requests_per_stream * c),
                "warmup_requests": self.warmup_per_stream * c,
            }
            for c in self.concurrency
        ]


class Sessions(Load):
    """Conversations of several turns; each answer is fed back verbatim before the next question.

    ``input_tokens`` is a question's length; a prompt grows by what was said before.
    """

    kind: Literal["sessions"]
    concurrency: IntAxis = [1]
    turns: PositiveInt = 10
    think_time_s: TimeAxis = [0.0]
    sessions_per_stream: PositiveInt = 2
    cache: CacheState = "any"

    def axes(self) -> dict[str, list[Any]]:
        """Return the further axes."""
        return super().axes() | {"think_time_s": self.think_time_s}

    def loads(self) -> list[dict[str, Any]]:
        """Return sessions at a time, requests (turns of all sessions) and warm-up requests."""
        return [
            {
                "kind": self.kind,
                "concurrency": c,
                "turns": self.turns,
                "requests": self.turns
                * math.ceil(self._count(self.sessions_per_stream * c * self.turns) / self.turns),
                "warmup_requests": self.warmup_per_stream * c,
            }
            for c in self.concurrency
        ]


class OpenLoop(Load):
    """Arrivals at a rate, whatever the server does; latency counts from the scheduled moment.

    Attributes
    ----------
    rate
        Requests per second; with ``search`` the first is where the search begins.
    seconds
        Of traffic; a cell has at least ``min_requests``.
    arrival
        ``poisson``, ``constant`` or ``gamma:CV``.
    input_lengths, output_lengths
        Distributions such as ``lognormal:1020:0.5:16:8192``; then ``input_tokens`` and
        ``output_tokens`` are their nominal values.
    search
        Also find the highest rate that meets the first SLO, as one more cell.
    """

    kind: Literal["open_loop"]
    rate: RateAxis
    arrival: TextAxis = ["poisson"]
    seconds: PositiveFloat = 30.0
    max_concurrency: PositiveInt | None = None
    input_lengths: str | None = None
    output_lengths: str | None = None
    search: bool = False

    @model_validator(mode="after")
    def _search_has_an_objective(self) -> OpenLoop:
        if self.search and not self.slo:
            raise ValueError("search needs an SLO that the rate must meet")
        return self

    def axes(self) -> dict[str, list[Any]]:
        """Return the further axes; the rate is one, since streams do not tell loads apart."""
        rates: list[Any] = [*self.rate, *([None] if self.search else [])]
        return super().axes() | {"arrival": self.arrival, "rate": rates}

    def loads(self) -> list[dict[str, Any]]:
        """Return the fields that all rates share; the counts follow from the rate."""
        shared = {
            "kind": self.kind,
            "concurrency": 0,
            "warmup_requests": self.warmup_per_stream,
            "input_lengths": self.input_lengths,
            "output_lengths": self.output_lengths,
            "max_concurrency": self.max_concurrency,
        }
        return [shared]

    def _cell(self, point: dict[str, Any], block: int, seed: int) -> Cell:
        search = point["rate"] is None
        rate = self.rate[0] if search else point["rate"]
        counted = {"rate": rate, "search": search, "requests": self._count(rate * self.seconds)}
        return super()._cell(point | counted, block, seed)


class TraceReplay(Load):
    """Arrivals and lengths of a recorded or synthetic trace, stretched in time.

    Attributes
    ----------
    trace
        A file (Azure LLM csv, Mooncake jsonl, BurstGPT csv, own jsonl) or ``builtin:NAME``.
    speed
        2.0 replays twice as fast.
    length_divisor, max_input_tokens, max_output_tokens
        Make a trace of a large model's traffic fit a small one; how much was cut is recorded.
    """

    kind: Literal["trace"]
    trace: TextAxis
    speed: RateAxis = [1.0]
    requests: PositiveInt = 100
    length_divisor: PositiveFloat = 1.0
    max_input_tokens: PositiveInt | None = None
    max_output_tokens: PositiveInt | None = None
    max_concurrency: PositiveInt | None = None
    cache: CacheState = "any"

    def axes(self) -> dict[str, list[Any]]:
        """Return the further axes: which trace, and how fast."""
        return super().axes() | {"trace": self.trace, "trace_speed": self.speed}

    def loads(self) -> list[dict[str, Any]]:
        """Return what all points of the replay share."""
        shared = {
            "kind": self.kind,
            "concurrency": 0,
            "requests": self._count(self.requests),
            "warmup_requests": self.warmup_per_stream,
            "length_divisor": self.length_divisor,
            "max_input_tokens": self.max_input_tokens,
            "max_output_tokens": self.max_output_tokens,
            "max_concurrency": self.max_concurrency,
        }
        return [shared]


class Starts(Base):
    """How long from the command to the first token, with caches warm and cold."""

    kind: Literal["starts"]
    repeats: PositiveInt = 3
    arms: StartArms = ["warm", "cold_page_cache", "cold_compile_cache"]


class Swap(Base):
    """How long clients get no answer while the engine restarts, with another model where given."""

    kind: Literal["swap"]
    repeats: PositiveInt = 3
    clients: PositiveInt = 8
    to_model: Annotated[ModelSpec | None, model_from_text] = None


class Monitoring(Base):
    """Which figures the server exports before, under and after load, and whether they are right."""

    kind: Literal["monitoring"]
    concurrency: PositiveInt = 4
    requests: PositiveInt = 16
    input_tokens: PositiveInt = 64
    output_tokens: PositiveInt = 32


class Features(Base):
    """Probes of the installed version: imports, signatures, parsers, defaults, files."""

    kind: Literal["features"]


class Metadata(Base):
    """Facts of the installed packages, with their sources."""

    kind: Literal["metadata"]


class KvSimulation(Base):
    """How much of a KV cache holds live tokens, by allocation policy. Simulated, and labelled so.

    ``policies`` are ``prealloc`` (to ``max_len``), ``pow2`` and ``paged:PAGE``.
    """

    kind: Literal["kv_simulation"]
    lengths: TextAxis = ["lognormal:1020:0.5"]
    output_lengths: str = "lognormal:129:1.0"
    policies: TextAxis = ["prealloc", "pow2", "paged:16"]
    max_len: IntAxis = [2048, 4096, 8192]
    sequences: PositiveInt = 2000


class Disaggregation(Base):
    """Prefill and decode on a GPU each, against both on two: a queueing estimate, labelled so.

    Step times are those that the study measured.
    """

    kind: Literal["disaggregation"]
    input_tokens: PositiveInt = 4096
    output_tokens: PositiveInt = 256
    slo: list[Slo] = Field(default_factory=list)
    layouts: list[Layout] = ["colocated", "disaggregated"]
    loads: ShareAxis = [0.3, 0.5, 0.7, 0.9]


def _kind_of(value: Any) -> str:
    given = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return str(given or "closed_loop")


Scenario = Annotated[
    Annotated[ClosedLoop, Tag("closed_loop")]
    | Annotated[Sessions, Tag("sessions")]
    | Annotated[OpenLoop, Tag("open_loop")]
    | Annotated[TraceReplay, Tag("trace")]
    | Annotated[Starts, Tag("starts")]
    | Annotated[Swap, Tag("swap")]
    | Annotated[Monitoring, Tag("monitoring")]
    | Annotated[Features, Tag("features")]
    | Annotated[Metadata, Tag("metadata")]
    | Annotated[KvSimulation, Tag("kv_simulation")]
    | Annotated[Disaggregation, Tag("disaggregation")],
    Discriminator(_kind_of),
]

KINDS: Mapping[str, type[Base]] = {
    "closed_loop": ClosedLoop,
    "sessions": Sessions,
    "open_loop": OpenLoop,
    "trace": TraceReplay,
    "starts": Starts,
    "swap": Swap,
    "monitoring": Monitoring,
    "features": Features,
    "metadata": Metadata,
    "kv_simulation": KvSimulation,
    "disaggregation": Disaggregation,
}

_FIRST = ("scenario", "concurrency", "input_tokens", "output_tokens")
_LETTERS = {
    "prefix_tokens": "p",
    "prefix_share": "h",
    "think_time_s": "w",
    "rate": "r",
    "trace_speed": "x",
}


def _without_meaningless(point: dict[str, Any]) -> dict[str, Any]:
    """Return a point with axes that say nothing at it set to their defaults."""
    if point["prefix_tokens"] == 0:
        point["prefix_share"] = 1.0
    if point["answer_format"] != "json_schema":
        point["schema_name"] = None
    return point


def _suffix(axes: Mapping[str, list[Any]], point: Mapping[str, Any]) -> list[str]:
    """Return a part of the series' name for each axis with more than one value."""
    parts = []
    for name, values in axes.items():
        if len(values) == 1 or (name == "schema_name" and point[name] is None):
            continue
        if name == "prefix_share" and point["prefix_tokens"] == 0:
            continue
        parts.append(_part(name, point[name]))
    return parts


def _part(name: str, value: object) -> str:
    if value is None:
        return "search"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    stem = text.rsplit("/", 1)[-1].removeprefix("builtin:")
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in stem.lower())
    return _LETTERS.get(name, "") + safe


def _cell_seed(*parts: object) -> int:
    """Return a seed that is a function of all that tells cells apart, below 2**31."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
