"""Ollama, as a server that somebody else runs: it manages its own models and processes."""

from __future__ import annotations

from typing import Any, NoReturn

from enginebook.engines.base import LaunchPlan, ModelFormat
from enginebook.engines.common import EngineAdapter, features
from enginebook.engines.options import CommonOptions
from enginebook.errors import InputError


class OllamaOptions(CommonOptions):
    """Options of Ollama: none can be set from outside, its own environment decides them."""


class Ollama(EngineAdapter[OllamaOptions]):
    """Adapter of a running ``ollama serve``.

    Its OpenAI endpoint cannot force the length of an answer, and it has no metrics.
    """

    id = "ollama"
    title = "Ollama"
    options_type = OllamaOptions
    distribution = "ollama"
    model_format: ModelFormat = "gguf"
    ready_path = "/api/version"
    features = features("prefix_cache", "structured_output")

    def command(self, plan: LaunchPlan) -> NoReturn:
        """Refuse: Ollama is not started from here."""
        raise InputError(
            f"Ollama is not started by Enginebook (asked to serve {plan.model.model_id})",
            "start `ollama serve`, make the model with `ollama create`, and give the engine "
            "environment: {kind: external, base_url: http://127.0.0.1:11434}",
        )

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return nothing: the length cannot be forced."""
        del output_tokens, prefix_cache
        return {}
