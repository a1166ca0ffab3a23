"""Reference values that were computed independently of this code, and exact parameter counts."""

import math

import pytest

from enginebook.errors import InputError
from enginebook.physics import (
    BF16,
    FP8,
    INT4_G128,
    NVFP4,
    Hardware,
    ModelShape,
    Placement,
    Precision,
    all_reduce_s,
    crossover_batch,
    decode_bound,
    hardware_named,
    hardware_table,
    kv_bytes_per_token,
    kv_capacity_tokens,
    precision_named,
    prefill_bound,
    sequences_that_fit,
    serial_rate_limit,
    served_rate_limit,
    speculative_factor,
    step_weight_bytes,
    tensor_parallel_s,
    weight_bytes,
    weights_share,
    widest_weights_bits,
)
from enginebook.physics.models import model_named, model_table

LLAMA = model_named("Llama-3.3-70B-Instruct")
H100 = hardware_named("H100-SXM")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("llama-3.3-70b", 70_553_706_496),
        ("llama-3.1-8b", 8_030_261_248),
        ("smollm2-135m", 134_515_008),
        ("qwen2.5-0.5b", 494_032_768),  # biases on q, k and v
        ("qwen3-0.6b", 596_049_920),  # norms on q and k, a head size of its own
        ("qwen3-30b-a3b", 30_532_122_624),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", 671_026_419_200),  # MLA, a shared expert, three dense layers
    ],
)
def test_parameter_counts_are_those_of_the_checkpoints(name, params):
    assert model_table()[name].params == params


def test_kv_bytes_per_token():
    names = ("llama-3.3-70b", "llama-3.1-8b", "smollm2-135m")
    assert [kv_bytes_per_token(model_named(n)) for n in names] == [327_680, 131_072, 23_040]
    # MLA keeps 512 + 64 numbers a layer, not 2 * 128 heads * 128
    assert kv_bytes_per_token(model_named("deepseek-v3")) == 61 * 576 * 2


def test_weight_bytes():
    exact = [weight_bytes(LLAMA, p) / 1e9 for p in (BF16, FP8, INT4_G128, NVFP4)]
    assert exact == pytest.approx([141.107, 72.656, 39.768, 42.709], abs=5e-4)


def test_first_token_limits_of_the_70b_on_one_h100():
    found = [prefill_bound(LLAMA, Placement(H100), s) for s in (128, 512, 2048, 8192)]
    assert [round(b.seconds * 1e3, 1) for b in found] == [41.5, 71.2, 288.9, 1222.4]
    assert [b.limit for b in found] == ["memory", "compute", "compute", "compute"]
    assert found[3].flops == pytest.approx(1209.5e12, rel=1e-4)


@pytest.mark.parametrize(
    ("device", "precision", "rate", "ttft_ms", "batches"),
    [
        ("H100-SXM", BF16, 24.1, (41, 71, 289, 1222), (295, 452, math.inf)),
        ("H100-SXM", FP8, 47.5, (21, 36, 144, 611), (300, 1011, math.inf)),
        ("H100-SXM", INT4_G128, 88.9, (18, 71, 289, 1222), (80, 123, math.inf)),
        ("H200", BF16, 34.5, (29, 71, 289, 1222), (206, 271, 4741)),
        ("H200", FP8, 68.0, (15, 36, 144, 611), (209, 409, math.inf)),
        ("B200", NVFP4, 197.0, (5, 8, 32, 134), (329, 994, math.inf)),
        ("A100-80", BF16, 14.7, (68, 226, 916, 3877), (153, 185, 510)),
        ("L40S", INT4_G128, 22.9, (48, 195, 790, 3341), (114, 225, math.inf)),
        ("RTX4090", FP8, 14.3, (70, 213, 866, 3662), (166, 271, math.inf)),
    ],
)
def test_worked_values_of_the_70b(device, precision, rate, ttft_ms, batches):
    place = Placement(hardware_named(device), precision)
    # The worked values leave the cache of the device out, which is below 0.4 % of these weights.
    assert 1 / decode_bound(LLAMA, place, 1, 0).seconds == pytest.approx(rate, rel=6e-3)
    found = [prefill_bound(LLAMA, place, s).seconds * 1e3 for s in (128, 512, 2048, 8192)]
    assert found == pytest.approx(ttft_ms, abs=0.6)
    assert [crossover_batch(LLAMA, place, c) for c in (0, 512, 2048)] == pytest.approx(
        batches, rel=5e-3
    )


