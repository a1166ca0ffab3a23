"""What engines settled on, read from lines of their real logs, and where they differ."""

from pathlib import Path

import pytest

from enginebook.engines.registry import ADAPTERS, adapter
from enginebook.engines.settings import Setting, differences, flag, inverse, number, settled, text

VLLM = [
    (
        "(EngineCore pid=6658) INFO Initializing a V1 LLM engine (v0.32.0) with config: "
        "model='/m', speculative_config=SpeculativeConfig(method='ngram', model=None, "
        "num_spec_tokens=4), dtype=torch.float32, max_seq_len=2048, tensor_parallel_size=1, "
        "quantization=None, quantization_config=None, enforce_eager=True, kv_cache_dtype=auto, "
        "structured_outputs_config=StructuredOutputsConfig(backend='auto', reasoning_parser=''), "
        "seed=0, enable_prefix_caching=True, enable_chunked_prefill=True, "
        "compilation_config={'compile_ranges_endpoints': [512, 2048], 'inductor_passes': {}}"
    ),
    "CPU KV cache size: 23,296 tokens, Maximum concurrency for 2,048 tokens per request: 11.38x",
]
SGLANG = [
    (
        "[2026-12-01 09:03:11] server_args={'dtype': 'float32', 'quantization': None, "
        "'kv_cache_dtype': 'auto', 'mem_fraction_static': 0.1, 'max_running_requests': None, "
        "'chunked_prefill_size': 8192, 'page_size': 1, 'disable_radix_cache': True, 'tp_size': 2, "
        "'speculative_algorithm': 'NGRAM', 'attention_backend': 'torch_native', "
        "'grammar_backend': 'xgrammar', 'disable_overlap_schedule': True}"
    ),
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384, K size: 0.35 GB, V size: 0.35",
    (
        "max_total_num_tokens=16384, chunked_prefill_size=4096, max_prefill_tokens=16384, "
        "max_running_requests=8, context_len=2048, available_cpu_mem=19.46 GB"
    ),
]
LLAMACPP = [
    "0.00.280.097 I llama_context: n_seq_max             = 8",
    "0.00.280.098 I llama_context: n_ctx                 = 16384",
    "0.00.280.098 I llama_context: n_ctx_seq             = 2048",
    "0.00.280.098 I llama_context: n_batch               = 512",
    "0.00.280.099 I llama_context: n_ubatch              = 512",
    "0.00.280.100 I llama_context: flash_attn            = auto",
    "0.00.468.031 I llama_kv_cache: size =  360.00 MiB (  2048 cells), K (f16):  180.00 MiB",
    "0.00.471.397 I cmn          init: llama threadpool init, n_threads = 1",
    "0.00.493 I srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it",
]


def test_vllm():
    assert adapter("vllm").settled(VLLM) == {
        "dtype": "float32",
        "max_model_len": 2048,
        "prefix_cache": True,
        "chunked_prefill": True,
        "prefill_budget": 2048,
        "graphs": False,
        "kv_tokens": 23296,
        "kv_cache_dtype": "auto",
        "quantization": None,
        "tensor_parallel": 1,
        "speculative": "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=4)",
        "grammar": "auto",
    }


def test_vllm_s_own_log_on_a_gpu():
    lines = (Path(__file__).parent / "logs" / "vllm_cuda.log").read_text().splitlines()
    seen = adapter("vllm").settled(lines)
    assert (seen["dtype"], seen["max_model_len"], seen["kv_tokens"]) == ("bfloat16", 16384, 919824)
    assert seen["speculative"] is None


def test_sglang_corrects_its_first_choice():
    assert adapter("sglang").settled(SGLANG) == {
        "dtype": "bfloat16",
        "max_model_len": 2048,
        "max_num_seqs": 8,
        "prefill_budget": 4096,
        "kv_tokens": 16384,
        "block_size": 1,
        "prefix_cache": False,
        "kv_cache_dtype": "auto",
        "quantization": None,
        "tensor_parallel": 2,
        "memory_fraction": 0.1,
        "speculative": "NGRAM",
        "attention": "torch_native",
        "grammar": "xgrammar",
        "overlap": False,
    }


def test_llamacpp():
    assert adapter("llamacpp").settled(LLAMACPP) == {
        "max_num_seqs": 8,
        "max_model_len": 2048,
        "kv_tokens": 16384,
        "prefill_budget": 512,
        "micro_batch": 512,
        "flash_attention": "auto",
        "kv_cache_dtype": "f16",
        "threads": 1,
        "prefix_cache": False,
    }


@pytest.mark.parametrize("engine", list(ADAPTERS))
def test_a_log_that_tells_nothing_settles_nothing(engine):
    assert adapter(engine).settled([]) == {}
    assert (
        adapter(engine).settled(["server_args=", "with config: ", "llama_context: n_ctx ="]) == {}
    )


def test_readers():
    assert [number("1,024"), number("0.9"), number("-1")] == [1024, 0.9, -1]
    assert [text("'a'"), text("None"), text("torch.half"), text("''")] == ["a", None, "half", None]
    assert [flag("True"), flag("'false'"), inverse("True")] == [True, False, False]


def test_the_last_line_counts():
    settings = [Setting("x", r"x=(\d+)")]
    assert settled(["x=1", "y", "x=2"], settings) == {"x": 2}


def test_differences_are_where_two_engines_say_different_things():
    by_engine = {
        "a": {"kv_tokens": 1, "dtype": "f", "quantization": None, "alone": 1, "on": True},
        "b": {"kv_tokens": 2, "dtype": "f", "quantization": "fp8", "on": 1},
        "c": {"dtype": "f"},
    }
    assert differences(by_engine) == {
        "kv_tokens": {"a": 1, "b": 2},
        "quantization": {"a": None, "b": "fp8"},
        "on": {"a": True, "b": 1},
    }
    assert differences({}) == differences({"a": {"x": 1}}) == {}
