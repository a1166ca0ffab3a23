"""The noise floor of a host, read from an A/A run."""

import json

import polars as pl
import pytest
from test_stats_families import cells

from enginebook.errors import InputError
from enginebook.stats import comparisons, noise_floor_of_run, run_folder
from enginebook.stats.floors import same_engines

ENGINE = {"recipe": "llamacpp-cpu", "options": {}, "environment": {}, "model": None, "arm": None}
TWICE = [{"name": "x", **ENGINE}, {"name": "y", **ENGINE}]


def a_run(outputs, engines=TWICE, frame=None, host="h1"):
    folder = outputs / "runs" / "aa-1"
    (folder / "data").mkdir(parents=True)
    manifest = {"run": "aa-1", "host_id": host, "study": {"engines": engines}, "data": "data"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if frame is not None:
        frame.write_parquet(folder / "data" / "cells.parquet")
    return folder


def test_the_floor_of_a_run_keeps_small_differences_from_a_verdict(tmp_path):
    same = cells({"x": 100.0, "y": 101.5}, blocks=6)
    folder = a_run(tmp_path, frame=same)
    assert run_folder("aa-1", tmp_path) == run_folder(str(folder), tmp_path) == folder
    floor = noise_floor_of_run(folder, "h1")
    assert (floor.run, floor.pairs, floor.blocks) == ("aa-1", (("x", "y"),), 6)
    assert 0.01 < floor.by_metric["output_tokens_per_s"] < 0.2
    study = cells({"a": 100.0, "b": 101.5}, blocks=6, seed=5)
    free = comparisons(study, margin=0.001).row(0, named=True)
    held = comparisons(study, margin=0.001, noise_floor=floor.by_metric).row(0, named=True)
    assert (free["verdict"], held["verdict"]) == ("slower", "tie")
    assert held["margin"] == floor.by_metric["output_tokens_per_s"]
    assert held["reason"].endswith("the margin is this host's noise floor")


def test_a_run_of_another_host_is_refused_with_what_to_do(tmp_path):
    folder = a_run(tmp_path, frame=cells({"x": 1.0, "y": 1.0}), host="elsewhere")
    with pytest.raises(InputError, match="another host") as caught:
        noise_floor_of_run(folder, "h1")
    assert "params/aa_llamacpp.yaml" in caught.value.remedy
    assert caught.value.exit_status == 2
    assert noise_floor_of_run(folder).host_id == "elsewhere"


def test_runs_that_hold_no_floor_are_refused(tmp_path):
    with pytest.raises(InputError, match="no run 'aa-2'"):
        run_folder("aa-2", tmp_path)
    with pytest.raises(InputError, match=r"no cells\.parquet"):
        noise_floor_of_run(a_run(tmp_path / "1"))
    other = [TWICE[0], {**TWICE[1], "options": {"threads": 1}}]
    with pytest.raises(InputError, match="no engine under two labels"):
        noise_floor_of_run(a_run(tmp_path / "2", other, cells({"x": 1.0, "y": 1.0})))


def test_cells_that_failed_their_gate_tell_nothing(tmp_path):
    frame = cells({"x": 100.0, "y": 100.0}, blocks=6)
    broken = frame.with_columns(
        value=pl.when((pl.col("block") == 0) & (pl.col("engine") == "x"))
        .then(1.0)
        .otherwise(pl.col("value")),
        gate_ok=pl.col("block") != 0,
    )
    floor = noise_floor_of_run(a_run(tmp_path, frame=broken))
    assert floor.by_metric["output_tokens_per_s"] < 0.05


def test_three_labels_of_one_engine_are_two_pairs():
    third = {"name": "z", **ENGINE}
    assert same_engines({"engines": [*TWICE, third]}) == [("x", "y"), ("x", "z")]
    assert same_engines({"engines": [TWICE[0]]}) == []
