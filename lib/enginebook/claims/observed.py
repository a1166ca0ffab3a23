"""What a run saw of a claim beside its load cells: probes, memory, swaps, simulations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from enginebook.claims.conditions import Conditions
from enginebook.claims.model import Bound, Claim
from enginebook.claims.rules import (
    CONTRADICTED,
    INCONCLUSIVE,
    NOT_TESTED,
    SUPPORTED,
    Outcome,
    inside,
    missing_families,
    worst,
)
from enginebook.claims.selection import OTHERS
from enginebook.stats import geometric_interval

Frames = Mapping[str, pl.DataFrame]
# What a claim's component stands for in the memory frame; several are added up.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "kv": ("kv_cache",),
    "runtime": ("graphs", "activations", "other"),
    "without_kv": ("weights", "graphs", "activations", "other"),
}
SECONDS_PER_MINUTE: Final = 60.0
GIGABYTE: Final = 1e9


def rows_of(frames: Frames, name: str) -> pl.DataFrame | None:
    """Return a frame of the run, None where it is absent or empty."""
    frame = frames.get(name)
    return None if frame is None or frame.is_empty() else frame


def simulated_labels(frames: Frames) -> list[str]:
    """Return the labels of a run's simulated engines, which are never held against real ones."""
    arms = rows_of(frames, "arms")
    return [] if arms is None else arms.filter("simulated")["engine"].to_list()


# What earlier versions wrote as "no" where the instrument itself had failed.
_BROKEN: Final = (
    "ModuleNotFoundError: No module named 'enginebook'",
    "ImportError: no argument parser",
)


# -- probes ----------------------------------------------------------------------------------------
def probed(claim: Claim, frames: Frames) -> Outcome | None:
    """Return whether published code works in the versions installed here.

    Only of claims that something runs (EXIT0) and only by probes that repeat the published text.
    Where the public record has a word for a failure (outdated), it keeps it.
    """
    found = rows_of(frames, "probes")
    if found is None or claim.test.rule != "EXIT0":
        return None
    mine = _answered(found, claim).filter(pl.col("topic") == "snippet")
    if mine.is_empty():
        return None
    words = [_probe_words(row) for row in mine.iter_rows(named=True)]
    reason = f"asked of what is installed here: {'; '.join(words)}"
    if mine["ok"].all():
        return Outcome(SUPPORTED, reason, n=len(mine), basis="probes")
    status = claim.evidence.status if claim.evidence else CONTRADICTED
    word = status if status in {"outdated", CONTRADICTED} else CONTRADICTED
    return Outcome(word, reason, n=len(mine), basis="probes")


def _answered(probes: pl.DataFrame, claim: Claim) -> pl.DataFrame:
    """Return the probes of a claim that saw something."""
    value = pl.col("value").fill_null("")
    broken = pl.any_horizontal(value.str.starts_with(text) for text in _BROKEN)
    return probes.filter((pl.col("claim") == claim.id) & pl.col("ok").is_not_null() & ~broken)


def _probe_words(row: Mapping[str, object]) -> str:
    value = f" ({row['value']})" if row["value"] else ""
    return f"{row['engine']}: {row['probe']}: {'yes' if row['ok'] else 'no'}{value}"


def seen(claim: Claim, frames: Frames) -> tuple[str, str]:
    """Return what else the run shows of a claim, in words, and which frame that is from."""
    probes = rows_of(frames, "probes")
    if probes is not None:
        mine = _answered(probes, claim)
        if not mine.is_empty():
            words = [_probe_words(row) for row in mine.iter_rows(named=True)]
            return f"seen here: {'; '.join(words)}", "probes"
    frame, column = {"S09": ("starts", "seconds"), "S10": ("swaps", "outage_s")}.get(
        claim.test.scenario, ("", "")
    )
    times = rows_of(frames, frame)
    return ("", "") if times is None else (_time_words(times, frame, column), frame)


