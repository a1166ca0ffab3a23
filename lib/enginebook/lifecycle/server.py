"""A running engine: started under a guard, ready when it answers, gone when the block ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from enginebook.engines.base import Adapter, Command, LaunchPlan, MemoryPart, ModelFiles, Phase
from enginebook.engines.recipes import Recipe, recipe_for
from enginebook.engines.registry import adapter
from enginebook.errors import EngineError
from enginebook.lifecycle import environ, external, gpu, owned, ports
from enginebook.lifecycle.environments import install
from enginebook.lifecycle.installation import Installation
from enginebook.lifecycle.leases import Lease, lease_path, reap_leftovers
from enginebook.lifecycle.logpump import read_log, tail
from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.owned import OwnedProcess, StopReport
from enginebook.lifecycle.readiness import Address, Waiter
from enginebook.lifecycle.usage import pss_bytes
from enginebook.study import EngineSpec, ModelSpec, OptionValue

PORT_CLOSED_TIMEOUT_S = 5.0
GPU_FREE_TIMEOUT_S = 30.0
GPU_FREE_MARGIN_BYTES = 64 << 20
START_ATTEMPTS = 2
Event = Callable[[str], None]


@dataclass
class Server:
    """A server that answers.

    Attributes
    ----------
    base_url, model_id
        Where it listens (without /v1) and under which name the model is served.
    pid
        The engine's first process; None when somebody else runs it.
    command
        Command line and the environment variables set on top, secrets hidden.
    phases
        Parts of start-up, from the engine's log, from readiness and from the first request.
    ready_s, first_token_s
        Seconds from process start until it was ready, and until its first token came; None when
        it was not started here.
    """

    base_url: str
    model_id: str
    version: str
    options: Mapping[str, OptionValue]
    directory: Path
    log: Path
    command: Command = field(default_factory=lambda: Command(()))
    phases: list[Phase] = field(default_factory=list)
    ready_s: float | None = None
    first_token_s: float | None = None
    _adapter: Adapter | None = None
    _process: OwnedProcess | None = None
    _gpu_before: gpu.View | None = None
    _stopped: StopReport | None = None

    @property
    def pid(self) -> int | None:
        """Return the engine's first process."""
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

    def _total(self) -> list[MemoryPart]:
        if self._gpu_before is not None and self._gpu_before.devices:
            return self._total_on_gpu(self._gpu_before)
        seen = pss_bytes(self.processes())
        return [MemoryPart("total", *seen)] if seen else []

    def _total_on_gpu(self, before: gpu.View) -> list[MemoryPart]:
        held = gpu.process_memory_bytes(self.processes())
        if held is not None:
            return [MemoryPart("total", held, "NVML, summed over the engine's processes")]
        grown = gpu.used_bytes(gpu.look()) - gpu.used_bytes(before)
        return [MemoryPart("total", grown, "NVML, memory used on the devices minus before start")]

    def stop(self) -> StopReport:
        """End the engine; returns when no process is left and the port is closed."""
        if self._process is None:
            return StopReport(0.0, 0, "not ours to stop")
        if self._stopped is None:
            self._stopped = _stop(self._process, Address.of(self.base_url).port, self._gpu_before)
        return self._stopped


