"""Reading a run: whole, partly there, damaged; and thinning its raw records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import sample_study

from enginebook.errors import InputError
from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA
from enginebook.report import StudyData, raw, schema
from enginebook.report.doubts import doubts

MS = 1_000_000


def test_a_whole_run_is_read(data: StudyData, run_folder: Path) -> None:
    assert data.engines == ["llamacpp", "vllm"]
    assert data.blocks == sample_study.BLOCKS
    assert data.run_id == sample_study.RUN
    assert data.language == "en"
    assert data.question.startswith("Which engine")
    assert data.calibration is not None
    assert data.failures[0]["engine"] == "vllm"
    assert data.folder == run_folder


def test_every_frame_is_read(parts: StudyData) -> None:
    for name, columns in schema.SCHEMAS.items():
        frame = getattr(parts, name)
        assert dict(frame.schema) == dict(columns), name
        assert not frame.is_empty(), name


def test_missing_frames_are_empty_with_their_columns(tmp_path: Path) -> None:
    left_out = ("memory", "claims", "launches", "quantiles", "samples", "limits")
    data = StudyData.read(sample_study.write(tmp_path, without=left_out))
    for name in left_out:
        frame = getattr(data, name)
        assert frame.is_empty()
        assert dict(frame.schema) == dict(schema.SCHEMAS[name])


def test_data_may_lie_elsewhere(tmp_path: Path) -> None:
    folder = sample_study.write(tmp_path)
    (folder / "data").rename(tmp_path / "moved")
    (folder / "host.json").rename(tmp_path / "moved" / "host.json")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {
        "data": "../../moved",
        "claims": "../../moved",
        "host_file": "../../moved/host.json",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    data = StudyData.read(folder)
    assert not data.cells.is_empty()
    assert not data.claims.is_empty()
    assert data.host["cpu"]["logical_cores"] == 2


def test_no_run_is_an_input_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no manifest\.json") as found:
        StudyData.read(tmp_path)
    assert found.value.remedy
    assert found.value.exit_status == 2


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("manifest.json", b"{", "cannot be read"),
        ("manifest.json", b"[1]", "expected a JSON object"),
        ("data/points.parquet", b"PAR1 this is no parquet", "cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    folder = sample_study.write(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=told) as found:
        StudyData.read(folder)
    assert Path(name).name in found.value.message


def test_a_frame_of_an_older_version_is_refused(tmp_path: Path) -> None:
    folder = sample_study.write(tmp_path)
    path = folder / "data" / "points.parquet"
    pl.read_parquet(path).drop("n_blocks").write_parquet(path)
    with pytest.raises(InputError, match="no column n_blocks"):
        StudyData.read(folder)
    wrong = schema.empty("memory").cast({"bytes": pl.String})
    row = pl.DataFrame(
        [["e", "weights", "many", "log", "ready"]], schema=wrong.schema, orient="row"
    )
    with pytest.raises(InputError, match="wrong type"):
        schema.conform("memory", row, "memory")


def test_further_columns_are_left_aside() -> None:
    frame = schema.empty("memory").with_columns(new=pl.lit(1))
    assert schema.conform("memory", frame, "x").columns == list(schema.SCHEMAS["memory"])


def test_a_notebooks_study_is_read_without_a_batch_run(tmp_path: Path) -> None:
    folder = sample_study.write(tmp_path)
    stages = tmp_path / "stages"
    (stages / "compare").mkdir(parents=True)
    (folder / "data").rename(stages / "compare" / "data")
    (folder / "manifest.json").unlink()
    place = {
        n: SimpleNamespace(name=n, folder=f"stages/{n}") for n in ("host", "compare", "claims")
    }
    study = SimpleNamespace(model_dump=lambda: sample_study.manifest(("vllm",), 1, "zh")["study"])
    plan = SimpleNamespace(run_id="r", stage=place.__getitem__, stages=tuple(place.values()))
    data = StudyData.of(SimpleNamespace(plan=plan, study=study, outputs=tmp_path))
    assert data.run_id == "r"
    assert data.language == "zh"
    assert not data.points.is_empty()
    assert data.claims.is_empty()


def records(ttft_ms: list[float], tokens: int = 3, gap_ms: float = 10.0) -> tuple[Any, Any]:
    """Return requests and chunks of a stream that sends one token each ``gap_ms``."""
    requests, chunks = [], []
    for number, first in enumerate(ttft_ms):
        row: dict[str, Any] = dict.fromkeys(REQUEST_SCHEMA)
        begin, start = number * 1000 * MS, int(number * 1000 * MS + first * MS)
        last = int(start + (tokens - 1) * gap_ms * MS)
        row |= {
            "request": number, "phase": "measured", "status": "completed", "scheduled_ns": begin,
            "sent_ns": begin, "first_token_ns": start, "first_output_ns": start,
            "last_token_ns": last, "end_ns": last, "completion_tokens": tokens, "streamed": True,
        }  # fmt: skip
        requests.append(row)
        for seq in range(tokens):
            chunk: dict[str, Any] = dict.fromkeys(CHUNK_SCHEMA)
            at = int(start + seq * gap_ms * MS)
            chunks.append(
                chunk
                | {"request": number, "seq": seq, "recv_ns": at, "kind": "content", "tokens": 1}
            )
    return pl.DataFrame(requests, schema=REQUEST_SCHEMA), pl.DataFrame(chunks, schema=CHUNK_SCHEMA)


# At 7 rows a slice holds two requests of three chunks and a slice's end falls between requests.
@pytest.mark.parametrize("rows", [raw.SLICE, 7, 1])
def test_quantiles_come_from_the_raw_records_of_the_heaviest_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(raw, "SLICE", rows)
    cells = sample_study.cells(("vllm",), 2)
    truth = list(np.linspace(10, 110, 101))
    for block in (0, 1):
        folder = tmp_path / f"vllm-{block}-throughput-8-64"
        folder.mkdir()
        requests, chunks = records(truth)
        requests.write_parquet(folder / "requests.parquet")
        chunks.write_parquet(folder / "chunks.parquet")
    found = raw.quantiles(cells, tmp_path)
    assert set(found["concurrency"]) == {8}
    assert found.group_by("metric").len()["len"].unique().to_list() == [99]
    ttft = found.filter(pl.col("metric") == "ttft_ms").sort("q")
    expected = np.quantile(np.repeat(truth, 2), ttft["q"].to_numpy())
    assert np.allclose(ttft["value"].to_numpy(), expected)
    gaps = found.filter(pl.col("metric") == "itl_ms")["value"].to_numpy()
    assert np.allclose(gaps, 10.0)


def test_chunks_are_read_a_slice_at_a_time_and_without_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, chunks = records([10.0] * 50)
    requests.write_parquet(tmp_path / "requests.parquet")
    chunks.write_parquet(tmp_path / "chunks.parquet")
    monkeypatch.setattr(raw, "SLICE", 30)
    parts = list(raw._slices(tmp_path))
    assert max(len(stream) for _, stream in parts) <= 30
    assert sum(len(asked) for asked, _ in parts) == 50
    assert sum(len(stream) for _, stream in parts) == 150
    assert "text" not in parts[0][1].columns


def test_without_raw_records_there_are_no_quantiles(tmp_path: Path) -> None:
    assert raw.quantiles(sample_study.cells(), tmp_path).is_empty()
    assert raw.quantiles(schema.empty("cells"), tmp_path).is_empty()
    assert raw.samples(sample_study.cells(), tmp_path).is_empty()


def test_timelines_are_thinned_and_counters_become_shares(tmp_path: Path) -> None:
    rows = []
    for tick in range(1000):
        t_ns = 5_000 * MS + tick * 100 * MS
        rows += [
            (t_ns, "cpu", "busy_s", 0.15 * tick), (t_ns, "cpu", "total_s", 0.2 * tick),
            (t_ns, "server", "kv_usage", 0.5), (t_ns, "server", "running", float(tick % 7)),
            (t_ns, "server", "odd", 1.0),
        ]  # fmt: skip
    folder = tmp_path / "vllm-0-throughput-8-64"
    folder.mkdir()
    pl.DataFrame(rows, schema=["t_ns", "source", "name", "value"], orient="row").write_parquet(
        folder / "samples.parquet"
    )
    found = raw.samples(sample_study.cells(("vllm",), 2), tmp_path)
    assert set(found["series"]) == {"cpu_share", "kv_usage", "running"}
    assert found.group_by("series").len()["len"].to_numpy().max() <= raw.MOST_POINTS + 1
    by_series = dict(found.group_by("series").agg(pl.col("value").mean()).iter_rows())
    assert by_series["cpu_share"] == pytest.approx(75.0)
    assert by_series["kv_usage"] == pytest.approx(50.0)
    assert by_series["running"] == pytest.approx(3.0, abs=0.1)
    assert found["t_s"].to_numpy().min() == 0
    assert found["t_s"].to_numpy().max() == pytest.approx(99.9, abs=2)


def test_simulated_engines_are_called_so_in_every_frame(parts: StudyData) -> None:
    assert parts.engines == ["llamacpp", "vllm", "vllm-equal", "sglang (simulated)"]
    for name in schema.SCHEMAS:
        frame = getattr(parts, name)
        for column in ("engine", "engine_a", "engine_b"):
            if column in frame.columns:
                assert "sglang" not in frame[column].to_list(), (name, column)
    again = replace(parts, memory=sample_study.memory(("sglang",)))
    assert again.memory["engine"].unique().to_list() == ["sglang (simulated)"]
    assert again.engines == parts.engines


def test_before_the_comparison_the_recipe_tells_what_is_simulated() -> None:
    frames = {n: schema.empty(n) for n in ("cells", "points", "comparisons")}
    manifest = {
        "study": {"engines": [{"name": "s"}, {"name": "v"}]},
        "engines": {"s": {"recipe": {"labels": ["simulated"]}}, "v": {"recipe": {"labels": []}}},
    }
    rows = [("s", "weights", 1, "log", "ready"), ("v", "weights", 1, "log", "ready")]
    memory = pl.DataFrame(rows, schema=dict(schema.SCHEMAS["memory"]), orient="row")
    data = StudyData(host={}, manifest=manifest, memory=memory, **frames)
    assert data.engines == ["s (simulated)", "v"]


def test_a_reason_against_limits_forbids_them(tmp_path: Path, data: StudyData) -> None:
    assert "What physics allows" not in " ".join(doubts(data))
    folder = sample_study.write(tmp_path, without=("limits",))
    path = folder / "data" / "checks.json"
    path.write_text(json.dumps({"no_limits": "others used 49% of the CPU"}))
    found = StudyData.read(folder)
    assert found.limits.is_empty()
    assert "others used 49% of the CPU." in " ".join(doubts(found))
