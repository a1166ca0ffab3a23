"""What machine this is: the facts that a reader needs to judge the figures measured on it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from enginebook import paths, store
from enginebook.lifecycle import gpu, limits, requirements

GIB = 1 << 30
# Flags that decide which kernels an engine can use.
FLAGS = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "bf16", "i8mm", "sve",
)  # fmt: skip
ARITHMETIC_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def host_facts() -> dict[str, Any]:
    """Return the machine's facts as JSON: bytes, MHz and cores; None for what it does not tell."""
    view = gpu.look()
    return {
        "cpu": _cpu(),
        "memory": _memory(),
        "numa": _numa(),
        "os": _system(),
        "python": {"version": platform.python_version(), "build": platform.python_compiler()},
        "disk": _disk(paths.cache_dir()),
        "container": {
            "kind": limits.container_kind(),
            "cpu_quota_cores": limits.cpu_quota_cores(),
            "memory_limit_bytes": limits.memory_limit_bytes(),
        },
        "gpus": view.to_json()["devices"],
        "gpu_driver": view.driver,
        "cuda": view.cuda,
        "gpu_reason": view.reason or None,
        "load": _load(),
        "variables": {v: os.environ[v] for v in ARITHMETIC_VARIABLES if v in os.environ},
    }


def host_id(facts: dict[str, Any]) -> str:
    """Return a digest that stays the same while the hardware does (not load, time or disk)."""
    cpu = facts["cpu"]
    return store.digest_of(
        {
            "cpu": [cpu["model"], cpu["architecture"], cpu["logical_cores"], cpu["flags"]],
            "effective_cores": cpu["effective_cores"],
            # The kernel's own share varies a little between boots.
            "memory_gib": round(facts["memory"]["total_bytes"] / GIB),
            "gpus": [[g["uuid"], g["name"], g["memory_bytes"]] for g in facts["gpus"]],
        }
    )


def _cpu() -> dict[str, Any]:
    have = requirements.cpu_flags()
    return {
        "model": _cpu_model(),
        "architecture": platform.machine(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "usable_cores": limits.usable_cores(),
        "effective_cores": limits.effective_cores(),
        "flags": [flag for flag in FLAGS if flag in have],
        "max_mhz": _max_mhz(),
        "last_level_cache_bytes": _last_level_cache_bytes(),
    }


def _max_mhz() -> float | None:
    with suppress(OSError, AttributeError, NotImplementedError):
        frequency = psutil.cpu_freq()
        return frequency.max or frequency.current or None
    return None


def _cpu_model() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _last_level_cache_bytes() -> int | None:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError, KeyError):
            text = path.read_text(encoding="ascii").strip()
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=None)


def _memory() -> dict[str, Any]:
    memory = psutil.virtual_memory()
    return {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "swap_bytes": psutil.swap_memory().total,
    }


def _numa() -> dict[str, Any]:
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    cpus = []
    for node in nodes:
        with suppress(OSError):
            cpus.append((node / "cpulist").read_text(encoding="ascii").strip())
    return {"nodes": len(nodes) or None, "cpus": cpus}


def _system() -> dict[str, Any]:
    name = None
    with suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME")
    return {
        "system": sys.platform,
        "kernel": platform.release(),
        "distribution": name,
        "glibc": requirements.glibc_version(),
    }


def _disk(folder: Path) -> dict[str, Any]:
    usage = shutil.disk_usage(folder)
    return {"total_bytes": usage.total, "free_bytes": usage.free}


def _load() -> dict[str, Any]:
    one, five, _ = os.getloadavg()
    return {"load_1m": round(one, 2), "load_5m": round(five, 2)}
