"""A load cell: one point of load, everything that says which requests are sent and when."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from enginebook.fields import (
    Frozen,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    Slug,
)

LoadKind = Literal["closed_loop", "open_loop", "sessions", "trace"]
AnswerFormat = Literal["text", "json_object", "json_schema", "json_schema_each"]
CacheState = Literal["cold", "warm", "any"]
PromptKind = Literal["text", "random", "few-shot", "json", "file", "sharegpt"]


class Slo(Frozen):
    """A service-level objective: limits in ms on one request, and the share that must keep them.

    TTFT and end-to-end time count from the scheduled moment, so that waiting for a place counts.
    """

    name: Slug
    ttft_ms: PositiveFloat | None = None
    tpot_ms: PositiveFloat | None = None
    e2e_ms: PositiveFloat | None = None
    share: Share = 0.95

    @model_validator(mode="after")
    def _has_a_limit(self) -> Slo:
        if self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None:
            raise ValueError("an SLO needs ttft_ms, tpot_ms or e2e_ms")
        return self


class Precision(Frozen):
    """When a cell may end early: its interval is this tight, and so much was measured.

    ``half_width`` is that of the 95 % interval of throughput and of mean TTFT within the run,
    relative to the mean.
    """

    half_width: float = Field(gt=0, lt=1)
    min_requests: PositiveInt = 32
    min_seconds: PositiveFloat = 5.0


class Cell(Frozen):
    """One point of load.

    Attributes
    ----------
    scenario
        The series it belongs to: the scenario's name, and a suffix for each further axis.
    family
        The scenario's own name; None when it is the series' name.
    concurrency
        Streams (closed loop) or sessions; 0 where arrivals decide and nothing limits the streams.
    input_tokens, output_tokens
        Nominal lengths; the medians where ``input_lengths``, ``output_lengths`` or a trace decide.
    requests
        How many at the most; ``precision`` may end the cell earlier.
    prefix_tokens, prefix_share, prefix_groups
        This share of the requests opens with one of so many common prefixes of this length.
    answer_format, schema_name
        What the answers are constrained to, and the JSON schema where there is one.
    cache
        What the equal-work gate expects of the server's prefix cache: no cached token (cold),
        reuse (warm), or nothing (any).
    search
        Find the highest rate that meets the first SLO instead of measuring one rate.
    """

    scenario: Slug
    kind: LoadKind
    block: NonNegativeInt
    seed: int
    concurrency: NonNegativeInt
    input_tokens: PositiveInt
    output_tokens: PositiveInt
    requests: PositiveInt
    warmup_requests: NonNegativeInt
    max_seconds: PositiveFloat
    family: Slug | None = None
    input_lengths: str | None = None
    output_lengths: str | None = None
    rate: PositiveFloat | None = None
    arrival: str = "poisson"
    max_concurrency: PositiveInt | None = None
    prefix_tokens: NonNegativeInt = 0
    prefix_share: Share = 1.0
    prefix_groups: PositiveInt = 1
    turns: PositiveInt = 1
    think_time_s: NonNegativeFloat = 0.0
    prompts: PromptKind = "text"
    answer_format: AnswerFormat = "text"
    schema_name: Slug | None = None
    trace: str | None = None
    trace_speed: PositiveFloat = 1.0
    length_divisor: PositiveFloat = 1.0
    max_input_tokens: PositiveInt | None = None
    max_output_tokens: PositiveInt | None = None
    cache: CacheState = "cold"
    slo: list[Slo] = Field(default_factory=list)
    search: bool = False
    precision: Precision | None = None

    @property
    def of_family(self) -> str:
        """Return the scenario's own name."""
        return self.family or self.scenario

    @property
    def label(self) -> str:
        """Return a short text that names the cell among those of its study."""
        load = f"c={self.concurrency}" if self.concurrency else self._arrivals
        return f"{self.scenario} {load} in={self.input_tokens} out={self.output_tokens}"

    @property
    def _arrivals(self) -> str:
        if self.search:
            return "search"
        return f"{self.rate:g}/s" if self.rate else f"x{self.trace_speed:g}"

    def identity(self) -> dict[str, Any]:
        """Return what identifies the cell: fields at their defaults are left out.

        A new kind of axis therefore does not disown what was measured before it existed.
        """
        return self.model_dump(exclude_defaults=True)