def _time_words(times: pl.DataFrame, frame: str, column: str) -> str:
    """Return median times by engine: of warm starts to the first token, or of a swap's outage."""
    if frame == "starts":
        times = times.filter((pl.col("phase") == "first_token") & (pl.col("arm") == "warm"))
    medians = times.drop_nulls(column).group_by("engine", maintain_order=True)
    what = "warm start to the first token" if frame == "starts" else "outage of a model swap"
    words = [
        f"{row['engine']} {row['middle']:.3g} s (n = {row['n']})"
        for row in medians.agg(
            pl.col(column).median().alias("middle"), pl.len().alias("n")
        ).to_dicts()
    ]
    return f"seen here: {what}: {', '.join(words)}" if words else ""


# -- times -----------------------------------------------------------------------------------------
def swapped(claim: Claim, frames: Frames, conditions: Conditions) -> Outcome | None:
    """Return how long a model swap took, in minutes, against the claimed range."""
    test, found = claim.test, rows_of(frames, "swaps")
    if found is None or test.scenario != "S10" or test.rule != "RANGE" or not test.engines:
        return None
    mine = found.filter(pl.col("engine").is_in(_labels(found, test.engines[0], conditions)))
    minutes = [s / SECONDS_PER_MINUTE for s in mine["outage_s"].drop_nulls().to_list() if s > 0]
    if not minutes:
        return missing_families(test.engines, found["engine"].unique().to_list())
    middle = geometric_interval(minutes)
    outcome = inside(middle.low, middle.high, test.low, test.high, middle.n)
    return Outcome(
        outcome.verdict, outcome.reason, f"{middle.value:.3g} min", middle.low, middle.high,
        middle.n, basis="swaps",
    )  # fmt: skip


def _labels(frame: pl.DataFrame, family: str, conditions: Conditions) -> list[str]:
    names = frame["engine"].unique(maintain_order=True).to_list()
    return [e for e in names if conditions.family(e) == family]


# -- memory ----------------------------------------------------------------------------------------
def parts_of(component: str) -> tuple[str, ...]:
    """Return the components of the memory frame that a claim's component stands for."""
    return PARTS.get(component, (component,))


def bytes_of(
    memory: pl.DataFrame, family: str, component: str, conditions: Conditions
) -> tuple[int, tuple[str, ...]] | None:
    """Return the bytes of one engine's component when it was ready, and the parts that they are of.

    None where the run read none of them; a sum of one part is no sum of weights and the rest.
    """
    if "state" in memory.columns:
        memory = memory.filter(pl.col("state") == "ready")
    labels = _labels(memory, family, conditions)
    if not labels:
        return None
    mine = memory.filter(pl.col("engine") == labels[0])
    found = dict(mine.unique("component", keep="first").select("component", "bytes").rows())
    parts = tuple(p for p in parts_of(component) if found.get(p) is not None)
    if not parts or (component == "without_kv" and len(parts) == 1):
        return None
    return sum(int(found[p]) for p in parts), parts


def memory_figure(claim: Claim, frames: Frames, conditions: Conditions) -> Outcome | None:
    """Return a component's bytes against the claimed ones, or the order of engines by them."""
    memory, test = rows_of(frames, "memory"), claim.test
    if memory is None:
        return None
    if test.rule == "ORDER":
        return _memory_order(claim, memory, conditions)
    if test.value is None:
        return None
    component = test.component or ""
    found = bytes_of(memory, test.engines[0], component, conditions)
    if found is None:
        wanted = ", ".join(parts_of(component))
        return Outcome(NOT_TESTED, f"this run has no {wanted} bytes of {test.engines[0]}")
    amount, parts = found
    ratio = amount / test.value
    verdict = SUPPORTED if abs(ratio - 1) <= test.tolerance else CONTRADICTED
    text = f"{amount / test.unit_factor:.3g} {claim.unit}"
    reason = f"{ratio:.2f} of the claimed figure{_sum_words(parts)}"
    return Outcome(verdict, reason, text, n=1, basis="memory")


def _sum_words(parts: Sequence[str]) -> str:
    return f" ({' + '.join(parts)})" if len(parts) > 1 else ""