@pytest.mark.parametrize(
    ("devices", "precision", "tokens", "with_comm", "ttft_with_comm"),
    [
        (2, BF16, 17_615, 46, 157),
        (2, FP8, 226_511, 88, 85),
        (4, BF16, 465_855, 89, 91),
        (4, FP8, 674_751, 164, 55),
        (8, BF16, 1_362_335, 167, 58),
    ],
)
def test_tensor_parallel(devices, precision, tokens, with_comm, ttft_with_comm):
    place = Placement(H100, precision, devices)
    assert kv_capacity_tokens(LLAMA, place) == pytest.approx(tokens, abs=1)
    step = decode_bound(LLAMA, place, 1, 0).seconds + tensor_parallel_s(LLAMA, place, 1)
    assert 1 / step == pytest.approx(with_comm, rel=1e-2)
    prompt = prefill_bound(LLAMA, place, 2048).seconds + tensor_parallel_s(LLAMA, place, 2048)
    assert prompt * 1e3 == pytest.approx(ttft_with_comm, abs=0.6)


def test_beyond_the_kv_heads_a_cache_is_copied():
    eight, sixteen = (Placement(H100, BF16, n) for n in (8, 16))
    share = [
        decode_bound(LLAMA, p, 64, 8192).read_bytes / p.devices
        - decode_bound(LLAMA, p, 64, 0).read_bytes / p.devices
        for p in (eight, sixteen)
    ]
    assert share[0] == pytest.approx(share[1])


def test_single_devices_do_not_communicate():
    assert all_reduce_s(H100, 1e6, 1) == 0
    assert tensor_parallel_s(LLAMA, Placement(hardware_named("M4-Max")), 8) == 0


def test_what_fits():
    assert weights_share(LLAMA, Placement(H100)) == pytest.approx(1.661, abs=1e-3)
    assert weights_share(LLAMA, Placement(H100, FP8)) < 1
    assert kv_capacity_tokens(LLAMA, Placement(H100)) == 0
    assert kv_capacity_tokens(LLAMA, Placement(H100, INT4_G128)) == pytest.approx(102_758, abs=1)
    assert kv_capacity_tokens(LLAMA, Placement(H100, FP8)) == pytest.approx(2_390, abs=1)
    rtx = Placement(hardware_named("NVIDIA GeForce RTX 4090"))
    assert widest_weights_bits(LLAMA, rtx, 4096, 0.95) == pytest.approx(2.58, abs=0.01)
    assert sequences_that_fit(102_758, 1024, 1024) == 50


def test_memory_that_is_not_known_is_an_error_not_a_zero():
    host = Hardware.from_ceilings({"memory_read": {"bytes_per_s": 1e10}})
    with pytest.raises(InputError, match="memory of this host is not known"):
        weights_share(LLAMA, Placement(host))


def test_moe_reads_only_the_experts_it_touches():
    mixtral = model_named("mixtral-8x7b")
    one, many = (step_weight_bytes(mixtral, BF16, n, "expected") for n in (1, 64))
    assert one == pytest.approx(step_weight_bytes(mixtral, BF16, 64, "least"))
    assert many == pytest.approx(weight_bytes(mixtral, BF16) - mixtral.head_params * 2, rel=1e-4)
    assert mixtral.experts.expected_read(2) == pytest.approx(8 * (1 - 0.75**2))
    assert mixtral.active_params + 2 * mixtral.head_params == pytest.approx(12.88e9, rel=1e-3)


def test_deepseek_activates_37_billion():
    deepseek = model_named("deepseek-ai/DeepSeek-V3")
    assert deepseek.active_params + 2 * deepseek.head_params == pytest.approx(37.55e9, rel=1e-3)


def test_speculation():
    assert speculative_factor(0.0, 4, draft_cost=0.0) == 1
    assert speculative_factor(1.0, 4, draft_cost=0.0) == 5
    assert speculative_factor(0.7, 4, draft_cost=0.05) == pytest.approx(2.7731 / 1.2)
    assert speculative_factor(0.2, 4, draft_cost=0.2) < 1
    with pytest.raises(InputError, match="between 0 and 1"):
        speculative_factor(1.2, 4, 0.1)


def test_served_rate_is_below_decoding_alone_and_above_the_serial_estimate():
    place = Placement(H100, INT4_G128)
    served = served_rate_limit(LLAMA, place, 64, 2048, 128)
    assert served < 64 / decode_bound(LLAMA, place, 64, 2048 + 64).seconds
    assert served > serial_rate_limit(LLAMA, place, 64, 2048, 128)
    prompt_s = LLAMA.prefill_flops(2048) / 989.4e12
    assert served < 128 / prompt_s


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "int4"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float32"}, "fp32"),
        ({}, "bf16"),
    ],
)
def test_precision_of_a_config(config, name):
    assert Precision.from_hf(config).name.startswith(name)


def test_compressed_tensors():
    group = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    found = Precision.from_hf({"quantization_config": config})
    assert (found.weight_bits, found.compute) == (8, "fp8")
    weight_only = {"weights": {"num_bits": 4, "group_size": 32, "type": "int"}}
    config |= {"config_groups": {"group_0": weight_only}}
    found = Precision.from_hf({"quantization_config": config})
    assert (found.weight_bits, found.compute) == (4.625, "bf16")


