"""Command lines that adapters write."""

from pathlib import Path

import pytest

from enginebook.engines import vllm
from enginebook.engines.base import Adapter, LaunchPlan, ModelFiles
from enginebook.engines.cpus import compute_cpus
from enginebook.engines.registry import ADAPTERS, adapter
from enginebook.errors import InputError

GGUF = ModelFiles("smol", Path("/m/model.gguf"), "gguf", Path("/m/tok"))
FOLDER = ModelFiles("smol", Path("/m/hf"), "hf", Path("/m/hf"))


def command(engine, options, model=None):
    chosen = model or (GGUF if adapter(engine).model_format == "gguf" else FOLDER)
    plan = LaunchPlan(Path("/venv/bin/python"), chosen, "127.0.0.1", 4711, options, Path("/tmp/x"))
    return adapter(engine).command(plan)


def value(argv, flag):
    assert argv.count(flag) == 1, argv
    return argv[argv.index(flag) + 1]


def test_all_adapters_keep_the_contract():
    for engine in ADAPTERS.values():
        assert isinstance(engine, Adapter)
        compile(engine.version_code(), "version", "exec")
        assert engine.ready_path.startswith("/")


def test_an_unknown_adapter_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"did you mean 'sglang'.*known engines:.*vllm"):
        adapter("sgl-lang")


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "sglang"])
def test_common_parts(engine):
    made = command(engine, {"max_model_len": 512, "max_num_seqs": 4})
    assert made.argv[0] == "/venv/bin/python"
    assert value(made.argv, "--host") == "127.0.0.1"
    assert value(made.argv, "--port") == "4711"
    assert str(GGUF.path) in made.argv or str(FOLDER.path) in made.argv
    assert "smol" in made.argv
    assert "--trust-remote-code" not in made.argv


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "sglang"])
def test_unset_options_leave_the_engine_s_defaults(engine):
    argv = command(engine, {}).argv
    for word in ("prefix", "radix", "batched", "chunked", "kv-cache-dtype", "quantization"):
        assert not [a for a in argv if word in a]


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "sglang"])
def test_extra_arguments_come_last_and_unchanged(engine):
    argv = command(engine, {"extra_args": ["n_batch=7"]}).argv
    assert argv[-1] == "n_batch=7"


def test_llamacpp_context_is_per_slot():
    argv = command("llamacpp", {"max_model_len": 2048, "max_num_seqs": 8}).argv
    assert value(argv, "--context-per-slot") == "2048"
    assert value(argv, "--slots") == "8"


def test_llamacpp_threads_leave_a_core():
    assert value(command("llamacpp", {}).argv, "--threads") == str(len(compute_cpus()))
    assert value(command("llamacpp", {"threads": 3}).argv, "--threads") == "3"


def test_llamacpp_prefix_cache():
    assert "--no-prefix-cache" in command("llamacpp", {"prefix_cache": False}).argv
    assert "--no-prefix-cache" not in command("llamacpp", {"prefix_cache": True}).argv


def test_vllm_equalised_options():
    made = command(
        "vllm",
        {
            "dtype": "bfloat16",
            "kv_tokens": 16_000,
            "block_size": 16,
            "max_num_seqs": 64,
            "prefill_budget": 8192,
            "prefix_cache": False,
            "graphs": False,
            "tensor_parallel": 2,
            "quantization": "fp8",
            "memory_fraction": 0.9,
        },
    )
    assert value(made.argv, "--num-gpu-blocks-override") == "1000"
    assert value(made.argv, "--max-num-seqs") == "64"
    assert value(made.argv, "--max-num-batched-tokens") == "8192"
    assert value(made.argv, "--tensor-parallel-size") == "2"
    assert value(made.argv, "--quantization") == "fp8"
    assert value(made.argv, "--gpu-memory-utilization") == "0.9"
    assert {"--no-enable-prefix-caching", "--enforce-eager"} <= set(made.argv)
    assert "VLLM_CPU_OMP_THREADS_BIND" not in made.env


