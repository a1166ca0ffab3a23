"""What a device can do at most: from a datasheet, or as measured on the host itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from enginebook.errors import InputError

# A micro-benchmark on a quiet host reads up to this much less than the silicon allows: a copy
# writes too, a product has edges.
MEASURED_SLACK: Final = 0.15
_WIDER: Final = {"fp4": "fp8", "fp8": "bf16", "int8": "bf16", "bf16": "fp32"}


@dataclass(frozen=True)
class Hardware:
    """One device.

    Attributes
    ----------
    memory_bytes
        As the driver reports it, not the marketing figure; None when unknown.
    bandwidth
        Bytes per second between the device and its memory.
    rates
        Dense matrix FLOP/s by precision; sparsity figures are twice these and never used.
    link_bandwidth
        Bytes per second between two devices, in one direction; None: a single device.
    cache_bytes
        Last-level cache: so much of a model may be kept from step to step and need no reading.
    slack
        By which part the ceilings may really be higher; 0 for a datasheet's.
    here
        The same device as this host measured it; efficiency is stated against it as well, never a
        limit.
    """

    name: str
    bandwidth: float
    rates: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: float | None = None
    link_bandwidth: float | None = None
    cache_bytes: float = 0.0
    slack: float = 0.0
    measured: bool = False
    here: Hardware | None = None
    note: str = ""

    def rate(self, compute: str) -> float | None:
        """Return the FLOP/s ceiling for a precision; None when there is none to hold against.

        A device without units for a precision multiplies in the next wider one. Of a measured
        device only what was measured is known.
        """
        if self.measured:
            return self.rates.get(compute)
        name: str | None = compute
        while name is not None and name not in self.rates:
            name = _WIDER.get(name)
        return self.rates[name] if name is not None else None

    @classmethod
    def from_ceilings(
        cls, ceilings: Mapping[str, Any], *, name: str = "this host", cache_bytes: float = 0.0,
        memory_bytes: float | None = None,
    ) -> Hardware:  # fmt: skip
        """Return a CPU host from the ceilings that `lifecycle.ceilings` measured on it.

        Parameters
        ----------
        ceilings
            ``memory_read`` and ``memory_copy`` with ``bytes_per_s`` (the faster one counts),
            ``matmul_float32`` and ``matmul_bfloat16`` with ``flops_per_s`` or None.
        """
        found = [_rate(ceilings, key, "bytes_per_s") for key in ("memory_read", "memory_copy")]
        bandwidth = max((v for v in found if v), default=None)
        if bandwidth is None:
            raise InputError(
                "the host's ceilings hold no memory bandwidth",
                "measure this host anew: run 00_host.ipynb",
            )
        matrix = {"fp32": "matmul_float32", "bf16": "matmul_bfloat16"}
        rates = {k: _rate(ceilings, v, "flops_per_s") for k, v in matrix.items()}
        return cls(
            name=name,
            bandwidth=bandwidth,
            rates={k: v for k, v in rates.items() if v},
            memory_bytes=memory_bytes,
            cache_bytes=cache_bytes,
            slack=MEASURED_SLACK,
            measured=True,
        )

    @classmethod
    def from_host(cls, host: Mapping[str, Any]) -> Hardware:
        """Return what a host's facts describe: its first GPU by the datasheet, or its CPU.

        A GPU's memory is the driver's figure. A GPU that the table does not know is refused, since
        its measured ceilings alone would call honest engines impossible.
        """
        gpus = host.get("gpus") or []
        if gpus:
            device = hardware_named(str(gpus[0]["name"]))
            return replace(
                device,
                memory_bytes=float(gpus[0]["memory_bytes"]),
                here=_gpu_here(device, (host.get("ceilings") or {}).get("gpus") or []),
            )
        cpu, memory = host.get("cpu") or {}, host.get("memory") or {}
        return cls.from_ceilings(
            host.get("ceilings") or {},
            name=str(cpu.get("model") or "this host"),
            cache_bytes=float(cpu.get("last_level_cache_bytes") or 0.0),
            memory_bytes=memory.get("total_bytes"),
        )


def _gpu_here(device: Hardware, found: Sequence[Mapping[str, Any]]) -> Hardware | None:
    """Return a GPU by what was measured of it; None where nothing was.

    A copy and a square product reach less than the silicon allows, so these are no limits.
    """
    bandwidth = _rate(found[0], "memory_copy", "bytes_per_s") if found else None
    if not bandwidth:
        return None
    matrix = [_rate(found[0], f"matmul_{t}", "flops_per_s") for t in ("bfloat16", "float16")]
    best = max((v for v in matrix if v), default=None)
    return replace(
        device,
        bandwidth=bandwidth,
        rates={} if best is None else {"bf16": best},
        measured=True,
        slack=MEASURED_SLACK,
    )


def _rate(ceilings: Mapping[str, Any], key: str, unit: str) -> float | None:
    found = ceilings.get(key)
    if found is None:
        return None
    return float(found[unit] if isinstance(found, Mapping) else found)


@cache
def hardware_table() -> Mapping[str, Hardware]:
    """Return the devices of physics/data/hardware.yaml by their key."""
    text = files("enginebook.physics").joinpath("data/hardware.yaml").read_text(encoding="utf-8")
    return {key: _device(value) for key, value in yaml.safe_load(text)["devices"].items()}


def _device(value: Mapping[str, Any]) -> Hardware:
    link = value.get("link_gb_per_s")
    return Hardware(
        name=value["name"],
        bandwidth=value["bandwidth_tb_per_s"] * 1e12,
        rates={k: v * 1e12 for k, v in value["tflops"].items()},
        memory_bytes=value["memory_mib"] * 2**20,
        link_bandwidth=None if link is None else link * 1e9,
        cache_bytes=value["cache_mib"] * 2**20,
        note=value["note"],
    )


def hardware_named(name: str) -> Hardware:
    """Return a device by its key (H100-SXM, H200, RTX4090 ...) or by the name its driver gives."""
    table = hardware_table()
    wanted = _plain(name)
    for key, device in table.items():
        if wanted in {_plain(key), _plain(device.name)}:
            return device
    for key, marks in _DRIVER_NAMES.items():
        if all(mark in wanted for mark in marks):
            return table[key]
    raise InputError(f"unknown hardware {name!r}", f"use one of: {', '.join(table)}")


# What NVML and ROCm call these devices, as parts of the name; the more telling ones come first.
_DRIVER_NAMES: Final = {
    "GH200-96": ("gh200",),
    "B200": ("b200",),
    "H200": ("h200",),
    "H100-PCIe": ("h100", "pcie"),
    "H100-SXM": ("h100",),
    "A100-80": ("a100", "80gb"),
    "L40S": ("l40s",),
    "RTX4090": ("rtx", "4090"),
    "MI300X": ("mi300x",),
}


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
