"""Memory at the peak: from the samples, above what there was before them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from enginebook.pipeline.steps.memory import _peak
from enginebook.store import write_json

READY = [{"component": "kv_cache", "bytes": 1000}, {"component": "total", "bytes": 5000}]


def sampled(folder: Path, rows: list[tuple[int, str, str, float]], status: str = "ok") -> Path:
    folder.mkdir()
    write_json(folder / "cell.json", {"status": status})
    schema = {"t_ns": pl.Int64, "source": pl.String, "name": pl.String, "value": pl.Float64}
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(folder / "samples.parquet")
    return folder


def test_the_gpu_counts_where_there_is_one(tmp_path: Path) -> None:
    folder = sampled(
        tmp_path / "a",
        [
            (1, "gpu0", "engine_memory_bytes", 100.0), (2, "gpu0", "engine_memory_bytes", 400.0),
            (1, "engine", "rss_bytes", 10.0), (2, "engine", "rss_bytes", 9000.0),
            (2, "server", "kv_usage", 0.25), (3, "server", "kv_usage", 0.5),
        ],
    )  # fmt: skip
    found = {p["component"]: p["bytes"] for p in _peak(READY, [folder])}
    assert found == {"total": 5300, "activations_seen": 300, "kv_live": 500}


def test_on_a_cpu_it_is_the_growth_of_resident_memory(tmp_path: Path) -> None:
    rows = [(1, "engine", "rss_bytes", 700.0), (2, "engine", "rss_bytes", 600.0)]
    found = {p["component"]: p["bytes"] for p in _peak(READY, [sampled(tmp_path / "a", rows)])}
    assert found == {"total": 5000, "activations_seen": 0}


def test_a_failed_cell_and_an_unknown_total_say_nothing(tmp_path: Path) -> None:
    rows = [(1, "engine", "rss_bytes", 7.0), (2, "engine", "rss_bytes", 9.0)]
    assert _peak(READY, [sampled(tmp_path / "a", rows, status="failed")]) == []
    assert _peak([], [sampled(tmp_path / "b", rows)]) == []


def test_a_device_s_use_counts_where_processes_are_not_told(tmp_path: Path) -> None:
    rows = [
        (1, "gpu0", "memory_used_bytes", 100.0), (2, "gpu0", "memory_used_bytes", 350.0),
        (1, "engine", "rss_bytes", 10.0), (2, "engine", "rss_bytes", 70.0),
    ]  # fmt: skip
    folder = sampled(tmp_path / "a", rows)
    on_gpu = [{"component": "total", "bytes": 5000, "source": "NVML, summed"}]
    assert {p["bytes"] for p in _peak(on_gpu, [folder])} == {5250, 250}
    on_cpu = [{"component": "total", "bytes": 5000, "source": "Pss of 2 processes"}]
    assert {p["bytes"] for p in _peak(on_cpu, [folder])} == {5060, 60}
