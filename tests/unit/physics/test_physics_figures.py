"""Efficiency of quoted figures: the context counts, and a figure at its limit has efficiency 1."""

import polars as pl
import pytest

from enginebook.physics import (
    decode_bound,
    fit_hypotheses,
    model_named,
    prefill_bound,
    usual_hypotheses,
)
from enginebook.physics.hypotheses import TABLE_SCHEMA, figure_efficiencies

SHAPE = model_named("llama-3.1-8b")
HYPOTHESIS = next(iter(usual_hypotheses()))


def figure(metric, value, concurrency=8, input_tokens=1024):
    row = ("one", metric, concurrency, input_tokens, value)
    return pl.DataFrame([row], schema=TABLE_SCHEMA, orient="row")


def efficiency(table, **more):
    return figure_efficiencies(table, SHAPE, [HYPOTHESIS], **more)["efficiency"].item()


@pytest.mark.parametrize("context", [0.0, 50_000.0])
def test_a_rate_at_its_limit_has_efficiency_one(context):
    limit = 8 / decode_bound(SHAPE, HYPOTHESIS.place, 8, context).seconds
    table = figure("output_tokens_per_s", limit)
    assert efficiency(table, context=context) == pytest.approx(1)
    doubled = table.with_columns(value=pl.col("value") * 2)
    assert efficiency(doubled, context=context) == pytest.approx(2)


def test_the_same_rate_is_more_of_the_limit_when_the_context_is_long():
    table = figure("output_tokens_per_s", 500.0)
    assert efficiency(table, context=100_000.0) > efficiency(table)


def test_a_first_token_at_its_limit_has_efficiency_one():
    limit_ms = prefill_bound(SHAPE, HYPOTHESIS.place, 1024).seconds * 1000
    assert efficiency(figure("ttft_p50_ms", limit_ms)) == pytest.approx(1)
    assert efficiency(figure("ttft_p50_ms", limit_ms * 4)) == pytest.approx(0.25)


def test_every_figure_meets_every_hypothesis():
    chosen = list(usual_hypotheses())[:3]
    table = pl.concat([figure("output_tokens_per_s", 100.0), figure("ttft_p50_ms", 50.0)])
    found = figure_efficiencies(table, SHAPE, chosen)
    assert found.height == 6
    assert found["hypothesis"].unique(maintain_order=True).to_list() == [h.name for h in chosen]


def test_a_row_says_which_hardware_and_precision_it_is_about():
    row = fit_hypotheses(figure("ttft_p50_ms", 50.0), SHAPE, [HYPOTHESIS]).row(0, named=True)
    place = HYPOTHESIS.place
    assert (row["hypothesis"], row["precision"]) == (HYPOTHESIS.name, place.precision.name)
    assert row["devices"] >= 1
    assert row["hardware"]
