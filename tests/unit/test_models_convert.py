"""GGUF to float32 GGUF and to a Hugging Face folder, on a tiny Llama."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from enginebook.errors import InputError
from enginebook.lifecycle import models_hf, models_shapes
from enginebook.lifecycle.models_gguf import GgufFile, write_as

sys.path.insert(0, str(Path(__file__).parent))
from models_support import HEADS, HIDDEN, KV_HEADS, LAYERS, hf_weights, vocabulary, write_gguf


@pytest.fixture
def tiny(tmp_path):
    return GgufFile(write_gguf(tmp_path / "tiny.gguf"))


@pytest.fixture
def folder(tiny, tmp_path):
    made = tmp_path / "hf"
    made.mkdir()
    models_hf.write_folder(tiny, made)
    return made


def test_weights_come_back_exactly(folder):
    found = load_file(folder / "model.safetensors")
    wanted = hf_weights()
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_unpermuting_is_not_the_identity():
    values = hf_weights()["model.layers.0.self_attn.q_proj.weight"]
    assert not np.array_equal(models_hf.unpermuted(values, HEADS), values)


def test_quantised_weights_are_widened_to_what_they_mean(tmp_path):
    source = GgufFile(write_gguf(tmp_path / "q.gguf", kind="Q8_0"))
    assert not source.is_float32()
    found = models_hf.tensors(source)
    for name, values in hf_weights().items():
        np.testing.assert_allclose(found[name], values, atol=0.03, err_msg=name)
    assert any(not np.array_equal(found[n], v) for n, v in hf_weights().items())


def test_float32_gguf_holds_the_same_model(tmp_path):
    source = GgufFile(write_gguf(tmp_path / "q.gguf", kind="Q8_0"))
    write_as(source, tmp_path / "f32.gguf", "f32")
    made = GgufFile(tmp_path / "f32.gguf")
    assert made.is_float32()
    assert made.value("general.file_type") == 0
    kept = {k: v for k, _, v in source.fields() if k != "general.file_type"}
    assert {k: v for k, _, v in made.fields() if k != "general.file_type"} == kept
    for (name, a), (other, b) in zip(source.tensors(), made.tensors(), strict=True):
        assert name == other
        np.testing.assert_array_equal(a, b)


def test_config(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["num_hidden_layers"]) == (HIDDEN, LAYERS)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 100000.0
    assert config["tie_word_embeddings"] is True
    assert config["vocab_size"] == len(vocabulary())
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)


def test_tokenizer(folder):
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = vocabulary()
    ids = made.encode("ab ab12<|im_end|>").ids
    assert [words[i] for i in ids] == ["ab", "Ġab", "1", "2", "<|im_end|>"]
    assert made.decode(ids) == "ab ab12"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "<|im_end|>"
    assert settings["chat_template"] == (folder / "chat_template.jinja").read_text()
    assert settings["model_max_length"] == 128


def test_generation_config(folder):
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arch": "qwen2"}, "architecture 'qwen2'"),
        ({"pre": "llama-bpe"}, "tokenizer gpt2/llama-bpe"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer llama/smollm"),
        ({"tokenizer.ggml.add_bos_token": True}, "adds BOS"),
        ({"llama.rope.scaling.type": "yarn"}, "scaled rotary"),
    ],
)
def test_what_was_not_checked_is_refused(tmp_path, changes, problem):
    source = GgufFile(write_gguf(tmp_path / "x.gguf", **changes))
    with pytest.raises(InputError, match=problem):
        models_hf.check_convertible(source)


def test_an_unknown_tensor_is_refused():
    with pytest.raises(InputError, match="ffn_gate_inp"):
        models_hf.hf_name("blk.0.ffn_gate_inp.weight")
    assert models_hf.hf_name("blk.12.attn_q.weight") == "model.layers.12.self_attn.q_proj.weight"


def test_a_missing_key_is_named(tmp_path):
    source = GgufFile(write_gguf(tmp_path / "x.gguf", **{"llama.block_count": None}))
    with pytest.raises(InputError, match=r"llama\.block_count"):
        models_hf.config(source)


def test_not_a_gguf(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(InputError, match="not a GGUF file"):
        GgufFile(tmp_path / "x.gguf").tensor_names()


def test_a_gguf_that_was_cut_short(tmp_path):
    path = write_gguf(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(InputError, match="cut short"):
        list(GgufFile(path).tensors())


def test_one_word_is_one_token(tmp_path):
    config = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64}
    models_shapes.write_shape(config, tmp_path)
    made = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert made.encode("t7 t49 t0").ids == [7, 49, 0]
    assert made.decode([7, 49, 0]) == "t7 t49 t0"
    assert made.get_vocab_size() == 50
    assert json.loads((tmp_path / "config.json").read_text()) == config
