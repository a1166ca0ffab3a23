"""The steady window of a run, and the throughput inside it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebook.metrics.requests import generated_rows, request_metrics, token_counts

NS_PER_S = 1e9
FULL_SHARE = 0.95
SHORTEST_S = 30.0
SHORTEST_E2E = 10
LITTLE_TOLERANCE = 0.05
_MSER_BATCH = 5
_GROWTH = 1.1
_MSER_BINS = 400

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class InFlight:
    """Requests in flight as a step function: ``count[i]`` from ``t_ns[i]`` on."""

    t_ns: Times
    count: npt.NDArray[np.int64]

    def mean(self, begin_ns: int, end_ns: int) -> float:
        """Return the time average between two times."""
        edges = np.concatenate([[begin_ns], self.t_ns, [end_ns]]).clip(begin_ns, end_ns)
        levels = np.concatenate([[self._before(begin_ns)], self.count])
        return float(np.sum(np.diff(edges) * levels) / (end_ns - begin_ns))

    def _before(self, at_ns: int) -> int:
        index = int(np.searchsorted(self.t_ns, at_ns, side="right")) - 1
        return int(self.count[index]) if index >= 0 else 0


def in_flight(requests: pl.DataFrame) -> InFlight:
    """Return the number of requests sent and not ended over time."""
    sent = requests.drop_nulls(["sent_ns", "end_ns"])
    times = np.concatenate([sent["sent_ns"].to_numpy(), sent["end_ns"].to_numpy()])
    steps = np.repeat([1, -1], len(sent))
    order = np.lexsort((steps, times))  # an answer that ends as another is asked for makes room
    return InFlight(times[order], np.cumsum(steps[order]))


def mser5(values: npt.NDArray[np.float64]) -> int:
    """Return how many leading values to drop: White's MSER-5, over batches of five.

    The cut minimises the standard error of what remains; it never drops more than half.
    """
    batches = len(values) // _MSER_BATCH
    if batches < 2 * _MSER_BATCH:
        return 0
    means = values[: batches * _MSER_BATCH].reshape(batches, _MSER_BATCH).mean(axis=1)
    scores = [
        np.sum((means[d:] - means[d:].mean()) ** 2) / (batches - d) ** 2
        for d in range(batches // 2)
    ]
    return int(np.argmin(scores)) * _MSER_BATCH


def steady_state(
    requests: pl.DataFrame, chunks: pl.DataFrame, concurrency: int | None
) -> dict[str, Any]:
    """Return the steady window of a run, what flowed in it, and whether it may be called steady.

    A closed loop is full while at least 95 % of its streams are in flight; the window lies between
    the first and the last such moment and is cut at its beginning by MSER-5 over the token rate.
    In an open loop the window is the whole run, and the number in flight must not grow.

    Returns
    -------
    dict
        ``begin_ns, end_ns, seconds, output_tokens_per_s, in_flight_mean, little_error, ok`` and
        ``reasons`` (why it is not steady); figures are None when there is no window.
    """
    frame = request_metrics(requests, chunks)
    flying = in_flight(frame)
    span = _full_window(flying, concurrency)
    if span is None:
        return _none("the load never reached 95 % of its streams")
    stamps, tokens = _token_stamps(frame, chunks)
    begin, end = _cut(span, stamps, tokens)
    inside = (stamps > begin) & (stamps <= end)
    seconds = (end - begin) / NS_PER_S
    if seconds <= 0:
        return _none("the run is too short to hold a window")
    known = len(stamps) > 0 and bool(np.isfinite(tokens).all())
    little = little_error(frame, flying, begin, end)
    reasons = _reasons(frame, flying, (begin, end), little, open_loop=concurrency is None)
    return {
        "begin_ns": begin,
        "end_ns": end,
        "seconds": seconds,
        "output_tokens_per_s": float(tokens[inside].sum() / seconds) if known else None,
        "in_flight_mean": flying.mean(begin, end),
        "little_error": little,
        "ok": not reasons,
        "reasons": reasons,
    }


def _none(reason: str) -> dict[str, Any]:
    keys = ("begin_ns", "end_ns", "seconds", "output_tokens_per_s", "in_flight_mean")
    return dict.fromkeys((*keys, "little_error")) | {"ok": False, "reasons": [reason]}


def _full_window(flying: InFlight, concurrency: int | None) -> tuple[int, int] | None:
    if len(flying.t_ns) == 0:
        return None
    if concurrency is None:
        return int(flying.t_ns[0]), int(flying.t_ns[-1])
    full = np.flatnonzero(flying.count >= FULL_SHARE * concurrency)
    if len(full) == 0:
        return None
    after = min(int(full[-1]) + 1, len(flying.t_ns) - 1)
    return int(flying.t_ns[full[0]]), int(flying.t_ns[after])


def _token_stamps(
    frame: pl.DataFrame, chunks: pl.DataFrame
) -> tuple[Times, npt.NDArray[np.float64]]:
    good = frame.filter(pl.col("status").cast(pl.String) != "failed")["request"].to_numpy()
    generated, tokens = generated_rows(chunks), token_counts(chunks)
    keep = np.isin(chunks["request"].to_numpy(), good) & (generated | (tokens > 0))
    return chunks["recv_ns"].to_numpy()[keep], tokens[keep]


def _cut(span: tuple[int, int], stamps: Times, tokens: npt.NDArray[np.float64]) -> tuple[int, int]:
    begin, end = span
    edges = np.linspace(begin, end, _MSER_BINS + 1)
    rate, _ = np.histogram(stamps, bins=edges, weights=np.nan_to_num(tokens, nan=1.0))
    return int(edges[mser5(rate)]), end


def little_error(frame: pl.DataFrame, flying: InFlight, begin_ns: int, end_ns: int) -> float | None:
    """Return how far Little's law is from holding inside a window: abs(L - lambda W) / L.

    L is the time average in flight; lambda W is the time in system of the requests that ended in
    the window, per second.
    """
    ended = frame.filter(
        pl.col("end_ns").is_between(begin_ns, end_ns) & pl.col("sent_ns").is_not_null()
    )
    level = flying.mean(begin_ns, end_ns)
    if len(ended) == 0 or level == 0:
        return None
    in_system_ns = int((ended["end_ns"] - ended["sent_ns"]).sum())
    return abs(level - in_system_ns / (end_ns - begin_ns)) / level


def _reasons(
    frame: pl.DataFrame, flying: InFlight, span: tuple[int, int], little: float | None, *,
    open_loop: bool,
) -> list[str]:  # fmt: skip
    reasons = []
    seconds = (span[1] - span[0]) / NS_PER_S
    e2e_ms = frame["e2e_ms"].median()
    needed_s = max(SHORTEST_S, SHORTEST_E2E * float(e2e_ms or 0) / 1000)  # type: ignore[arg-type]
    if seconds < needed_s:
        reasons.append(f"the window is {seconds:.1f} s long; {needed_s:.0f} s are needed")
    if little is not None and little > LITTLE_TOLERANCE:
        reasons.append(f"Little's law is off by {little:.0%}")
    if open_loop and grows(flying, *span):
        reasons.append("the number of requests in flight grew: the load is above capacity")
    return reasons


def grows(flying: InFlight, begin_ns: int, end_ns: int, parts: int = 10) -> bool:
    """Return whether the number in flight rose through a window.

    Mann-Kendall's test over the means of ten parts, one-sided at about 1 %; and the last three
    parts must exceed the first three by a tenth and one request, because a level that wanders a
    little passes any test of significance sooner or later.
    """
    edges = np.linspace(begin_ns, end_ns, parts + 1)
    if begin_ns >= end_ns:
        return False
    means = [flying.mean(int(a), int(b)) for a, b in pairwise(edges)]
    ups = sum(np.sign(means[j] - means[i]) for i in range(parts) for j in range(i + 1, parts))
    spread = (parts * (parts - 1) * (2 * parts + 5) / 18) ** 0.5
    more = np.mean(means[-3:]) > _GROWTH * np.mean(means[:3]) + 1
    return bool(more and ups / spread > 2.33)  # noqa: PLR2004 - the 99 % point of a normal distribution
