"""What cannot fit is refused with its arithmetic; the figures are those measured on one H200."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from enginebook.engines.base import ModelFiles
from enginebook.engines.registry import adapter
from enginebook.errors import InputError
from enginebook.lifecycle import fit, gpu

LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
    "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
H200 = gpu.Device(
    **{
        **dict.fromkeys(gpu.Device.__dataclass_fields__),
        "name": "NVIDIA H200",
        "memory_bytes": 143_771 << 20,
        "memory_used_bytes": 0,
        "processes": (),
    }
)


@pytest.fixture
def llama(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    return ModelFiles("llama-3.3-70b", tmp_path, "hf", tmp_path, dummy=True)


@pytest.fixture
def card(monkeypatch):
    def show(device: gpu.Device) -> None:
        monkeypatch.setattr(gpu, "look", lambda: gpu.View((device,), "580", "13.0", ""))

    show(H200)
    return show


def test_weights_of_70b_in_16_bit(llama):
    needed = fit.need(llama, {"dtype": "bfloat16"}, on_gpu=True)
    assert needed.weights / fit.GIB == pytest.approx(131.41, abs=0.05)
    # 320 KiB a token in 16 bit.
    assert needed.kv_one_request == 2048 * 320 * 1024


def test_weights_of_70b_in_fp8_keep_embeddings_in_16_bit(llama):
    needed = fit.need(llama, {"quantization": "fp8"}, on_gpu=True)
    assert needed.weights / fit.GIB == pytest.approx(67.66, abs=0.1)


def test_70b_in_16_bit_is_refused_on_one_h200(llama, card):
    options = {"dtype": "bfloat16", "memory_fraction": 0.92}
    with pytest.raises(InputError) as raised:
        fit.require_fit(llama, options, on_gpu=True, who="vLLM")
    text = str(raised.value)
    assert "131.4 GiB of weights (70.6 G parameters in bf16)" in text
    assert "129.2 GiB that NVIDIA H200 offers" in text
    assert "quantised" in raised.value.remedy


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_takes_its_own_share_when_none_is_asked_for(llama, card, engine):
    options = {"max_model_len": 16384}
    # 131.4 GiB of weights and 5 of cache are within the card's 140.4, but not within the share.
    fit.require_fit(llama, options, on_gpu=True, who=engine)
    share = adapter(engine).memory_share
    with pytest.raises(InputError, match=f"fraction {share:g}"):
        fit.require_fit(llama, options, on_gpu=True, who=engine, share=share)
    # What is asked for by name goes over it.
    fit.require_fit(
        llama, {**options, "memory_fraction": 1.0}, on_gpu=True, who=engine, share=share
    )


def test_70b_in_fp8_is_let_through(llama, card):
    options = {"quantization": "fp8", "memory_fraction": 0.92, "max_model_len": 16384}
    fit.require_fit(llama, options, on_gpu=True, who="vLLM")


def test_a_checkpoint_that_is_fp8_needs_no_option(llama, card):
    quantised = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    llama.path.joinpath("config.json").write_text(json.dumps(LLAMA_70B | quantised))
    needed = fit.need(llama, {"max_model_len": 16384}, on_gpu=True)
    assert needed.weights / fit.GIB == pytest.approx(67.66, abs=0.1)
    assert needed.weights_source == "70.6 G parameters in fp8"
    fit.require_fit(llama, {}, on_gpu=True, who="vLLM", share=0.92)


def test_a_format_that_is_not_known_is_refused_only_when_4_bits_would_not_fit(llama, card):
    needed = fit.need(llama, {"quantization": "odd"}, on_gpu=True)
    assert needed.weights / fit.GIB == pytest.approx(35.3, abs=0.5)
    assert "not known here" in needed.weights_source


def test_two_devices_share(llama, card):
    one = fit.need(llama, {}, on_gpu=True)
    two = fit.need(llama, {"tensor_parallel": 2}, on_gpu=True)
    assert two.weights == one.weights // 2
    assert two.kv_one_request == one.kv_one_request // 2
    fit.require_fit(llama, {"tensor_parallel": 2}, on_gpu=True, who="vLLM")


def test_busy_card_names_its_users(llama, card):
    card(replace(H200, memory_used_bytes=80 << 30, processes=(4242,)))
    with pytest.raises(InputError, match=r"80\.0 GiB in use by pids \[4242\]"):
        fit.require_fit(llama, {"quantization": "fp8"}, on_gpu=True, who="vLLM")


def test_force_tries_all_the_same(llama, card, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_FORCE_FIT", "1")
    fit.require_fit(llama, {"dtype": "float32"}, on_gpu=True, who="vLLM")


def test_files_on_disk_count_as_they_are(llama, tmp_path):
    (tmp_path / "model-1.safetensors").write_bytes(b"0" * 1000)
    (tmp_path / "model-2.safetensors").write_bytes(b"0" * 500)
    stored = replace(llama, dummy=False)
    needed = fit.need(stored, {}, on_gpu=False)
    assert (needed.weights, needed.weights_source) == (1500, "size of the files")
    gguf = replace(stored, path=tmp_path / "model-1.safetensors", format="gguf")
    assert fit.need(gguf, {}, on_gpu=False).weights == 1000


def test_cpu_memory_counts_with_the_containers_limit(llama, monkeypatch):
    monkeypatch.setattr(fit.limits, "memory_limit_bytes", lambda: 2 << 30)
    with pytest.raises(InputError, match=r"2\.0 GiB of memory that is free"):
        fit.require_fit(llama, {}, on_gpu=False, who="SGLang")


def test_only_the_devices_that_are_asked_for_count(llama, monkeypatch):
    full = replace(H200, index=0, uuid="GPU-a", memory_used_bytes=H200.memory_bytes)
    free = replace(H200, index=1, uuid="GPU-b", memory_used_bytes=0)
    monkeypatch.setattr(gpu, "look", lambda: gpu.View((full, free), "580", "13.0", ""))
    options = {"quantization": "fp8"}
    for chosen in ([1], ["GPU-b"], ["1"]):
        offered = fit.room({**options, "devices": chosen}, on_gpu=True)
        assert offered.bytes == H200.memory_bytes
    assert fit.room(options, on_gpu=True).bytes == 0
    assert fit.room({**options, "devices": [7]}, on_gpu=True) is None


def test_unknown_shapes_and_hosts_without_gpu_are_let_through(tmp_path, llama, monkeypatch):
    unknown = ModelFiles("x", tmp_path / "none", "hf", tmp_path / "none")
    fit.require_fit(unknown, {}, on_gpu=False, who="any")
    monkeypatch.setattr(gpu, "look", lambda: gpu.View((), None, None, "none"))
    fit.require_fit(llama, {}, on_gpu=True, who="any")
