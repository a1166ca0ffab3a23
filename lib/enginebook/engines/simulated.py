"""The simulated engine: quick, everywhere, and never compared with a real one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from enginebook.engines.base import Command, LaunchPlan
from enginebook.engines.common import EngineAdapter, features
from enginebook.engines.logs import Mark
from enginebook.engines.options import CommonOptions
from enginebook.study import PositiveInt

LAUNCHER = Path(__file__).parent / "launchers" / "simulated_serve.py"
Microseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=600)]


class SimulatedOptions(CommonOptions):
    """Options of the simulated engine: limits, costs of a step, and faults.

    ``fault`` hits every ``fault_every``-th request (crash, error, truncate, short) or the process
    (crash-at-start, hang-at-start, deaf: it ignores SIGTERM).
    """

    kv_tokens: PositiveInt = 16384
    prefill_budget: PositiveInt = 2048
    block_size: PositiveInt = 16
    load_seconds: Seconds = 0.2
    step_us: Microseconds = 2000.0
    prefill_us_per_token: Microseconds = 100.0
    decode_us_per_sequence: Microseconds = 100.0
    read_us_per_1000_kv_tokens: Microseconds = 50.0
    fault: Literal[
        "none", "crash-at-start", "hang-at-start", "crash", "error", "truncate", "short", "deaf"
    ] = "none"
    fault_every: PositiveInt = 1


class Simulated(EngineAdapter[SimulatedOptions]):
    """Adapter of launchers/simulated_serve.py."""

    id = "simulated"
    title = "Simulated engine"
    options_type = SimulatedOptions
    distribution = "enginebook"
    marks = (Mark("weights", r"simulated: weights loaded"),)
    metrics: Mapping[str, str] = {
        "running": "simulated:num_requests_running",
        "waiting": "simulated:num_requests_waiting",
        "kv_usage": "simulated:kv_cache_usage",
        "prefix_queries": "simulated:prefix_queries_total",
        "prefix_hits": "simulated:cached_tokens_total",
        "preemptions": "simulated:preemptions_total",
        "prompt_tokens_total": "simulated:prompt_tokens_total",
        "generation_tokens_total": "simulated:generation_tokens_total",
    }
    features = features(
        "prefix_cache", "structured_output", "metrics", "dummy_weights", "force_length"
    )

    def command(self, plan: LaunchPlan) -> Command:
        """Return the launcher's command line."""
        o = self.options(plan.options)
        argv = [str(plan.python), str(LAUNCHER), "--name", plan.model.model_id]
        argv += ["--tokenizer", str(plan.model.tokenizer_dir)]
        argv += ["--host", plan.host, "--port", str(plan.port)]
        argv += ["--max-model-len", str(o.max_model_len), "--load-seconds", str(o.load_seconds)]
        argv += ["--costs", json.dumps(_costs(o)), "--limits", json.dumps(_limits(o))]
        argv += ["--fault", o.fault, "--every", str(o.fault_every)]
        return Command((*argv, *o.extra_args))

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return a field that it takes without need: every answer has the length asked for."""
        del output_tokens, prefix_cache
        return {"ignore_eos": True}


def _costs(o: SimulatedOptions) -> dict[str, float]:
    return {
        "step_us": o.step_us,
        "prefill_us_per_token": o.prefill_us_per_token,
        "decode_us_per_sequence": o.decode_us_per_sequence,
        "read_us_per_1000_kv_tokens": o.read_us_per_1000_kv_tokens,
    }


def _limits(o: SimulatedOptions) -> dict[str, int | bool]:
    return {
        "kv_tokens": o.kv_tokens,
        "max_num_seqs": o.max_num_seqs or 8,
        "prefill_budget": o.prefill_budget,
        "block_size": o.block_size,
        "prefix_cache": o.prefix_cache is not False,
    }
