"""Where one engine overtakes another as streams are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from enginebook.report.cellname import series_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, say
from enginebook.report.wording import capital, metric_name
from enginebook.stats.crossing import crossovers as crossings

METRICS = ("output_tokens_per_s", "ttft_p50_ms", "tpot_p50_ms")


def crossovers(data: StudyData) -> Fragment | NoData:
    """Return from how many streams on an engine leads another one, with its interval.

    Engines are compared within an arm, and simulated ones not at all. Between two measured numbers
    of streams the curve is a straight line in logarithms.
    """
    language, caption = data.language, say("part.crossovers", data.language)
    found = [
        row
        for engines in _arms(data)
        for metric in METRICS
        for row in _of(data, engines, metric).iter_rows(named=True)
    ]
    if not found:
        return NoData(caption, say("nodata.crossovers", language))
    columns = [
        Column(say("table.metric", language)),
        Column(say("table.load", language)),
        Column(say("table.overtakes", language)),
        Column(say("table.from_streams", language), numeric=True),
        Column(say("table.interval", language)),
        Column(say("table.blocks", language), numeric=True),
    ]
    rows: list[Row] = [
        [
            capital(metric_name(row["metric"], language)),
            series_name(data, row["scenario"]),
            say("table.overtaking", language, first=row["engine_a"], second=row["engine_b"]),
            Value(figure(row["concurrency"]), sort=row["concurrency"]),
            _interval(row["low"], row["high"], language),
            str(row["n_pairs"]),
        ]
        for row in found
    ]
    return table(columns, rows, caption=caption)


def _arms(data: StudyData) -> Iterator[Sequence[str]]:
    if data.arms.is_empty():
        yield data.engines
        return
    real = data.arms.filter(~pl.col("simulated"))
    for _, group in real.group_by("arm", maintain_order=True):
        yield group["engine"].to_list()


def _of(data: StudyData, engines: Sequence[str], metric: str) -> pl.DataFrame:
    """Return the crossings of the mean curves over several blocks.

    Those of a few draws alone are no finding, and one block tells nothing of its spread.
    """
    cells = data.cells.filter(pl.col("engine").is_in(engines) & (pl.col("concurrency") > 0))
    found = crossings(cells, metric).drop_nulls("concurrency")
    return found.filter(pl.col("n_pairs") > 1)


def _interval(low: float | None, high: float | None, language: Language) -> str:
    if low is None and high is None:
        return NONE
    if low is None:
        return say("table.below", language, high=figure(high))
    if high is None:
        return say("table.above", language, low=figure(low))
    return f"{figure(low)} – {figure(high)}"
