"""Invented weights in FP8: engines are helped not to invent zeros (see launchers/dummy_fp8)."""

from __future__ import annotations

import json
from pathlib import Path

from enginebook.engines.base import ModelFiles

PATCH = Path(__file__).parent / "launchers" / "dummy_fp8"


def variables(model: ModelFiles) -> dict[str, str]:
    """Return variables of an engine that invents the weights of a quantised model.

    Empty for models with weights, and for shapes in 16 bits: an engine that quantises these itself
    (option ``quantization``) chooses scales by the values, which then fill the format's range.
    """
    return {"PYTHONPATH": str(PATCH)} if model.dummy and _quantised(model.path) else {}


def _quantised(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "quantization_config" in config
