"""TensorRT-LLM's ``trtllm-serve`` with its PyTorch backend (CUDA).

Flags and metric names were read in the project's public source of version 1.2, not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from enginebook.engines import speculation
from enginebook.engines.base import Command, LaunchPlan
from enginebook.engines.common import FEATURES, EngineAdapter, features, flags, in_folder
from enginebook.engines.logs import Mark, MemoryLine
from enginebook.engines.options import TorchOptions
from enginebook.study import PositiveInt

CONFIG = "config.yaml"
_GIB = r"([\d.]+) GiB"
MEMORY = (
    MemoryLine(
        "weights",
        rf"after loading model weights \(inside torch\) in memory usage profiling: {_GIB}",
        "GiB",
        "log: after loading weights",
    ),
    MemoryLine(
        "kv_cache", rf"\[MemUsageChange\] Allocated {_GIB} for max tokens", "GiB", "log: allocated"
    ),
    MemoryLine("kv_cache", rf"Estimated max memory in KV cache\s*: {_GIB}", "GiB", "log: estimate"),
    MemoryLine(
        "activations",
        rf"allocated during inference \(inside torch\)[^:]*: {_GIB}",
        "GiB",
        "log: during profiling",
    ),
    MemoryLine(
        "other", rf"used outside torch[^:]*: {_GIB}", "GiB", "log: outside torch, graphs included"
    ),
)


class TensorrtLlmOptions(TorchOptions):
    """Options of TensorRT-LLM; those without a flag go into its YAML configuration.

    ``memory_fraction`` is of the memory that is free after the weights are loaded.
    ``quantization`` comes with the checkpoint and cannot be asked for.
    """

    block_size: PositiveInt | None = None

    @model_validator(mode="after")
    def _only_what_it_has(self) -> TensorrtLlmOptions:
        if self.quantization is not None:
            raise ValueError("quantization comes with the checkpoint in TensorRT-LLM")
        if self.seed is not None:
            raise ValueError("seed is not an option of trtllm-serve")
        if self.speculative is not None:
            speculation.tensorrt_llm(self.speculative)
        return self


class TensorrtLlm(EngineAdapter[TensorrtLlmOptions]):
    """Adapter of ``trtllm-serve``."""

    id = "tensorrt-llm"
    title = "TensorRT-LLM"
    options_type = TensorrtLlmOptions
    distribution = "tensorrt_llm"
    marks = (Mark("weights", r"after loading model weights"), Mark("cache", r"KV cache.*: "))
    memory_lines = MEMORY
    metrics: Mapping[str, str] = {
        "kv_usage": "trtllm_kv_cache_utilization",
        "prefix_hit_rate": "trtllm_kv_cache_hit_rate",
        "ttft_seconds": "trtllm_time_to_first_token_seconds",
    }
    metrics_path = "/prometheus/metrics"
    features = features(*FEATURES)

    def command(self, plan: LaunchPlan) -> Command:
        """Return trtllm-serve's command line, in a folder that gives the model its name."""
        o = self.options(plan.options)
        name, config = plan.model.model_id, json.dumps(configuration(o, plan), sort_keys=True)
        argv = [str(plan.python.parent / "trtllm-serve"), "serve", name]
        argv += ["--config", CONFIG, "--backend", "pytorch", "--host", plan.host]
        argv += ["--port", str(plan.port), "--max_seq_len", str(o.max_model_len)]
        argv += flags(
            {
                "--max_batch_size": o.max_num_seqs,
                "--max_num_tokens": o.prefill_budget,
                "--tensor_parallel_size": o.tensor_parallel if o.tensor_parallel > 1 else None,
                "--free_gpu_memory_fraction": o.memory_fraction,
                "--revision": plan.model.revision,
            }
        )
        links = {name: str(plan.model.path), f"{CONFIG}:": config}
        words = in_folder(str(plan.python), links, [*argv, *o.extra_args])
        return Command(words, o.device_variables())


def configuration(o: TensorrtLlmOptions, plan: LaunchPlan) -> dict[str, Any]:
    """Return what has no flag, for the file of ``--config`` (YAML, of which JSON is a part)."""
    cache = {
        "enable_block_reuse": o.prefix_cache,
        "max_tokens": o.kv_tokens,
        "tokens_per_block": o.block_size,
    }
    given = {key: value for key, value in cache.items() if value is not None}
    made: dict[str, Any] = {"return_perf_metrics": True}  # without it there are no metrics
    if given:
        made["kv_cache_config"] = given
    if o.dtype != "auto":
        made["dtype"] = o.dtype
    if o.graphs is False:
        made["cuda_graph_config"] = None
    if o.speculative is not None:
        made["speculative_config"] = speculation.tensorrt_llm(o.speculative)
    if plan.model.dummy:
        made["load_format"] = "dummy"
    return made
