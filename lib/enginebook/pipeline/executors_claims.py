"""A stage takes its own part of a machine that several stages share.

A part is claimed by locks on files, one a GPU, which the kernel drops with their holder: a stage
that dies in any way gives its GPUs back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from enginebook.engines.visible import OWN_GPUS
from enginebook.errors import EngineError
from enginebook.pipeline.executors_topology import Host, Part, divide

WAIT_S = 4 * 3600.0
"""Stages that want several GPUs may have to wait until the free ones lie together."""
FOLDER = ".gpus"


@contextlib.contextmanager
def own_part(outputs: Path, host: Host, gpus: int, wait_s: float = WAIT_S) -> Iterator[Part | None]:
    """Hold GPUs and their CPUs for this process and all that it starts.

    The process's CPU affinity is set, so engines count only their own CPUs and the load generator
    starts only as many processes; memory comes from the same NUMA node by first touch.

    Parameters
    ----------
    gpus
        How many are wanted; 0 takes no part and changes nothing.

    Raises
    ------
    EngineError
        When no part becomes free in time.
    """
    if gpus == 0:
        yield None
        return
    with contextlib.ExitStack() as stack:
        part = _claim(outputs / FOLDER, divide(host, gpus), stack, wait_s)
        with _bound_to(part):
            yield part


def _claim(folder: Path, parts: list[Part], stack: contextlib.ExitStack, wait_s: float) -> Part:
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    while True:
        for part in parts:
            with contextlib.ExitStack() as attempt:
                if all(_lock(folder, index, attempt) for index in part.gpus):
                    stack.enter_context(attempt.pop_all())
                    return part
        if time.monotonic() > deadline:
            raise EngineError(
                f"no GPUs became free within {wait_s:.0f} s; {len(parts)} stages hold them",
                "look for other runs on this machine, or start fewer stages with --jobs",
            )
        time.sleep(0.2)


def _lock(folder: Path, index: int, stack: contextlib.ExitStack) -> bool:
    # By host: an outputs folder on a shared disk serves several machines.
    path = folder / f"{socket.gethostname()}-{index}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    stack.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _bound_to(part: Part) -> Iterator[None]:
    before_cpus = os.sched_getaffinity(0)
    # NVML counts in PCI order, CUDA by speed unless told otherwise.
    added = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, part.gpus)),
        OWN_GPUS: ",".join(map(str, part.gpus)),
    }
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    if part.cpus:
        os.sched_setaffinity(0, part.cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before_cpus)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
