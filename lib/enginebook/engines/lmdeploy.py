"""LMDeploy's API server (CUDA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from enginebook.engines import speculation
from enginebook.engines.base import Command, LaunchPlan
from enginebook.engines.common import EngineAdapter, features, flags
from enginebook.engines.options import TorchOptions
from enginebook.study import PositiveInt


class LmdeployOptions(TorchOptions):
    """Options of LMDeploy.

    ``quantization`` names the format of the checkpoint (``--model-format``): LMDeploy quantises no
    weights at load time. Its prefix cache is off unless asked for. ``kv_tokens``,
    ``graphs=False`` and ``speculative`` are the PyTorch backend's.
    """

    backend: Literal["pytorch", "turbomind"] = "turbomind"
    block_size: PositiveInt = 64

    @model_validator(mode="after")
    def _only_what_it_has(self) -> LmdeployOptions:
        if self.dtype == "float32":
            raise ValueError("dtype float32 is not offered by LMDeploy")
        if self.seed is not None:
            raise ValueError("seed is not an option of LMDeploy's server")
        alone = [n for n in ("kv_tokens", "graphs", "speculative") if getattr(self, n) is not None]
        if alone and self.backend != "pytorch":
            raise ValueError(f"{alone[0]} needs backend: pytorch")
        if self.speculative is not None:
            speculation.lmdeploy(self.speculative)
        return self


class Lmdeploy(EngineAdapter[LmdeployOptions]):
    """Adapter of ``lmdeploy serve api_server``."""

    id = "lmdeploy"
    title = "LMDeploy"
    options_type = LmdeployOptions
    distribution = "lmdeploy"
    metrics: Mapping[str, str] = {
        "running": "lmdeploy:num_requests_running",
        "waiting": "lmdeploy:num_requests_waiting",
        "kv_usage": "lmdeploy:gpu_cache_usage_perc",
        "prefix_hit_rate": "lmdeploy:prefix_cache_hit_rate",
        "cached_tokens_total": "lmdeploy:cached_tokens_total",
        "prompt_tokens_total": "lmdeploy:prompt_tokens_total",
        "generation_tokens_total": "lmdeploy:generation_tokens_total",
        "ttft_seconds": "lmdeploy:time_to_first_token_seconds",
    }
    features = features(
        "prefix_cache",
        "structured_output",
        "speculative_decoding",
        "metrics",
        "tensor_parallel",
        "force_length",
    )

    def command(self, plan: LaunchPlan) -> Command:
        """Return LMDeploy's command line; host and port go by other names than elsewhere."""
        o = self.options(plan.options)
        argv = [str(plan.python), "-m", "lmdeploy", "serve", "api_server", str(plan.model.path)]
        argv += ["--server-name", plan.host, "--server-port", str(plan.port)]
        argv += ["--model-name", plan.model.model_id, "--backend", o.backend]
        argv += ["--session-len", str(o.max_model_len), "--dtype", o.dtype]
        argv += flags(
            {
                "--max-batch-size": o.max_num_seqs,
                "--max-prefill-token-num": o.prefill_budget,
                "--cache-max-entry-count": o.memory_fraction,
                "--cache-block-seq-len": o.block_size,
                "--num-gpu-blocks": o.kv_tokens // o.block_size if o.kv_tokens else None,
                "--tp": o.tensor_parallel if o.tensor_parallel > 1 else None,
                "--model-format": o.quantization,
                "--revision": plan.model.revision,
            }
        )
        argv += ["--enable-prefix-caching"] if o.prefix_cache else []
        argv += ["--eager-mode"] if o.graphs is False else []
        argv += speculation.lmdeploy(o.speculative) if o.speculative else []
        return Command((*argv, *o.extra_args), o.device_variables())

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return body fields that force the length."""
        del prefix_cache
        return {"ignore_eos": True, "min_new_tokens": output_tokens}
