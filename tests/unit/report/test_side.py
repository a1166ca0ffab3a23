"""Several runs side by side: engines by run, verdicts only for equal work, differences in view."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sample_study
from bs4 import BeautifulSoup

from enginebook.commands import report as command
from enginebook.errors import InputError
from enginebook.report import charts, tables
from enginebook.report.side import run_labels, same_work, short_machine, side_by_side
from enginebook.report.side_page import caveats, page_name, render_side_by_side
from enginebook.report.tables import side as side_tables

LABELS = ("Example (invented)", "Bigger 9")
Change = Callable[[dict[str, Any]], None]


def changed(path: Path, change: Change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def faster(folder: Path, factor: float) -> None:
    """Make all output rates of a run higher, as a better machine would."""
    for name in ("cells", "points"):
        path = folder / "data" / f"{name}.parquet"
        frame = pl.read_parquet(path)
        columns = [c for c in ("value", "low", "high") if c in frame.columns]
        rate = pl.col("metric") == "output_tokens_per_s"
        more = [
            pl.when(rate).then(pl.col(c) * factor).otherwise(pl.col(c)).alias(c) for c in columns
        ]
        frame.with_columns(more).write_parquet(path)


def second(root: Path, **options: Any) -> Path:
    """Write another run below ``root``, on another machine and twice as fast."""
    folder = sample_study.write(root / "other", **options)
    target = root / "runs" / "later-fedcba987654"
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    changed(target / "host.json", lambda h: h["cpu"].update(model="Bigger CPU 9 @ 5 GHz"))
    changed(target / "manifest.json", lambda m: m.update(run="later-fedcba987654"))
    faster(target, 2.0)
    return target


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pair")
    return sample_study.write(root, flagged=False), second(root, flagged=False)


def test_engines_carry_their_run_and_all_rows_are_kept(pair: tuple[Path, Path]) -> None:
    side = side_by_side(pair)
    assert side.labels == LABELS
    assert side.data.engines == [
        f"{engine} · {label}" for label in side.labels for engine in sample_study.ENGINES
    ]
    for name in ("cells", "points", "memory", "launches", "installs"):
        parts = sum(getattr(run, name).height for run in side.runs)
        assert getattr(side.data, name).height == parts, name
    assert set(side.data.points["engine"]) == set(side.data.engines)


def test_engines_of_different_runs_are_compared(pair: tuple[Path, Path]) -> None:
    side = side_by_side(pair)
    rows = side.data.comparisons.filter(
        pl.col("metric") == "output_tokens_per_s",
        pl.col("engine_a").str.starts_with("vllm"),
        pl.col("engine_b").str.starts_with("vllm"),
    )
    assert not rows.is_empty()
    for row in rows.iter_rows(named=True):
        first_is_old = "Example" in row["engine_a"]
        assert row["ratio"] == pytest.approx(0.5 if first_is_old else 2.0, rel=0.02)
        assert row["verdict"] == ("slower" if first_is_old else "faster")
    title = charts.throughput(side.data).to_dict()["usermeta"]["title"]
    assert "Bigger 9" in title


def test_the_widest_noise_floor_of_the_runs_is_the_margin(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """What a host cannot tell from itself is no difference beside another run either."""
    noisy = second(tmp_path, flagged=False)
    path = noisy / "data" / "comparisons.parquet"
    judged = pl.read_parquet(path)
    rate = pl.col("metric") == "output_tokens_per_s"
    judged.with_columns(margin=pl.when(rate).then(pl.lit(1.5)).otherwise("margin")).write_parquet(
        path
    )
    found = side_by_side([pair[0], noisy]).data.comparisons
    assert found.filter(rate)["margin"].unique().to_list() == [1.5]
    assert "faster" not in found.filter(rate)["verdict"].to_list()
    assert found.filter(~rate)["margin"].drop_nulls().max() == pytest.approx(0.05)


def test_other_work_is_not_compared(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = second(tmp_path)
    changed(other / "manifest.json", lambda m: m["study"].update(model={"name": "another"}))
    side = side_by_side([pair[0], other])
    assert not side.same_work
    runs = side.data.comparisons.select(
        a=pl.col("engine_a").str.split(" · ").list[1], b=pl.col("engine_b").str.split(" · ").list[1]
    )
    assert (runs["a"] == runs["b"]).all()
    assert "did not ask the same" in caveats(side).plain


def test_a_load_of_the_same_name_must_be_the_same(tmp_path: Path) -> None:
    one = sample_study.write(tmp_path, parts=True)
    two = second(tmp_path, parts=True)
    assert side_by_side([one, two]).same_work
    path = two / "data" / "loads.parquet"
    loads = pl.read_parquet(path)
    loads.with_columns(think_time_s=pl.col("think_time_s") + 1).write_parquet(path)
    assert not same_work(side_by_side([one, two]).runs)


def test_labels_are_the_first_thing_that_tells_runs_apart(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    runs = side_by_side(pair).runs
    assert run_labels(runs) == LABELS
    same_host = second(tmp_path)
    changed(same_host / "host.json", lambda h: h.update(sample_study.host()))
    ids = run_labels(side_by_side([pair[0], same_host]).runs)
    assert ids == ("A", "B")
    installs = same_host / "data" / "installs.parquet"
    pl.read_parquet(installs).with_columns(version=pl.lit("9.9")).write_parquet(installs)
    labels = run_labels(side_by_side([pair[0], same_host]).runs)
    assert labels[1] == "9.9"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H200", "H200"),
        ("4 × NVIDIA H100 80GB HBM3", "4 × H100 80GB HBM3"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("AMD EPYC 9654 96-Core Processor", "EPYC 9654"),
        ("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", "Xeon Platinum 8480+"),
        ("Apple M4 Max", "M4 Max"),
        ("", ""),
    ],
)
def test_a_machine_has_a_short_name(name: str, short: str) -> None:
    assert short_machine(name) == short


def test_simulated_engines_keep_their_word(tmp_path: Path) -> None:
    one = sample_study.write(tmp_path, engines=sample_study.FULL, parts=True)
    two = second(tmp_path, engines=sample_study.FULL, parts=True)
    data = side_by_side([one, two]).data
    named = [e for e in data.engines if e.startswith("sglang")]
    assert len(named) == 2
    assert all(e.endswith("(simulated)") and e.count("simulated") == 1 for e in named)
    ranked = data.comparisons.filter(pl.col("verdict") != "no verdict")
    pairs = ranked.select("engine_a", "engine_b").iter_rows()
    assert all((a in named) == (b in named) for a, b in pairs)


def test_differences_are_named_and_what_is_the_same_is_counted(pair: tuple[Path, Path]) -> None:
    shown = side_tables.differences(side_by_side(pair)).plain
    assert "Bigger CPU 9 @ 5 GHz" in shown
    assert "further facts are the same" in shown
    assert "logical cores" not in shown  # the same in both


def test_equal_runs_differ_in_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    twin = second(tmp_path)
    changed(twin / "host.json", lambda h: h.update(sample_study.host()))
    shown = side_tables.differences(side_by_side([pair[0], twin]))
    assert "nothing" in shown.plain


def test_one_band_does_not_stand_for_two_machines(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert not side_by_side(pair).data.limits.is_empty()
    other = second(tmp_path)
    path = other / "data" / "limits.parquet"
    pl.read_parquet(path).with_columns(high=pl.col("high") * 3).write_parquet(path)
    assert side_by_side([pair[0], other]).data.limits.is_empty()


@pytest.mark.parametrize(
    ("places", "told"), [((0,), "one run stands beside nothing"), ((0, 0), "named twice")]
)
def test_one_run_or_one_twice_is_refused(
    pair: tuple[Path, Path], places: tuple[int, ...], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        side_by_side([pair[i] for i in places])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_holds_all_chapters_and_links(
    pair: tuple[Path, Path], tmp_path: Path, language: str
) -> None:
    html = render_side_by_side(pair, tmp_path, language)  # type: ignore[arg-type]
    soup = BeautifulSoup(html.read_text(encoding="utf-8"), "html.parser")
    assert len(soup.select("figure.eb-chart")) >= 6
    assert len(soup.find_all("h2")) >= 6
    text = soup.get_text()
    assert ("taken one after the other" if language == "en" else "先后进行") in text
    assert "conversations" not in text.lower() or language == "zh"  # an empty chapter is left out
    assert html.stat().st_size < 2_500_000


def test_every_table_and_chart_takes_joined_runs(tmp_path: Path) -> None:
    one = sample_study.write(tmp_path, engines=sample_study.FULL, parts=True)
    data = side_by_side([one, second(tmp_path, engines=sample_study.FULL, parts=True)]).data
    for module in (charts, tables):
        for name in module.__all__:
            draw = getattr(module, name)
            if name not in {"Column", "Value", "table", "Drawing"}:
                assert draw(data) is not None, name


def test_a_page_name_is_never_too_long() -> None:
    assert page_name(["a", "b"]) == "a+b.html"
    assert len(page_name(["x" * 90, "y" * 90])) < 60
    assert page_name(["x" * 90, "y" * 90]) != page_name(["x" * 90, "z" * 90])


def test_the_command_renders_several_and_the_index_names_them(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outputs = pair[0].parent.parent
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    result = tmp_path / "result.json"
    words = ["sample", "later", "--output", str(outputs), "--json", str(result)]
    assert command.run(parser.parse_args(words)) == 0
    facts = json.loads(result.read_text())
    html = Path(facts["reports"][0]["html"])
    assert html.is_file()
    assert facts["reports"][0]["runs"] == [sample_study.RUN, "later-fedcba987654"]
    assert f"report: {html}" in capsys.readouterr().out
    index = BeautifulSoup((outputs / "reports" / "index.html").read_text(), "html.parser")
    links = {a["href"]: a.get_text() for a in index.select("main a")}
    assert any("Side by side" in text for text in links.values()), links
    for href in links:
        assert (outputs / "reports" / str(href).replace("%2B", "+")).is_file()