def _stop(process: OwnedProcess, port: int, before: gpu.View | None) -> StopReport:
    begun = time.monotonic()
    report = process.stop()
    deadline = begun + report.seconds + PORT_CLOSED_TIMEOUT_S
    while not ports.can_bind(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    note = gpu.wait_until_free(before, GPU_FREE_TIMEOUT_S, GPU_FREE_MARGIN_BYTES) if before else ""
    return replace(report, seconds=time.monotonic() - begun, note=note)


@dataclass(frozen=True)
class _Launch:
    """All that is settled before a process is started."""

    engine: EngineSpec
    recipe: Recipe
    adapter: Adapter
    installation: Installation
    model: ModelFiles
    hub: bool
    directory: Path
    timeout_s: float
    keep_warm_s: float
    say: Event

    def plan(self, port: int) -> LaunchPlan:
        python = self.installation.python
        return LaunchPlan(
            python=python if python is not None else Path(self.installation.program or ""),
            model=self.model,
            host=ports.HOST,
            port=port,
            options=self.recipe.options,
            directory=self.directory,
        )


@contextmanager
def serve(
    engine: EngineSpec,
    model: ModelSpec,
    *,
    directory: Path,
    port: int = 0,
    timeout_s: float = 600.0,
    on_event: Event | None = None,
    keep_warm_s: float = 0.0,
) -> Iterator[Server]:
    """Start an engine, yield it when it answers, and end it with the block.

    The engine is installed and the model prepared when they are not there yet.

    Parameters
    ----------
    directory
        Where engine.log and the engine's scratch files go.
    port
        0 chooses a free one.
    timeout_s
        Longest time from process start to the first token.
    on_event
        Called about once a second with what is going on.
    keep_warm_s
        Seconds for which the engine may outlive this process; 0 ends it with its owner.

    Raises
    ------
    InputError
        For a port in use or a host that lacks what the engine requires; nothing was started.
    EngineError
        When the engine dies, hangs or is not the one that answers; its log's end is in the message.
    """
    say = on_event or (lambda _: None)
    if port:
        ports.require_free(port)
    launch = _settle(
        engine, model, directory=directory, timeout_s=timeout_s, keep_warm_s=keep_warm_s, say=say
    )
    if launch.installation.base_url is not None:
        yield _foreign(launch, launch.installation.base_url)
        return
    reap_leftovers(say)
    server = _start(launch, port)
    try:
        yield server
    finally:
        server.stop()


def _settle(
    engine: EngineSpec,
    model: ModelSpec,
    *,
    directory: Path,
    timeout_s: float,
    keep_warm_s: float,
    say: Event,
) -> _Launch:
    recipe = recipe_for(engine)
    directory.mkdir(parents=True, exist_ok=True)
    return _Launch(
        engine=engine,
        recipe=recipe,
        adapter=adapter(recipe.engine),
        installation=install(recipe, on_progress=say),
        model=prepare_model(model, recipe.model_format, on_progress=say),
        hub=model.hub is not None,
        directory=directory.resolve(),
        timeout_s=timeout_s,
        keep_warm_s=keep_warm_s,
        say=say,
    )


def _foreign(launch: _Launch, base_url: str) -> Server:
    launch.say(f"{base_url} is run by somebody else: it is neither started nor stopped here")
    seen = external.look(base_url, launch.model.model_id)
    return Server(
        base_url=base_url,
        model_id=seen.model_id,
        version=seen.version,
        options=launch.recipe.options,
        directory=launch.directory,
        log=launch.directory / "engine.log",
    )


def _start(launch: _Launch, port: int) -> Server:
    """Start the engine; where the free port was lost to somebody else, once more on another."""
    for attempt in range(START_ATTEMPTS):
        chosen = port or ports.free_port()
        try:
            return _start_on(launch, chosen)
        except EngineError as error:
            lost = not port and "holds the port" in error.message
            if not lost or attempt + 1 == START_ATTEMPTS:
                raise
            launch.say(f"port {chosen} was taken meanwhile: trying another")
    raise AssertionError("no attempt")


def _start_on(launch: _Launch, port: int) -> Server:
    before = gpu.look()
    lease = Lease.new(launch.engine.name, launch.model.model_id, port, launch.directory)
    command = launch.adapter.command(launch.plan(port))
    added = environ.additions(
        launch.recipe.env, command.env, {owned.TOKEN: lease.token}, offline=not launch.hub
    )
    process = owned.start(
        command.argv,
        env={**environ.inherited(), **added},
        directory=launch.directory,
        lease=lease_path(lease.token),
        about=lease.about(),
        keep_warm_s=launch.keep_warm_s,
    )
    try:
        shown = Command(environ.masked_argv(command.argv), environ.masked_env(added))
        return _wait(launch, process, shown, port=port, before=before)
    except BaseException:
        process.stop()
        raise


def _wait(
    launch: _Launch,
    process: OwnedProcess,
    command: Command,
    *,
    port: int,
    before: gpu.View,
) -> Server:
    base_url = f"http://{ports.HOST}:{port}"
    waiter = Waiter(
        process,
        Address.of(base_url),
        ready_path=launch.adapter.ready_path,
        model_id=launch.model.model_id,
        timeout_s=launch.timeout_s,
        on_event=launch.say,
    )
    ready = waiter.wait()
    launch.say(f"ready after {ready.ready_s:.1f} s, first token after {ready.first_token_s:.1f} s")
    from_log = launch.adapter.phases(read_log(process.log))
    known_s = min(max((p.end_s for p in from_log), default=0.0), ready.ready_s)
    return Server(
        base_url=base_url,
        model_id=launch.model.model_id,
        version=launch.installation.version,
        options=launch.recipe.options,
        directory=launch.directory,
        log=process.log,
        command=command,
        phases=[
            *from_log,
            Phase("ready", known_s, ready.ready_s, "readiness"),
            Phase("first_token", ready.ready_s, ready.first_token_s, "request"),
        ],
        ready_s=ready.ready_s,
        first_token_s=ready.first_token_s,
        _adapter=launch.adapter,
        _process=process,
        _gpu_before=before,
    )