def test_vllm_on_cpu_binds_threads_and_sets_kv_space():
    made = command("vllm", {"device": "cpu", "kv_space": 2, "graphs": False})
    assert made.env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert made.env["VLLM_CPU_OMP_THREADS_BIND"] == ",".join(map(str, compute_cpus()))
    assert "--kv-cache-memory-bytes" not in made.argv


@pytest.mark.parametrize(
    ("able", "asked", "device", "given"),
    [
        (False, "auto", "cpu", "float32"),
        (True, "auto", "cpu", "auto"),
        (False, "bfloat16", "cpu", "bfloat16"),
        (False, "auto", "cuda", "auto"),
    ],
)
def test_vllm_avoids_bfloat16_on_cpus_without_it(monkeypatch, able, asked, device, given):
    monkeypatch.setattr(vllm, "computes_bfloat16", lambda: able)
    argv = command("vllm", {"device": device, "dtype": asked}).argv
    assert value(argv, "--dtype") == given


def test_vllm_on_cuda_takes_kv_space_in_bytes():
    made = command("vllm", {"kv_space": 1.5})
    assert value(made.argv, "--kv-cache-memory-bytes") == str(3 * 2**29)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"graphs": True, "enforce_eager": True}, "contradict"),
        ({"kv_tokens": 100}, "block_size"),
        ({"device": "cpu", "kv_space": 0.5}, "whole number"),
    ],
)
def test_vllm_refuses_what_cannot_be(options, problem):
    with pytest.raises(InputError, match=problem):
        adapter("vllm").check_options(options)


def test_vllm_graphs_and_enforce_eager_are_the_same_switch():
    assert "--enforce-eager" in command("vllm", {"enforce_eager": True}).argv
    assert "--enforce-eager" in command("vllm", {"graphs": False, "enforce_eager": True}).argv
    assert "--enforce-eager" not in command("vllm", {"graphs": True}).argv


def test_sglang_on_cpu():
    made = command("sglang", {"device": "cpu", "kv_tokens": 16384, "max_num_seqs": 8})
    assert value(made.argv, "--device") == "cpu"
    assert value(made.argv, "--attention-backend") == "torch_native"
    assert value(made.argv, "--max-total-tokens") == "16384"
    assert made.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert made.env["OMP_NUM_THREADS"] == str(len(compute_cpus()))
    assert (Path(made.env["PYTHONPATH"]) / "sgl_kernel" / "__init__.py").is_file()


def test_sglang_on_cuda():
    options = {"prefix_cache": False, "graphs": False, "prefill_budget": 4096}
    made = command("sglang", options)
    assert made.env == {}
    assert "--disable-radix-cache" in made.argv
    assert value(made.argv, "--chunked-prefill-size") == "4096"
    assert value(made.argv, "--cuda-graph-backend-decode") == "disabled"
    assert "torch_native" not in made.argv


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_dummy_weights_and_revision(engine):
    dummy = ModelFiles("d", Path("/m/d"), "hf", Path("/m/d"), dummy=True)
    assert value(command(engine, {}, dummy).argv, "--load-format") == "dummy"
    assert "--load-format" not in command(engine, {}).argv
    hub = ModelFiles("h", Path("org/h"), "hf", Path("/m/h"), revision="abc")
    made = command(engine, {}, hub)
    assert value(made.argv, "--revision") == "abc"
    assert "org/h" in made.argv


def test_forced_lengths():
    assert adapter("vllm").sampling_fields(7) == {"ignore_eos": True, "min_tokens": 7}
    assert adapter("sglang").sampling_fields(7) == {"ignore_eos": True, "min_tokens": 7}
    assert adapter("llamacpp").sampling_fields(7) == {"ignore_eos": True, "n_predict": 7}
    assert adapter("llamacpp").sampling_fields(7, prefix_cache=False)["cache_prompt"] is False
