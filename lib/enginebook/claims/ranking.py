"""The decision guide: which engine for a workload, at what cost, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from enginebook.claims.capacity import BlockCapacities, measured_capacities
from enginebook.claims.need import Cut, NextRun, Workload, next_run
from enginebook.stats import Interval, Verdict, geometric_interval, judge_pairs, pairs_of
from enginebook.stats.pairs import paired_ratio
from enginebook.stats.verdicts import p_of_win

RANK_SCHEMA: Final[dict[str, Any]] = {
    "engine": pl.String, "rank": pl.Int64, "verdict": pl.String, "reason": pl.String,
    "requests_per_s": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n_blocks": pl.Int64,
    "usd_per_million_tokens": pl.Float64, "usd_low": pl.Float64, "usd_high": pl.Float64,
    "replicas": pl.Int64, "replicas_low": pl.Int64, "replicas_high": pl.Int64,
    "usd_per_hour": pl.Float64, "within_budget": pl.Boolean,
    "regret": pl.Float64, "regret_low": pl.Float64, "regret_high": pl.Float64,
    "blocks_needed": pl.Int64, "scenario": pl.String,
    "measured_input_tokens": pl.Int64, "measured_output_tokens": pl.Int64,
    "next_run": pl.String, "next_kind": pl.String, "next_scenario": pl.String,
    "next_input_tokens": pl.Int64, "next_output_tokens": pl.Int64, "next_blocks": pl.Int64,
    "next_concurrency": pl.Int64, "next_engines": pl.List(pl.String),
}  # fmt: skip
Prices = float | Mapping[str, float] | None
Row = dict[str, Any]
_RATES: Final = ("requests_per_s", "output_tokens_per_s")  # what a capacity is read from
# What to run first where several runs are needed before a leader is known to be best.
_URGENT: Final = ("load", "lengths", "json", "blocks", "none")


@dataclass(frozen=True)
class _Terms:
    """What all engines of a ranking are held against."""

    leader: str | None
    prices: Prices
    margin: float
    # All pairs share the error rate, not only those with the leader: which engine leads is chosen
    # by the same data.
    pairs: int = 1

    def price_of(self, engine: str) -> float | None:
        """Return US dollars per hour of one replica; None when not given."""
        return self.prices.get(engine) if isinstance(self.prices, Mapping) else self.prices


def rank(
    workload: Workload,
    frames: Mapping[str, pl.DataFrame],
    prices: Prices = None,
    *,
    margin: float = 0.03,
    noise_floor: Mapping[str, float] | None = None,
) -> pl.DataFrame:
    """Return the engines of a study, the most capable first.

    Parameters
    ----------
    workload
        What is to be served.
    frames
        The study's frames: `cells` is read; where they are there, `loads` says what each series
        did, and `arms` which engines are simulated (left out beside real ones) and which run as
        they come (the only ones ranked).
    prices
        US dollars per hour of the hardware of one replica, for all engines or by engine.
    margin
        Relative difference in capacity that does not matter.
    noise_floor
        By metric, the difference that an engine shows from itself on this host: where it exceeds
        the margin it takes its place. None: the margins by which `comparisons` of the frames was
        judged, where it is there.

    Returns
    -------
    polars.DataFrame
        `requests_per_s` is what one replica carries within the limits, with a 95 % interval over
        blocks; cost, replicas and regret follow from it. Verdicts: `best`, `worse`, `tie` and
        `undecided` (against the leader), `alone`, `misses the limits`, `no data`. The comparisons
        share one error rate. `next_run` is what would settle an open row, `next_kind` which kind
        of run that is, and the other columns `next_...` are its parameters.
    """
    cells = _ranked_cells(frames)
    found = measured_capacities(cells, workload, frames.get("loads"))
    ranked = sorted(found, key=lambda e: -(_mean(found[e]) or 0.0))
    leader = next((e for e in ranked if found[e].values), None)
    pairs = math.comb(sum(bool(f.values) for f in found.values()), 2)
    floors = margins_of(frames.get("comparisons")) if noise_floor is None else noise_floor
    wide = max(margin, *(floors.get(name, 0.0) for name in _RATES))
    terms = _Terms(leader, prices, wide, max(1, pairs))
    rows = [_row(workload, e, found, terms) for e in ranked]
    runs = [next_run(row, workload, row["cut"]) for row in rows]
    named = _leader_named(rows)
    settled = [
        row | _next(_leaders_run(named, runs) if row["engine"] == leader else run)
        for row, run in zip(named, runs, strict=True)
    ]
    return pl.DataFrame(
        [{k: row.get(k) for k in RANK_SCHEMA} | {"rank": i + 1} for i, row in enumerate(settled)],
        schema=RANK_SCHEMA,
    )


def margins_of(comparisons: pl.DataFrame | None) -> dict[str, float]:
    """Return by metric the margin by which a run's comparisons were judged.

    It is the study's margin or, where that is larger, the host's noise floor.
    """
    if comparisons is None or not {"metric", "margin"} <= set(comparisons.columns):
        return {}
    widest = comparisons.drop_nulls("margin").group_by("metric").agg(pl.col("margin").max())
    return dict(widest.select("metric", "margin").rows())


def _next(run: NextRun | None) -> Row:
    """Return a run as columns."""
    if run is None:
        return {}
    about = {f"next_{k}": v for k, v in vars(run).items() if v not in {"", ()}}
    return about | {"next_run": run.text}


def _leaders_run(rows: Sequence[Row], runs: Sequence[NextRun | None]) -> NextRun | None:
    """Return what would show the leader to be best: what its open rivals need, most urgent first.

    A run of its own (another length, a rival at all) goes before.
    """
    if runs[0] is not None:
        return runs[0]
    if rows[0]["verdict"] == "alone":
        return NextRun("rival")
    needed = [
        run
        for row, run in zip(rows[1:], runs[1:], strict=True)
        if row["verdict"] in {"undecided", "no data"} and run is not None
    ]
    if rows[0]["verdict"] != "undecided" or not needed:
        return None
    return min(needed, key=lambda run: (_URGENT.index(run.kind), -(run.blocks or 0)))


def _ranked_cells(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Keep engines as they come, and no simulated one beside real ones."""
    cells, arms = frames["cells"], frames.get("arms")
    if arms is None or arms.is_empty():
        return cells
    kept = arms.filter(pl.col("arm") == "defaults")
    if not kept["simulated"].all():
        kept = kept.filter(~pl.col("simulated"))
    return cells.filter(pl.col("engine").is_in(kept["engine"].to_list()))


