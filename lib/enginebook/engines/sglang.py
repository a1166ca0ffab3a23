"""SGLang: its CUDA build, and its PyTorch-native fallback on CPUs (experimental)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import model_validator

from enginebook.engines import dummy_weights, speculation
from enginebook.engines.base import Command, LaunchPlan, MemoryPart
from enginebook.engines.common import FEATURES, EngineAdapter, features, flags
from enginebook.engines.cpus import compute_cpus
from enginebook.engines.logs import Mark, MemoryLine
from enginebook.engines.options import CpuTorchOptions
from enginebook.engines.settings import Setting, inverse, text
from enginebook.study import PositiveInt

STUBS = Path(__file__).parent / "launchers" / "sglang_cpu_stubs"

MARKS = (
    Mark("imports", r"Load weight begin"),
    Mark("weights", r"Load weight end"),
    Mark("cache", r"Memory pool end"),
    Mark("compile", r"Capture .*graph end", last=True),
)
# SGLang prints "GB" for bytes divided by 2^30.
MEMORY = (
    MemoryLine(
        "weights",
        r"Load weight end.*mem usage=([\d.]+) GB",
        "GiB",
        "log: fall of free memory",
    ),
    MemoryLine(
        "kv_cache", r"KV Cache is allocated.*?K size: ([\d.]+) GB", "GiB", "log: K and V size"
    ),
    MemoryLine("kv_cache", r"KV cache allocated\..*KV size: ([\d.]+) GB", "GiB", "log: sized late"),
    MemoryLine("graphs", r"Capture .*graph end.*mem usage=([\d.]+) GB", "GiB", "log: capture"),
)

SETTINGS = (
    Setting("dtype", r"server_args=.*?'dtype': ('\w+')", text),
    Setting("dtype", r"KV Cache is allocated\. dtype: ([\w.]+)", text),
    Setting("max_model_len", r"max_total_num_tokens=.*?context_len=(\d+)"),
    Setting("max_num_seqs", r"max_total_num_tokens=.*?max_running_requests=(\d+)"),
    Setting("prefill_budget", r"max_total_num_tokens=.*?chunked_prefill_size=(-?\d+)"),
    Setting("kv_tokens", r"max_total_num_tokens=(\d+)"),
    Setting("block_size", r"server_args=.*?'page_size': (\d+)"),
    Setting("prefix_cache", r"server_args=.*?'disable_radix_cache': (\w+)", inverse),
    Setting("kv_cache_dtype", r"server_args=.*?'kv_cache_dtype': ('\w+')", text),
    Setting("quantization", r"server_args=.*?'quantization': ('[\w-]+'|None)", text),
    Setting("tensor_parallel", r"server_args=.*?'tp_size': (\d+)"),
    Setting("memory_fraction", r"server_args=.*?'mem_fraction_static': ([\d.]+)"),
    Setting("speculative", r"server_args=.*?'speculative_algorithm': ('\w+'|None)", text),
    Setting("attention", r"server_args=.*?'attention_backend': ('\w+'|None)", text),
    Setting("grammar", r"server_args=.*?'grammar_backend': ('\w+'|None)", text),
    Setting("overlap", r"server_args=.*?'disable_overlap_schedule': (\w+)", inverse),
)


class SglangOptions(CpuTorchOptions):
    """Options of SGLang.

    On CPUs attention and sampling run on plain PyTorch, CUDA graphs and the overlapped scheduler
    are off, and ``memory_fraction`` is needed by its own check though ``kv_tokens`` decides.
    """

    page_size: PositiveInt | None = None
    kv_cache_dtype: str | None = None
    skip_warmup: bool = False

    @model_validator(mode="after")
    def _kernels_are_there(self) -> SglangOptions:
        if self.device == "cpu" and self.speculative is not None:
            raise ValueError(
                "speculative decoding needs SGLang's own CPU kernels, which no package offers"
            )
        return self


class Sglang(EngineAdapter[SglangOptions]):
    """Adapter of ``python -m sglang.launch_server``."""

    id = "sglang"
    title = "SGLang"
    options_type = SglangOptions
    distribution = "sglang"
    marks = MARKS
    memory_lines = MEMORY
    settings = SETTINGS
    ready_path = "/ready"  # /health would generate a token with every poll
    metrics: Mapping[str, str] = {
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
        "kv_usage": "sglang:token_usage",
        "kv_used_tokens": "sglang:kv_used_tokens",
        "kv_pool_tokens": "sglang:max_total_num_tokens",
        "prefix_hit_rate": "sglang:cache_hit_rate",
        "cached_tokens_total": "sglang:cached_tokens_total",
        "preemptions": "sglang:num_retracted_reqs",
        "prompt_tokens_total": "sglang:prompt_tokens_total",
        "generation_tokens_total": "sglang:generation_tokens_total",
        "ttft_seconds": "sglang:time_to_first_token_seconds",
    }
    features = features(*FEATURES)
    # server_args.py of 0.5.17: at least 10 of more than 60 GiB stay free (an H200: 0.903 used).
    memory_share = 0.93

    def command(self, plan: LaunchPlan) -> Command:
        """Return SGLang's command line; the environment adds stand-ins on CPUs."""
        o = self.options(plan.options)
        argv = [str(plan.python), "-m", "sglang.launch_server"]
        argv += ["--model-path", str(plan.model.path), "--served-model-name", plan.model.model_id]
        argv += ["--host", plan.host, "--port", str(plan.port)]
        argv += ["--dtype", o.dtype, "--context-length", str(o.max_model_len)]
        argv += ["--enable-metrics", "--enable-cache-report", "--log-level-http", "warning"]
        argv += _sizes(o) + _switches(o)
        if o.speculative is not None:
            argv += speculation.sglang(o.speculative)
        if plan.model.dummy:
            argv += ["--load-format", "dummy"]
        if plan.model.revision is not None:
            argv += ["--revision", plan.model.revision]
        environment = dummy_weights.corrected(_environment(o), plan.model)
        return Command((*argv, *o.extra_args), environment)

    def memory(self, log: Sequence[str]) -> list[MemoryPart]:
        """Read bytes of weights, KV cache and graphs; activations are not reported by SGLang."""
        return [_both_halves(part) for part in super().memory(log)]


