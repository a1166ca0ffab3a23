"""One engine before and after: whether the new run loses against the old one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from enginebook.errors import InputError
from enginebook.stats.frames import NoiseFloor, comparisons
from enginebook.stats.metrics import PRIMARY, checked_cells

BEFORE, AFTER = "before", "after"


def regressions(
    before: pl.DataFrame,
    after: pl.DataFrame,
    *,
    margin: float = 0.03,
    metrics: Collection[str] = PRIMARY,
    noise_floor: NoiseFloor = None,
    renamed: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Return the comparison of two runs, engine by engine: the ratio is after over before.

    Parameters
    ----------
    before, after
        The `cells` frames of two runs of the same study.
    metrics
        The metrics that decide; Holm's correction runs over all of their rows.
    renamed
        Labels that changed, old to new.

    Returns
    -------
    polars.DataFrame
        A `comparisons` frame with a column `engine`; a verdict of `slower` is a loss.

    Notes
    -----
    Blocks of equal number have equal prompts and are paired. The runs were not interleaved, so what
    changed on the host in between counts as a difference; compare versions within one run where
    that matters.
    """
    names = dict(renamed or {})
    old = checked_cells(before).with_columns(engine=pl.col("engine").replace(names))
    new = checked_cells(after)
    common = [e for e in old["engine"].unique(maintain_order=True) if e in set(new["engine"])]
    if not common:
        raise InputError(
            f"the runs have no engine in common: {_names(old)} before, {_names(new)} after",
            "name the pair with --engine OLD=NEW",
        )
    both = pl.concat([_labelled(new, common, AFTER), _labelled(old, common, BEFORE)])
    found = comparisons(both, margin, metrics, noise_floor, primary=metrics)
    parts = pl.col("scenario").str.splitn("\x1f", 2)
    return found.select(pl.exclude("scenario"), engine=parts.struct[0], scenario=parts.struct[1])


def _labelled(cells: pl.DataFrame, engines: Collection[str], label: str) -> pl.DataFrame:
    """Return cells whose engine is the label; the engine's own name moves into the scenario."""
    kept = cells.filter(pl.col("engine").is_in(list(engines)))
    return kept.with_columns(
        scenario=pl.concat_str("engine", "scenario", separator="\x1f"), engine=pl.lit(label)
    )


def _names(cells: pl.DataFrame) -> str:
    return ", ".join(cells["engine"].unique(maintain_order=True).to_list()) or "none"
