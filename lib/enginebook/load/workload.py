"""How the load arrives and what it asks for: one frozen object, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from enginebook.errors import InputError
from enginebook.load.lengths import Lengths, parse_lengths
from enginebook.load.precision import Precision, precision_of
from enginebook.metrics.schemas import FORMATS, SCHEMAS

PromptKind = Literal["text", "random", "few-shot", "json", "file", "sharegpt"]
AnswerFormat = Literal["text", "json_object", "json_schema", "json_schema_each"]
_KINDS = ("text", "random", "few-shot", "json", "file", "sharegpt")
CacheState = Literal["cold", "warm", "any"]
BUILTIN = "builtin:"


@dataclass(frozen=True)
class Workload:
    """A load on one endpoint.

    Exactly one of ``concurrency`` (closed loop: N streams, each sends when its answer is there),
    ``rate`` (open loop, requests per second) and ``trace`` (a file of arrivals) says when requests
    are sent; ``requests`` or ``duration_s`` says how many (a trace may go without).

    Attributes
    ----------
    arrival
        Open loop: ``poisson``, ``constant`` or ``gamma:CV`` (CV 1 is Poisson, above 1 bursty).
    ramp_to
        Open loop: the rate rises or falls linearly from ``rate`` to this over the run.
    max_concurrency
        Open loop and traces: no more requests in flight than this; the others wait, and their
        latency counts from the scheduled time all the same.
    trace
        A file, or ``builtin:NAME`` for a synthetic trace of the package.
    trace_speed
        2.0 replays a trace twice as fast.
    length_divisor, max_input_tokens, max_output_tokens
        Traces: divide all lengths, then cut them; what was cut is counted in the records.
    input_tokens, output_tokens
        A length, or ``uniform:LOW:HIGH``, or ``lognormal:MEDIAN:SIGMA[:LOW:HIGH]``.
    warmup_requests
        Sent before, with prompts of their own, and kept out of every figure.
    max_seconds
        The measured part ends then at the latest; what is in flight is cancelled and recorded.
    prompts
        ``text`` (slices of a corpus), ``random`` (token ids), ``few-shot``, ``json`` (a text and
        the task to describe a thing in it as JSON), ``file`` (a text file of yours is the corpus)
        or ``sharegpt`` (a file of conversations is).
    answer_format, schema_name
        Constrain each answer to a JSON object, to one JSON schema, or to a schema of its own for
        each request; ``schema_name`` is one of ``metrics.schemas.SCHEMAS``. Answers to JSON tasks
        end by themselves: ``output_tokens`` is then the longest they may be.
    prompt_seed
        For the words of the prompts alone, when lengths and arrivals shall stay those of ``seed``.
    cache
        What is expected of the server's prefix cache: no cached token (``cold``), reuse (``warm``)
        or nothing (``any``). None: cold, unless the requests themselves share prefixes.
    precision
        End as soon as throughput and mean TTFT are known so well; ``requests`` or ``duration_s``
        and ``max_seconds`` are then the most that is done.
    prompt_file
        The file for ``file`` and ``sharegpt``.
    prompt_as
        Send prompts as token ids or as text; None means ids for completions, text for chat.
    shared_prefix_tokens, shared_prefix_share, shared_prefix_groups
        This share of the requests begins with one of so many common prefixes of this length.
    turns, think_time_s
        Sessions of several turns (chat): each answer is fed back verbatim after the think time.
    processes
        Worker processes; None chooses by the number of streams and cores.
    """

    concurrency: int | None = None
    rate: float | None = None
    trace: Path | str | None = None
    requests: int | None = None
    duration_s: float | None = None
    input_tokens: int | str | Lengths = 128
    output_tokens: int | str | Lengths = 64
    arrival: str = "poisson"
    ramp_to: float | None = None
    max_concurrency: int | None = None
    trace_speed: float = 1.0
    warmup_requests: int = 0
    max_seconds: float = 3600.0
    drain_seconds: float = 60.0
    request_timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    seed: int = 1
    prompts: PromptKind = "text"
    prompt_file: Path | None = None
    prompt_as: Literal["ids", "text"] | None = None
    shared_prefix_tokens: int = 0
    shared_prefix_share: float = 1.0
    shared_prefix_groups: int = 1
    turns: int = 1
    think_time_s: float = 0.0
    processes: int | None = None
    answer_format: AnswerFormat = "text"
    schema_name: str | None = None
    precision: Precision | Mapping[str, Any] | None = None
    prompt_seed: int | None = None
    cache: CacheState | None = None
    length_divisor: float = 1.0
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", precision_of(self.precision))
        if isinstance(self.trace, str) and not self.trace.startswith(BUILTIN):
            object.__setattr__(self, "trace", Path(self.trace))
        object.__setattr__(self, "input_tokens", parse_lengths(self.input_tokens, "input tokens"))
        object.__setattr__(
            self, "output_tokens", parse_lengths(self.output_tokens, "output tokens", least=0)
        )
        for problem, remedy in _problems(self):
            raise InputError(problem, remedy)
        arrival_cv(self.arrival)

    @property
    def kind(self) -> Literal["closed_loop", "open_loop", "trace"]:
        """Return the load model."""
        if self.concurrency is not None:
            return "closed_loop"
        return "open_loop" if self.rate is not None else "trace"

    @property
    def inputs(self) -> Lengths:
        """Return the distribution of prompt lengths."""
        return parse_lengths(self.input_tokens)

    @property
    def outputs(self) -> Lengths:
        """Return the distribution of answer lengths."""
        return parse_lengths(self.output_tokens, least=0)

    @property
    def stop_rule(self) -> Precision | None:
        """Return how well things must be known for the run to end early, or None."""
        return precision_of(self.precision)

    @property
    def expected_cache(self) -> CacheState:
        """Return what is expected of the server's prefix cache."""
        shared = self.shared_prefix_tokens > 0 or self.turns > 1 or self.trace is not None
        return self.cache or ("any" if shared else "cold")

    @property
    def words_seed(self) -> int:
        """Return the seed of the prompts' words."""
        return self.seed if self.prompt_seed is None else self.prompt_seed

    @property
    def free_length(self) -> bool:
        """Return whether answers end by themselves: JSON that is cut or forced on is no JSON."""
        return self.answer_format != "text" or self.prompts == "json"

    def but(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values that ``from_dict`` reads."""
        fields = asdict(self)
        fields["input_tokens"], fields["output_tokens"] = self.inputs.text, self.outputs.text
        for name in ("trace", "prompt_file"):
            fields[name] = str(fields[name]) if fields[name] is not None else None
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the workload that ``to_dict`` wrote."""
        values = dict(fields)
        if values.get("prompt_file"):
            values["prompt_file"] = Path(values["prompt_file"])
        return cls(**values)


def arrival_cv(arrival: str) -> float:
    """Return the coefficient of variation of the gaps that an arrival process names.

    Raises
    ------
    InputError
        When the text is none of ``constant``, ``poisson``, ``gamma:CV``.
    """
    named = {"constant": 0.0, "poisson": 1.0}
    if arrival in named:
        return named[arrival]
    kind, _, number = arrival.partition(":")
    try:
        value = float(number) if kind == "gamma" else -1.0
    except ValueError:
        value = -1.0
    if value <= 0 or not math.isfinite(value):
        raise InputError(
            f"unknown arrival process {arrival!r}", "use poisson, constant or gamma:CV (CV > 0)"
        )
    return value


def _problems(w: Workload) -> list[tuple[str, str]]:
    """Return what is wrong with a workload, each with its remedy."""
    return [*_load_model_problems(w), *_number_problems(w), *_prompt_problems(w)]


def _load_model_problems(w: Workload) -> list[tuple[str, str]]:
    found = []
    given = [n for n in ("concurrency", "rate", "trace") if getattr(w, n) is not None]
    if len(given) != 1:
        found.append(
            (
                f"give exactly one of concurrency, rate, trace (given: {given or 'none'})",
                "concurrency N is a closed loop, rate R an open one, trace FILE a replay",
            )
        )
    if w.requests is not None and w.duration_s is not None:
        found.append(("requests and duration are both given", "give one of them"))
    if w.requests is None and w.duration_s is None and w.trace is None:
        found.append(("neither requests nor duration is given", "give one of them"))
    if w.max_concurrency is not None and w.concurrency is not None:
        found.append(
            ("max concurrency has no meaning in a closed loop", "drop it, or give a rate instead")
        )
    if isinstance(w.trace, Path) and not w.trace.is_file():
        found.append((f"no trace file {w.trace}", "give the path of a csv or jsonl file"))
    return found


_POSITIVE = (
    "concurrency", "rate", "requests", "duration_s", "ramp_to", "max_concurrency", "trace_speed",
    "max_seconds", "request_timeout_s", "connect_timeout_s", "turns", "processes",
    "shared_prefix_groups", "length_divisor", "max_input_tokens", "max_output_tokens",
)  # fmt: skip
_NOT_NEGATIVE = ("warmup_requests", "shared_prefix_tokens", "think_time_s", "drain_seconds")


def _number_problems(w: Workload) -> list[tuple[str, str]]:
    found = []
    for name in _POSITIVE:
        value = getattr(w, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            found.append((f"{name} is {value}", f"give a {name} above 0"))
    for name in _NOT_NEGATIVE:
        value = getattr(w, name)
        if not (value >= 0 and math.isfinite(value)):
            found.append((f"{name} is {value}", f"give a {name} of 0 or more"))
    if not 0 <= w.shared_prefix_share <= 1:
        found.append((f"shared_prefix_share is {w.shared_prefix_share}", "give 0 to 1"))
    return found


def _prompt_problems(w: Workload) -> list[tuple[str, str]]:
    found = []
    if w.prompts not in _KINDS:
        found.append((f"unknown prompts {w.prompts!r}", f"use one of {', '.join(_KINDS)}"))
    if w.prompts in {"file", "sharegpt"} and (w.prompt_file is None or not w.prompt_file.is_file()):
        found.append((f"no prompt file {w.prompt_file}", "give the path of a file"))
    found += _answer_problems(w)
    if w.cache not in {None, "cold", "warm", "any"}:
        found.append((f"unknown state of the cache {w.cache!r}", "use cold, warm or any"))
    fixed = w.inputs.fixed
    if fixed is not None and w.shared_prefix_tokens >= fixed:
        found.append(
            (
                f"a shared prefix of {w.shared_prefix_tokens} tokens fills a prompt of {fixed}",
                "make the prefix shorter than the prompt",
            )
        )
    if w.turns > 1 and w.concurrency is None:
        found.append(("sessions of several turns need a closed loop", "give a concurrency"))
    return found


def _answer_problems(w: Workload) -> list[tuple[str, str]]:
    found = []
    if w.answer_format not in FORMATS:
        found.append((f"unknown answer format {w.answer_format!r}", f"use {', '.join(FORMATS)}"))
    if w.schema_name is not None and w.schema_name not in SCHEMAS:
        found.append((f"unknown schema {w.schema_name!r}", f"use one of {', '.join(SCHEMAS)}"))
    if w.schema_name is not None and not w.answer_format.startswith("json_schema"):
        found.append(
            (
                f"a schema has no meaning for answers of format {w.answer_format}",
                "give answer format json_schema or json_schema_each, or no schema",
            )
        )
    return found
