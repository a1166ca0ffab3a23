"""What physics allows at each load of a study: the grey band behind the measured lines.

The band has a width because a measured ceiling is itself known only so well
(`enginebook.physics.hardware.MEASURED_SLACK`); a datasheet's ceiling has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.errors import EnginebookError
from enginebook.physics import (
    Hardware,
    ModelShape,
    Placement,
    Precision,
    prefill_bound,
    served_rate_limit,
)
from enginebook.report import schema
from enginebook.store import read_json

RATE, TTFT = "output_tokens_per_s", "ttft_p50_ms"
MS_PER_S = 1000.0
LOAD = ("scenario", "concurrency", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class Served:
    """The model as the engines of a study serve it."""

    shape: ModelShape
    place: Placement

    @property
    def source(self) -> str:
        """Return what sets the limit, in words for the chart's legend."""
        hardware = self.place.hardware
        kind = "measured ceilings" if hardware.measured else "datasheet"
        return f"{kind} of {hardware.name}, {self.place.precision.name} weights"


def limits(points: pl.DataFrame, served: Served) -> pl.DataFrame:
    """Return frame `limits` for all loads of a study.

    Rates: the output tokens/s that nobody can exceed with so many requests in flight. First token:
    the time that reading the weights and computing the prompt takes at least.
    """
    # without a number of streams there is no batch, and so no limit of a rate
    streamed = points.filter(pl.col("concurrency") > 0)
    loads = streamed.select(LOAD).unique(maintain_order=True).iter_rows(named=True)
    rows = [row for load in loads for row in _rows(load, served)]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["limits"]))


def _rows(load: Mapping[str, Any], served: Served) -> Iterable[dict[str, Any]]:
    slack = 1 + served.place.hardware.slack
    streams, inputs, outputs = (int(load[name]) for name in LOAD[1:])
    rate = served_rate_limit(served.shape, served.place, streams, inputs, outputs)
    first_ms = MS_PER_S * prefill_bound(served.shape, served.place, inputs).seconds
    named = {**load, "source": served.source}
    yield {**named, "metric": RATE, "low": rate, "high": rate * slack}
    yield {**named, "metric": TTFT, "low": first_ms / slack, "high": first_ms}


def served_model(
    manifest: Mapping[str, Any], host: Mapping[str, Any], outputs: Path
) -> Served | None:
    """Return how a run's model was served; None where that is not known for certain.

    Parameters
    ----------
    manifest
        The run's manifest; its ``stages`` lead to the installed model's config.json.
    host
        Facts and ceilings.
    outputs
        The folder that stage folders are relative to.
    """
    config = _config(manifest, outputs)
    options = [_options(manifest, name) for name in manifest.get("engines", {})]
    if config is None or any(o.get("quantization") for o in options):
        return None
    try:
        shape, hardware = ModelShape.from_hf(config), Hardware.from_host(host)
        precision = _widest_limit([_precision(config, o) for o in options if "dtype" in o])
        precision = precision or Precision.from_hf(config)
    except (EnginebookError, KeyError, TypeError, ValueError):
        return None  # an unknown device or architecture: no band rather than a wrong one
    devices = max((int(o.get("tensor_parallel") or 1) for o in options), default=1)
    return Served(shape, Placement(hardware, precision, devices))


def _config(manifest: Mapping[str, Any], outputs: Path) -> dict[str, Any] | None:
    """Return the served model's config.json, found through an install stage's result."""
    for name, folder in manifest.get("stages", {}).items():
        result = outputs / str(folder) / "install.json"
        if name.startswith("install-") and result.is_file():
            place = read_json(result).get("model", {}).get("tokenizer_dir")
            path = Path(str(place)) / "config.json"
            if place and path.is_file():
                return dict(read_json(path))
    return None


def _options(manifest: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Return an engine's options: its recipe's, and the study's over them."""
    recipe = manifest["engines"][engine].get("recipe", {}).get("options") or {}
    specs = manifest.get("study", {}).get("engines", [])
    own = next((s.get("options") or {} for s in specs if s.get("name") == engine), {})
    return {**recipe, **own}


def _precision(config: Mapping[str, Any], options: Mapping[str, Any]) -> Precision:
    dtype = str(options["dtype"])
    asked = config if dtype == "auto" else {**config, "torch_dtype": dtype}
    # a cache may be kept in 16 bits whatever the weights are: the kinder assumption
    return replace(Precision.from_hf(asked), kv_bits=16)


def _widest_limit(precisions: list[Precision]) -> Precision | None:
    """Return the precision that allows most, since the band must hold for every engine."""
    return min(precisions, key=lambda p: p.weight_bits, default=None)
