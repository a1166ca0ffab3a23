"""Which CPUs an engine computes on: as many for every engine, and one left to its clients."""

from __future__ import annotations

import os
import re
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}


def available_cpus() -> list[int]:
    """Return the ids of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def siblings(cpu: int, sysfs: Path = SYSFS) -> frozenset[int]:
    """Return the hardware threads of this CPU's core; only itself where Linux does not say."""
    path = sysfs / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return frozenset((cpu,))
    found: set[int] = set()
    for part in text.split(","):
        bounds = [int(n) for n in re.findall(r"\d+", part)]
        found.update(range(bounds[0], bounds[-1] + 1))
    return frozenset(found)


def core_order(cpus: list[int], sysfs: Path = SYSFS) -> tuple[list[int], int]:
    """Return the CPUs with one hardware thread of each core first, and the number of cores."""
    firsts: list[int] = []
    seconds: list[int] = []
    seen: set[int] = set()
    for cpu in cpus:
        (seconds if cpu in seen else firsts).append(cpu)
        seen |= siblings(cpu, sysfs)
    return firsts + seconds, len(firsts)


def compute_cpus(threads: int | None = None, sysfs: Path = SYSFS) -> list[int]:
    """Return the CPUs for an engine's compute threads.

    Without a number: every core but one, which the load generator and the engine's own front end
    need; on a single core with two hardware threads, one of these. OpenMP threads that have to
    share their CPU with a busy client slow down by an order of magnitude.
    """
    ordered, cores = core_order(available_cpus(), sysfs)
    if threads is None:
        threads = cores - 1 if cores > 1 else len(ordered) - 1
    return ordered[: min(max(1, threads), len(ordered))]


def computes_bfloat16(cpuinfo: Path = CPUINFO) -> bool:
    """Return whether the CPU has instructions for bfloat16; False where that cannot be read."""
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return False
    flags = next((x for x in text.splitlines() if x.startswith("flags")), "")
    return bool(BFLOAT16_FLAGS & set(flags.split()))
