"""Which hardware could have produced the article's tables: every figure under every hypothesis."""

from __future__ import annotations

from functools import cache

import altair as alt
import polars as pl

from enginebook.claims import explain_register, figures_under_hypotheses, load_register
from enginebook.report import theme
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.text import Language, say

ROW = 24
STATED = "1 x H100-SXM bf16"  # what the article says that it measured on
TICKS = [0.1, 0.2, 0.5, 1, 2]


def hypotheses(data: StudyData) -> base.Drawing:
    """Return the efficiency of each printed figure under each hypothesis; above 1 is impossible.

    It rests on the register alone, so it is the same in every study that judged claims.
    """
    language = data.language
    if data.claims.is_empty():
        return base.no_data("chart.hypotheses.what", "nodata.claims", language)
    found, figures = _found(), _figures(language)
    names = _names(found, language)
    frame = figures.with_columns(row=pl.col("hypothesis").replace_strict(names))
    stated = found.filter(hypothesis=STATED).row(0, named=True)
    return base.finish(
        _chart(frame, list(names.values()), language),
        title=say(
            "chart.hypotheses.title",
            language,
            k=found.filter(pl.col("rate_impossible") + pl.col("ttft_impossible") == 0).height,
            m=found.height,
            best=_plain(str(found["hypothesis"][0])),
            n=stated["rate_figures"] + stated["ttft_figures"],
            stated=_plain(STATED),
            broken=stated["rate_impossible"] + stated["ttft_impossible"],
        ),
        subtitle=say("chart.hypotheses.subtitle", language),
        description=_describe(frame, list(names.values()), language),
        language=language,
    )


@cache
def _found() -> pl.DataFrame:
    return explain_register(load_register())


def _figures(language: Language) -> pl.DataFrame:
    """Return one row a printed figure and hypothesis."""
    rate = pl.col("metric") == "output_tokens_per_s"
    kinds = iter([say("chart.hypotheses.rate", language), say("chart.hypotheses.time", language)])
    return figures_under_hypotheses(load_register()).select(
        "hypothesis",
        "efficiency",
        kind=pl.when(rate).then(pl.lit(next(kinds))).otherwise(pl.lit(next(kinds))),
        tone=pl.when(pl.col("efficiency") > 1).then(pl.lit("bad")).otherwise(pl.lit("good")),
    )


def _plain(name: str) -> str:
    """Return a hypothesis as people write it: ``4 × H100 BF16``."""
    hardware, _, precision = name.replace(" x ", " × ").replace("-SXM", "").rpartition(" ")
    return f"{hardware} {precision.split('-')[0].upper()}"


def _names(found: pl.DataFrame, language: Language) -> dict[str, str]:
    """Return the label of each hypothesis, the best first."""
    names = {}
    for row in found.iter_rows(named=True):
        broken = row["rate_impossible"] + row["ttft_impossible"]
        key = "chart.hypotheses.no_fit" if broken else "chart.hypotheses.fits"
        key = key if row["loads"] else "chart.hypotheses.no_load"
        verdict = say(key, language, n=broken)
        name = _plain(str(row["hypothesis"]))
        names[str(row["hypothesis"])] = say(
            "chart.hypotheses.verdict", language, name=name, verdict=verdict
        )
    return names


def _chart(frame: pl.DataFrame, order: list[str], language: Language) -> base.Figure:
    good, bad = theme.verdict("good", 0), theme.verdict("bad", 0)
    low = float(frame["efficiency"].to_numpy().min())
    high = float(frame["efficiency"].to_numpy().max())
    axis = alt.Axis(title=say("chart.hypotheses.axis", language), values=TICKS, format="~g")
    scale = alt.Scale(type="log", domain=[min(low / 1.1, TICKS[0]), high * 1.1], nice=False)
    kinds = frame["kind"].unique(maintain_order=True).to_list()
    dots = alt.Chart(frame).mark_point(size=36, filled=True, opacity=0.75).encode(
        x=alt.X("efficiency:Q", scale=scale, axis=axis),
        y=alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=320, grid=True)),
        color=alt.Color(
            "tone:N", scale=alt.Scale(domain=["good", "bad"], range=[good, bad]), legend=None
        ),
        shape=alt.Shape(
            "kind:N", scale=alt.Scale(domain=kinds, range=["circle", "triangle-up"]),
            legend=alt.Legend(title=None),
        ),
        tooltip=[
            alt.Tooltip("row:N", title=say("chart.hypotheses.what", language)),
            alt.Tooltip("kind:N", title=say("table.metric", language)),
            alt.Tooltip("efficiency:Q", format=".2f", title=axis.title),
        ],
    )  # fmt: skip
    limit = alt.Chart(pl.DataFrame({"limit": [1.0]})).mark_rule(strokeWidth=1.5)
    line = limit.encode(x=alt.X("limit:Q"))
    return alt.layer(line, dots).properties(width=base.WIDTH, height=ROW * len(order))


def _describe(frame: pl.DataFrame, order: list[str], language: Language) -> str:
    """Return each row with its range of efficiencies in words."""
    parts = []
    for name in order:
        mine = frame.filter(pl.col("row") == name)["efficiency"].to_numpy()
        parts.append(f"{name} ({mine.min():.2f} – {mine.max():.2f}).")
    return f"{say('chart.hypotheses.describe', language)} {' '.join(parts)}"
