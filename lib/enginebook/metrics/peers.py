"""One stream, nine answers: how well-known tools would read the very same bytes.

Each function restates a tool's own formula, as read in its source in 2025 and 2026, over the same
list of events. The table they make explains a disagreement between two tools before anybody
suspects an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

import polars as pl

EventKind = Literal["role", "reasoning", "content", "finish", "usage", "done", "eof"]
_TEXT: tuple[EventKind, ...] = ("reasoning", "content")
_CHOICES: tuple[EventKind, ...] = ("role", "reasoning", "content", "finish")


@dataclass(frozen=True)
class StreamEvent:
    """Something that a client sees: ``at_ms`` after sending, with so many tokens."""

    at_ms: float
    kind: EventKind
    tokens: int = 0


# A reasoning model whose server sends four or five tokens a chunk, as a server with speculative
# decoding or a stream interval above one does.
EXAMPLE: tuple[StreamEvent, ...] = (
    StreamEvent(10, "role"),
    StreamEvent(200, "reasoning", 5),
    StreamEvent(300, "content", 4),
    StreamEvent(400, "content", 4),
    StreamEvent(500, "content", 4),
    StreamEvent(600, "content", 4),
    StreamEvent(620, "finish"),
    StreamEvent(640, "usage"),
    StreamEvent(650, "done"),
    StreamEvent(655, "eof"),
)


@dataclass(frozen=True)
class Reading:
    """What a tool prints; None where it prints nothing of the kind."""

    tool: str
    ttft_ms: float | None
    tpot_ms: float | None
    itl_p50_ms: float | None
    e2e_ms: float
    note: str


class Stream:
    """Questions that all formulas ask of a stream."""

    def __init__(self, events: Sequence[StreamEvent]) -> None:
        self.events = events
        self.tokens = sum(e.tokens for e in events)

    def of(self, *kinds: EventKind) -> list[StreamEvent]:
        """Return the events of some kinds."""
        return [e for e in self.events if e.kind in kinds]

    def first(self, *kinds: EventKind) -> float:
        """Return when the first event of some kinds came."""
        return self.of(*kinds)[0].at_ms

    def last(self, *kinds: EventKind) -> float:
        """Return when the last event of some kinds came."""
        return self.of(*kinds)[-1].at_ms

    def gaps(self, *kinds: EventKind) -> list[float]:
        """Return the times between successive events of some kinds."""
        return [b.at_ms - a.at_ms for a, b in pairwise(self.of(*kinds))]


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def vllm(s: Stream) -> Reading:
    """Read as ``vllm bench serve`` does on the chat route."""
    ttft, latency = s.first(*_CHOICES), s.last(*_CHOICES)
    tpot = (latency - ttft) / (s.tokens - 1)
    itl = _middle(s.gaps(*_CHOICES))
    return Reading("vLLM bench serve", ttft, tpot, itl, latency, "the role chunk ends TTFT")


def sglang(s: Stream) -> Reading:
    """Read as SGLang's serving benchmark does on the chat route."""
    ttft, latency = s.first(*_TEXT), s.last("done")
    tpot = (latency - ttft) / (s.tokens - 1)
    itl = _middle(s.gaps(*_TEXT))
    return Reading("SGLang bench_serving", ttft, tpot, itl, latency, "latency ends at [DONE]")


def guidellm(s: Stream) -> Reading:
    """Read as GuideLLM does."""
    first, last = s.first(*_TEXT), s.last(*_TEXT)
    itl = (last - first) / (s.tokens - 1)
    return Reading("GuideLLM", first, last / s.tokens, itl, s.last("done"), "TTFT is inside TPOT")


def aiperf(s: Stream) -> Reading:
    """Read as AIPerf does; its "ITL" is a mean a request and stands under TPOT here."""
    first, last = s.first(*_TEXT), s.last(*_TEXT)
    mean = (last - first) / (s.tokens - 1)
    return Reading("AIPerf", first, mean, _middle(s.gaps(*_TEXT)), last, "ITL shown is ICL")


def inference_perf(s: Stream) -> Reading:
    """Read as inference-perf does: all tokens of a chunk share a stamp."""
    first, last = s.first(*_TEXT), s.last(*_TEXT)
    stamps = [e.at_ms for e in s.of(*_TEXT) for _ in range(e.tokens)]
    itl = _middle([b - a for a, b in pairwise(stamps)])
    tpot = (last - first) / (s.tokens - 1)
    return Reading("inference-perf", first, tpot, itl, s.last("eof"), "zeros inside chunks")


def mlperf_endpoints(s: Stream) -> Reading:
    """Read as MLCommons' endpoints client does."""
    first, end = s.first(*_TEXT), s.last("done")
    after = s.tokens - s.of(*_TEXT)[0].tokens
    itl = _middle(s.gaps(*_TEXT))
    return Reading("MLCommons endpoints", first, (end - first) / after, itl, end, "ends at [DONE]")


def llmperf(s: Stream) -> Reading:
    """Read as LLMPerf does: it does not see reasoning."""
    shown = sum(e.tokens for e in s.of("content"))
    tpot = s.last("content") / shown
    return Reading(
        "LLMPerf", s.first("content"), tpot, None, s.last("eof"), "TTFT is inside; no reasoning"
    )


def veeksha(s: Stream) -> Reading:
    """Read as Veeksha does: a delta counts as a token."""
    first, last = s.first(*_TEXT), s.last(*_TEXT)
    tpot = (last - first) / (len(s.of(*_TEXT)) - 1)
    return Reading("Veeksha", first, tpot, _middle(s.gaps(*_TEXT)), last, "a delta is a token")


def enginebook(s: Stream) -> Reading:
    """Read as this package does (docs/method.md)."""
    first, last = s.first(*_TEXT), s.last(*_TEXT)
    chunks = s.of(*_TEXT)
    tpot = (last - first) / (s.tokens - chunks[0].tokens)
    per_token = [
        (b.at_ms - a.at_ms) / b.tokens for a, b in pairwise(chunks) for _ in range(b.tokens)
    ]
    note = "TPOT leaves the first chunk's tokens out"
    return Reading("Enginebook", first, tpot, _middle(per_token), last, note)


TOOLS: tuple[Callable[[Stream], Reading], ...] = (
    vllm, sglang, guidellm, aiperf, inference_perf, mlperf_endpoints, llmperf, veeksha, enginebook,
)  # fmt: skip


def nine_answers(events: Sequence[StreamEvent] = EXAMPLE) -> pl.DataFrame:
    """Return one row a tool: ``tool, ttft_ms, tpot_ms, itl_p50_ms, e2e_ms, note``.

    Parameters
    ----------
    events
        A stream with at least two chunks of text and more tokens than one.
    """
    readings = [tool(Stream(events)) for tool in TOOLS]
    return pl.DataFrame([vars(r) for r in readings])
