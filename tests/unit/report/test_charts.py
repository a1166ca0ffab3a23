"""Charts: aggregated, described, honest titles, one colour an engine; or a reason for none."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import altair as alt
import polars as pl
import pytest

from enginebook.report import NoData, StudyData, charts, renderer, schema, theme
from enginebook.report.charts import base

CHARTS = [name for name in charts.__all__ if name != "Drawing"]
PARTS = {"conversations", "memory_states", "online", "prefix_reuse", "starts", "structured"}
PARTLY_LINES = ("throughput", "ttft", "tpot", "itl", "pareto")


def spec(name: str, data: StudyData, **options: Any) -> dict[str, Any]:
    made = getattr(charts, name)(data, **options)
    assert not isinstance(made, NoData), made
    return dict(made.to_dict())


@pytest.fixture(autouse=True)
def _renderer() -> None:
    renderer.enable()


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("study", ["data", "one_block", "three", "parts"])
def test_each_chart_is_titled_described_and_small(
    name: str, study: str, request: pytest.FixtureRequest
) -> None:
    if name in PARTS and study != "parts":
        assert isinstance(getattr(charts, name)(request.getfixturevalue(study)), NoData)
        return
    made = spec(name, request.getfixturevalue(study))
    title = made["usermeta"]["title"]
    assert len(title) > 10
    assert " ".join(made["title"]["text"]) == title
    assert made["description"].startswith(title)
    assert "None" not in made["description"]
    assert len(json.dumps(made)) < 60_000
    assert made["background"] if "background" in made else made["config"]["background"]


@pytest.mark.parametrize("name", CHARTS)
def test_without_data_there_is_a_reason_and_no_empty_chart(name: str, nothing: StudyData) -> None:
    made = getattr(charts, name)(nothing)
    assert isinstance(made, NoData)
    assert made.what
    assert made.reason


@pytest.mark.parametrize("name", ["throughput", "time_to_serve", "timeline"])
def test_all_outputs_are_there_and_the_same_again(name: str, data: StudyData) -> None:
    made = getattr(charts, name)(data)
    first, second = (renderer.mimebundle(made.to_dict()) for _ in range(2))
    assert first == second
    assert set(first) == {renderer.CHART_MIME, renderer.SVG_MIME, "text/plain"}
    assert first[renderer.SVG_MIME].startswith("<svg")
    assert first["text/plain"] == made.to_dict()["description"]


def test_a_chart_without_description_is_refused() -> None:
    frame = pl.DataFrame({"x": [1], "y": [2]})
    with pytest.raises(ValueError, match="no description"):
        renderer.mimebundle(alt.Chart(frame).mark_point().encode(x="x:Q", y="y:Q").to_dict())


def test_altair_uses_the_renderer(data: StudyData) -> None:
    made: Any = charts.throughput(data)
    bundle = made._repr_mimebundle_(None, None)
    assert renderer.CHART_MIME in (bundle[0] if isinstance(bundle, tuple) else bundle)


@pytest.mark.parametrize("name", CHARTS)
def test_an_engine_has_its_colour_in_every_chart(name: str, parts: StudyData) -> None:
    found: list[dict[str, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("field") == "engine" and "scale" in node and "range" in node["scale"]:
                found.append(node["scale"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(spec(name, parts))
    colours = [s["range"] for s in found if str(s["range"][0]).startswith("#")]
    for one in colours:
        assert one == [theme.colour(engine)[0] for engine in parts.engines]
    assert colours or name in {"memory", "time_to_serve", "claims_overview", "hypotheses"}


def test_every_colour_of_a_chart_has_a_dark_partner(parts: StudyData) -> None:
    for name in CHARTS:
        used = set(re.findall(r"#[0-9a-f]{6}\b", json.dumps(spec(name, parts))))
        assert used <= set(theme.swaps()), name


def test_the_title_says_the_finding_and_its_interval(data: StudyData) -> None:
    title = spec("throughput", data)["usermeta"]["title"]
    assert "llamacpp delivers 1.4" in title
    assert "interval" in title
    assert "at 8 streams" in title


def test_the_title_admits_what_is_not_known(one_block: StudyData) -> None:
    for name in ("throughput", "ttft", "tpot"):
        made = spec(name, one_block)
        assert "undecided" in made["usermeta"]["title"]
        assert made["usermeta"]["subtitle"].startswith("One block")


def test_intervals_and_limits_are_drawn(data: StudyData, one_block: StudyData) -> None:
    def marks(made: dict[str, Any]) -> list[str]:
        return [layer["mark"]["type"] for layer in made["layer"]]

    assert "area" in marks(spec("throughput", data))
    assert "rule" in marks(spec("throughput", data))
    assert (
        "what physics allows (memory bandwidth)" in spec("throughput", data)["usermeta"]["subtitle"]
    )
    without = replace(data, limits=schema.empty("limits"))
    assert "area" not in marks(spec("throughput", without))


def test_axes_are_logarithmic_where_the_range_is_wide(data: StudyData) -> None:
    points = [la for la in spec("throughput", data)["layer"] if la["mark"]["type"] == "point"]
    assert points[0]["encoding"]["x"]["scale"]["type"] == "log"
    assert points[0]["encoding"]["y"]["scale"]["type"] == "log"
    assert points[0]["encoding"]["x"]["axis"]["values"] == [1, 2, 4, 8]
    narrow = [la for la in spec("tpot", data)["layer"] if la["mark"]["type"] == "point"]
    assert narrow[0]["encoding"]["y"]["scale"]["zero"] is True


def test_several_scenarios_stand_in_panels(data: StudyData) -> None:
    def longer(frame: pl.DataFrame) -> pl.DataFrame:
        more = frame.filter(pl.col("scenario") == "throughput").with_columns(
            input_tokens=pl.lit(512, pl.Int64)
        )
        return pl.concat([frame, more])

    wide = replace(data, points=longer(data.points), comparisons=longer(data.comparisons))
    made = spec("throughput", wide)
    assert made["facet"]["sort"] == ["input tokens 64", "input tokens 512"]
    assert made["columns"] == 2
    assert "input and 32 output tokens" in made["usermeta"]["title"]


def test_the_sweep_of_the_findings_stands_first_and_names_the_chart(data: StudyData) -> None:
    row = data.points.filter(pl.col("metric") == "output_tokens_per_s").row(0, named=True)
    other = [
        {**row, "scenario": "a_first", "engine": e, "concurrency": c, "value": 900.0 * c}
        for e in ("llamacpp", "vllm")
        for c in (1, 2)
    ]
    more = pl.DataFrame(other, schema=data.points.schema)
    made = spec("throughput", replace(data, points=pl.concat([more, data.points])))
    assert made["facet"]["sort"] == ["throughput", "a_first"]
    assert "8 streams" in made["usermeta"]["title"]


def test_the_description_holds_every_drawn_value(data: StudyData) -> None:
    described = spec("ttft", data)["description"]
    for engine in ("llamacpp", "vllm"):
        assert engine in described
    for length in ("64: ", "256: ", "1,024: "):
        assert described.count(length) == 2


def test_time_to_serve_shows_medians_and_range(data: StudyData) -> None:
    made = spec("time_to_serve", data)
    assert (
        made["usermeta"]["title"]
        == "llamacpp serves its first token 0.98 s after its start, vllm after 17.2 s"
    )
    assert [layer["mark"]["type"] for layer in made["layer"]] == ["bar", "rule", "text"]


def test_memory_shows_what_is_not_broken_down_and_adds_up(data: StudyData) -> None:
    made = spec("memory", data)
    rows = [r for rows in made["datasets"].values() for r in rows if "component" in r]
    vllm = [r["bytes"] for r in rows if r["engine"] == "vllm"]
    assert sum(vllm) == 2290 * 2**20
    assert {r["component"] for r in rows} >= {"weights", "kv_cache", "rest"}
    assert "total" not in {r["component"] for r in rows}


def test_memory_without_a_total_is_the_sum(data: StudyData) -> None:
    parts = data.memory.filter(pl.col("component") != "total")
    title = spec("memory", replace(data, memory=parts))["usermeta"]["title"]
    assert title == "llamacpp holds 745 MiB once it serves, vllm 1.71 GiB"


def test_pareto_names_only_engines_on_the_front(data: StudyData, three: StudyData) -> None:
    assert spec("pareto", data)["usermeta"]["title"].startswith(
        "Every point on the front is of llamacpp"
    )
    assert "sglang" not in spec("pareto", three)["usermeta"]["title"]


def test_many_topics_are_gathered(data: StudyData) -> None:
    claims = pl.concat([
        data.claims.head(1).with_columns(topic=pl.lit(f"topic {n}"), claim_id=pl.lit(f"C{n}"))
        for n in range(30)
    ])  # fmt: skip
    made = spec("claims_overview", replace(data, claims=claims))
    rows = [r for rows in made["datasets"].values() for r in rows]
    assert len({r["topic"] for r in rows}) == 10
    assert sum(r["claims"] for r in rows) == 30


def test_a_chosen_series_is_drawn_alone(data: StudyData) -> None:
    made = spec("timeline", data, series=["running"])
    assert made["facet"]["sort"] == ["running requests"]
    assert isinstance(charts.timeline(data, series=["no such"]), NoData)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("", 8, []),
        ("一二三四五", 6, ["一二三", "四五"]),
        ("unbreakableword x", 4, ["unbreakableword", "x"]),
    ],
)
def test_titles_are_wrapped(text: str, width: int, lines: list[str]) -> None:
    assert base.wrap(text, width) == lines


def test_labels_at_the_ends_of_lines_do_not_overlap() -> None:
    scale = alt.Scale(type="log", domain=[10, 1000])
    placed = base.spread([100.0, 101.0, 102.0], scale)
    gap = (math.log(1000) - math.log(10)) * base.LABEL_GAP / base.HEIGHT
    heights = [math.log(v) for v in placed]
    assert heights == sorted(heights)
    assert all(b - a >= gap * 0.999 for a, b in pairwise(heights))
    apart = base.spread([20.0, 500.0], scale)
    assert apart == pytest.approx([20.0, 500.0])


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(9, 110, [10, 20, 50, 100]), (0.5, 3, [0.5, 1, 2]), (1, 2e5, [1, 10, 100, 1e3, 1e4, 1e5])],
)
def test_logarithmic_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert base.log_ticks(low, high) == pytest.approx(ticks)


def rows_drawn(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for rows in made["datasets"].values() for row in rows]


def test_dots_stand_in_rows_with_their_intervals(parts: StudyData) -> None:
    made = spec("prefix_reuse", parts)
    drawn = {row["engine"]: row for row in rows_drawn(made)}
    assert set(drawn) == set(parts.engines)
    for row in drawn.values():
        assert row["low"] < row["value"] < row["high"]
        assert row["row"] == "Prefix 128, 50\u202f% of requests, 2 streams"
        assert f"{row['engine']} {row['tip']}" in made["description"]
    assert "prefix 128" in made["usermeta"]["title"]


def test_turns_formats_and_objectives_have_their_rows(parts: StudyData) -> None:
    turns = {row["row"] for row in rows_drawn(spec("conversations", parts))}
    assert turns == {"Time to first token, first turn", "Time to first token, last turn"}
    assert {row["row"] for row in rows_drawn(spec("online", parts))} == {
        "2 requests/s, objective chat"
    }
    formats = rows_drawn(spec("structured", parts))
    assert {row["row"] for row in formats} == {"JSON schema flat, 1 stream"}


def test_starts_and_states_are_drawn_as_they_are(parts: StudyData) -> None:
    made = rows_drawn(spec("starts", parts))
    assert {(row["row"], row["value"]) for row in made} == {
        ("All warm", 2.0), ("Files not in memory", 2.0),
    }  # fmt: skip
    states = [row["row"] for row in rows_drawn(spec("memory_states", parts))]
    assert list(dict.fromkeys(states)) == ["Ready", "Peak under load", "After the load"]


def test_a_single_length_is_no_axis_and_is_said_so(data: StudyData) -> None:
    one = replace(data, points=data.points.filter(pl.col("input_tokens") == 64))
    made = charts.ttft(one)
    assert isinstance(made, NoData)
    assert "differ in this axis" in made.reason


def test_the_title_of_starts_gives_each_engines_range(parts: StudyData) -> None:
    cold = pl.col("arm") == "cold_page_cache"
    slower = parts.starts.with_columns(
        seconds=pl.when(cold).then(pl.col("seconds") * 2.5).otherwise("seconds")
    )
    title = spec("starts", replace(parts, starts=slower))["usermeta"]["title"]
    assert title.startswith(
        "From start to first token, by the state of caches: llamacpp 2.00 to 5.00 s"
    )
    assert "llamacpp 2.00 s" in spec("starts", parts)["usermeta"]["title"]