def _mean(capacities: BlockCapacities) -> float | None:
    return geometric_interval(list(capacities.values.values())).value if capacities.values else None


def _row(
    workload: Workload, engine: str, found: Mapping[str, BlockCapacities], terms: _Terms
) -> Row:
    mine = found[engine]
    row: Row = dict.fromkeys(RANK_SCHEMA) | {
        "engine": engine,
        "cut": None,
        "n_blocks": len(mine.values),
        "scenario": mine.scenario,
        "measured_input_tokens": mine.input_tokens,
        "measured_output_tokens": mine.output_tokens,
    }
    if not mine.values or terms.leader is None:
        cut = mine.cut if mine.word == "no data" else None
        return row | {"verdict": mine.word, "reason": mine.reason, "cut": cut}
    capacity = geometric_interval(list(mine.values.values()))
    row |= {"requests_per_s": capacity.value, "low": capacity.low, "high": capacity.high}
    price = terms.price_of(engine)
    row |= _cost(capacity, mine.output_tokens or workload.output_tokens, price)
    row |= _fleet(capacity, workload, price)
    if engine == terms.leader:
        return row | {"verdict": "best", "reason": mine.reason, "regret": 0.0}
    return row | _against(mine, found[terms.leader], terms)


def _cost(capacity: Interval, output_tokens: int, price: float | None) -> Row:
    """Return US dollars per million output tokens at full load; the limits change places."""

    def usd(requests_per_s: float | None) -> float | None:
        if price is None or requests_per_s is None:
            return None
        return price / (requests_per_s * output_tokens * 3600) * 1e6

    return {
        "usd_per_million_tokens": usd(capacity.value),
        "usd_low": usd(capacity.high),
        "usd_high": usd(capacity.low),
    }


