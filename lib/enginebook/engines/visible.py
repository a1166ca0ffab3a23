"""Which GPUs a stage may look at, where several stages share one machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

OWN_GPUS = "ENGINEBOOK_GPUS"
"""NVML's indexes of the GPUs that this stage has for itself, joined by commas."""


def own_gpus(count: int, environ: Mapping[str, str] = os.environ) -> list[int]:
    """Return the indexes of this stage's GPUs among ``count``; all where nothing is divided.

    The memory and the power of a neighbour's GPU must not count as those of this stage's engine.
    """
    given = environ.get(OWN_GPUS, "")
    chosen = [int(part) for part in given.split(",") if part.isascii() and part.isdigit()]
    inside = [index for index in chosen if index < count]
    return inside if chosen and len(inside) == len(chosen) else list(range(count))
