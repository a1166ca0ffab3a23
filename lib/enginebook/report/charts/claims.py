"""Published claims by topic and verdict."""

from __future__ import annotations

import altair as alt
import polars as pl

from enginebook.report import theme
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.text import Language, known, say

ROW = 26
TONES = {
    "supported": "good", "possible": "good", "contradicted": "bad", "impossible": "bad",
    "outdated": "old", "implausible": "old", "tight": "old",
}  # fmt: skip
MOST_TOPICS = 10
REMAINING = "remaining"


def tone(verdict: str) -> str:
    """Return good, bad, old or open for a claim's verdict; what we do not know is open."""
    return TONES.get(verdict.lower().replace("_", " "), "open")


def claims_overview(data: StudyData) -> base.Drawing:
    """Return how many claims of each topic came out how."""
    language = data.language
    if data.claims.is_empty():
        return base.no_data("chart.claims.what", "nodata.claims", language)
    frame = _frame(data)
    return base.finish(
        _chart(frame, language),
        title=_title(data.claims, language),
        subtitle=say("chart.claims.subtitle", language),
        description=_describe(frame, language),
        language=language,
    )


def _frame(data: StudyData) -> pl.DataFrame:
    language = data.language
    often = data.claims["topic"].value_counts(sort=True)["topic"].to_list()
    few = often[MOST_TOPICS - 1 :] if len(often) > MOST_TOPICS else []
    topic = pl.when(pl.col("topic").is_in(few)).then(pl.lit(REMAINING)).otherwise("topic")
    claims = data.claims.with_columns(topic=topic.fill_null(REMAINING))
    counted = claims.group_by("topic", "verdict").len("claims").sort("topic", "verdict")
    verdicts = {v: known(f"verdict.{key_of(v)}", language, v) for v in counted["verdict"].unique()}
    topics = {t: known(f"topic.{key_of(t)}", language, t) for t in counted["topic"].unique()}
    tones = {v: tone(v) for v in verdicts}
    order = {"good": 0, "old": 1, "bad": 2, "open": 3}
    return counted.with_columns(
        name=pl.col("verdict").replace(verdicts),
        subject=pl.col("topic").replace(topics),
        tone=pl.col("verdict").replace(tones),
        order=pl.col("verdict").replace_strict(
            {v: order[t] for v, t in tones.items()}, return_dtype=pl.Int64
        ),
    ).sort("order", "verdict", "topic")


def key_of(text: str) -> str:
    """Return a word of the register as the catalogue names it."""
    return text.lower().replace(" ", "_").replace("-", "_")


def _chart(frame: pl.DataFrame, language: Language) -> base.Figure:
    names = frame.select("name", "tone").unique(maintain_order=True)
    tones, domain = names["tone"].to_list(), names["name"].to_list()
    colours = [theme.verdict(t, tones[:i].count(t)) for i, t in enumerate(tones)]
    bars = alt.Chart(frame).mark_bar(height=16, stroke=theme.light("paper"), strokeWidth=1).encode(
        x=alt.X("claims:Q", stack="zero",
                axis=alt.Axis(title=say("axis.claims", language), grid=True, format="d",
                              values=_whole_ticks(frame))),
        y=alt.Y("subject:N", title=None, sort=_rows(frame)),
        order=alt.Order("order:Q"),
        color=alt.Color("name:N", scale=alt.Scale(domain=domain, range=colours), sort=domain,
                        legend=alt.Legend(columns=4)),
        tooltip=[
            alt.Tooltip("subject:N", title=say("table.topic", language)),
            alt.Tooltip("name:N", title=say("table.verdict", language)),
            alt.Tooltip("claims:Q", title=say("axis.claims", language)),
        ],
    )  # fmt: skip
    height = ROW * frame["topic"].n_unique()
    return alt.layer(bars).properties(width=base.WIDTH, height=height)


def _rows(frame: pl.DataFrame) -> list[str]:
    """Return topics from many claims to few; what is gathered of small ones comes last."""
    counted = frame.group_by("topic", "subject", maintain_order=True).agg(pl.col("claims").sum())
    last = pl.col("topic") == REMAINING
    ordered = counted.sort(last, -pl.col("claims").cast(pl.Int64), "subject")
    return [str(name) for name in ordered["subject"].to_list()]


def _whole_ticks(frame: pl.DataFrame) -> list[int]:
    """Return about six whole numbers up to the longest bar."""
    longest = int(frame.group_by("topic").agg(pl.col("claims").sum())["claims"].to_numpy().max())
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, longest) if longest <= 7 * s)
    return list(range(0, longest + 1, step))


def _title(claims: pl.DataFrame, language: Language) -> str:
    tones = [tone(v) for v in claims["verdict"].to_list()]
    impossible = claims.filter(pl.col("physics_verdict") == "impossible").height
    return say(
        "chart.claims.title",
        language,
        n=claims.height,
        good=tones.count("good"),
        bad=tones.count("bad") + tones.count("old"),
        open=tones.count("open"),
        impossible=impossible,
    )


def _describe(frame: pl.DataFrame, language: Language) -> str:
    text = say("chart.claims.describe", language)
    for (subject,), rows in frame.group_by(["subject"], maintain_order=True):
        parts = ", ".join(f"{n} {name}" for name, n in rows.select("name", "claims").iter_rows())
        text += f" {subject}: {parts}."
    return text
