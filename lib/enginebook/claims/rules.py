"""The accept rules: from selected values to a verdict on one claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from enginebook.claims.model import Claim, Test
from enginebook.claims.selection import OTHERS, Selection
from enginebook.stats import Interval, Pairs, geometric_interval
from enginebook.stats.crossing import crossing_of, paired_curves
from enginebook.stats.intervals import t_quantile
from enginebook.stats.planner import ALPHA

SUPPORTED: Final = "supported"
CONTRADICTED: Final = "contradicted"
INCONCLUSIVE: Final = "inconclusive"
NOT_TESTED: Final = "not tested here"
NOT_COMPARABLE: Final = "not comparable"
RATIO_BLOCKS: Final = 5  # fewer carry neither a ratio's tolerance nor a crossing


@dataclass(frozen=True)
class Outcome:
    """What a rule found."""

    verdict: str
    reason: str
    measured: str | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    basis: str = ""  # which evidence: load cells, memory, probes, swaps, simulated ...


def missing(families: Sequence[str], selection: Selection) -> Outcome:
    """Return the outcome when engines of the claim were not measured."""
    return missing_families(families, selection.families)


def missing_families(families: Sequence[str], present: Sequence[str]) -> Outcome:
    """Return the outcome when a frame holds not all engines of a claim."""
    absent = [f for f in families if f != OTHERS and f not in present]
    if absent:
        return Outcome(NOT_TESTED, f"this run has no comparable figure of {', '.join(absent)}")
    return Outcome(NOT_TESTED, "this run has no cell that the claim speaks of")


def gain_interval(pairs: Pairs, confidence: float = 1 - ALPHA) -> Interval:
    """Return the ratio and its interval."""
    if pairs.standard_error is None:
        return Interval(pairs.ratio, None, None, pairs.n)
    half = pairs.standard_error * t_quantile(confidence, pairs.degrees)
    low, high = math.exp(pairs.mean - half), math.exp(pairs.mean + half)
    return Interval(pairs.ratio, low, high, pairs.n)


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome that decides when all must hold: contradicted, then inconclusive.

    Of several outcomes one is contradicted by chance more easily than a single one; the rules that
    use this share their error rate over all of them (Bonferroni).
    """
    order = (NOT_TESTED, CONTRADICTED, INCONCLUSIVE, SUPPORTED)
    return min(outcomes, key=lambda o: order.index(o.verdict))


# -- ABS -----------------------------------------------------------------------------------------
def judge_abs(claim: Claim, selection: Selection) -> Outcome:
    """Judge measured over claimed, with its interval, against 1 plus or minus the tolerance."""
    test = claim.test
    mine = selection.frame.filter(pl.col("family") == test.engines[0])
    if mine.is_empty() or not test.value:
        return missing(test.engines, selection)
    per_block = mine.group_by("block").agg(pl.col("value").log().mean().exp())["value"].to_list()
    found = geometric_interval(per_block)
    text = f"{(found.value or 0.0) / test.unit_factor:,.4g} {claim.unit}".strip()
    ratio = [None if v is None else v / test.value for v in (found.low, found.high)]
    outcome = inside(ratio[0], ratio[1], 1 - test.tolerance, 1 + test.tolerance, found.n)
    return replace(outcome, measured=text, low=found.low, high=found.high)


def inside(
    low: float | None, high: float | None, least: float | None, most: float | None, n: int
) -> Outcome:
    """Return whether an interval lies in a range (None: open), outside it, or across its edge."""
    if low is None or high is None:
        return Outcome(INCONCLUSIVE, "one block: no interval", n=n)
    floor, top = (-math.inf if least is None else least), (math.inf if most is None else most)
    words = f"[{low:.3g}, {high:.3g}] against {floor:.3g} to {top:.3g}"
    if low >= floor and high <= top:
        return Outcome(SUPPORTED, f"the interval lies inside: {words}", None, low, high, n)
    if high < floor or low > top:
        return Outcome(CONTRADICTED, f"the interval lies outside: {words}", None, low, high, n)
    return Outcome(INCONCLUSIVE, f"the interval crosses an edge: {words}", None, low, high, n)


