"""GPU samples by NVML; a host without NVIDIA's library simply has none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from enginebook.engines.visible import own_gpus

Sample = dict[str, float]


class Gpus:
    """The GPUs of the host, or of this stage where stages share a host.

    ``read`` returns one dict a GPU; a value a GPU cannot give is absent. Units: bytes, percent,
    watts, joules since the driver was loaded, MHz, degrees Celsius, and NVML's bit mask of throttle
    reasons.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            import pynvml  # noqa: PLC0415 - a host without a GPU need not load it

            pynvml.nvmlInit()
        except Exception:  # noqa: BLE001 - no library, no driver, no device: no GPU samples
            return
        self._nvml = pynvml
        count = pynvml.nvmlDeviceGetCount()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in own_gpus(count)]

    def __len__(self) -> int:
        return len(self._handles)

    def read(self, pids: set[int]) -> list[Sample]:
        """Return one sample a GPU; ``engine_memory_bytes`` is what the given processes hold."""
        return [self._read_one(handle, pids) for handle in self._handles]

    def _read_one(self, handle: Any, pids: set[int]) -> Sample:
        n = self._nvml
        readers: dict[str, Callable[[], float]] = {
            "memory_used_bytes": lambda: n.nvmlDeviceGetMemoryInfo(handle).used,
            "utilisation_percent": lambda: n.nvmlDeviceGetUtilizationRates(handle).gpu,
            "power_w": lambda: n.nvmlDeviceGetPowerUsage(handle) / 1000.0,
            "energy_j": lambda: n.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0,
            "sm_clock_mhz": lambda: n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
            "temperature_c": lambda: n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
            "throttle_mask": lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "engine_memory_bytes": lambda: self._held(handle, pids),
        }
        sample: Sample = {}
        for name, reader in readers.items():
            with suppress(n.NVMLError, LookupError):
                sample[name] = float(reader())
        return sample

    def _held(self, handle: Any, pids: set[int]) -> float:
        held = [
            p.usedGpuMemory
            for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if p.pid in pids and p.usedGpuMemory is not None
        ]
        if not held:
            raise LookupError  # in a container the pids may be those of another namespace
        return float(sum(held))

    def close(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
