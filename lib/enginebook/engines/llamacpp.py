"""llama.cpp, through the server inside the xllamacpp wheel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from enginebook.engines.base import Command, LaunchPlan, MemoryPart, ModelFormat, Phase
from enginebook.engines.cpus import compute_cpus
from enginebook.engines.logs import Mark, MemoryLine, memory_from_lines, phases_from_marks
from enginebook.engines.options import CommonOptions, parse_options
from enginebook.study import NonNegativeInt, OptionValue, PositiveInt

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


class LlamaCppOptions(CommonOptions):
    """Options of llama.cpp; ``max_num_seqs`` are its slots, ``max_model_len`` tokens in each.

    ``extra_args`` are ``field=json`` settings of xllamacpp's CommonParams.
    """

    threads: PositiveInt | None = None
    prefill_budget: PositiveInt | None = None
    kv_cache_dtype: Literal["f16", "f32", "q8_0"] | None = None
    gpu_layers: NonNegativeInt = 0


class LlamaCpp:
    """Adapter of llama.cpp's server."""

    id = "llamacpp"
    title = "llama.cpp"
    model_format: ModelFormat = "gguf"
    ready_path = "/health"
    metrics: Mapping[str, str] = {
        "running": "llamacpp:requests_processing",
        "waiting": "llamacpp:requests_deferred",
        "prompt_tokens_total": "llamacpp:prompt_tokens_total",
        "cached_tokens_total": "llamacpp:prompt_tokens_cached_total",
        "generation_tokens_total": "llamacpp:tokens_predicted_total",
        "decode_steps_total": "llamacpp:n_decode_total",
        "busy_slots_per_step": "llamacpp:n_busy_slots_per_decode",
    }
    features: Mapping[str, bool] = {
        "prefix_cache": True,
        "structured_output": True,
        "speculative_decoding": True,
        "metrics": True,
        "dummy_weights": False,
        "tensor_parallel": False,
    }

    def check_options(self, options: Mapping[str, OptionValue], *, where: str = "") -> None:
        """Raise InputError for an unknown or wrong option."""
        self._options(options, where=where)

    def _options(self, options: Mapping[str, OptionValue], *, where: str = "") -> LlamaCppOptions:
        return parse_options(LlamaCppOptions, options, title=self.title, where=where)

    def command(self, plan: LaunchPlan) -> Command:
        """Return the launcher's command line."""
        o = self._options(plan.options)
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
        for setting in o.extra_args:
            argv += ["--set", setting]
        return Command(tuple(argv))

    def phases(self, log: Sequence[tuple[float, str]]) -> list[Phase]:
        """Read start-up phases: imports, weights, cache."""
        return phases_from_marks(log, MARKS)

    def memory(self, log: Sequence[str]) -> list[MemoryPart]:
        """Read bytes of weights and KV cache, and of buffers where the log has them."""
        return memory_from_lines(log, MEMORY)

    def version_code(self) -> str:
        """Return source that prints the wheel's version; its last part is llama.cpp's build."""
        return "from importlib.metadata import version; print(version('xllamacpp'))"

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return body fields that force the length; reuse is decided by request here."""
        fields: dict[str, Any] = {"ignore_eos": True, "n_predict": output_tokens}
        if not prefix_cache:
            fields["cache_prompt"] = False
        return fields
