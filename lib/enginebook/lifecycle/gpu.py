"""NVIDIA GPUs through NVML: what is there, who uses it, how much memory a process holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from enginebook.engines.visible import own_gpus

T = TypeVar("T")


@dataclass(frozen=True)
class Device:
    """One GPU. Memory in bytes, power in watts, clocks in MHz; None where NVML does not say."""

    index: int
    uuid: str
    name: str
    compute_capability: str | None
    memory_bytes: int
    memory_used_bytes: int
    power_limit_w: float | None
    power_max_w: float | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    memory_clock_max_mhz: int | None
    ecc: bool | None
    mig: bool | None
    pcie_generation: int | None
    pcie_width: int | None
    temperature_c: int | None
    processes: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """All GPUs at one moment, or the reason why none is seen."""

    devices: tuple[Device, ...]
    driver: str | None
    cuda: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the view as JSON."""
        devices = [asdict(d) | {"processes": list(d.processes)} for d in self.devices]
        return asdict(self) | {"devices": devices}


def _or_none(call: Callable[..., T], *arguments: Any) -> T | None:
    import pynvml  # noqa: PLC0415

    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def look() -> View:
    """Return the GPUs of this machine; without driver or library the view says why it is empty."""
    try:
        import pynvml  # noqa: PLC0415

        pynvml.nvmlInit()
    except ImportError:
        return View((), None, None, "the package nvidia-ml-py is not installed")
    except pynvml.NVMLError as error:
        return View((), None, None, f"NVML says: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
        devices = tuple(_device(pynvml, i) for i in own_gpus(count))
        driver = _or_none(pynvml.nvmlSystemGetDriverVersion)
        number = _or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    finally:
        pynvml.nvmlShutdown()
    cuda = f"{number // 1000}.{number % 1000 // 10}" if number else None
    return View(devices, driver, cuda, "" if devices else "NVML sees no device")


def _device(nvml: Any, index: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = _or_none(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    limit = _or_none(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    bounds = _or_none(nvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
    ecc = _or_none(nvml.nvmlDeviceGetEccMode, handle)
    mig = _or_none(nvml.nvmlDeviceGetMigMode, handle)
    return Device(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        compute_capability=".".join(map(str, capability)) if capability else None,
        memory_bytes=memory.total,
        memory_used_bytes=memory.used,
        power_limit_w=limit / 1000 if limit else None,
        power_max_w=bounds[1] / 1000 if bounds else None,
        sm_clock_mhz=_or_none(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        sm_clock_max_mhz=_or_none(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        memory_clock_max_mhz=_or_none(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        ecc=bool(ecc[0]) if ecc else None,
        mig=bool(mig[0]) if mig else None,
        pcie_generation=_or_none(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=_or_none(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        temperature_c=_or_none(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        processes=tuple(sorted(_memory_by_pid(nvml, handle))),
    )


def _memory_by_pid(nvml: Any, handle: Any) -> dict[int, int | None]:
    rows = _or_none(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return {row.pid: row.usedGpuMemory for row in rows}


def process_memory_bytes(pids: Iterable[int]) -> int | None:
    """Return GPU memory held by these processes over all GPUs; None where NVML does not tell.

    In containers and some virtual machines NVML shows foreign pids or no sizes at all.
    """
    wanted = set(pids)
    try:
        import pynvml  # noqa: PLC0415

        pynvml.nvmlInit()
    except (ImportError, pynvml.NVMLError):
        return None
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        found = [
            size
            for handle in handles
            for pid, size in _memory_by_pid(pynvml, handle).items()
            if pid in wanted and size is not None
        ]
    finally:
        pynvml.nvmlShutdown()
    return sum(found) if found else None


def used_bytes(view: View) -> int:
    """Return the memory used on all devices together."""
    return sum(d.memory_used_bytes for d in view.devices)


def wait_until_free(before: View, timeout_s: float, margin_bytes: int) -> str:
    """Wait until no device uses more memory than before; returns "" or who still holds it."""
    if not before.devices:
        return ""
    deadline = time.monotonic() + timeout_s
    while True:
        now = look()
        grown = used_bytes(now) - used_bytes(before)
        if grown <= margin_bytes:
            return ""
        if time.monotonic() > deadline:
            pids = sorted({pid for d in now.devices for pid in d.processes})
            return (
                f"{grown / (1 << 30):.1f} GiB of GPU memory stay taken (pids: {pids or 'unknown'})"
            )
        time.sleep(0.1)
