"""The kernels behind the CPU's measured ceilings; run in a process of its own by ceilings.py.

``python -m enginebook.lifecycle.ceiling_kernels SECONDS THREADS`` prints JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

ARRAY_BYTES = 256 << 20  # well beyond any last-level cache, per thread
LEAST_REPEATS = 5
MATRIX = 2048
WARMUPS = 2

Floats = np.ndarray[Any, np.dtype[np.float32]]


def rates(work: float, kernel: Callable[[], Any], seconds: float) -> list[float]:
    """Return work per second of each repeat, for at least so long and five times."""
    for _ in range(WARMUPS):
        kernel()
    found: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(found) < LEAST_REPEATS or time.perf_counter() < deadline:
        begun = time.perf_counter()
        kernel()
        found.append(work / (time.perf_counter() - begun))
    return found


def summary(found: list[float], method: str, threads: int, unit: str) -> dict[str, Any]:
    """Return the best rate (a ceiling is what was reached once), the median and the spread."""
    middle = statistics.median(found)
    return {
        unit: max(found),
        f"median_{unit}": middle,
        "spread": (max(found) - min(found)) / middle,
        "repeats": len(found),
        "threads": threads,
        "method": method,
    }


def memory(seconds: float, threads: int) -> dict[str, Any]:
    """Return the copy and read rates of main memory, in bytes per second."""
    count = ARRAY_BYTES // 4
    sources: list[Floats] = [np.ones(count, np.float32) for _ in range(threads)]
    targets: list[Floats] = [np.zeros(count, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:
            list(pool.map(np.copyto, targets, sources))

        def read() -> None:
            list(pool.map(np.max, sources))

        moved = ARRAY_BYTES * threads
        copied = rates(2.0 * moved, copy, seconds / 2)
        was_read = rates(1.0 * moved, read, seconds / 2)
    unit = "bytes_per_s"
    how = f"numpy, {ARRAY_BYTES >> 20} MiB of float32 a thread"
    return {
        "memory_copy": summary(copied, f"copy, {how}; read and written bytes", threads, unit),
        "memory_read": summary(was_read, f"maximum, {how}", threads, unit),
    }


def matmul(seconds: float, threads: int) -> dict[str, Any]:
    """Return the float32 matrix product's rate by BLAS, in floating-point operations a second."""
    random = np.random.default_rng(0)
    a = random.random((MATRIX, MATRIX), np.float32)
    b = random.random((MATRIX, MATRIX), np.float32)
    out = np.empty_like(a)
    found = rates(2.0 * MATRIX**3, lambda: np.matmul(a, b, out=out), seconds)
    method = f"numpy matmul of {MATRIX} x {MATRIX} float32"
    return {"matmul_float32": summary(found, method, threads, "flops_per_s")}


def blas() -> dict[str, Any]:
    """Return which BLAS numpy uses, for which CPU it thinks to run, and what was forced."""
    config: Any = np.show_config(mode="dicts")  # type: ignore[no-untyped-call,unused-ignore]
    library = config["Build Dependencies"]["blas"]
    return {
        "name": library.get("name"),
        "version": library.get("version"),
        "core": _openblas_core(),
        "forced_core": os.environ.get("OPENBLAS_CORETYPE"),
    }


def _openblas_core() -> str | None:
    """Ask the loaded OpenBLAS for the core type whose kernels it chose."""
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        files = {line.split()[-1] for line in maps if "openblas" in line}
        for file in files:
            library = ctypes.CDLL(file)
            for name in ("scipy_openblas_get_corename64_", "openblas_get_corename"):
                with suppress(AttributeError):
                    ask = getattr(library, name)
                    ask.restype = ctypes.c_char_p
                    return str(ask().decode())
    return None


def main() -> None:
    """Measure for about so many seconds and print the result."""
    seconds, threads = float(sys.argv[1]), int(sys.argv[2])
    result = memory(seconds * 0.6, threads) | matmul(seconds * 0.4, threads) | {"blas": blas()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
