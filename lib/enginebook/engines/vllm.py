"""vLLM: the project's CUDA wheels and the community's CPU build, by the same command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import model_validator

from enginebook.engines import dummy_weights, speculation
from enginebook.engines.base import Command, LaunchPlan
from enginebook.engines.common import FEATURES, EngineAdapter, features, flags
from enginebook.engines.cpus import compute_cpus, computes_bfloat16
from enginebook.engines.logs import Mark, MemoryLine
from enginebook.engines.options import CpuTorchOptions
from enginebook.engines.settings import Setting, flag, inverse, text
from enginebook.study import PositiveInt

LAUNCHER = Path(__file__).parent / "launchers" / "vllm_serve.py"

MARKS = (
    Mark("imports", r"Starting to load model|Loading model from scratch"),
    Mark("weights", r"Model loading took|Loading weights took"),
    Mark("compile", r"torch\.compile took"),
    Mark("cache", r"KV cache size: "),
    Mark("compile", r"Graph capturing finished"),
    Mark("cache", r"init engine \("),
)
_ACTUAL = r"Actual usage is [\d.]+ GiB for [^,]+, "
MEMORY = (
    MemoryLine("weights", r"Model loading took ([\d.]+) GiB", "GiB", "log: model loading took"),
    MemoryLine("weights", r"Checkpoint size: ([\d.]+) GiB", "GiB", "log: checkpoint size"),
    MemoryLine(
        "kv_cache", r"Available KV cache memory: ([\d.]+) GiB", "GiB", "log: available KV cache"
    ),
    MemoryLine(
        "kv_cache", r"Explicitly set \(([\d.]+)/[\d.]+\) GiB", "GiB", "log: KV space, as set"
    ),
    MemoryLine(
        "graphs", r"Graph capturing finished in .*took ([\d.]+) GiB", "GiB", "log: graph capture"
    ),
    MemoryLine("activations", _ACTUAL + r"([\d.]+) GiB for peak", "GiB", "log: peak activation"),
    MemoryLine("other", r"([\d.]+) GiB for non-torch", "GiB", "log: non-torch memory"),
)

# Of the line that begins with "Initializing a V1 LLM engine".
SETTINGS = (
    Setting("dtype", r"with config: .*?\bdtype=([\w.]+)", text),
    Setting("max_model_len", r"with config: .*?\bmax_seq_len=(\d+)"),
    Setting("prefix_cache", r"with config: .*?\benable_prefix_caching=(\w+)", flag),
    Setting("chunked_prefill", r"with config: .*?\benable_chunked_prefill=(\w+)", flag),
    Setting("prefill_budget", r"'compile_ranges_endpoints': \[(?:\d+, )*(\d+)\]"),
    Setting("graphs", r"with config: .*?\benforce_eager=(\w+)", inverse),
    Setting("kv_tokens", r"KV cache size: ([\d,]+) tokens"),
    Setting("kv_cache_dtype", r"with config: .*?\bkv_cache_dtype=(\w+)", text),
    Setting("quantization", r"with config: .*?\bquantization=([\w-]+)", text),
    Setting("tensor_parallel", r"with config: .*?\btensor_parallel_size=(\d+)"),
    Setting("speculative", r"with config: .*?\bspeculative_config=(None|\w+\([^)]*\))", text),
    Setting("grammar", r"StructuredOutputsConfig\(backend='(\w+)'", text),
)


class VllmOptions(CpuTorchOptions):
    """Options of vLLM.

    ``graphs=False`` and ``enforce_eager=True`` mean the same: neither torch.compile nor CUDA
    graphs. ``kv_tokens`` is rounded down to whole blocks by ``block_size``.
    """

    enforce_eager: bool | None = None
    block_size: PositiveInt | None = None
    kv_cache_dtype: str | None = None

    @model_validator(mode="after")
    def _no_contradiction(self) -> VllmOptions:
        if self.graphs is not None and self.enforce_eager is self.graphs:
            raise ValueError("graphs and enforce_eager contradict each other; give one of them")
        if self.kv_tokens is not None and self.block_size is None:
            raise ValueError("kv_tokens needs block_size, because vLLM counts its KV in blocks")
        if self.device == "cpu" and self.kv_space is not None and self.kv_space % 1:
            raise ValueError("kv_space must be a whole number of GiB for vLLM on a CPU")
        return self

    @property
    def eager(self) -> bool:
        """Return whether compilation and graphs are off."""
        return bool(self.enforce_eager) or self.graphs is False


class Vllm(EngineAdapter[VllmOptions]):
    """Adapter of ``vllm serve``."""

    id = "vllm"
    title = "vLLM"
    options_type = VllmOptions
    prelude: Path | None = LAUNCHER
    marks = MARKS
    memory_lines = MEMORY
    settings = SETTINGS
    metrics: Mapping[str, str] = {
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "kv_usage": "vllm:kv_cache_usage_perc",
        "prefix_queries": "vllm:prefix_cache_queries_total",
        "prefix_hits": "vllm:prefix_cache_hits_total",
        "preemptions": "vllm:num_preemptions_total",
        "prompt_tokens_total": "vllm:prompt_tokens_total",
        "cached_tokens_total": "vllm:prompt_tokens_cached_total",
        "generation_tokens_total": "vllm:generation_tokens_total",
        "ttft_seconds": "vllm:time_to_first_token_seconds",
        "kv_config": "vllm:cache_config_info",
    }
    features = features(*FEATURES)
    memory_share = 0.92  # gpu_memory_utilization of 0.26 to 0.33 (config/cache.py)

    def command(self, plan: LaunchPlan) -> Command:
        """Return ``vllm serve`` and its environment."""
        o = self.options(plan.options)
        argv = [str(plan.python), str(LAUNCHER), "serve", str(plan.model.path)]
        argv += ["--served-model-name", plan.model.model_id]
        argv += ["--host", plan.host, "--port", str(plan.port)]
        argv += ["--dtype", _dtype(o), "--max-model-len", str(o.max_model_len)]
        argv += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
        argv += _sizes(o) + _switches(o)
        if o.speculative is not None:
            argv += speculation.vllm(o.speculative)
        if plan.model.dummy:
            argv += ["--load-format", "dummy"]
        if plan.model.revision is not None:
            argv += ["--revision", plan.model.revision]
        environment = dummy_weights.corrected(_environment(o), plan.model)
        return Command((*argv, *o.extra_args), environment)

    def version_code(self) -> str:
        """Return source that prints the version of whichever distribution holds vLLM."""
        return (
            "from importlib.metadata import packages_distributions as p, version\n"
            "print(version(p()['vllm'][0]))"
        )


def _dtype(o: VllmOptions) -> str:
    """Return the arithmetic; "auto" must not choose a bfloat16 that the CPU has no kernels for.

    oneDNN then falls back to a path that is about five times slower.
    """
    if o.device == "cpu" and o.dtype == "auto" and not computes_bfloat16():
        return "float32"
    return o.dtype


def _sizes(o: VllmOptions) -> list[str]:
    blocks = o.kv_tokens // o.block_size if o.kv_tokens and o.block_size else None
    values = {
        "--max-num-seqs": o.max_num_seqs,
        "--max-num-batched-tokens": o.prefill_budget,
        "--block-size": o.block_size,
        "--num-gpu-blocks-override": blocks,
        "--gpu-memory-utilization": o.memory_fraction,
        "--quantization": o.quantization,
        "--kv-cache-dtype": o.kv_cache_dtype,
        "--seed": o.seed,
    }
    return flags(values)


def _switches(o: VllmOptions) -> list[str]:
    argv = ["--tensor-parallel-size", str(o.tensor_parallel)] if o.tensor_parallel > 1 else []
    if o.eager:
        argv.append("--enforce-eager")
    if o.prefix_cache is not None:
        argv.append("--enable-prefix-caching" if o.prefix_cache else "--no-enable-prefix-caching")
    if o.device == "cuda" and o.kv_space is not None:
        argv += ["--kv-cache-memory-bytes", str(round(o.kv_space * 2**30))]
    return argv


def _environment(o: VllmOptions) -> dict[str, str]:
    env = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **o.device_variables()}
    if o.device != "cpu":
        return env
    # Bound to named CPUs, so that the number of threads is the one of the other engines; vLLM's
    # "auto" would take every core but one of each NUMA node.
    env["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, compute_cpus(o.threads)))
    if o.kv_space is not None:
        env["VLLM_CPU_KVCACHE_SPACE"] = str(int(o.kv_space))
    return env
