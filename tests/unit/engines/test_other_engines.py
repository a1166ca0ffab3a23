"""Command lines of engines that need hardware or programs which are not here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from enginebook.engines.base import LaunchPlan, ModelFiles
from enginebook.engines.common import LINKED_MODEL
from enginebook.engines.recipes import load_recipe, recipe_names
from enginebook.engines.registry import ADAPTERS, adapter
from enginebook.errors import InputError

FOLDER = ModelFiles("smol", Path("/m/hf"), "hf", Path("/m/hf"))
DUMMY = ModelFiles("shape", Path("/m/shape"), "hf", Path("/m/shape"), dummy=True)


def command(engine, options, model=FOLDER):
    python = Path("/venv/bin/python")
    plan = LaunchPlan(python, model, "127.0.0.1", 4711, options, Path("/x"))
    return list(adapter(engine).command(plan).argv)


def value(argv, flag):
    assert argv.count(flag) == 1, argv
    return argv[argv.index(flag) + 1]


def parts(argv):
    """Return what linked_model.py prepares, and the command it becomes."""
    split = argv.index("--")
    assert argv[1] == str(LINKED_MODEL)
    return dict(p.split("=", 1) for p in argv[2:split]), argv[split + 1 :]


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_an_adapter_that_writes_its_command_line(name):
    recipe = load_recipe(name)
    engine = adapter(recipe.engine)
    assert engine.model_format == recipe.model_format
    if recipe.environment.kind == "external":
        return
    path = Path("/m/model.gguf") if engine.model_format == "gguf" else Path("/m/hf")
    model = ModelFiles("smol", path, engine.model_format, Path("/m"))
    argv = command(recipe.engine, recipe.options, model)
    assert "4711" in argv
    assert "127.0.0.1" in argv


def test_every_engine_of_the_design_has_an_adapter():
    wanted = {"vllm", "sglang", "tensorrt-llm", "llamacpp", "lmdeploy", "mlx", "omlx", "ollama"}
    assert wanted <= set(ADAPTERS)


def test_lmdeploy_has_names_of_its_own():
    options = {"max_num_seqs": 64, "prefill_budget": 4096, "prefix_cache": True}
    argv = command("lmdeploy", {**options, "memory_fraction": 0.5, "tensor_parallel": 2})
    assert value(argv, "--server-name") == "127.0.0.1"
    assert value(argv, "--server-port") == "4711"
    assert value(argv, "--model-name") == "smol"
    assert value(argv, "--session-len") == "2048"
    assert value(argv, "--max-batch-size") == "64"
    assert value(argv, "--max-prefill-token-num") == "4096"
    assert value(argv, "--cache-max-entry-count") == "0.5"
    assert value(argv, "--tp") == "2"
    assert "--enable-prefix-caching" in argv
    assert "--num-gpu-blocks" not in argv


def test_lmdeploy_pytorch_backend_counts_kv_in_blocks():
    options = {"backend": "pytorch", "kv_tokens": 6400, "graphs": False}
    argv = command("lmdeploy", options)
    assert value(argv, "--num-gpu-blocks") == "100"
    assert "--eager-mode" in argv


@pytest.mark.parametrize(
    ("engine", "options", "problem"),
    [
        ("lmdeploy", {"kv_tokens": 6400}, "needs backend: pytorch"),
        ("lmdeploy", {"dtype": "float32"}, "float32"),
        ("tensorrt-llm", {"quantization": "fp8"}, "checkpoint"),
        ("mlx", {"prefix_cache": False}, "cannot be switched off"),
        ("mlx", {"tensor_parallel": 2}, "no counterpart"),
        ("omlx", {"max_modellen": 2}, "did you mean 'max_model_len'"),
        ("ollama", {"threads": 2}, "no counterpart"),
    ],
)
def test_what_an_engine_does_not_have_is_refused(engine, options, problem):
    with pytest.raises(InputError) as caught:
        adapter(engine).check_options(options)
    assert problem in str(caught.value)


def test_tensorrt_llm_puts_what_has_no_flag_into_its_file():
    options = {"prefix_cache": False, "kv_tokens": 4096, "graphs": False, "dtype": "bfloat16"}
    made, argv = parts(command("tensorrt-llm", options, DUMMY))
    assert argv[:3] == ["/venv/bin/trtllm-serve", "serve", "shape"]
    assert value(argv, "--config") == "config.yaml"
    assert value(argv, "--max_seq_len") == "2048"
    assert made["shape"] == "/m/shape"
    assert json.loads(made["config.yaml:"]) == {
        "return_perf_metrics": True,
        "kv_cache_config": {"enable_block_reuse": False, "max_tokens": 4096},
        "cuda_graph_config": None,
        "dtype": "bfloat16",
        "load_format": "dummy",
    }


def test_tensorrt_llm_defaults_leave_the_engine_alone():
    made, argv = parts(command("tensorrt-llm", {}))
    assert json.loads(made["config.yaml:"]) == {"return_perf_metrics": True}
    for flag in ("--max_batch_size", "--max_num_tokens", "--free_gpu_memory_fraction"):
        assert flag not in argv
    assert adapter("tensorrt-llm").metrics_path == "/prometheus/metrics"


def test_tensorrt_llm_memory():
    during = "in memory usage profiling"
    log = [
        f"Memory used after loading model weights (inside torch) {during}: 15.0 GiB",
        f"Memory used outside torch (e.g., NCCL and CUDA graphs) {during}: 1.5 GiB",
        "[MemUsageChange] Allocated 60.25 GiB for max tokens in paged KV cache (493568).",
    ]
    held = {p.component: p.bytes / 2**30 for p in adapter("tensorrt-llm").memory(log)}
    assert held == {"weights": 15.0, "other": 1.5, "kv_cache": 60.25}


def test_mlx_and_omlx_serve_under_the_model_s_name():
    made, argv = parts(command("mlx", {}))
    assert made == {"smol": "/m/hf"}
    assert value(argv, "--model") == "smol"
    made, argv = parts(command("omlx", {}))
    assert argv[:4] == ["/venv/bin/python", "serve", "--model-dir", "."]
    assert made == {"smol": "/m/hf"}


def test_ollama_is_run_by_its_user():
    with pytest.raises(InputError, match="not started by Enginebook") as caught:
        command("ollama", {})
    assert "kind: external" in caught.value.remedy


def test_engines_that_cannot_force_a_length_say_so():
    for name, engine in ADAPTERS.items():
        assert engine.features["force_length"] is bool(engine.sampling_fields(8)), name


def test_the_folder_of_links(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    code = "import os, sys; print(sorted(os.listdir('.')), open('smol/config.json').read(), "
    code += "open('c.yaml').read().strip(), sys.argv[1:])"
    links = [f"smol={tmp_path / 'model'}", 'c.yaml:={"a": "b=c"}']
    server = [sys.executable, "-c", code, "--port", "1"]
    done = subprocess.run(
        [sys.executable, str(LINKED_MODEL), *links, "--", *server],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = "['c.yaml', 'smol'] {} {\"a\": \"b=c\"} ['--port', '1']\n"
    assert done.stdout == expected
