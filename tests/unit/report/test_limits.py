"""The grey band: what physics allows at a study's loads, or none where it is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sample_study

from enginebook.physics import Hardware, ModelShape, Placement, precision_named
from enginebook.report import StudyData
from enginebook.report.limits import Served, limits, served_model

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "max_position_embeddings": 2048,
}  # fmt: skip
CEILINGS = {"memory_read": {"bytes_per_s": 2e10}, "matmul_float32": {"flops_per_s": 1e11}}
HOST = {"cpu": {"model": "a CPU"}, "gpus": [], "ceilings": CEILINGS}


def manifest(tmp_path: Path, **options: Any) -> dict[str, Any]:
    """Return a manifest whose install stage leads to `CONFIG`."""
    stage, tokenizer = tmp_path / "stages" / "install-vllm-1", tmp_path / "model"
    stage.mkdir(parents=True)
    tokenizer.mkdir()
    (tokenizer / "config.json").write_text(json.dumps(CONFIG))
    (stage / "install.json").write_text(json.dumps({"model": {"tokenizer_dir": str(tokenizer)}}))
    return {
        "stages": {"host": "stages/host-1", "install-vllm": "stages/install-vllm-1"},
        "engines": {
            "vllm": {"recipe": {"options": options}},
            "llamacpp": {"recipe": {"options": {}}},
        },
        "study": {"engines": [{"name": "vllm", "options": {}}]},
    }


def served(precision: str = "fp32") -> Served:
    hardware = Hardware.from_ceilings(CEILINGS, name="a CPU")
    return Served(ModelShape.from_hf(CONFIG), Placement(hardware, precision_named(precision)))


def test_limits_of_a_measured_machine_have_a_width(data: StudyData) -> None:
    found = limits(data.points, served())
    assert set(found["metric"]) == {"output_tokens_per_s", "ttft_p50_ms"}
    assert found.height == 2 * 7
    assert found.filter(pl.col("low") >= pl.col("high")).is_empty()
    assert "measured ceilings of a CPU, fp32 weights" in found["source"].to_list()


def test_one_stream_is_bound_by_reading_the_weights(data: StudyData) -> None:
    one = limits(data.points, served()).filter(
        pl.col("metric") == "output_tokens_per_s",
        pl.col("scenario") == "throughput",
        pl.col("concurrency") == 1,
    )  # fmt: skip
    weights = 4 * 134_515_008  # SmolLM2-135M's parameters in float32
    assert one["low"][0] == pytest.approx(2e10 / weights, rel=0.03)
    rates = limits(data.points, served()).filter(pl.col("metric") == "output_tokens_per_s")
    by_streams = (
        rates.filter(pl.col("scenario") == "throughput").sort("concurrency")["low"].to_list()
    )
    assert by_streams == sorted(by_streams)


def test_longer_prompts_take_longer(data: StudyData) -> None:
    floors = limits(data.points, served()).filter(pl.col("scenario") == "input_length")
    first = floors.filter(pl.col("metric") == "ttft_p50_ms").sort("input_tokens")["high"].to_list()
    assert first[2] > 3 * first[1] > 0


def test_the_precision_is_the_one_that_was_served(tmp_path: Path) -> None:
    found = served_model(manifest(tmp_path, dtype="float32"), HOST, tmp_path)
    assert found is not None
    assert found.place.precision.weight_bits == 32
    assert found.place.precision.kv_bits == 16


def test_without_a_stated_dtype_the_models_own_counts(tmp_path: Path) -> None:
    found = served_model(manifest(tmp_path, dtype="auto"), HOST, tmp_path)
    assert found is not None
    assert found.place.precision.weight_bits == 16


def test_devices_are_counted(tmp_path: Path) -> None:
    found = served_model(manifest(tmp_path, dtype="auto", tensor_parallel=4), HOST, tmp_path)
    assert found is not None
    assert found.place.devices == 4


@pytest.mark.parametrize(
    "change",
    [
        {"host": {**HOST, "ceilings": {}}},
        {"host": {"gpus": [{"name": "A card nobody knows", "memory_bytes": 1}]}},
        {"options": {"quantization": "fp8"}},
        {"stages": {}},
    ],
)
def test_no_band_rather_than_a_wrong_one(tmp_path: Path, change: dict[str, Any]) -> None:
    made = manifest(tmp_path, **change.get("options", {}))
    made["stages"] = change.get("stages", made["stages"])
    assert served_model(made, change.get("host", HOST), tmp_path) is None


def test_a_run_without_limits_gets_them_when_it_is_read(tmp_path: Path) -> None:
    folder = sample_study.write(tmp_path, without=("limits",))
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **{
        k: v for k, v in manifest(tmp_path, dtype="float32").items() if k != "study"
    }}))  # fmt: skip
    (folder / "host.json").write_text(json.dumps(HOST))
    data = StudyData.read(folder)
    assert data.limits.height == 14
