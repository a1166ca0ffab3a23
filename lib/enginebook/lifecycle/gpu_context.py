"""What a CUDA context with an engine's libraries holds before any tensor; once for each host.

The part of an engine's GPU memory that is neither weights nor cache nor graphs, and that no engine
reports. Measured by a process of the engine's own PyTorch that makes a context and waits.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from enginebook import paths, store
from enginebook.engines.base import MemoryPart
from enginebook.lifecycle import environ, gpu

KEPT_NAME = "gpu-contexts.json"
START_TIMEOUT_S = 180.0
END_TIMEOUT_S = 10.0
# Makes the context of device 0; what its allocator holds is not the context's.
CODE = """
import sys, torch
torch.cuda.synchronize()
print("reserved", torch.cuda.memory_reserved(), flush=True)
sys.stdin.read()
"""


def measure(python: Path, version: str, env: Mapping[str, str] | None = None) -> MemoryPart | None:
    """Return the bytes of one context, as measured now or before on this host.

    Parameters
    ----------
    python
        Interpreter of an engine's environment.
    version
        The engine's version; another one is measured anew.
    env
        Variables of the engine's server, such as ``CUDA_VISIBLE_DEVICES``.

    Returns
    -------
    MemoryPart or None
        None on hosts without a GPU, and where no context could be made. The devices have to be
        idle where NVML does not tell the memory of single processes.
    """
    before = gpu.look()
    if not before.devices:
        return None
    names = [d.name for d in before.devices]
    key = store.digest_of([before.driver, names, str(python), version])
    path = paths.cache_dir() / KEPT_NAME
    kept = _kept(path)
    if key not in kept:
        found = _measured(python, {**environ.inherited(), **(env or {})}, before)
        if found is None:
            return None
        kept[key] = {"bytes": found.bytes, "source": found.source}
        store.write_json(path, kept)
    return MemoryPart("context", int(kept[key]["bytes"]), str(kept[key]["source"]))


def _kept(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return dict(store.read_json(path))
    return {}


def _measured(python: Path, env: Mapping[str, str], before: gpu.View) -> MemoryPart | None:
    process = subprocess.Popen(
        [str(python), "-c", CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(env),
    )
    try:
        reserved = _reserved(process)
        return None if reserved is None else _held(process.pid, reserved, before)
    finally:
        _end(process)


def _reserved(process: subprocess.Popen[bytes]) -> int | None:
    """Wait until the context is there; return what the allocator holds, or None when it failed."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    words = os.read(process.stdout.fileno(), 100).split() if ready else []
    return int(words[1]) if words[:1] == [b"reserved"] else None


def _held(pid: int, reserved: int, before: gpu.View) -> MemoryPart | None:
    held, source = gpu.process_memory_bytes([pid]), "NVML, a process with a context alone"
    if held is None:
        held = gpu.used_bytes(gpu.look()) - gpu.used_bytes(before)
        source = "NVML, growth of the device by a process with a context alone"
    return MemoryPart("context", held - reserved, source) if held > reserved else None


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
