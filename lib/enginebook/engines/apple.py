"""Engines for Apple silicon: mlx_lm.server and oMLX."""

from __future__ import annotations

import sys
from typing import Any

from pydantic import model_validator

from enginebook.engines.base import Command, LaunchPlan
from enginebook.engines.common import EngineAdapter, features, flags, in_folder
from enginebook.engines.options import CommonOptions


class MlxOptions(CommonOptions):
    """Options of mlx_lm.server, which has no switch for reuse of prefixes."""

    @model_validator(mode="after")
    def _only_what_it_has(self) -> MlxOptions:
        if self.prefix_cache is False:
            raise ValueError("prefix_cache cannot be switched off in mlx_lm.server")
        return self


class Mlx(EngineAdapter[MlxOptions]):
    """Adapter of ``mlx_lm.server``.

    It answers /health before the model is loaded, and stops at an end-of-text token whatever the
    request asks for; there are no metrics.
    """

    id = "mlx"
    title = "MLX LM"
    options_type = MlxOptions
    distribution = "mlx-lm"
    features = features("prefix_cache")

    def command(self, plan: LaunchPlan) -> Command:
        """Return the command line; the length limit is that of answers, prompts have none."""
        o = self.options(plan.options)
        name, python = plan.model.model_id, str(plan.python)
        argv = [python, "-m", "mlx_lm", "server", "--model", name]
        argv += ["--host", plan.host, "--port", str(plan.port)]
        argv += flags({"--max-tokens": o.max_model_len, "--decode-concurrency": o.max_num_seqs})
        links = {name: str(plan.model.path)}
        return Command(in_folder(python, links, [*argv, *o.extra_args]))

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return nothing: the length cannot be forced."""
        del output_tokens, prefix_cache
        return {}


class OmlxOptions(CommonOptions):
    """Options of oMLX, which takes its limits from its own settings."""


class Omlx(EngineAdapter[OmlxOptions]):
    """Adapter of ``omlx serve``, which serves every model in a folder under its folder's name."""

    id = "omlx"
    title = "oMLX"
    options_type = OmlxOptions
    distribution = "omlx"
    ready_path = "/v1/models"
    features = features("prefix_cache")

    def command(self, plan: LaunchPlan) -> Command:
        """Return the command line; ``plan.python`` is the program."""
        o = self.options(plan.options)
        argv = [str(plan.python), "serve", "--model-dir", "."]
        argv += ["--host", plan.host, "--port", str(plan.port), *o.extra_args]
        links = {plan.model.model_id: str(plan.model.path)}
        return Command(in_folder(sys.executable, links, argv))

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return nothing: the length cannot be forced."""
        del output_tokens, prefix_cache
        return {}
