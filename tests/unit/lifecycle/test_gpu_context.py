"""The memory of a bare CUDA context, with a stand-in for PyTorch and for NVML."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginebook.engines.base import MemoryPart
from enginebook.lifecycle import gpu, gpu_context

MIB = 1 << 20
TORCH = """
import os
class cuda:
    @staticmethod
    def synchronize():
        with open(os.environ["COUNT"], "a") as file:
            file.write(f"{os.getpid()} ")
        if os.environ.get("BROKEN"):
            raise RuntimeError("no CUDA")
    @staticmethod
    def memory_reserved():
        return 2 << 20
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "torch.py").write_text(TORCH)
    count = tmp_path / "count"
    count.touch()
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    blank = dict.fromkeys(gpu.Device.__dataclass_fields__)
    device = gpu.Device(**{**blank, "name": "H200", "memory_used_bytes": 0})
    views = [gpu.View((device,), "580", "13.0", "")]
    monkeypatch.setattr(gpu, "look", lambda: views[-1])
    monkeypatch.setattr(gpu, "process_memory_bytes", lambda pids: 500 * MIB)
    env = {"PYTHONPATH": str(tmp_path), "COUNT": str(count)}
    return {"env": env, "count": count, "views": views, "device": device}


def measure(host: dict[str, Any], version: str = "1", **more: str) -> MemoryPart | None:
    return gpu_context.measure(Path(sys.executable), version, {**host["env"], **more})


def started(host: dict[str, Any]) -> list[int]:
    return [int(pid) for pid in host["count"].read_text().split()]


def test_a_context_is_measured_once_for_a_version(host: dict[str, Any]) -> None:
    first = measure(host)
    assert first == MemoryPart("context", 498 * MIB, "NVML, a process with a context alone")
    assert measure(host) == first
    assert len(started(host)) == 1
    measure(host, "2")
    assert len(started(host)) == 2
    for pid in started(host):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_sizes_of_processes_the_device_s_growth_counts(
    host: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(_: object) -> None:
        grown = replace(host["device"], memory_used_bytes=450 * MIB)
        host["views"].append(gpu.View((grown,), "580", "13.0", ""))

    monkeypatch.setattr(gpu, "process_memory_bytes", grow)
    found = measure(host)
    assert found is not None
    assert found.bytes == 448 * MIB
    assert "growth of the device" in found.source


def test_what_cannot_be_measured_is_not_claimed_nor_kept(
    host: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure(host, BROKEN="1") is None
    monkeypatch.setattr(gpu, "process_memory_bytes", lambda pids: 1 * MIB)
    assert measure(host) is None
    assert len(started(host)) == 2
    monkeypatch.setattr(gpu, "look", lambda: gpu.View((), None, None, "no driver"))
    assert measure(host) is None
    assert len(started(host)) == 2
