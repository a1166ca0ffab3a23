"""A server that answers: what is known of it, what it holds in memory, and its end."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from enginebook import store
from enginebook.engines.base import Adapter, Command, EngineOptions, MemoryPart, Phase
from enginebook.lifecycle import gpu, live_features, ports
from enginebook.lifecycle.live_features import Feature
from enginebook.lifecycle.logpump import read_log, tail
from enginebook.lifecycle.owned import OwnedProcess, StopReport
from enginebook.lifecycle.readiness import Address
from enginebook.lifecycle.usage import pss_bytes

PORT_CLOSED_TIMEOUT_S = 5.0
GPU_FREE_TIMEOUT_S = 30.0
GPU_FREE_MARGIN_BYTES = 64 << 20
FACTS_NAME = "server.json"


@dataclass(frozen=True)
class StartUp:
    """How a server came up.

    Attributes
    ----------
    command
        Command line and the environment variables set on top, secrets hidden.
    phases
        Parts of start-up, from the engine's log, from readiness and from the first request.
    ready_s, first_token_s
        Seconds from process start until it was ready, and until its first token came; None when
        it was not started here.
    """

    command: Command = field(default_factory=lambda: Command(()))
    phases: tuple[Phase, ...] = ()
    ready_s: float | None = None
    first_token_s: float | None = None

    def write(self, directory: Path) -> None:
        """Keep the facts beside the log, for a process that attaches later."""
        command = {"argv": list(self.command.argv), "env": dict(self.command.env)}
        phases = [asdict(p) for p in self.phases]
        times = {"ready_s": self.ready_s, "first_token_s": self.first_token_s}
        store.write_json(directory / FACTS_NAME, {"command": command, "phases": phases, **times})

    @classmethod
    def read(cls, directory: Path) -> StartUp:
        """Return the facts that :meth:`write` kept."""
        kept: dict[str, Any] = store.read_json(directory / FACTS_NAME)
        command = Command(tuple(kept["command"]["argv"]), kept["command"]["env"])
        phases = tuple(Phase(**p) for p in kept["phases"])
        return cls(command, phases, kept["ready_s"], kept["first_token_s"])


@dataclass
class Server:
    """A server that answers.

    Attributes
    ----------
    base_url, model_id
        Where it listens (without /v1) and under which name the model is served.
    version, options
        The engine's version and the options that it was given.
    directory, log
        Its folder and its log.
    start_up
        How it came up.
    attached
        Whether it was started earlier, kept warm, and taken over.
    """

    base_url: str
    model_id: str
    version: str
    options: EngineOptions
    directory: Path
    log: Path
    start_up: StartUp = field(default_factory=StartUp)
    attached: bool = False
    keep_warm: bool = False
    _adapter: Adapter | None = None
    _process: OwnedProcess | None = None
    _gpu_before: gpu.View | None = None
    _stopped: StopReport | None = None

    @property
    def command(self) -> Command:
        """Return the command line and the variables set on top, secrets hidden."""
        return self.start_up.command

    @property
    def phases(self) -> list[Phase]:
        """Return the parts of start-up in order."""
        return list(self.start_up.phases)

    @property
    def ready_s(self) -> float | None:
        """Return seconds from process start until it was ready."""
        return self.start_up.ready_s

    @property
    def first_token_s(self) -> float | None:
        """Return seconds from process start until its first token came."""
        return self.start_up.first_token_s

    @property
    def pid(self) -> int | None:
        """Return the engine's first process; None when somebody else runs it."""
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        """Return whether the engine runs; for a server of somebody else's, whether it answers."""
        if self._process is not None:
            return self._process.alive()
        with suppress(OSError):
            address = Address.of(self.base_url)
            socket.create_connection((address.host, address.port), timeout=5).close()
            return True
        return False

    def processes(self) -> list[int]:
        """Return the pids of the engine's processes."""
        return self._process.pids() if self._process else []

    def log_tail(self, count: int = 20) -> list[str]:
        """Return the last lines of the engine's log."""
        return tail(self.log, count)

    def memory(self) -> list[MemoryPart]:
        """Return what holds memory: the engine's own words, and the total that the system says."""
        if self._process is None or self._adapter is None:
            return []
        parts = self._adapter.memory([line for _, line in read_log(self.log)])
        return [p for p in parts if p.component != "total"] + self._total()

    def settled(self) -> dict[str, Any]:
        """Return the options that the engine settled on, by common names; empty when unknown."""
        if self._adapter is None:
            return {}
        return self._adapter.settled([line for _, line in read_log(self.log)])

    def features(self) -> list[Feature]:
        """Return what it really offers, found out by short requests; see `live_features`."""
        if self._adapter is None or not self.alive():
            return []
        return live_features.look(self.base_url, self.model_id, self._adapter)

    def _total(self) -> list[MemoryPart]:
        now = gpu.look()
        held = gpu.process_memory_bytes(self.processes())
        if held is not None:
            return [MemoryPart("total", held, "NVML, summed over the engine's processes")]
        grown = gpu.used_bytes(now) - gpu.used_bytes(self._gpu_before) if self._gpu_before else 0
        if grown > GPU_FREE_MARGIN_BYTES:
            source = "NVML, memory used on the devices minus before start"
            return [MemoryPart("total", grown, source)]
        seen = pss_bytes(self.processes())
        return [MemoryPart("total", *seen)] if seen else []

    def stop(self) -> StopReport:
        """End the engine; returns when no process is left and the port is closed."""
        if self._process is None:
            return StopReport(0.0, 0, "not ours to stop")
        if self._stopped is None:
            self._stopped = _stop(self._process, Address.of(self.base_url).port, self._gpu_before)
        return self._stopped

    def close(self) -> None:
        """Let go: an engine that is kept warm stays for its time, any other ends."""
        if self.keep_warm and self._process is not None and self._stopped is None:
            self._process.release()
        else:
            self.stop()


def _stop(process: OwnedProcess, port: int, before: gpu.View | None) -> StopReport:
    begun = time.monotonic()
    report = process.stop()
    deadline = time.monotonic() + PORT_CLOSED_TIMEOUT_S
    while not ports.can_bind(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    note = gpu.wait_until_free(before, GPU_FREE_TIMEOUT_S, GPU_FREE_MARGIN_BYTES) if before else ""
    return replace(report, seconds=time.monotonic() - begun, note=note)
