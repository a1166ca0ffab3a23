"""The equal-work gate: may this cell be compared with another engine's at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from enginebook.metrics.requests import request_metrics
from enginebook.metrics.summary import HasFrames, cached_share, summarise, token_mismatches
from enginebook.metrics.window import steady_state

MOST_FAILED_SHARE = 0.01
MOST_CLIENT_CPU_SHARE = 0.8
MOST_OTHERS_CPU_SHARE = 0.08
MOST_SCHEDULE_LAG_MS = 5.0
MOST_TOKENS_PER_CHUNK = 1.05
MOST_CACHED_TOKENS = 1  # a radix cache may find one equal opening token of an earlier run
LAG_SHARE_OF_TTFT, LAG_SHARE_OF_ITL = 0.01, 0.10


class Asked(Protocol):
    """What of a workload the gate must know."""

    @property
    def expected_cache(self) -> str:
        """Return ``cold`` (no prompt token may come from a cache), ``warm`` or ``any``."""

    @property
    def turns(self) -> int:
        """Return the turns of a session; later turns repeat the earlier ones on purpose."""

    @property
    def concurrency(self) -> int | None:
        """Return the number of streams of a closed loop."""

    @property
    def free_length(self) -> bool:
        """Return whether answers end by themselves."""


@dataclass(frozen=True)
class Check:
    """One check; ``ok`` is None when it could not be made, ``blocks`` forbids a verdict."""

    ok: bool | None
    detail: str
    blocks: bool = True


@dataclass(frozen=True)
class Verdict:
    """What the gate says of one cell.

    Attributes
    ----------
    ok
        Whether the cell may enter a comparison: no blocking check failed.
    flags
        Names of the checks that failed or could not be made.
    checks
        By name: ``{"ok", "detail", "blocks"}``.
    """

    ok: bool
    flags: tuple[str, ...]
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    completed: int = 0
    first_error: str | None = None


@dataclass(frozen=True)
class _Case:
    frame: pl.DataFrame
    done: pl.DataFrame
    summary: Mapping[str, Any]
    asked: Asked
    samples: Mapping[str, Any]
    records: HasFrames


def gate(records: HasFrames, workload: Asked, samples: Mapping[str, Any] | None = None) -> Verdict:
    """Check that a cell did the work that was asked, and that the client did not limit it.

    Parameters
    ----------
    records
        The cell's wire records.
    workload
        What was asked for.
    samples
        ``summarise_samples`` of the same time, or None.
    """
    frame = request_metrics(records.requests, records.chunks)
    done = frame.filter(pl.col("status").cast(pl.String) == "completed")
    case = _Case(frame, done, summarise(records), workload, samples or {}, records)
    checks = {name: check(case) for name, check in CHECKS.items()}
    errors = frame["error"].drop_nulls()
    return Verdict(
        ok=len(done) > 0 and all(c.ok is not False for c in checks.values() if c.blocks),
        flags=tuple(n for n, c in checks.items() if c.ok is not True),
        checks={n: {"ok": c.ok, "detail": c.detail, "blocks": c.blocks} for n, c in checks.items()},
        completed=len(done),
        first_error=errors[0] if len(errors) else None,
    )


def _failures(case: _Case) -> Check:
    bad = len(case.frame) - len(case.done)
    share = bad / len(case.frame) if len(case.frame) else 1.0
    return Check(share <= MOST_FAILED_SHARE, f"{bad} of {len(case.frame)} requests not completed")


def _output(case: _Case) -> Check:
    known = case.done.filter(pl.col("completion_tokens").is_not_null())
    if len(known) < len(case.done) or len(known) == 0:
        return Check(None, "the server sends no usage: delivered tokens are unproved")
    if case.asked.free_length:
        long = int((known["completion_tokens"] > known["output_asked"]).sum())
        mean = int(known["completion_tokens"].sum()) / len(known)
        detail = f"answers end by themselves, after {mean:.1f} tokens in the mean"
        return Check(long == 0, f"{long} answers are longer than allowed" if long else detail)
    off = int((known["completion_tokens"] != known["output_asked"]).sum())
    return Check(off == 0, f"{off} of {len(known)} answers are not as long as asked")


def _input(case: _Case) -> Check:
    known = case.done.filter(pl.col("prompt_tokens").is_not_null())
    if len(known) < len(case.done) or len(known) == 0:
        return Check(None, "the server sends no usage: prompt lengths are unproved")
    if case.asked.turns > 1:
        return Check(ok=True, detail="sessions: prompts grow by what was said", blocks=False)
    off = int((known["prompt_tokens"] != known["input_asked"]).sum())
    return Check(off == 0, f"{off} of {len(known)} prompts are not as long as asked")


def _counts(case: _Case) -> Check:
    both = case.done["client_tokens"].drop_nulls()
    if len(both) == 0:
        return Check(None, "no tokenizer: the server's token counts are unchecked", blocks=False)
    off = token_mismatches(case.done)
    # decoding and encoding again need not give the same ids, so this is a hint and not a proof
    return Check(off == 0, f"{off} of {len(both)} answers counted differently here", blocks=False)


def _cache(case: _Case) -> Check:
    if case.asked.expected_cache != "cold":
        share = cached_share(case.done)
        text = "unknown" if share is None else f"{share:.1%}"
        unused = case.asked.expected_cache == "warm" and share == 0
        detail = f"prefixes are shared on purpose; cached share {text}"
        return Check(ok=not unused, detail=detail, blocks=False)
    cached = case.done["cached_tokens"].drop_nulls()
    if len(cached):
        most = int(cached.to_numpy().max())
        # a chat template's opening is the same in every prompt and no engine's merit
        template = int(case.records.instrument.get("prompt_overhead_tokens") or 0)
        detail = f"at most {most} cached tokens in a prompt ({template} are the template's)"
        return Check(most <= MOST_CACHED_TOKENS + template, detail)
    hits = (case.samples.get("server") or {}).get("prefix_hits")
    if hits is not None:
        return Check(hits <= len(case.frame), f"{hits:.0f} cached tokens by the server's counter")
    return Check(None, "the server does not say how many prompt tokens were cached")


def _interval(case: _Case) -> Check:
    mean = case.summary["icl_ms"]["tokens_per_chunk"]
    if mean is None:
        return Check(None, "tokens per chunk are unknown", blocks=False)
    fine = mean <= MOST_TOKENS_PER_CHUNK
    return Check(fine, f"{mean:.2f} tokens per chunk after the first", blocks=False)


def _client(case: _Case) -> Check:
    about = case.summary["instrument"]
    share, lag = about["worker_cpu_share_max"], about["loop_lag_ms"]["p50"]
    if share is None or lag is None:
        return Check(None, "the client did not report its load")
    ttft, itl = case.summary["ttft_ms"]["p50"], case.summary["itl_ms"]["p50"]
    limits = [x * y for x, y in ((LAG_SHARE_OF_TTFT, ttft), (LAG_SHARE_OF_ITL, itl)) if y]
    fine = share <= MOST_CLIENT_CPU_SHARE and (not limits or lag <= max(limits))
    return Check(fine, f"client at {share:.0%} of a core, loop lag p50 {lag:.2f} ms")


def _schedule(case: _Case) -> Check:
    lag = case.summary["instrument"]["schedule_lag_ms"]
    worst = lag["p99"] if lag["p99"] is not None else lag["max"]
    if worst is None:
        return Check(None, "no request was sent", blocks=False)
    if case.asked.concurrency is not None:
        detail = f"closed loop; next request {worst:.2f} ms after an answer"
        return Check(ok=True, detail=detail, blocks=False)
    return Check(worst <= MOST_SCHEDULE_LAG_MS, f"requests left {worst:.2f} ms late (p99)")


def _host(case: _Case) -> Check:
    share = case.samples.get("others_cpu_share")
    if share is None:
        return Check(None, "nobody watched the host's processors", blocks=False)
    return Check(share <= MOST_OTHERS_CPU_SHARE, f"{share:.1%} of the CPU went to others")


def _steady(case: _Case) -> Check:
    state = steady_state(case.records.requests, case.records.chunks, case.asked.concurrency)
    return Check(state["ok"], "; ".join(state["reasons"]) or "steady", blocks=False)


def _precision(case: _Case) -> Check:
    rule = case.records.instrument.get("precision")
    if not rule:
        return Check(ok=True, detail="the number of requests is fixed", blocks=False)
    width, why = rule["achieved_half_width"], case.records.instrument.get("stopped_by")
    known = f"{width:.1%}" if width is not None else "not known"
    detail = f"ended by {why}; half-width within the run {known}, asked {rule['half_width']:.1%}"
    return Check(bool(rule["met"]), detail, blocks=False)


def _identity(case: _Case) -> Check:
    names = case.done["served_model"].drop_nulls().unique().to_list()
    if not names:
        return Check(None, "answers do not name a model", blocks=False)
    return Check(len(names) == 1, f"answered by {', '.join(sorted(names))}")


CHECKS: Mapping[str, Callable[[_Case], Check]] = {
    "failures": _failures,
    "output_length": _output,
    "input_length": _input,
    "token_counts": _counts,
    "cache": _cache,
    "stream_interval": _interval,
    "client": _client,
    "schedule": _schedule,
    "host": _host,
    "steady": _steady,
    "precision": _precision,
    "identity": _identity,
}
