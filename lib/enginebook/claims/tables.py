"""The figures of a register's tables as a frame, for `physics.fit_hypotheses`."""

from __future__ import annotations

import polars as pl

from enginebook.claims.model import Claim, Register
from enginebook.physics.hypotheses import (
    TABLE_SCHEMA,
    Hypothesis,
    figure_efficiencies,
    fit_hypotheses,
    usual_hypotheses,
)
from enginebook.physics.models import model_named

_METRICS = ("output_tokens_per_s", "ttft_p50_ms")


def quoted_figures(register: Register) -> pl.DataFrame:
    """Return the rates and first-token times that a register quotes, one row a figure."""
    rows = [
        {
            "engine": c.test.engines[0],
            "metric": c.test.metric,
            "concurrency": _at(c, "concurrency"),
            "input_tokens": _at(c, "input_tokens"),
            "value": c.test.value,
        }
        for c in register.claims
        if c.test.rule == "ABS" and c.test.metric in _METRICS and c.test.engines
    ]
    return pl.DataFrame(rows, schema=TABLE_SCHEMA)


def _at(claim: Claim, axis: str) -> int | None:
    value = claim.test.at.get(axis, (None, None))[0]
    return None if value is None else int(value)


def stated_weights_gb(register: Register) -> float | None:
    """Return the median of the weight memory that a register quotes, in GB; None without any."""
    found = [(c.test.value or 0.0) / 1e9 for c in register.claims if c.test.component == "weights"]
    return float(pl.Series(found).median() or 0.0) if found else None  # type: ignore[arg-type]


def explain_register(register: Register, *, context: float = 0.0) -> pl.DataFrame:
    """Return which hardware explains a register's tables, the best first.

    For the article that comes with the package: four H100 at tensor parallel 4 in 16 bit, and no
    single H100 in any precision.
    """
    return fit_hypotheses(
        quoted_figures(register),
        model_named(_model(register)),
        context=context,
        weights_gb=stated_weights_gb(register),
    )


def figures_under_hypotheses(
    register: Register, hypotheses: list[Hypothesis] | None = None
) -> pl.DataFrame:
    """Return every quoted figure's efficiency under every hypothesis, for the chart."""
    shape = model_named(_model(register))
    return figure_efficiencies(quoted_figures(register), shape, hypotheses or usual_hypotheses())


def _model(register: Register) -> str:
    return next((c.setting.model for c in register.claims if c.setting and c.setting.model), "")