def test_gguf_formats():
    found = {n: precision_named(f"gguf-{n}") for n in ("f32", "f16", "q8_0", "q4_1")}
    assert [p.compute for p in found.values()] == ["fp32", "bf16", "int8", "int8"]
    assert [p.weight_bits for p in found.values()] == [32, 16, 8.5, 5]
    assert all(p.table_bits == p.weight_bits for p in found.values())


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match="H100-SXM"):
        hardware_named("TPU v9")
    with pytest.raises(InputError, match="int4-g128"):
        precision_named("int3")
    with pytest.raises(InputError, match=r"llama-3\.3-70b"):
        model_named("gpt-17")
    with pytest.raises(InputError, match="unknown quantisation"):
        Precision.from_hf({"quantization_config": {"quant_method": "magic"}})


@pytest.mark.parametrize("kind", ["mamba2", "qwen3_next", "jamba"])
def test_layers_that_are_not_attention_are_refused(kind):
    with pytest.raises(InputError, match="not all of its layers are attention"):
        ModelShape.from_hf({"model_type": kind})


def test_a_missing_size_is_named():
    with pytest.raises(InputError, match="num_hidden_layers or n_layer"):
        ModelShape.from_hf({"hidden_size": 64, "num_attention_heads": 2, "vocab_size": 100})


def test_older_names_and_nested_configs():
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    shape = ModelShape.from_hf(gpt2 | {"tie_word_embeddings": True})
    assert (shape.ffn, shape.mlp_matrices, shape.kv_heads) == (3072, 2, 12)
    vision = {"model_type": "some_vl", "text_config": gpt2}
    assert ModelShape.from_hf(vision).layers == 12


def test_sliding_windows_read_less_and_never_more_than_full_attention():
    config = {
        "model_type": "gpt_oss", "num_hidden_layers": 4, "hidden_size": 64, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
        "vocab_size": 100, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }  # fmt: skip
    windowed = ModelShape.from_hf(config)
    full = ModelShape.from_hf(config | {"sliding_window": None, "layer_types": None})
    assert (windowed.window, windowed.windowed_layers) == (128, 2)
    assert windowed.visible(64) == 64
    assert windowed.visible(1128) == (1128 + 128) / 2
    for tokens in (1, 100, 128, 500, 4000):
        assert windowed.prefill_flops(tokens) <= full.prefill_flops(tokens)
        exact = sum((i + min(i, 128)) / 2 for i in range(1, tokens + 1))
        spent = windowed.prefill_flops(tokens) - 2 * windowed.active_params * tokens
        spent -= 2 * windowed.head_params
        assert spent <= exact * windowed.attention_flops_per_position * (1 + 1e-9)
    assert windowed.decode_flops(2, 1000) < full.decode_flops(2, 1000)


def test_every_device_of_the_table_is_sound():
    assert {"H100-SXM", "H100-PCIe", "H200", "B200", "A100-80", "L40S", "RTX4090", "GH200-96",
            "MI300X", "M4-Max"} <= set(hardware_table())  # fmt: skip
    for key, device in hardware_table().items():
        assert hardware_named(key) is device
        assert device.memory_bytes > 2e10
        assert 1e11 < device.bandwidth < 1e13
        assert all(1e14 < rate < 1e16 for rate in device.rates.values())


@pytest.mark.parametrize(
    ("driver", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200-96"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_the_names_that_drivers_give(driver, key):
    assert hardware_named(driver) is hardware_table()[key]


def test_a_device_without_fp8_units_multiplies_in_bf16():
    a100 = hardware_named("A100-80")
    assert a100.rate("fp8") == a100.rate("bf16") == 312e12
    assert hardware_named("H200").rate("fp4") == hardware_named("H200").rate("fp8")
    assert hardware_named("M4-Max").rate("bf16") is None


def test_a_host_is_its_gpu_or_its_measured_cpu():
    gpu = {"gpus": [{"name": "NVIDIA H200", "memory_bytes": 150_000_000_000}]}
    found = Hardware.from_host(gpu)
    assert (found.bandwidth, found.memory_bytes, found.measured) == (4.8e12, 1.5e11, False)
    cpu = {
        "gpus": [],
        "cpu": {"model": "EPYC", "last_level_cache_bytes": 33554432},
        "memory": {"total_bytes": 8 << 30},
        "ceilings": {
            "memory_copy": {"bytes_per_s": 9e9},
            "memory_read": {"bytes_per_s": 12e9},
            "matmul_float32": {"flops_per_s": 1e11},
            "matmul_bfloat16": None,
        },
    }
    found = Hardware.from_host(cpu)
    assert (found.bandwidth, found.cache_bytes, found.name) == (12e9, 33554432, "EPYC")
    assert found.rate("fp32") == 1e11
    assert found.slack == 0.15
    assert found.rate("bf16") is None  # of a measured device only what was measured is known
    with pytest.raises(InputError, match="no memory bandwidth"):
        Hardware.from_host({"gpus": [], "ceilings": {}})
