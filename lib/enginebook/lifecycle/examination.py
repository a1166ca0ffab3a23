"""Can this machine do the work? Each thing looked at gives a verdict and says what to do."""

from __future__ import annotations

import os
import platform
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psutil
from packaging.version import Version

from enginebook import paths
from enginebook.engines.recipes import Recipe, load_recipe, recipe_names
from enginebook.errors import EnginebookError, InputError
from enginebook.lifecycle import containers, gpu, installers, limits, ports, requirements
from enginebook.lifecycle.environments import installed

Verdict = Literal["ok", "note", "problem"]
HUB = "https://huggingface.co/api/models?limit=1"
INDEX = "https://pypi.org/simple/pip/"
REACH_TIMEOUT_S = 5.0
SMALL_MEMORY_GB = 6.0
SMALL_DISK_GB = 10.0
BUSY_SHARE = 0.1
OLDEST_GLIBC = "2.28"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class RecipeFinding:
    """Whether a recipe can run here, and if not, why."""

    recipe: str
    title: str
    runs: bool
    installed: bool
    reasons: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """All that was looked at."""

    findings: tuple[Finding, ...]
    recipes: tuple[RecipeFinding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the examination as JSON."""
        return asdict(self)


def examine(*, network: bool = True) -> Examination:
    """Look at the machine and at every recipe.

    Parameters
    ----------
    network
        Also try to reach the model hub and the package index (one request each).
    """
    checks: list[Callable[[], Finding]] = [
        _python, _glibc, _cpu, _load, _memory, _disk, _port, _installer, _containers, _gpu,
    ]  # fmt: skip
    if network:
        checks += [_hub, _index]
    return Examination(tuple(check() for check in checks), tuple(_recipes()))


def _python() -> Finding:
    version = platform.python_version()
    if tuple(map(int, version.split(".")[:2])) >= (3, 11):
        return Finding("Python", "ok", version)
    return Finding("Python", "problem", version, "use Python 3.11 or newer")


def _glibc() -> Finding:
    version = requirements.glibc_version()
    if version is None:
        return Finding("glibc", "note", "none: this is not a glibc Linux", "use containers")
    if Version(version) < Version(OLDEST_GLIBC):
        return Finding("glibc", "problem", version, f"wheels of engines need {OLDEST_GLIBC}")
    return Finding("glibc", "ok", version)


def _cpu() -> Finding:
    cores, usable = limits.effective_cores(), limits.usable_cores()
    flags = requirements.cpu_flags()
    known = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    detail = f"{cores:g} cores, {', '.join(known) or 'no vector extensions that matter'}"
    if cores < usable:
        detail += f" (the container's quota; {usable} are seen)"
    if cores < 2:  # noqa: PLR2004 - the engine and the client
        return Finding("CPU", "note", detail, "give it 2 cores: client and engine share one")
    return Finding("CPU", "ok", detail)


def _load() -> Finding:
    share = psutil.cpu_percent(interval=0.5) / 100
    detail = f"{share:.0%} of the CPU is used by others now"
    if share > BUSY_SHARE:
        return Finding("CPU load", "note", detail, "end other work before measuring")
    return Finding("CPU load", "ok", detail)


def _memory() -> Finding:
    free_gb = psutil.virtual_memory().available / requirements.GB
    limit = limits.memory_limit_bytes()
    detail = f"{free_gb:.1f} GB available"
    if limit is not None:
        detail += f", {limit / requirements.GB:.1f} GB allowed by the container"
    room_gb = min(free_gb, limit / requirements.GB) if limit is not None else free_gb
    if room_gb < SMALL_MEMORY_GB:
        remedy = f"PyTorch engines take up to {SMALL_MEMORY_GB:g} GB; llama.cpp does with 1.5 GB"
        return Finding("Memory", "note", detail, remedy)
    return Finding("Memory", "ok", detail)


def _disk() -> Finding:
    place = paths.cache_dir()
    free_gb = shutil.disk_usage(place).free / requirements.GB
    detail = f"{free_gb:.1f} GB free at {place}"
    if free_gb < SMALL_DISK_GB:
        return Finding("Disk", "note", detail, "set ENGINEBOOK_CACHE to a folder on a larger disk")
    return Finding("Disk", "ok", detail)


def _port() -> Finding:
    try:
        port = ports.free_port()
    except InputError as error:
        return Finding("Ports", "problem", error.message, error.remedy)
    return Finding("Ports", "ok", f"servers can listen on {ports.HOST} (tried {port})")


def _installer() -> Finding:
    try:
        names = installers.choose()
    except InputError as error:
        return Finding("Installer", "problem", error.message, error.remedy)
    return Finding("Installer", "ok", " then ".join(names))


def _containers() -> Finding:
    found = [f"{name} ({_runtime(name)})" for name in containers.RUNTIMES]
    there = [text for text in found if "(not installed)" not in text]
    if any("(works" in text for text in there):
        return Finding("Containers", "ok", ", ".join(there))
    detail = ", ".join(there) or "no docker, podman or apptainer"
    return Finding("Containers", "note", detail, "only needed for engines run from an image")


def _runtime(name: str) -> str:
    if shutil.which(name) is None:
        return "not installed"
    return "works" if containers.works(name) else "installed, but its service does not answer"


def _gpu() -> Finding:
    view = gpu.look()
    if not view.devices:
        return Finding("GPU", "note", f"none ({view.reason})", "CPU recipes run without one")
    names = ", ".join(f"{d.name} {d.memory_bytes / requirements.GIB:.0f} GiB" for d in view.devices)
    detail = f"{names}; driver {view.driver}, CUDA {view.cuda}"
    busy = {pid for d in view.devices for pid in d.processes}
    used = gpu.used_bytes(view) / requirements.GIB
    if busy or used > 1:
        who = f"pids {sorted(busy)}" if busy else "processes that NVML does not show"
        remedy = "end them before measuring"
        return Finding("GPU", "note", f"{detail}; {used:.1f} GiB in use by {who}", remedy)
    return Finding("GPU", "ok", detail)


def _reach(subject: str, url: str, remedy: str) -> Finding:
    host = url.split("/")[2]
    request = urllib.request.Request(url, headers={"User-Agent": "enginebook-doctor"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=REACH_TIMEOUT_S) as answer:  # noqa: S310
            return Finding(subject, "ok", f"{host} answers (HTTP {answer.status})")
    except OSError as error:
        return Finding(subject, "note", f"{host} cannot be reached: {error}", remedy)


def _hub() -> Finding:
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return Finding("Model hub", "note", "switched off by HF_HUB_OFFLINE=1", "local models only")
    remedy = "name a packaged model or a local folder instead of a hub id"
    return _reach("Model hub", HUB, remedy)


def _index() -> Finding:
    remedy = "an own mirror in pip's or uv's settings will do, or install from a bundle"
    return _reach("Package index", INDEX, remedy)


def _recipes() -> list[RecipeFinding]:
    found = []
    for name in recipe_names():
        try:
            found.append(_recipe(load_recipe(name)))
        except EnginebookError as error:
            trouble = {"reasons": (error.message,), "remedies": (error.remedy,)}
            found.append(RecipeFinding(name, name, runs=False, installed=False, **trouble))
    return found


def _recipe(recipe: Recipe) -> RecipeFinding:
    python = getattr(recipe.environment, "python", None)
    specifier = python if recipe.environment.kind in {"venv", "index"} else None
    against = requirements.obstacles(recipe.environment.requires, python=specifier)
    there = False
    try:
        there = installed(recipe) is not None
    except InputError as error:
        against.append(requirements.Obstacle(error.message, error.remedy))
    return RecipeFinding(
        recipe=recipe.name,
        title=recipe.title,
        runs=not against,
        installed=there,
        reasons=tuple(o.what for o in against),
        remedies=tuple(dict.fromkeys(o.remedy for o in against)),
    )
