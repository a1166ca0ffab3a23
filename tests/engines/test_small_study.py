"""A whole small study on a real engine: llama.cpp, from install to the HTML report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from enginebook.paths import params_dir, project_root

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
RUN = [sys.executable, "-m", "enginebook.cli", "run", str(params_dir() / "smoke_cpu.yaml")]


def run(outputs: Path, *words: str) -> tuple[dict[str, Any], str]:
    result = outputs.parent / "outcome.json"
    done = subprocess.run(
        [*RUN, "--output", str(outputs), "--json", str(result), *words],
        cwd=project_root(), capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(result.read_text()), done.stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    outputs = tmp_path_factory.mktemp("study") / "outputs"
    outcome, said = run(outputs)
    return outputs, outcome, said


def data(study: tuple[Path, dict[str, Any], str], name: str) -> pl.DataFrame:
    outputs, outcome, _ = study
    run_folder = outputs / "runs" / outcome["run"]
    manifest = json.loads((run_folder / "manifest.json").read_text())
    return pl.read_parquet(run_folder / manifest["data"] / f"{name}.parquet")


def test_it_ends_with_the_report_and_three_sentences(
    study: tuple[Path, dict[str, Any], str],
) -> None:
    _, outcome, said = study
    lines = said.strip().splitlines()
    assert lines[-4] == f"report: {outcome['report']}"
    assert lines[-3:] == outcome["findings"]
    html = Path(outcome["report"]).read_text()
    assert "Does the whole path work here" in html
    assert 'src="http' not in html
    assert len(html) < 2_500_000


def test_every_cell_delivered_what_was_asked(study: tuple[Path, dict[str, Any], str]) -> None:
    outputs, _, _ = study
    cells = [json.loads(p.read_text()) for p in (outputs / "cells").glob("*/cell.json")]
    assert len(cells) == 4
    for cell in cells:
        assert cell["status"] == "ok", cell["error"]
        for check in ("failures", "output_length", "input_length", "cache"):
            assert cell["checks"][check]["ok"], cell["checks"][check]


def test_figures_are_there_and_possible(study: tuple[Path, dict[str, Any], str]) -> None:
    cells = data(study, "cells")
    for metric in ("output_tokens_per_s", "ttft_p50_ms", "tpot_p50_ms"):
        values = cells.filter(pl.col("metric") == metric)["value"]
        assert len(values) == 4
        assert values.null_count() == 0
        assert float(values.min() or 0) > 0  # type: ignore[arg-type]
    memory = data(study, "memory").filter(pl.col("component") == "total")
    assert set(memory["state"].to_list()) == {"ready", "loaded_peak", "drained"}
    # 135 million float32 weights are 538 MB; the process holds them and little else.
    assert memory["bytes"].is_between(5e8, 3e9).all()
    launches = data(study, "launches")
    assert set(launches["block"].to_list()) == {-1, 0, 1}


def test_the_model_answers_questions(study: tuple[Path, dict[str, Any], str]) -> None:
    outputs, outcome, _ = study
    run_folder = outputs / "runs" / outcome["run"]
    manifest = json.loads((run_folder / "manifest.json").read_text())
    checks = json.loads((run_folder / manifest["data"] / "checks.json").read_text())
    (row,) = checks["accuracy"]
    # 27 of the 40 in float32, with this model's weights; a broken engine gets none.
    assert row["right"] >= 24
    assert row["wrong"] is False


def test_a_second_run_finds_everything_done(study: tuple[Path, dict[str, Any], str]) -> None:
    outputs, first, _ = study
    before = {p: p.stat().st_mtime_ns for p in (outputs / "cells").rglob("*.parquet")}
    again, _ = run(outputs)
    assert again["findings"] == first["findings"]
    assert again["seconds"] < first["seconds"] / 3
    assert {p: p.stat().st_mtime_ns for p in (outputs / "cells").rglob("*.parquet")} == before


def test_nothing_runs_any_more(study: tuple[Path, dict[str, Any], str]) -> None:
    outputs, _, _ = study
    left = [
        p.info["cmdline"]
        for p in psutil.process_iter(["cmdline"])
        if any(str(outputs) in word for word in p.info["cmdline"] or [])
    ]
    assert left == []