def _both_halves(part: MemoryPart) -> MemoryPart:
    """Double the K size, since V is as large and stands later in the same line."""
    if part.source != "log: K and V size":
        return part
    return MemoryPart(part.component, 2 * part.bytes, part.source)


def _sizes(o: SglangOptions) -> list[str]:
    values = {
        "--max-running-requests": o.max_num_seqs,
        "--max-total-tokens": o.kv_tokens,
        "--chunked-prefill-size": o.prefill_budget,
        "--mem-fraction-static": o.memory_fraction,
        "--page-size": o.page_size,
        "--quantization": o.quantization,
        "--kv-cache-dtype": o.kv_cache_dtype,
        "--random-seed": o.seed,
    }
    return flags(values)


def _switches(o: SglangOptions) -> list[str]:
    argv = ["--tensor-parallel-size", str(o.tensor_parallel)] if o.tensor_parallel > 1 else []
    if o.prefix_cache is False:
        argv.append("--disable-radix-cache")
    if o.graphs is False or o.device == "cpu":
        argv += ["--cuda-graph-backend-decode", "disabled"]
        argv += ["--cuda-graph-backend-prefill", "disabled"]
    if o.device == "cpu":
        argv += ["--device", "cpu", "--attention-backend", "torch_native"]
        argv += ["--sampling-backend", "pytorch", "--disable-overlap-schedule"]
    if o.skip_warmup:
        argv.append("--skip-server-warmup")
    return argv


def _environment(o: SglangOptions) -> dict[str, str]:
    if o.device != "cpu":
        return o.device_variables()
    cpus = ",".join(map(str, compute_cpus(o.threads)))
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_CPU_OMP_THREADS_BIND": cpus,
        "OMP_NUM_THREADS": str(cpus.count(",") + 1),
        "PYTHONPATH": str(STUBS),
    }
