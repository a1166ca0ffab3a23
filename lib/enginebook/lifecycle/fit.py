"""Will it fit? Weights, the cache of one full-length request and a least overhead, before starting.

Only what cannot work is refused; a model that fits barely is let through, because engines differ
in what they need beside weights and cache.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from enginebook import store
from enginebook.engines.base import EngineOptions, ModelFiles
from enginebook.errors import InputError
from enginebook.lifecycle import gpu, limits
from enginebook.physics.precision import Precision
from enginebook.physics.served import served_precision
from enginebook.physics.shapes import ModelShape

GIB = 1 << 30
FORCE = "ENGINEBOOK_FORCE_FIT"
# What engines took at least beside weights and cache: on an H200 with vLLM 0.26, 1.3 GiB of
# activations and libraries for 8B and more for larger ones; on CPUs PyTorch's code and buffers.
GPU_OVERHEAD_BYTES = int(1.3 * GIB)
CPU_OVERHEAD_BYTES = int(0.2 * GIB)
# Few formats are narrower than 4 bits, so what is refused with it would not fit in any.
UNKNOWN = Precision("a format that is not known here, taken as 4 bits", 4, "bf16")


@dataclass(frozen=True)
class Need:
    """Bytes that an engine needs on each device at the least, and how they were got."""

    weights: int
    kv_one_request: int
    overhead: int
    kv_tokens: int
    weights_source: str

    @property
    def total(self) -> int:
        """Return all parts together."""
        return self.weights + self.kv_one_request + self.overhead

    def __str__(self) -> str:
        return (
            f"{self.weights / GIB:.1f} GiB of weights ({self.weights_source})"
            f" + {self.kv_one_request / GIB:.1f} GiB of KV cache for one request of "
            f"{self.kv_tokens} tokens + {self.overhead / GIB:.1f} GiB at least for the engine"
            f" = {self.total / GIB:.1f} GiB"
        )


@dataclass(frozen=True)
class Room:
    """Bytes that one device offers, in words too."""

    bytes: int
    what: str


def need(model: ModelFiles, options: EngineOptions, *, on_gpu: bool) -> Need | None:
    """Return what an engine needs on each device; None when the model's shape is not known."""
    config = _config(model)
    if config is None:
        return None
    shape, precision = ModelShape.from_hf(config), _precision(config, options)
    devices = int(options.get("tensor_parallel") or 1)  # type: ignore[arg-type]
    tokens = int(options.get("max_model_len") or 2048)  # type: ignore[arg-type]
    weights, source = _weights(model, shape, precision, options)
    kv_bytes = shape.kv_values_per_token * precision.kv_bits / 8
    return Need(
        weights=int(weights / devices),
        kv_one_request=int(tokens * kv_bytes / min(devices, shape.kv_shards)),
        overhead=GPU_OVERHEAD_BYTES if on_gpu else CPU_OVERHEAD_BYTES,
        kv_tokens=tokens,
        weights_source=f"{source}, {devices} devices" if devices > 1 else source,
    )


def _config(model: ModelFiles) -> dict[str, Any] | None:
    """Return the model's ``config.json`` when it tells a shape."""
    with suppress(OSError, ValueError, InputError):
        config: dict[str, Any] = store.read_json(model.tokenizer_dir / "config.json")
        ModelShape.from_hf(config)
        return config
    return None


def _precision(config: dict[str, Any], options: EngineOptions) -> Precision:
    try:
        return served_precision(config, options)
    except InputError:
        return UNKNOWN


def _weights(
    model: ModelFiles, shape: ModelShape, precision: Precision, options: EngineOptions
) -> tuple[float, str]:
    """Return weight bytes: what lies on disk, unless the engine makes other weights of it."""
    files = _weight_files(model)
    if files and not options.get("quantization") and (options.get("dtype") or "auto") == "auto":
        return float(sum(p.stat().st_size for p in files)), "size of the files"
    # Embeddings and head stay in 16 bit when the layers are quantised.
    tables = shape.head_params * (1 if shape.tied else 2)
    bits = (shape.params - tables) * precision.weight_bits + tables * precision.table_bits
    return bits / 8, f"{shape.params / 1e9:.1f} G parameters in {precision.name}"


def _weight_files(model: ModelFiles) -> list[Path]:
    if model.dummy:
        return []
    if model.format == "gguf":
        return [model.path] if model.path.is_file() else []
    return list(model.path.glob("*.safetensors"))


def room(options: EngineOptions, *, on_gpu: bool, share: float = 1.0) -> Room | None:
    """Return what the fullest device offers now; None where there is no GPU to ask.

    ``share`` of a GPU's memory is the engine's own limit where ``memory_fraction`` is not set.
    """
    if not on_gpu:
        limit = limits.memory_limit_bytes()
        free = psutil.virtual_memory().available
        return Room(min(free, limit) if limit else free, "of memory that is free")
    devices = _chosen(gpu.look().devices, options.get("devices"))
    if not devices:
        return None
    fraction = float(options.get("memory_fraction") or share)  # type: ignore[arg-type]
    smallest = min(devices, key=lambda d: d.memory_bytes - d.memory_used_bytes)
    free = smallest.memory_bytes - smallest.memory_used_bytes
    allowed = int(smallest.memory_bytes * fraction)
    what = f"that {smallest.name} offers ({smallest.memory_bytes / GIB:.1f} GiB in all"
    if smallest.memory_used_bytes > GIB:
        what += f", {smallest.memory_used_bytes / GIB:.1f} GiB in use by {_users(smallest)}"
    return Room(min(free, allowed), what + f", fraction {fraction:g})")


def _chosen(devices: tuple[gpu.Device, ...], asked: object) -> list[gpu.Device]:
    """Return the devices that an engine may use: those with an index or UUID that is asked for."""
    if not isinstance(asked, (list, tuple)):
        return list(devices)
    return [d for d in devices if d.index in asked or d.uuid in asked or str(d.index) in asked]


def _users(device: gpu.Device) -> str:
    return f"pids {list(device.processes)}" if device.processes else "processes not shown by NVML"


def require_fit(
    model: ModelFiles, options: EngineOptions, *, on_gpu: bool, who: str, share: float = 1.0
) -> None:
    """Refuse what cannot fit, with the arithmetic.

    Raises
    ------
    InputError
        When weights, one request's cache and the least overhead exceed what a device offers, and
        ``ENGINEBOOK_FORCE_FIT=1`` is not set.
    """
    needed = need(model, options, on_gpu=on_gpu)
    offered = room(options, on_gpu=on_gpu, share=share)
    if needed is None or offered is None or needed.total <= offered.bytes:
        return
    if os.environ.get(FORCE) == "1":
        return
    raise InputError(
        f"{model.model_id} does not fit: {who} needs {needed}; there are "
        f"{offered.bytes / GIB:.1f} GiB {offered.what}",
        "use a smaller or quantised model, more devices (tensor_parallel), or a shorter "
        f"max_model_len; {FORCE}=1 tries it all the same",
    )