def _fleet(capacity: Interval, workload: Workload, price: float | None) -> Row:
    """Return how many replicas carry the load; the upper figure is the one to provision."""
    load = workload.requests_per_s
    if load is None:
        return {}
    count = [
        None if rate is None else math.ceil(load / rate)
        for rate in (capacity.value, capacity.high, capacity.low)
    ]
    hourly = None if price is None or count[0] is None else price * count[0]
    budget = workload.budget_usd_per_hour
    within = None if hourly is None or budget is None else hourly <= budget
    return {
        "replicas": count[0],
        "replicas_low": count[1],
        "replicas_high": count[2],
        "usd_per_hour": hourly,
        "within_budget": within,
    }


def _against(mine: BlockCapacities, best: BlockCapacities, terms: _Terms) -> Row:
    """Return verdict and regret against the leader, over the blocks that both have."""
    note = f"; {mine.reason}" if mine.reason else ""
    blocks = [b for b in mine.values if b in best.values]
    if not blocks:
        return {"verdict": "undecided", "reason": f"no block in common with the leader{note}"}
    a, b = [mine.values[k] for k in blocks], [best.values[k] for k in blocks]
    pairs, margin = pairs_of(a, b), terms.margin
    p_win = p_of_win(pairs, margin)
    shared = None if p_win is None else min(1.0, p_win * terms.pairs)
    judged: Verdict = judge_pairs(pairs, margin, shared, terms.pairs)
    ratio = paired_ratio(a, b)
    word = {"slower": "worse", "faster": "undecided"}.get(judged.word, judged.word)
    regret = [None if v is None else 1 - v for v in (ratio.value, ratio.high, ratio.low)]
    found = {
        "verdict": word,
        "reason": f"{judged.reason}{note}",
        "regret": regret[0],
        "regret_low": regret[1],
        "regret_high": regret[2],
        "blocks_needed": judged.blocks_needed,
    }
    # What is worse and has no more to show stays worse, whatever else the leader can do.
    cut = mine.cut if word == "worse" else mine.cut or best.cut
    return found if cut is None else found | _capped(found, cut)


def _capped(found: Row, cut: Cut) -> Row:
    """Return a verdict that a load, which not all engines have, keeps open."""
    reason = f"{cut.text}; there: {found['reason']}"
    return {"verdict": "undecided", "reason": reason, "blocks_needed": None, "cut": cut}


def _leader_named(rows: list[Row]) -> list[Row]:
    """Call the leader best only where every rival is known to be worse."""
    rivals = [r for r in rows if r["verdict"] in {"tie", "undecided", "no data"}]
    if len(rows) == 1:
        return [_renamed(r, "alone", "no other engine to hold it against") for r in rows]
    if not rivals:
        return rows
    word = "tie" if {r["verdict"] for r in rivals} == {"tie"} else "undecided"
    needed, text = _blocks_for(rivals)
    text = "; ".join(t for t in (_open_words(rivals), text) if t)
    return [_renamed(r, word, text) | {"blocks_needed": needed} if r["verdict"] == "best"
            else r for r in rows]  # fmt: skip


def _blocks_for(rivals: Sequence[Row]) -> tuple[int | None, str]:
    """Return how many blocks would decide the leader's place, and of which rivals they decide.

    None where one rival stays open whatever is repeated.
    """
    open_ones = [r for r in rivals if r["verdict"] != "tie"]
    deciding = [r for r in open_ones if r["blocks_needed"]]
    if not deciding:
        return None, ""
    needed = max(int(r["blocks_needed"]) for r in deciding)
    text = f"about {needed} blocks would decide"
    if len(deciding) == len(open_ones):
        return needed, text
    return None, f"{text} {', '.join(r['engine'] for r in deciding)}, not the others"


def _renamed(row: Row, word: str, text: str) -> Row:
    if row["verdict"] != "best":
        return row
    return row | {"verdict": word, "reason": "; ".join(t for t in (text, row["reason"]) if t)}


def _open_words(rivals: list[Row]) -> str:
    """Return why the leader is not called best."""
    by_word = {
        word: ", ".join(r["engine"] for r in rivals if r["verdict"] == word)
        for word in ("tie", "undecided", "no data")
    }
    parts = [
        f"as good as {by_word['tie']}" if by_word["tie"] else "",
        f"leads, but {by_word['undecided']} may be as good" if by_word["undecided"] else "",
        f"{by_word['no data']} was not measured for this" if by_word["no data"] else "",
    ]
    return "; ".join(part for part in parts if part)
