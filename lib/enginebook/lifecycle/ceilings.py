"""The host's measured ceilings: how fast memory and arithmetic really are here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from enginebook.errors import EnginebookError
from enginebook.lifecycle import environ, gpu, limits

TIMEOUT_S = 300.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def measure_ceilings(seconds: float = 6.0, torch_python: Path | None = None) -> dict[str, Any]:
    """Measure memory bandwidth and matrix rates, in processes of their own.

    Parameters
    ----------
    seconds
        About how long the CPU is measured.
    torch_python
        Interpreter of an engine's environment with PyTorch; needed for bfloat16 and for GPUs.

    Returns
    -------
    dict
        ``memory_copy`` and ``memory_read`` (``bytes_per_s``), ``matmul_float32`` and
        ``matmul_bfloat16`` (``flops_per_s``), each with best, median, spread, repeats, threads and
        method, or None with the reason under ``missing``; ``gpus`` likewise; ``blas``.

    Raises
    ------
    EnginebookError
        When a measuring process fails.
    """
    threads = max(1, int(limits.effective_cores()))
    begun = time.monotonic()
    argv = [sys.executable, "-m", "enginebook.lifecycle.ceiling_kernels"]
    result = _run(argv, seconds, threads, dict(os.environ))
    result |= {"matmul_bfloat16": None, "gpus": [], "missing": {}}
    if torch_python is None:
        _explain_missing(result["missing"])
    else:
        _add_torch(result, torch_python, seconds, threads)
    return result | {"seconds": time.monotonic() - begun}


def _explain_missing(missing: dict[str, str]) -> None:
    missing["matmul_bfloat16"] = "numpy has no bfloat16; it takes an engine's PyTorch"
    view = gpu.look()
    missing["gpus"] = view.reason or "it takes an engine's PyTorch to measure a GPU"


def _add_torch(result: dict[str, Any], python: Path, seconds: float, threads: int) -> None:
    """Add what PyTorch reaches; in float32 the better of the two libraries is the ceiling."""
    script = Path(__file__).with_name("torch_kernels.py")
    found = _run([str(python), "-I", str(script)], seconds / 2, threads, environ.inherited())
    result["matmul_bfloat16"] = found["cpu"]["matmul_bfloat16"]
    both = (result["matmul_float32"], found["cpu"]["matmul_float32"])
    result["matmul_float32"] = max(both, key=lambda m: float(m["flops_per_s"]))
    result["gpus"] = found["gpus"]
    if not found["gpus"]:
        result["missing"]["gpus"] = gpu.look().reason or "this PyTorch sees no GPU"


def _run(argv: list[str], seconds: float, threads: int, env: dict[str, str]) -> dict[str, Any]:
    env = {**env, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    done = subprocess.run(
        [*argv, str(seconds), str(threads)],
        capture_output=True,
        text=True,
        env=env,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise EnginebookError(
            f"measuring the host's ceilings with {argv[0]} failed: {done.stderr.strip()[-600:]}",
            "free some memory (it takes 0.5 GiB a core), or install that environment again",
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))
