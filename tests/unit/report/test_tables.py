"""Tables: escaped, aligned, and a best value only where the comparison carries it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from bs4 import BeautifulSoup, Tag

from enginebook.report import Fragment, NoData, StudyData, tables
from enginebook.report.tables import Column, Value, table
from enginebook.report.tables.provenance import flat

ALL = [name for name in tables.__all__ if name not in {"Column", "Value", "table"}]
PARTS = {
    "arm_comparison", "arms", "conversations", "efficiency", "effort", "energy", "online",
    "prefix_reuse", "probes", "simulations", "starts", "structured", "swaps", "trace_replay",
}  # fmt: skip


def parsed(fragment: Fragment | NoData) -> BeautifulSoup:
    assert isinstance(fragment, Fragment), fragment
    return BeautifulSoup(fragment.html, "html.parser")


def rows_of(fragment: Fragment | NoData) -> list[list[str]]:
    return [
        [cell.get_text(" ", strip=True) for cell in row.find_all("td")]
        for row in parsed(fragment).select("tbody tr")
    ]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("study", ["data", "one_block", "three", "parts"])
def test_each_table_is_named_and_regular(
    name: str, study: str, request: pytest.FixtureRequest
) -> None:
    made = getattr(tables, name)(request.getfixturevalue(study))
    if isinstance(made, NoData):
        alone = study == "one_block" and name in {"flagged", "crossovers"}
        assert alone or (name in PARTS and study != "parts")
        return
    page = parsed(made)
    caption = page.select_one("caption")
    assert caption is not None
    assert caption.text
    region = page.select_one(".eb-table")
    assert region is not None
    assert region["aria-label"] == caption.text
    width = len(page.select("thead th"))
    assert {len(row.find_all("td")) for row in page.select("tbody tr")} == {width}
    assert "None" not in page.get_text()
    assert made.plain.splitlines()[0] == caption.text


@pytest.mark.parametrize("name", ALL)
def test_without_data_there_is_a_reason(name: str, nothing: StudyData) -> None:
    made = getattr(tables, name)(nothing)
    if name in {"citation", "features", "repeat", "parameters", "manifest"}:
        assert isinstance(made, Fragment)
    else:
        assert isinstance(made, NoData)
        assert made.reason


def test_everything_is_escaped() -> None:
    evil = '<img src=x onerror=alert(1)>"\x1b[31m'
    made = table(
        [Column(evil, unit=evil, filtered=True)],
        [[Value(evil, note=evil, best=True, tone=evil, href=evil)]],
        caption=evil,
        best_word=evil,
        folded=evil,
    )
    page = parsed(made)
    assert page.find("img") is None
    assert "\x1b" not in made.html
    assert page.get_text().count("<img src=x onerror=alert(1)>") == 7
    assert "\x1b" not in made.plain


def test_figures_stand_right_and_words_left() -> None:
    made = parsed(table([Column("a"), Column("b", "ms", numeric=True)], [["x", "1"]], caption="c"))
    left, right = made.select("tbody td")
    assert left["style"] == "text-align:left"
    assert right["style"] == "text-align:right"
    assert right["class"] == ["eb-num"]
    assert made.select("thead th")[1].get_text() == "b (ms)"


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has not 2 values"):
        table([Column("a"), Column("b")], [["only one"]], caption="c")


def test_long_tables_are_cut_in_plain_text_and_say_so() -> None:
    made = table([Column("n", numeric=True)], [[str(n)] for n in range(100)], caption="numbers")
    assert made.plain.endswith("... 60 more rows")
    assert made.html.count("<tr>") == 101


def best(fragment: Fragment | NoData) -> list[list[str]]:
    """Return for each row the columns that are marked."""
    page = parsed(fragment)
    heads = [th.get_text() for th in page.select("thead th")]
    return [
        [
            heads[i]
            for i, cell in enumerate(row.find_all("td"))
            if isinstance(cell, Tag) and cell.select(".eb-best")
        ]
        for row in page.select("tbody tr")
    ]


def test_best_is_marked_only_where_the_comparison_says_so(data: StudyData) -> None:
    summary = tables.summary(data)
    for row, marked in zip(rows_of(summary), best(summary), strict=True):
        ahead = row[-1].removesuffix(" is ahead") if row[-1].endswith("is ahead") else None
        assert marked == ([ahead] if ahead else []), row
    assert any(best(summary))
    assert [] in best(summary)


def test_one_block_marks_nothing(one_block: StudyData) -> None:
    assert not any(best(tables.summary(one_block)))
    assert {row[-1] for row in rows_of(tables.summary(one_block))} == {"undecided"}


def test_the_summary_leaves_out_engines_that_its_loads_did_not_ask(data: StudyData) -> None:
    points = data.points.with_columns(
        pl.when(pl.col("scenario") == "throughput").then(pl.col("engine")).otherwise(pl.lit("vllm"))
        .alias("engine")
    )  # fmt: skip
    elsewhere = points.filter(pl.col("engine") == "vllm").head(1).with_columns(
        engine=pl.lit("llamacpp"), scenario=pl.lit("elsewhere"), concurrency=pl.lit(3, pl.Int64)
    )  # fmt: skip
    wide = replace(data, points=pl.concat([points.filter(engine="vllm"), elsewhere]))
    heads = [h.get_text() for h in parsed(tables.summary(wide)).select("th")]
    assert "vllm" in heads
    assert "llamacpp" not in heads


def test_comparisons_name_every_pair(data: StudyData, three: StudyData) -> None:
    assert len(rows_of(tables.comparisons(data))) == 21
    assert len(rows_of(tables.comparisons(three))) == 63
    verdicts = {row[5] for row in rows_of(tables.comparisons(data))}
    assert verdicts == {"ahead", "behind", "level", "no verdict"}
    refused = [row for row in rows_of(tables.comparisons(data)) if row[5] == "no verdict"]
    assert all("gate failed for vllm" in row[-1] for row in refused)
    heads = parsed(tables.comparisons(three)).select("th[data-filter]")
    assert [h.get_text() for h in heads] == ["Metric", "Scenario", "Engines", "Verdict"]


def test_launches_and_memory(data: StudyData) -> None:
    first = rows_of(tables.launches(data))[0]
    assert first[0] == "llamacpp"
    assert first[-2].startswith("0.98")
    assert first[-1] == "6"
    assert ["vllm", "ready", "total", "2.24 GiB", "100", "PSS of the process tree"] in rows_of(
        tables.memory(data)
    )


def test_installs_say_when_they_were_reused(data: StudyData) -> None:
    by_engine = {row[0]: row for row in rows_of(tables.installs(data))}
    assert "reused" in by_engine["vllm"][3]
    assert by_engine["llamacpp"][-1] == "–"
    assert by_engine["vllm"][4] == "1,930"


def test_failures_are_listed_as_plain_text(data: StudyData) -> None:
    made = tables.failures(replace(data, missing=("vllm block 3: s c=1",)))
    assert "<script>" not in str(parsed(made).select("tbody"))
    rows = rows_of(made)
    assert rows[0] == ["vllm", "throughput c=8", "timeout <script>alert(1)</script>"]
    assert rows[1] == ["–", "vllm block 3: s c=1", "not measured"]


def test_flags_put_failed_cells_first(data: StudyData) -> None:
    key = (pl.col("engine") == "llamacpp") & (pl.col("block") == 0) & (pl.col("concurrency") == 2)
    cells = data.cells.with_columns(
        flags=pl.when(key).then(pl.lit(["cache"])).otherwise(pl.col("flags"))
    )
    rows = rows_of(tables.flagged(replace(data, cells=cells)))
    assert [row[3] for row in rows] == ["failed", "passed"]
    assert rows[1][-1] == "cold cache"


def test_same_text_names_the_first_difference(data: StudyData) -> None:
    differs = {
        "engine": "b",
        "reference": "a",
        "prompt": "p",
        "equal": False,
        "first_difference": 7,
    }
    by_token = {"same_tokens": 3, "same_weights": True}
    for more, place, why in (
        ({}, "character 7", "not known: the engine does not tell"),
        (by_token | {"gap_nats": 0.004, "explained": True}, "token 4", "rounding: the reference"),
        (
            by_token | {"gap_nats": 1.9, "explained": False},
            "token 4",
            "not rounding: the reference",
        ),
        ({"same_weights": False}, "character 7", "other weights"),
    ):
        row = rows_of(tables.same_text(replace(data, greedy=({**differs, **more},))))[0]
        assert row[-2] == f"differs from {place}"
        assert row[-1].startswith(why)
    assert rows_of(tables.same_text(data))[0][-2:] == ["the same", "\u2013"]


def test_accuracy_stands_beside_its_reference(data: StudyData) -> None:
    first = {
        "engine": "a", "right": 30, "of": 40, "low": 0.6, "high": 0.86, "reference": None,
        "same_weights": None, "lost": None, "gained": None, "p": None, "wrong": False,
    }  # fmt: skip
    against = {**first, "reference": "a", "lost": 9, "gained": 1, "p": 0.011, "same_weights": True}
    rows = (
        first,
        {**against, "engine": "b"},
        {**against, "engine": "c", "wrong": True},
        {**against, "engine": "d", "same_weights": False},
    )
    shown = rows_of(tables.accuracy(replace(data, accuracy=rows)))
    assert [row[-1] for row in shown] == [
        "the reference",
        "no worse than chance allows",
        "worse: no verdict for this engine",
        "other weights; chance of such a loss without a real one: 0.0110",
    ]
    assert shown[0][1:3] == ["30/40", "60.0\u202f% to 86.0\u202f%"]
    assert shown[1][3:6] == ["a", "9", "1"]
    none = tables.accuracy(replace(data, accuracy=()))
    assert none.plain.endswith("(invented weights, or an older run)")


def test_parameters_that_were_left_at_nothing_are_left_out(data: StudyData) -> None:
    study = {"a": None, "b": [], "c": {"d": None}, "e": 0, "f": False, "g": [{"h": 1, "i": None}]}
    shown = rows_of(tables.parameters(replace(data, manifest={**data.manifest, "study": study})))
    assert [row[0] for row in shown] == ["e", "f", "g › 1 › h"]


def test_facts_have_their_units(data: StudyData) -> None:
    shown = dict(rows_of(tables.host(data)))
    assert shown["memory › total"] == "23.3 GiB"
    assert shown["GPUs"] == "–"
    assert dict(rows_of(tables.ceilings(data)))["memory read › best"] == "21.0 GB/s"
    assert "2026-11" in dict(rows_of(tables.manifest(data)))["starts"]
    parameters = dict(rows_of(tables.parameters(data)))
    assert parameters["margin"] == "0.05"
    assert parameters["scenarios › 1 › concurrency"] == "1, 2, 4, 8"


def test_nested_facts_are_flattened_in_order() -> None:
    value = {"a": {"b": [1, 2]}, "c": [{"d": None}, {"d": 3}], "e": {}}
    assert list(flat(value)) == [
        (("a", "b"), [1, 2]),
        (("c", "1", "d"), None),
        (("c", "2", "d"), 3),
        (("e",), {}),
    ]


def test_calibration_is_a_table_of_levels(data: StudyData) -> None:
    made = tables.calibration(data)
    assert rows_of(made)[1][:4] == ["64", "12,800", "0.200", "1.10"]
    assert "exact up to 64 streams" in made.plain


def test_claims_do_not_repeat_themselves(data: StudyData) -> None:
    rows = {row[0].split()[-1]: row for row in rows_of(tables.claims(data))}
    assert "<b>at low load</b>" in rows["RAT-1"][0]
    assert rows["RAT-2"][3] == "1.45 1.40 – 1.50"
    same = data.claims.with_columns(claimed=pl.col("statement"))
    assert {row[2] for row in rows_of(tables.claims(replace(data, claims=same)))} == {"–"}


def test_downloads_are_relative_to_the_report(data: StudyData, run_folder: Path) -> None:
    links = parsed(tables.downloads(data)).select("a")
    reports = run_folder.parent.parent / "reports"
    assert len(links) == len(list((run_folder / "data").glob("*.parquet"))) + 1
    for link in links:
        assert (reports / str(link["href"])).resolve().is_file()
    assert isinstance(tables.downloads(replace(data, folder=None)), NoData)


def test_the_study_can_be_repeated(data: StudyData) -> None:
    assert rows_of(tables.repeat(data)) == [
        ["git checkout 0123456789abcdef0123456789abcdef01234567"],
        ["make study PARAMS=params/sample.yaml"],
    ]


def test_a_series_is_shown_in_words(parts: StudyData) -> None:
    rows = rows_of(tables.prefix_reuse(parts))
    assert rows[0][0] == "The <b>prefix</b> load: prefix 128, 50\u202f% of requests, 2 streams"
    assert rows[0][1] == "llamacpp"
    online = rows_of(tables.online(parts))
    assert {r[0] for r in online} == {
        "The <b>online</b> load: 2 requests/s",
        "The <b>online</b> load: highest rate within the objective",
    }
    assert all("c=0" not in cell for row in online for cell in row)


def test_a_simulated_engine_is_called_so_everywhere(parts: StudyData) -> None:
    for name in ("prefix_reuse", "conversations", "online", "starts", "arms"):
        engines = {cell for row in rows_of(getattr(tables, name)(parts)) for cell in row}
        assert "sglang (simulated)" in engines
        assert "sglang" not in engines


def test_probes_and_texts_are_escaped(parts: StudyData) -> None:
    page = parsed(tables.probes(parts))
    assert not page.select("tbody i")
    offered = [row[3] for row in rows_of(tables.probes(parts))]
    assert offered == ["yes", "no", "–"]


def test_a_price_gives_the_cost_of_a_million_tokens(parts: StudyData) -> None:
    study = {**parts.study, "hourly_price": 3.6}
    priced = replace(parts, manifest={**parts.manifest, "study": study})
    point = parts.points.filter(
        pl.col("metric") == "output_tokens_per_s", pl.col("engine") == "llamacpp",
        pl.col("scenario") == "throughput", pl.col("concurrency") == 4,
    )  # fmt: skip
    cost = 3.6 / 3600 / point["value"][0] * 1e6
    row = next(r for r in rows_of(tables.energy(priced)) if "4 streams" in r[0])
    assert row[1] == "llamacpp"
    assert float(row[4].replace(",", "")) == pytest.approx(cost, rel=0.01)


def test_an_engine_stands_beside_itself_with_equal_options(parts: StudyData) -> None:
    rows = rows_of(tables.arm_comparison(parts))
    assert {row[0] for row in rows} == {"vllm, vllm-equal"}
    assert {row[2].split(" (")[0] for row in rows} == {
        "Output throughput", "Time to first token, median", "Time per output token, median",
    }  # fmt: skip
    row = next(r for r in rows if "8 streams" in r[1] and r[2].startswith("Output"))
    plain, equal = (float(cell.split()[0]) for cell in row[3:5])
    assert float(row[5]) == pytest.approx(equal / plain, rel=0.01)


def test_the_time_taken_is_read_from_the_stages(parts: StudyData) -> None:
    assert rows_of(tables.effort(parts)) == [
        ["host", "90.5", "in an earlier run"],
        ["install-vllm", "90.5", "in this run"],
        ["In all", "181", "–"],
    ]
    assert isinstance(tables.effort(replace(parts, folder=None)), NoData)


def test_a_paced_load_has_no_cost_per_token(parts: StudyData) -> None:
    study = {**parts.study, "hourly_price": 3.6}
    priced = replace(parts, manifest={**parts.manifest, "study": study})
    shown = {row[0] for row in rows_of(tables.energy(priced))}
    assert not any("requests/s" in name for name in shown)
    assert all(row[4] == "–" for row in rows_of(tables.energy(parts)))


def test_a_run_is_cited_with_what_its_figures_hold_for(data: StudyData) -> None:
    text, bibtex = (row[1] for row in rows_of(tables.citation(data)))
    for part in (data.run_id, "llamacpp 0.3.5", "Example CPU", "Enginebook 0.1.0", "2026-11-30"):
        assert part in text, part
    assert bibtex.startswith("@misc{enginebook-sample-0123456789ab, author = {{The Enginebook")
    assert bibtex.count("{") == bibtex.count("}")
    assert "year = {2026}" in bibtex


def test_a_citation_survives_what_tex_takes_for_its_own(data: StudyData) -> None:
    study = {**data.manifest["study"], "question": "50% of_a $ & #1?"}
    odd = replace(data, manifest={**data.manifest, "study": study})
    assert r"50\% of\_a \$ \& \#1?" in rows_of(tables.citation(odd))[1][1]


def test_the_guides_question_is_judged_by_blocks(parts: StudyData, one_block: StudyData) -> None:
    """Equalised arms stay out; one block decides nothing and says what would."""
    rows = rows_of(tables.ranking(parts))
    assert {row[0] for row in rows} <= {"llamacpp", "vllm", "sglang"}
    assert rows[0][:2] == ["llamacpp", "best"]
    assert rows[0][3].startswith("0")
    assert {row[1] for row in rows[1:]} == {"worse"}
    thin = rows_of(tables.ranking(one_block))
    assert {row[1] for row in thin} == {"undecided"}
    assert all(row[4] == "throughput again, 5 blocks in all" for row in thin)


def test_the_articles_tree_is_derived_anew(parts: StudyData) -> None:
    rows = rows_of(tables.decision_tree(parts))
    assert len(rows) == 9
    verdicts = {row[4] for row in rows}
    assert verdicts <= {"supported", "contradicted", "not tested here", "not comparable",
                        "inconclusive"}  # fmt: skip
    first = next(row for row in rows if "DEC-01" in row[0])
    assert first[1] == "vLLM"


def test_features_name_their_pages(data: StudyData) -> None:
    page = parsed(tables.features(data))
    links = page.select("tbody a")
    assert len(links) == len(page.select("tbody tr"))
    assert all(str(a["href"]).startswith("https://") for a in links)
    assert page.find("details") is not None
    shown = {row[0] for row in rows_of(tables.features(data))}
    assert {"vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "LMDeploy", "Ollama"} <= shown


def test_efficiency_shows_what_comes_too_near_first_and_each_engines_nearest(
    parts: StudyData,
) -> None:
    rows = rows_of(tables.efficiency(parts))
    assert len(rows) == parts.audit["engine"].n_unique()
    assert {row[6] for row in rows} == {"implausible"}  # the worst block's word
    assert {row[3] for row in rows} == {"90.5\u202f%"}  # the mean over blocks
    assert {row[5] for row in rows} == {"–"}
    calm = parts.audit.with_columns(verdict=pl.lit("possible"))
    near = tables.efficiency(replace(parts, audit=calm.filter(pl.col("concurrency") < 9)))
    assert {row[3] for row in rows_of(near)} == {"40.5\u202f%"}
    caption = parsed(near).select_one("caption")
    assert caption is not None
    assert f"{len(calm) * 2 // 3} possible" in caption.text


def test_online_load_shows_times_from_the_scheduled_moment_beside_those_from_sending(
    parts: StudyData,
) -> None:
    heads = [h.get_text(" ", strip=True) for h in parsed(tables.online(parts)).select("thead th")]
    (sent,) = [i for i, h in enumerate(heads) if h.startswith("Time to first token, 95th")]
    assert heads[sent + 1].startswith("Time to first token from the scheduled moment")
    first = rows_of(tables.online(parts))[0]
    assert first[sent].split()[0] != first[sent + 1].split()[0]


def test_crossovers_are_told_with_their_interval_and_never_of_one_block(data: StudyData) -> None:
    streams, blocks = (1, 4, 16), (0, 1, 2)
    rate = {"llamacpp": (100, 200, 300), "vllm": (50, 180, 600)}
    rows = [
        {"engine": e, "block": b, "scenario": "x", "concurrency": c, "input_tokens": 8,
         "output_tokens": 8, "metric": "output_tokens_per_s", "value": v * (1 + 0.01 * b), "n": 9,
         "gate_ok": True, "flags": [], "cell": ""}
        for e, values in rate.items() for b in blocks for c, v in zip(streams, values, strict=True)
    ]  # fmt: skip
    cells = pl.DataFrame(rows, schema=data.cells.schema)
    crossed = replace(data, cells=cells, arms=data.arms.clear())
    (row,) = rows_of(tables.crossovers(crossed))
    assert row[2] == "vllm overtakes llamacpp"
    assert 4 < float(row[3]) < 16
    assert row[5] == "3"
    for fewer in (cells.filter(pl.col("block") == 0), cells.filter(pl.col("concurrency") < 16)):
        assert isinstance(tables.crossovers(replace(crossed, cells=fewer)), NoData)
