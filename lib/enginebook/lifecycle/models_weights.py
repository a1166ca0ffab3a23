"""How many bits a weight of a model takes on disk, which is what an engine has to read."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from enginebook.engines.base import ModelFiles
from enginebook.errors import InputError
from enginebook.lifecycle.models_gguf import GgufFile
from enginebook.physics.shapes import ModelShape
from enginebook.store import read_json

# Packed formats store several weights in one integer: then elements are no weights.
FLOATS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8}


def weight_bits(model: ModelFiles) -> float | None:
    """Return the mean bits a weight takes in a model's files, scales and tables included.

    Returns
    -------
    float or None
        None for dummy weights, hub ids, and packed formats of a shape that is not known.
    """
    if model.dummy or not model.path.exists():
        return None
    stamp = model.path.stat().st_mtime_ns
    if model.format == "gguf":
        return _gguf_bits(model.path, stamp)
    return _safetensors_bits(model.path, stamp)


@functools.lru_cache(maxsize=32)
def _gguf_bits(path: Path, stamp: int) -> float:
    del stamp  # of the key alone: a file that was replaced is read again
    return GgufFile(path).weight_bits()


@functools.lru_cache(maxsize=32)
def _safetensors_bits(folder: Path, stamp: int) -> float | None:
    del stamp
    tensors = [t for file in sorted(folder.glob("*.safetensors")) for t in _tensors(file)]
    held: int = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors)
    if not held:
        return None
    if all(t["dtype"] in FLOATS for t in tensors):
        count: int = sum(prod(t["shape"]) for t in tensors)
        return 8 * held / count
    with suppress(OSError, ValueError, InputError):
        return 8 * held / ModelShape.from_hf(read_json(folder / "config.json")).params
    return None


def _tensors(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what the header of a safetensors file says of its tensors."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    yield from (value for name, value in header.items() if name != "__metadata__")
