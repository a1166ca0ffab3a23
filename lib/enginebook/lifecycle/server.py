"""Start an engine under a guard, wait until it answers, and end it with the block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from enginebook import store
from enginebook.engines.base import Adapter, Command, LaunchPlan, ModelFiles, Phase
from enginebook.engines.exposure import EXPOSE, exposed_address
from enginebook.engines.recipes import Recipe, recipe_for
from enginebook.engines.registry import adapter
from enginebook.errors import EngineError
from enginebook.lifecycle import containers, environ, external, gpu, leases, owned, ports
from enginebook.lifecycle.environments import install
from enginebook.lifecycle.fit import require_fit
from enginebook.lifecycle.installation import Installation
from enginebook.lifecycle.logpump import read_log
from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.owned import OwnedProcess, StopReport
from enginebook.lifecycle.readiness import Address, Waiter
from enginebook.lifecycle.running import FACTS_NAME, Server, StartUp
from enginebook.study import EngineSpec, ModelSpec

__all__ = ["Server", "StopReport", "serve"]

START_ATTEMPTS = 2
ANY_PORT = 1  # stands for the port where a command line is digested
Event = Callable[[str], None]


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
    env: Mapping[str, str]
    say: Event

    def command(self, port: int, directory: Path) -> Command:
        python = self.installation.python
        plan = LaunchPlan(
            python=python if python is not None else Path(self.installation.program or ""),
            model=self.model,
            host=ports.HOST,
            port=port,
            options=self.recipe.options,
            directory=directory,
        )
        return self.adapter.command(plan)

    @property
    def on_gpu(self) -> bool:
        """Return whether the engine computes on NVIDIA GPUs."""
        return "cuda" in self.recipe.labels

    def box(self, token: str) -> containers.Box | None:
        """Return the container that the engine runs in, or None when it runs in none."""
        made = self.installation
        if made.image is None:
            return None
        runtime = containers.runtime_named(made.installer)
        return containers.Box.of(
            runtime, made.image, token, gpu=self.on_gpu, model=self.model, work=self.directory
        )

    def additions(self, command: Command) -> dict[str, str]:
        """Return the variables set on top of the inherited environment."""
        return environ.additions(self.recipe.env, command.env, self.env, offline=not self.hub)

    def config(self) -> str:
        """Return a digest of all that decides how the server behaves; port and folder do not."""
        command = self.command(ANY_PORT, Path("/"))
        asked = [list(command.argv), self.additions(command), self.model.sha256]
        return store.digest_of([self.installation.version, *asked])


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
    env: Mapping[str, str] | None = None,
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
        0 ends the engine with the block, and with this process however it ends. Otherwise the
        engine stays for so many seconds after its last owner, ``server.stop()`` ends it, and a
        later call with the same configuration takes it over (as after a kernel's restart).
    env
        Environment variables of the engine's process, over those of recipe and adapter.

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
        engine,
        model,
        directory=directory,
        timeout_s=timeout_s,
        keep_warm_s=keep_warm_s,
        env=env or {},
        say=say,
    )
    if launch.installation.base_url is not None:
        yield _foreign(launch, launch.installation.base_url)
        return
    leases.reap_leftovers(say)
    server = (_take_over(launch) if keep_warm_s else None) or _start(launch, port)
    try:
        yield server
    finally:
        server.close()


def _settle(
    engine: EngineSpec,
    model: ModelSpec,
    *,
    directory: Path,
    timeout_s: float,
    keep_warm_s: float,
    env: Mapping[str, str],
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
        env=env,
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
        log=launch.directory / owned.LOG_NAME,
    )


def _take_over(launch: _Launch) -> Server | None:
    """Return a server of the same configuration that was kept warm, or None."""
    for running in leases.warm(launch.config()):
        directory = Path(running.facts["directory"])
        path = leases.socket_path(running.facts["token"])
        with suppress(OSError, ValueError, KeyError, TypeError):
            process = owned.attach(path, running.facts, directory)
            start_up = StartUp.read(directory)
            launch.say(f"taking over {running.label}, kept warm for this")
            base_url = f"http://{ports.HOST}:{running.facts['port']}"
            return _server(launch, process, base_url, start_up, attached=True)
    return None


def _start(launch: _Launch, port: int) -> Server:
    """Start the engine; where the free port was lost to somebody else, once more on another."""
    leases.end_those_in(launch.directory, launch.say)
    (launch.directory / FACTS_NAME).unlink(missing_ok=True)
    require_fit(
        launch.model,
        launch.recipe.options,
        on_gpu=launch.on_gpu,
        who=launch.recipe.title,
        share=launch.adapter.memory_share,
    )
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
    process, command = _own(launch, port)
    try:
        start_up = _wait(launch, process, command)
        start_up.write(launch.directory)
    except BaseException:
        process.stop()
        raise
    base_url = f"http://{ports.HOST}:{port}"
    return _server(launch, process, base_url, start_up, before=before)


def _own(launch: _Launch, port: int) -> tuple[OwnedProcess, Command]:
    """Start the engine under a guard; returns the command line as it may be shown, too."""
    model_id, warm = launch.model.model_id, launch.keep_warm_s > 0
    config = launch.config() if warm else ""
    lease = leases.Lease.new(launch.engine.name, model_id, port, launch.directory, config=config)
    command = launch.command(port, launch.directory)
    command = Command(command.argv, launch.additions(command))
    box = launch.box(lease.token)
    if box is not None:
        command = box.wrap(command)
    address = exposed_address(command.argv)
    if address is not None:
        warnings.warn(
            f"{launch.recipe.title} listens on {address}: whoever reaches this host can use it "
            f"({EXPOSE} is set)",
            stacklevel=2,
        )
    process = owned.start(
        command.argv,
        env={**environ.inherited(), **command.env, owned.TOKEN: lease.token},
        directory=launch.directory,
        lease=leases.lease_path(lease.token),
        about=lease.about(),
        keep_warm_s=launch.keep_warm_s,
        socket_path=leases.socket_path(lease.token) if warm else None,
        cleanup=box.cleanup() if box is not None else (),
        elsewhere=box.pids if box is not None else None,
    )
    shown = Command(environ.masked_argv(command.argv), environ.masked_env(command.env))
    return process, shown


def _wait(launch: _Launch, process: OwnedProcess, command: Command) -> StartUp:
    """Wait for the first token and return how the engine came there."""
    waiter = Waiter(
        process,
        Address(ports.HOST, int(process.facts["port"])),
        ready_path=launch.adapter.ready_path,
        model_id=launch.model.model_id,
        timeout_s=launch.timeout_s,
        on_event=launch.say,
    )
    ready = waiter.wait()
    launch.say(f"ready after {ready.ready_s:.1f} s, first token after {ready.first_token_s:.1f} s")
    from_log = _until(ready.ready_s, launch.adapter.phases(read_log(process.log)))
    known_s = max((p.end_s for p in from_log), default=0.0)
    return StartUp(
        command=command,
        phases=(
            *from_log,
            Phase("ready", known_s, ready.ready_s, "readiness"),
            Phase("first_token", ready.ready_s, ready.first_token_s, "request"),
        ),
        ready_s=ready.ready_s,
        first_token_s=ready.first_token_s,
    )


def _until(limit_s: float, phases: list[Phase]) -> list[Phase]:
    """Cut phases at a time: a line may be stamped a moment after it was printed."""
    return [
        replace(p, start_s=min(p.start_s, limit_s), end_s=min(p.end_s, limit_s)) for p in phases
    ]


def _server(
    launch: _Launch,
    process: OwnedProcess,
    base_url: str,
    start_up: StartUp,
    *,
    before: gpu.View | None = None,
    attached: bool = False,
) -> Server:
    return Server(
        base_url=base_url,
        model_id=launch.model.model_id,
        version=launch.installation.version,
        options=launch.recipe.options,
        directory=process.directory,
        log=process.log,
        start_up=start_up,
        attached=attached,
        keep_warm=launch.keep_warm_s > 0,
        _adapter=launch.adapter,
        _process=process,
        _gpu_before=before,
    )
