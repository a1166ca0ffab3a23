"""Which comparisons share an error rate: one family for each question that a study asks.

A study of dozens of series makes hundreds of comparisons. Under one correction over all of them the
headline (plain load, three metrics) would need many times the blocks because the study *also* swept
prefixes and grammars. Each kind of question therefore keeps its own family-wise error rate of 5 %;
what is in no family is exploratory and says so by a null `p_holm`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import polars as pl

from enginebook.stats.metrics import PRIMARY

PLAIN, REUSE, STRUCTURED, SESSIONS, ONLINE = "load", "reuse", "structured", "sessions", "online"
# Metrics that answer one question wherever they are measured, by their name before a dot.
_OWN: Final = {
    "goodput_per_s": ONLINE,
    "slo_share": ONLINE,
    "capacity_per_s": ONLINE,
    "valid_json_share": STRUCTURED,
    "time_per_valid_answer_ms": STRUCTURED,
    "sessions_per_s": SESSIONS,
    "ttft_turn_first_p50_ms": SESSIONS,
    "ttft_turn_last_p50_ms": SESSIONS,
}


def family_by_series(loads: pl.DataFrame | None) -> dict[str, str]:
    """Return which family the primary metrics of each series belong to.

    Parameters
    ----------
    loads
        The `loads` frame (scenario, kind, answer_format, prefix_tokens are read); None: nothing is
        known of the series, and all are plain loads.
    """
    if loads is None:
        return {}
    return {row["scenario"]: _family(row) for row in loads.iter_rows(named=True)}


def _family(load: Mapping[str, Any]) -> str:
    if load["kind"] == "sessions":
        return SESSIONS
    if load["kind"] != "closed_loop":
        return ONLINE
    if load["answer_format"] not in {None, "text"}:
        return STRUCTURED
    return REUSE if load["prefix_tokens"] else PLAIN


def family_of(
    metric: str, series: str, by_series: Mapping[str, str], primary: Collection[str] = PRIMARY
) -> str | None:
    """Return the family of one comparison; None: exploratory, uncorrected."""
    own = _OWN.get(metric.split(".", 1)[0])
    if own is not None:
        return own
    return by_series.get(series, PLAIN) if metric in primary else None