# -- RATIO ---------------------------------------------------------------------------------------
def judge_ratio(claim: Claim, selection: Selection) -> Outcome:
    """Judge the pooled ratio of two engines against the claimed one."""
    test = claim.test
    pooled = selection.pairs(*test.engines[:2])
    if not pooled or not test.value:
        return missing(test.engines, selection)
    where, pairs = next(iter(pooled.items()))
    found = gain_interval(pairs)
    bounds = test.value * (1 - test.tolerance), test.value * (1 + test.tolerance)
    outcome = inside(found.low, found.high, *bounds, found.n)
    if pairs.n < RATIO_BLOCKS:
        reason = f"{pairs.n} paired blocks; this rule asks for {RATIO_BLOCKS} ({outcome.reason})"
        outcome = Outcome(INCONCLUSIVE, reason, None, found.low, found.high, pairs.n)
    return replace(outcome, measured=f"{found.value:.3g}x over {where}")


# -- ORDER ---------------------------------------------------------------------------------------
def judge_order(claim: Claim, selection: Selection) -> Outcome:
    """Judge whether the leader is ahead of every rival (`any_of`: of one) by the least gain."""
    test = claim.test
    needed = (test.engines[:2], *test.also)
    duels = [d for pair in needed for d in _duels(pair, selection)]
    if not duels or any(not _duels(pair, selection) for pair in needed):
        return missing([f for pair in needed for f in pair], selection)
    pairs = {
        f"{a} over {b}, {where}": p
        for a, b in duels
        for where, p in selection.pairs(a, b, each=test.each).items()
    }
    found = [_ordered(p, where, test.least, len(pairs)) for where, p in pairs.items()]
    if not found:
        return missing(test.engines, selection)
    if test.any_of:
        return next((o for o in found if o.verdict == SUPPORTED), worst(found))
    return worst(found)


def _duels(pair: Sequence[str], selection: Selection) -> list[tuple[str, str]]:
    a, b = pair
    firsts = selection.rivals(a, than=b)
    return [(f, s) for f in firsts for s in selection.rivals(b, than=f)]


def _ordered(pairs: Pairs, where: str, least: float, shared: int) -> Outcome:
    """Return whether the first leads, by a gain that matters; `shared` split the error rate."""
    found = gain_interval(pairs)
    text = f"{found.value:.3g}x ({where})"
    ahead, behind = pairs.p_above(0.0), pairs.flipped().p_above(0.0)
    edge = math.log1p(least)

    def outcome(verdict: str, reason: str) -> Outcome:
        return Outcome(verdict, f"{reason}: {text}", text, found.low, found.high, pairs.n)

    if ahead is None or behind is None:
        return outcome(INCONCLUSIVE, "one block: no interval")
    if ahead <= ALPHA / 2 / shared and pairs.mean >= edge:
        return outcome(SUPPORTED, "ahead, as claimed")
    if behind <= ALPHA / 2 / shared:
        return outcome(CONTRADICTED, "the other way round")
    p_short = pairs.flipped().p_above(-edge)
    if p_short is not None and p_short <= ALPHA / shared:
        return outcome(
            CONTRADICTED, f"less ahead than {least:.0%}, which is a tie or not the claim"
        )
    return outcome(INCONCLUSIVE, "the order is not settled")


# -- RANGE ---------------------------------------------------------------------------------------
def judge_range(claim: Claim, selection: Selection) -> Outcome:
    """Judge a share between two engines (reduction) or all (waste) against the claimed range."""
    test = claim.test
    found = _waste(selection) if test.derive == "waste" else _reduction(test, selection)
    if not found:
        return missing(test.engines, selection)
    outcomes = [
        replace(
            inside(i.low, i.high, test.low, test.high, i.n), measured=f"{i.value:.1%} ({where})"
        )
        for where, i in found.items()
    ]
    return worst(outcomes)


def _reduction(test: Test, selection: Selection) -> Mapping[str, Interval]:
    """Return per point by which part the first engine's figure lies below the second's."""
    a, b = test.engines[:2]
    pairs = selection.pairs(a, b, each=test.each)
    ratios = {w: p if selection.sign > 0 else p.flipped() for w, p in pairs.items()}
    return {w: _share(p, len(ratios)) for w, p in ratios.items()}


def _waste(selection: Selection) -> Mapping[str, Interval]:
    """Return per point 1 - worst/best."""
    out: dict[str, Interval] = {}
    shared = len(selection.points)
    for point, group in selection.frame.group_by(["point"], maintain_order=True):
        means = group.group_by("family").agg(pl.col("value").log().mean()).sort("value")
        names = means["family"].to_list()
        best, last = (names[-1], names[0]) if selection.sign > 0 else (names[0], names[-1])
        pairs = selection.pairs(last, best, each=True).get(str(point[0]))
        if best != last and pairs is not None:
            out[str(point[0])] = _share(pairs, shared)
    return out


