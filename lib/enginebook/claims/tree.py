"""A decision tree's rules, derived anew: which engine measured best for the workload of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import polars as pl
import yaml

from enginebook.claims.conditions import Conditions, conditions_of
from enginebook.claims.judge import judge
from enginebook.claims.model import Claim, Register
from enginebook.claims.observed import simulated_labels
from enginebook.claims.selection import OTHERS, Selection, codes_by_series, select
from enginebook.stats import Pairs, judge_pairs
from enginebook.stats.verdicts import p_of_win

TREE_SCHEMA: Final[dict[str, Any]] = {
    "claim_id": pl.String, "rule": pl.String, "advised": pl.String, "best_here": pl.String,
    "best_decided": pl.Boolean, "best_n": pl.Int64, "regret": pl.String,
    "low": pl.Float64, "high": pl.Float64, "n": pl.Int64,
    "verdict": pl.String, "reason": pl.String,
}  # fmt: skip
FEATURE_SCHEMA: Final[dict[str, Any]] = {
    "engine": pl.String, "feature": pl.String, "value": pl.String, "sources": pl.List(pl.String),
    "pages": pl.List(pl.String), "as_of": pl.String,
}  # fmt: skip


def decision_rules(
    register: Register,
    cells: pl.DataFrame | None = None,
    *,
    host: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    frames: Mapping[str, pl.DataFrame] | None = None,
    margin: float = 0.03,
) -> pl.DataFrame:
    """Return the register's advice (its REGRET claims) beside what this run shows.

    `best_here` is the engine with the best mean over the blocks of the rule's workload, and
    `best_decided` whether every rival is behind it by more than the margin, judged by paired
    blocks; `best_n` is the fewest blocks of such a pair. Whether the advice holds is the verdict's
    matter. A rule whose engine was not measured stays untested: a missing engine is no loser.
    """
    advice = register.model_copy(
        update={"claims": tuple(c for c in register.claims if c.test.rule == "REGRET")}
    )
    judged = judge(advice, cells=cells, host=host, manifest=manifest, frames=frames)
    conditions = conditions_of(host, manifest)
    known = _Known(cells, conditions, frames or {}, margin)
    rows = []
    for claim, row in zip(advice.claims, judged.iter_rows(named=True), strict=True):
        kept = {k: row[k] for k in ("claim_id", "low", "high", "n", "verdict", "reason")}
        rows.append(
            kept
            | {
                "rule": claim.statement,
                "advised": claim.test.engines[0],
                "regret": row["measured"],
            }
            | _best(claim, known)
        )
    return pl.DataFrame(rows, schema=TREE_SCHEMA)


@dataclass(frozen=True)
class _Known:
    """What is known of a run."""

    cells: pl.DataFrame | None
    conditions: Conditions
    frames: Mapping[str, pl.DataFrame]
    margin: float


def _best(claim: Claim, known: _Known) -> dict[str, Any]:
    """Return the family that leads all others in the rule's workload, and how sure that is.

    Nothing with fewer than two families.
    """
    if known.cells is None or claim.test.metric is None:
        return {}
    selection: Selection = select(
        known.cells,
        claim.test,
        known.conditions,
        simulated_labels(known.frames),
        codes=codes_by_series(known.frames.get("loads")),
    )
    for family in selection.families:
        rivals = selection.rivals(OTHERS, than=family)
        gains = [p for r in rivals for p in selection.pairs(family, r).values()]
        if gains and len(gains) == len(rivals) and min(p.mean for p in gains) >= 0:
            # which family leads is chosen by the same data: all pairs share the error rate
            pairs = math.comb(len(rivals) + 1, 2)
            decided = all(_ahead(p, known.margin, pairs) for p in gains)
            n = min(p.n for p in gains)
            return {"best_here": family, "best_decided": decided, "best_n": n}
    return {}


def _ahead(gain: Pairs, margin: float, pairs: int) -> bool:
    p_win = p_of_win(gain, margin)
    shared = None if p_win is None else min(1.0, p_win * pairs)
    return judge_pairs(gain, margin, shared, pairs).word == "faster"


@cache
def feature_table() -> pl.DataFrame:
    """Return what engines need and offer: one fact a row.

    Returns
    -------
    polars.DataFrame
        `sources` are the URLs where the fact was read, `pages` what these are, `as_of` when.
    """
    text = files("enginebook.claims").joinpath("data/features.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    rows = [
        {
            "engine": engine,
            "feature": feature,
            "value": entry["value"],
            "sources": [data["pages"][p]["url"] for p in entry["pages"]],
            "pages": [data["pages"][p]["what"] for p in entry["pages"]],
            "as_of": str(entry.get("as_of", data["as_of"])),
        }
        for feature, by_engine in data["features"].items()
        for engine, entry in by_engine.items()
    ]
    return pl.DataFrame(rows, schema=FEATURE_SCHEMA)
