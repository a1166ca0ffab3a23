"""llama.cpp, through the server inside the xllamacpp wheel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from enginebook.engines import speculation
from enginebook.engines.base import Command, LaunchPlan, ModelFormat
from enginebook.engines.common import EngineAdapter, features
from enginebook.engines.cpus import compute_cpus
from enginebook.engines.logs import Mark, MemoryLine
from enginebook.engines.options import CommonOptions
from enginebook.engines.settings import Setting, off_if, text
from enginebook.engines.speculation import Speculative
from enginebook.study import NonNegativeInt, PositiveInt

LAUNCHER = Path(__file__).parent / "launchers" / "llamacpp_serve.py"
DEFAULT_SLOTS = 8

MARKS = (
    Mark("imports", r"load_model: loading model"),
    Mark("weights", r"output buffer size|llama threadpool init"),
    Mark("cache", r"load_model: initializing, n_slots"),
)
MEMORY = (
    MemoryLine("weights", r"model buffer size =\s+([\d.]+) MiB", "MiB", "log: model buffer size"),
    MemoryLine("kv_cache", r"KV buffer size =\s+([\d.]+) MiB", "MiB", "log: KV buffer size"),
    MemoryLine(
        "activations", r"compute buffer size =\s+([\d.]+) MiB", "MiB", "log: compute buffer size"
    ),
    MemoryLine("other", r"output buffer size =\s+([\d.]+) MiB", "MiB", "log: output buffer size"),
)

SETTINGS = (
    Setting("max_num_seqs", r"llama_context: n_seq_max\s+= (\d+)"),
    Setting("max_model_len", r"llama_context: n_ctx_seq\s+= (\d+)"),
    Setting("kv_tokens", r"llama_context: n_ctx\s+= (\d+)"),
    Setting("prefill_budget", r"llama_context: n_batch\s+= (\d+)"),
    Setting("micro_batch", r"llama_context: n_ubatch\s+= (\d+)"),
    Setting("flash_attention", r"llama_context: flash_attn\s+= (\w+)", text),
    Setting("kv_cache_dtype", r"llama_kv_cache: size = .*K \((\w+)\)", text),
    Setting("threads", r"llama threadpool init, n_threads = (\d+)"),
    Setting("prefix_cache", r"load_model: prompt cache is (\w+)", off_if("disabled")),
    Setting("speculative", r"common_specu\w*: adding speculative implementation '([\w-]+)'", text),
)


class LlamaCppOptions(CommonOptions):
    """Options of llama.cpp; ``max_num_seqs`` are its slots, ``max_model_len`` tokens in each.

    ``extra_args`` are ``field=json`` settings of xllamacpp's CommonParams. A draft model or head is
    a GGUF file.
    """

    threads: PositiveInt | None = None
    prefill_budget: PositiveInt | None = None
    kv_cache_dtype: Literal["f16", "f32", "q8_0"] | None = None
    gpu_layers: NonNegativeInt = 0
    speculative: Speculative | None = None

    @model_validator(mode="after")
    def _known_method(self) -> LlamaCppOptions:
        if self.speculative is not None and self.speculative.method == "eagle":
            raise ValueError("speculative method eagle is not offered by llama.cpp; eagle3 is")
        return self


class LlamaCpp(EngineAdapter[LlamaCppOptions]):
    """Adapter of llama.cpp's server."""

    id = "llamacpp"
    title = "llama.cpp"
    options_type = LlamaCppOptions
    distribution = "xllamacpp"  # the last part of its version is the build of llama.cpp
    marks = MARKS
    memory_lines = MEMORY
    settings = SETTINGS
    model_format: ModelFormat = "gguf"
    metrics: Mapping[str, str] = {
        "running": "llamacpp:requests_processing",
        "waiting": "llamacpp:requests_deferred",
        "prompt_tokens_total": "llamacpp:prompt_tokens_total",
        "cached_tokens_total": "llamacpp:prompt_tokens_cached_total",
        "generation_tokens_total": "llamacpp:tokens_predicted_total",
        "decode_steps_total": "llamacpp:n_decode_total",
        "busy_slots_per_step": "llamacpp:n_busy_slots_per_decode",
    }
    features = features(
        "prefix_cache", "structured_output", "speculative_decoding", "metrics", "force_length"
    )

    def command(self, plan: LaunchPlan) -> Command:
        """Return the launcher's command line."""
        o = self.options(plan.options)
        argv = [str(plan.python), str(LAUNCHER), "--model", str(plan.model.path)]
        argv += ["--alias", plan.model.model_id, "--host", plan.host, "--port", str(plan.port)]
        argv += ["--slots", str(o.max_num_seqs or DEFAULT_SLOTS)]
        argv += ["--context-per-slot", str(o.max_model_len)]
        argv += ["--threads", str(o.threads or len(compute_cpus()))]
        argv += ["--gpu-layers", str(o.gpu_layers)]
        if o.prefill_budget is not None:
            argv += ["--batch", str(o.prefill_budget)]
        if o.kv_cache_dtype is not None:
            argv += ["--kv-type", o.kv_cache_dtype]
        if o.prefix_cache is False:
            argv.append("--no-prefix-cache")
        if o.speculative is not None:
            argv += speculation.llamacpp(o.speculative)
        for setting in o.extra_args:
            argv += ["--set", setting]
        return Command(tuple(argv))

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return body fields that force the length; reuse is decided by request here."""
        fields: dict[str, Any] = {"ignore_eos": True, "n_predict": output_tokens}
        if not prefix_cache:
            fields["cache_prompt"] = False
        return fields