def _share(ratio: Pairs, shared: int = 1) -> Interval:
    """Return 1 - ratio with its interval, which covers 95 % together with `shared` - 1 others."""
    found = gain_interval(ratio, 1 - ALPHA / shared)
    low, high = (None if v is None else 1 - v for v in (found.high, found.low))
    return Interval(1 - ratio.ratio, low, high, ratio.n)


# -- CROSS ---------------------------------------------------------------------------------------
def _widest_sweep(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the cells of the one load (scenario and lengths) that has most concurrencies.

    A crossing lies on one curve; cells of other lengths at the same concurrency are not on it.
    """
    load = ["scenario", "input_tokens", "output_tokens"]
    if frame.is_empty():
        return frame
    widths = frame.group_by(load, maintain_order=True).agg(pl.col("concurrency").n_unique())
    widest = widths.sort("concurrency", descending=True, maintain_order=True).head(1)
    return frame.join(widest.select(load), on=load, how="semi")


def judge_cross(claim: Claim, selection: Selection) -> Outcome:
    """Judge the concurrency from which the first engine leads against the claimed interval."""
    test = claim.test
    frame = _widest_sweep(selection.frame).rename({"family": "engine"})
    curves = paired_curves(frame, test.engines[0], test.engines[1], selection.sign)
    if curves is None:
        return missing(test.engines, selection)
    found = crossing_of(*curves)
    text = "no crossing" if found.at is None else f"crosses at {found.at:.3g}"
    low, high = found.low or float(curves[0][0]), found.high or math.inf
    shown = Outcome("", "", text, found.low, found.high, found.n)
    loads = f"{curves[0][0]:.0f} to {curves[0][-1]:.0f}"
    if found.n < RATIO_BLOCKS:
        reason = f"{found.n} paired blocks; this rule asks for {RATIO_BLOCKS}; {text}"
        return replace(shown, verdict=INCONCLUSIVE, reason=reason)
    if found.share < ALPHA:
        return replace(shown, verdict=CONTRADICTED, reason=f"no crossing between {loads}")
    if low >= (test.low or 0) and high <= (test.high or math.inf):
        return replace(shown, verdict=SUPPORTED, reason=f"{text}, inside the claimed range")
    if high < (test.low or 0) or low > (test.high or math.inf):
        return replace(shown, verdict=CONTRADICTED, reason=f"{text}, outside the claimed range")
    return replace(shown, verdict=INCONCLUSIVE, reason=f"{text}; its interval crosses an edge")


# -- REGRET --------------------------------------------------------------------------------------
def judge_regret(claim: Claim, selection: Selection) -> Outcome:
    """Judge what following the advice costs against the best engine measured."""
    test = claim.test
    mine = test.engines[0]
    rivals = selection.rivals(OTHERS, than=mine)
    losses = {r: p for r in rivals for p in selection.pairs(mine, r).values()}
    if mine not in selection.families or not losses:
        return missing([mine], selection)
    best = min(losses, key=lambda r: losses[r].mean)
    found = _share(losses[best])
    regret = max(0.0, found.value or 0.0)
    text = f"{regret:.1%} against {best}"
    if found.low is None or found.high is None:
        return Outcome(INCONCLUSIVE, f"one block: no interval; {text}", text, n=found.n)
    low, high = max(0.0, found.low), max(0.0, found.high)
    words = f"regret {text}, 95 % interval {low:.1%} to {high:.1%}, limit {test.tolerance:.0%}"
    verdict = INCONCLUSIVE
    if max(_share(p).high or 0.0 for p in losses.values()) <= test.tolerance:
        verdict = SUPPORTED
    elif low > test.tolerance:
        verdict = CONTRADICTED
    return Outcome(verdict, words, text, low, high, found.n)


RULES: Final[Mapping[str, Callable[[Claim, Selection], Outcome]]] = {
    "ABS": judge_abs,
    "RATIO": judge_ratio,
    "ORDER": judge_order,
    "RANGE": judge_range,
    "CROSS": judge_cross,
    "REGRET": judge_regret,
}
