"""The decision guide in one call: ranking, rules of the article, effort, features, open runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from enginebook.claims.model import Register
from enginebook.claims.need import Workload
from enginebook.claims.ranking import Prices, rank
from enginebook.claims.register import load_register
from enginebook.claims.tree import decision_rules, feature_table

EFFORT_SCHEMA: Final = {
    "engine": pl.String, "install_s": pl.Float64, "install_bytes": pl.Int64, "packages": pl.Int64,
    "reused": pl.Boolean, "start_s": pl.Float64, "starts": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True)
class Guide:
    """What a study says to one workload.

    Attributes
    ----------
    ranking
        The engines, the most capable first (`rank`): requests/s with intervals, cost, replicas,
        regret, verdict, and the run that would settle what is open.
    rules
        The decision tree of the register, derived anew from this study (`decision_rules`).
    effort
        What installing and starting each engine took here; null where it was not measured.
    features
        What engines need and offer (`feature_table`), with sources and dates.
    """

    workload: Workload
    ranking: pl.DataFrame
    rules: pl.DataFrame
    effort: pl.DataFrame
    features: pl.DataFrame

    @property
    def best(self) -> str | None:
        """Return the engine that is known to be best, None while that is open."""
        named = self.ranking.filter(pl.col("verdict") == "best")["engine"].to_list()
        return str(named[0]) if named else None

    @property
    def open_runs(self) -> list[str]:
        """Return the runs that would settle what is open, each once."""
        return self.ranking["next_run"].drop_nulls().unique(maintain_order=True).to_list()

    @property
    def summary(self) -> str:
        """Return the answer in one sentence."""
        measured = self.ranking.drop_nulls("requests_per_s")
        if measured.is_empty():
            reasons = self.ranking["reason"].unique(maintain_order=True).to_list()
            return f"no engine is ranked: {'; '.join(reasons) or 'nothing was measured'}"
        first = measured.row(0, named=True)
        rate = f"{first['requests_per_s']:.3g} requests/s"
        if first["low"] is not None:
            rate += f" ({first['low']:.3g} to {first['high']:.3g})"
        if self.best is None:
            return f"undecided: {first['engine']} carries {rate}; {first['reason']}"
        return f"{self.best}: one replica carries {rate} within the limits, more than any other"


def guide(
    workload: Workload,
    frames: Mapping[str, pl.DataFrame],
    prices: Prices = None,
    *,
    margin: float = 0.03,
    noise_floor: Mapping[str, float] | None = None,
    register: Register | None = None,
    host: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Guide:
    """Return what a study's frames say to a workload.

    Parameters
    ----------
    frames
        As `open_run(...).frames`; at least `cells`.
    prices
        US dollars per hour of the hardware of one replica, for all engines or by engine.
    margin
        Relative difference in capacity that does not matter.
    noise_floor
        The host's noise floor by metric, as `rank` takes it.
    register
        Whose decision tree is derived anew; None: that of the package.
    host, manifest
        Of the run; they decide whether a rule on GPU engines can be tested here.

    Raises
    ------
    InputError
        When `cells` lacks a column.
    """
    return Guide(
        workload=workload,
        ranking=rank(workload, frames, prices, margin=margin, noise_floor=noise_floor),
        rules=decision_rules(
            register or load_register(), frames["cells"], host=host, manifest=manifest,
            frames=frames, margin=margin,
        ),
        effort=effort(frames),
        features=feature_table(),
    )  # fmt: skip


def effort(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return what installing and starting took: seconds and bytes an engine.

    `start_s` is the median over starts of the time from the process to the first token.
    """
    installs, launches = frames.get("installs"), frames.get("launches")
    found = pl.DataFrame(schema={"engine": pl.String})
    if installs is not None:
        found = installs.select(
            "engine", "packages", "reused", install_s="seconds", install_bytes="bytes"
        ).unique("engine", keep="first", maintain_order=True)
    if launches is not None:
        starts = launches.group_by("engine", "block").agg(pl.col("end_s").max())
        middle = starts.group_by("engine").agg(start_s=pl.col("end_s").median(), starts=pl.len())
        found = found.join(middle, on="engine", how="full", coalesce=True)
    lacking = [pl.lit(None).alias(c) for c in EFFORT_SCHEMA if c not in found.columns]
    whole = found.with_columns(lacking).sort("engine")
    return whole.select(pl.col(c).cast(t) for c, t in EFFORT_SCHEMA.items())