def _memory_order(claim: Claim, memory: pl.DataFrame, conditions: Conditions) -> Outcome:
    """Return whether the first engine holds less than all others, by what matters."""
    test = claim.test
    families = dict.fromkeys(conditions.family(e) for e in memory["engine"].to_list())
    found = {
        f: held
        for f in families
        if (held := bytes_of(memory, f, test.component or "", conditions)) is not None
    }
    firsts, seconds = (
        [f for f in found if n in {"*", f}] for n in (test.engines[0], test.engines[1])
    )
    duels = [(a, b) for a in firsts for b in seconds if a != b]
    if not duels:
        return missing_families(test.engines, list(found))
    untold = _untold(test.component or "", families, found, test.engines)
    if untold:
        return Outcome(NOT_TESTED, untold)
    gains = [found[b][0] / max(1, found[a][0]) for a, b in duels]
    words = ", ".join(
        f"{family} {amount / GIGABYTE:.2f} GB{_sum_words(summed)}"
        for family, (amount, summed) in found.items()
    )
    verdict = INCONCLUSIVE
    if min(gains) >= 1 + test.least:
        verdict = SUPPORTED
    elif min(gains) <= 1:
        verdict = CONTRADICTED
    return Outcome(verdict, words, f"{min(gains):.3g}x", n=1, basis="memory")


def _untold(
    component: str,
    families: Iterable[str],
    found: Mapping[str, tuple[int, tuple[str, ...]]],
    named: Sequence[str],
) -> str:
    """Return which engine tells not all parts that others tell: sums of other parts do not compare.

    Empty where the sums of all engines that the claim speaks of are of the same parts.
    """
    meant = [f for f in families if OTHERS in named or f in named]
    told = {f: set(found[f][1]) if f in found else set() for f in meant}
    every = [p for p in parts_of(component) if any(p in parts for parts in told.values())]
    lacking = {f: [p for p in every if p not in parts] for f, parts in told.items()}
    words = [
        f"{f} tells no {' and no '.join(parts)} bytes" for f, parts in lacking.items() if parts
    ]
    return "; ".join(words)


# -- simulations -----------------------------------------------------------------------------------
def simulated(claim: Claim, frames: Frames) -> Outcome | None:
    """Return what the simulated figures say: of one policy, or of one over another (``A / B``).

    Where the claim has several conditions, the one that holds least decides.
    """
    found, test = rows_of(frames, "simulations"), claim.test
    if found is None or test.rule != "RANGE" or test.component is None:
        return None
    mine = found.filter(pl.col("metric") == (test.metric or "")).drop_nulls("value")
    first = Bound(component=test.component, low=test.low, high=test.high)
    if not _simulated_values(mine, first.component):
        return None
    outcomes = [_within_bound(mine, bound) for bound in (first, *test.bounds)]
    deciding = worst(outcomes)
    if deciding.verdict == NOT_TESTED:
        return deciding
    return replace(deciding, reason="; ".join(o.reason for o in outcomes))


def _within_bound(frame: pl.DataFrame, bound: Bound) -> Outcome:
    """Return whether a component's figures lie within limits at every x."""
    values = _simulated_values(frame, bound.component)
    if not values:
        return Outcome(NOT_TESTED, f"this run simulated no {bound.component}")
    low, high = min(values.values()), max(values.values())
    words = ", ".join(f"{v:.2f} at {x:g}" for x, v in values.items())
    name = frame["x_name"].drop_nulls().first() or "x"
    held = [(bound.low or 0.0) <= v <= (bound.high or float("inf")) for v in values.values()]
    verdict = SUPPORTED if all(held) else INCONCLUSIVE if any(held) else CONTRADICTED
    reason = f"simulated, {bound.component} by {str(name).replace('_', ' ')}: {words}"
    if verdict == INCONCLUSIVE:
        reason += "; it depends on that alone"
    return Outcome(verdict, reason, f"{low:.3g} to {high:.3g}", low, high, len(values), "simulated")


def _simulated_values(frame: pl.DataFrame, component: str) -> dict[float, float]:
    """Return by x the figures of a policy, or of one over another."""
    over, _, under = (part.strip() for part in component.partition("/"))
    values = _by_x(frame, over)
    if not under:
        return values
    base = _by_x(frame, under)
    return {x: v / base[x] for x, v in values.items() if base.get(x)}


def _by_x(frame: pl.DataFrame, label: str) -> dict[float, float]:
    mine = frame.filter(pl.col("label").str.split(",").list.first() == label)
    return dict(mine.select("x", "value").rows())
