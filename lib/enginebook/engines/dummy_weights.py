"""Invented weights in FP8: engines are helped not to invent zeros (see launchers/dummy_fp8)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from enginebook.engines.base import ModelFiles

PATCH = Path(__file__).parent / "launchers" / "dummy_fp8"


def corrected(environment: Mapping[str, str], model: ModelFiles) -> dict[str, str]:
    """Return an engine's variables, with the correction where it invents a quantised model.

    Models with weights need none, nor do shapes in 16 bits: an engine that quantises these itself
    (option ``quantization``) chooses scales by the values, which then fill the format's range.
    """
    if not (model.dummy and _quantised(model.path)):
        return dict(environment)
    path = filter(None, (str(PATCH), environment.get("PYTHONPATH")))
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


def _quantised(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "quantization_config" in config
