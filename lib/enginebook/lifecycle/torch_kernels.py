"""Matrix and copy rates by an engine's own PyTorch; run by file path in the engine's environment.

``python torch_kernels.py SECONDS THREADS`` prints JSON. It imports nothing of Enginebook, which is
not installed there.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

LEAST_REPEATS = 5
CPU_MATRIX, GPU_MATRIX = 2048, 8192
GPU_COPY_BYTES = 4 << 30


def rates(
    work: float, kernel: Callable[[], Any], wait: Callable[[], None], seconds: float
) -> list[float]:
    """Return work per second of each repeat."""
    for _ in range(3):
        kernel()
    wait()
    found: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(found) < LEAST_REPEATS or time.perf_counter() < deadline:
        begun = time.perf_counter()
        kernel()
        wait()
        found.append(work / (time.perf_counter() - begun))
    return found


def summary(
    found: list[float], method: str, unit: str, threads: int | None = None
) -> dict[str, Any]:
    """Return best, median and spread of the rates."""
    middle = statistics.median(found)
    return {
        unit: max(found),
        f"median_{unit}": middle,
        "spread": (max(found) - min(found)) / middle,
        "repeats": len(found),
        "threads": threads,
        "method": f"{method}, torch {torch.__version__}",
    }


def matmul(
    device: Any,
    dtype: Any,
    size: int,
    *,
    wait: Callable[[], None],
    seconds: float,
    threads: int | None = None,
) -> dict[str, Any]:
    """Return the rate of a square matrix product."""
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(a)
    found = rates(2.0 * size**3, lambda: torch.mm(a, b, out=out), wait, seconds)
    name = str(dtype).removeprefix("torch.")
    return summary(found, f"mm of {size} x {size} {name}", "flops_per_s", threads)


def gpu_copy(device: Any, wait: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Return the rate at which a GPU copies its own memory; read and written bytes."""
    free, _ = torch.cuda.mem_get_info(device)
    size = min(GPU_COPY_BYTES, free // 4)
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = rates(2.0 * size, lambda: target.copy_(source), wait, seconds)
    return summary(copied, f"copy of {size >> 20} MiB", "bytes_per_s")


def gpu(index: int, seconds: float) -> dict[str, Any]:
    """Return copy and matrix rates of one GPU."""
    device = torch.device("cuda", index)

    def wait() -> None:
        torch.cuda.synchronize(device)

    found = {
        "index": index,
        "name": torch.cuda.get_device_name(device),
        "memory_copy": gpu_copy(device, wait, seconds / 3),
    }
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        found[f"matmul_{name}"] = matmul(device, dtype, GPU_MATRIX, wait=wait, seconds=seconds / 3)
    return found


def main() -> None:
    """Measure the CPU in both dtypes, and every GPU."""
    seconds, threads = float(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    result = {
        f"matmul_{name}": matmul(
            "cpu",
            getattr(torch, name),
            CPU_MATRIX,
            wait=lambda: None,
            seconds=seconds / 2,
            threads=threads,
        )
        for name in ("float32", "bfloat16")
    }
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    print(json.dumps({"cpu": result, "gpus": [gpu(i, seconds) for i in range(count)]}))


if __name__ == "__main__":
    main()
