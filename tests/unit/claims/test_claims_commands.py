"""``enginebook claims`` and ``enginebook compare`` on runs in a temporary folder."""

import argparse
import json

import polars as pl
import pytest
from claims_runs import GPU_HOST, run_cells, study

from enginebook.claims.runs import open_run
from enginebook.commands import claims, compare
from enginebook.errors import InputError
from enginebook.stats.regression import regressions

LOADS = (1, 8, 64)


def write_run(folder, levels, metric="output_tokens_per_s", seed=0, **more):
    cells = run_cells({e: {c: v * c**0.9 for c in LOADS} for e, v in levels.items()},
                      metric=metric, seed=seed, **more)  # fmt: skip
    data = folder / "stage" / "data"
    data.mkdir(parents=True)
    cells.write_parquet(data / "cells.parquet")
    (folder / "host.json").write_text(json.dumps(GPU_HOST))
    manifest = {
        "run": folder.name,
        "study": study(*levels) | {"margin": 0.03},
        "data": "stage/data",
        "host_file": "host.json",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


def call(command, *words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(words)))


def test_a_loss_fails_the_gate_and_a_tie_passes(tmp_path, capsys):
    old = write_run(tmp_path / "old", {"vllm": 100})
    same = write_run(tmp_path / "same", {"vllm": 100.3}, seed=1)
    lost = write_run(tmp_path / "lost", {"vllm": 90}, seed=2)
    won = write_run(tmp_path / "won", {"vllm": 130}, seed=3)
    assert call(compare, old, same) == 0
    assert call(compare, old, won) == 0
    assert call(compare, old, lost, "--json", str(tmp_path / "out.json")) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["passed"] is False
    assert found["counts"]["slower"] == 3
    assert {r["engine"] for r in found["rows"]} == {"vllm"}
    assert found["rows"][0]["ratio"] == pytest.approx(0.9, rel=0.03)
    assert "slower     vllm  sweep c=1" in capsys.readouterr().out


def test_a_loss_inside_the_margin_or_the_noise_floor_passes(tmp_path):
    old = write_run(tmp_path / "old", {"vllm": 100})
    lost = write_run(tmp_path / "lost", {"vllm": 90}, seed=2)
    assert call(compare, old, lost, "--margin", "0.2") == 0
    assert call(compare, old, lost, "--noise-floor", "0.2") == 0


def test_times_lose_when_they_grow(tmp_path):
    old = write_run(tmp_path / "old", {"vllm": 100}, metric="ttft_p50_ms")
    grown = write_run(tmp_path / "grown", {"vllm": 120}, metric="ttft_p50_ms", seed=1)
    assert call(compare, old, grown) == 1
    assert call(compare, grown, old) == 0


def test_a_gate_that_judged_nothing_does_not_pass(tmp_path, capsys):
    old = write_run(tmp_path / "old", {"vllm": 100})
    bad = write_run(tmp_path / "bad", {"vllm": 100}, gate_ok=False)
    assert call(compare, old, bad) == 1
    assert "nothing could be judged" in capsys.readouterr().out


def test_labels_that_changed(tmp_path):
    old = write_run(tmp_path / "old", {"vllm": 100})
    new = write_run(tmp_path / "new", {"vllm-next": 90}, seed=1)
    with pytest.raises(InputError, match="no engine in common: vllm before, vllm-next after"):
        call(compare, old, new)
    assert call(compare, old, new, "--engine", "vllm=vllm-next") == 1


@pytest.mark.parametrize("words", [["--margin", "2"], ["--engine", "x"], ["--margin", "0"]])
def test_wrong_arguments(words, capsys):
    with pytest.raises(SystemExit) as caught:
        call(compare, "a", "b", *words)
    assert caught.value.code == 2
    assert "argument" in capsys.readouterr().err


def test_two_engines_are_compared_each_with_itself():
    old = run_cells({"a": {1: 100.0}, "b": {1: 200.0}})
    new = run_cells({"a": {1: 100.0}, "b": {1: 150.0}}, seed=1)
    found = regressions(old, new)
    assert dict(found.select("engine", "verdict").iter_rows()) == {"a": "tie", "b": "slower"}
    assert set(found["scenario"]) == {"sweep"}


def test_runs_are_found_by_folder_and_by_id(tmp_path):
    folder = tmp_path / "runs" / "abc"
    write_run(folder, {"vllm": 100})
    assert open_run(str(folder)).host == GPU_HOST
    found = open_run("abc", outputs=tmp_path)
    assert isinstance(found.cells, pl.DataFrame)
    with pytest.raises(InputError, match="no run 'xyz'"):
        open_run("xyz", outputs=tmp_path)
    (folder / "stage" / "data" / "cells.parquet").unlink()
    with pytest.raises(InputError, match=r"has no cells\.parquet"):
        _ = open_run(str(folder)).cells


def test_claims_without_a_run(tmp_path, capsys):
    assert call(claims, "--json", str(tmp_path / "c.json")) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert len(found["claims"]) == 135
    assert found["hypotheses"][0]["hypothesis"] == "4 x H100-SXM bf16"
    text = capsys.readouterr().out
    assert "78 n/a, 31 impossible, 22 possible, 4 implausible" in text
    assert "1 x H100-SXM bf16        cannot be loaded" in text
    assert "RAT-02     disagrees  claimed crosses above 64; the tables say crosses at 52.2" in text
    assert len(found["own_tables"]) > 10


def test_claims_with_a_run(tmp_path, capsys):
    run = write_run(tmp_path / "run", {"vllm": 100, "sglang": 129})
    assert call(claims, run, "--id", "RAT-01") == 0
    text = capsys.readouterr().out
    assert "verdict: supported" in text
    assert "as printed: SGLang 比 vLLM 高约 29%" in text
    assert "E08: Llama-3.1-8B bf16" in text
    assert call(claims, run, "--topic", "decision") == 0
    assert "DEC-01" in capsys.readouterr().out
    with pytest.raises(InputError, match="no claim of topic 'nonsense'"):
        call(claims, "--topic", "nonsense")
    with pytest.raises(InputError, match="no claim 'X-1'"):
        call(claims, "--id", "X-1")


def test_a_users_own_claims(tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "setting: {model: llama-3.3-70b, hardware: H100-SXM, precision: fp16}\n"
        "tables:\n"
        "  - {test: {metric: output_tokens_per_s}, by: concurrency, engines: [vllm],"
        " rows: {1: [42]}}\n"
    )
    assert call(claims, "--file", str(mine)) == 0
    assert call(claims, "--file", str(mine), "--strict") == 1
    assert "vllm-1                   contradicted     [impossible]" in capsys.readouterr().out
    with pytest.raises(InputError, match="no claims file"):
        call(claims, "--file", str(tmp_path / "absent.yaml"))
