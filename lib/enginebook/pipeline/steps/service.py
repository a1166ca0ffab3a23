"""Time to serve with warm and cold caches (S09), and a model swap as its clients see it (S10)."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.engines.base import Phase
from enginebook.errors import EnginebookError
from enginebook.lifecycle import page_cache
from enginebook.lifecycle.asking import Clients, outage_s
from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.readiness import Address
from enginebook.lifecycle.server import Server, serve
from enginebook.models import ModelSpec
from enginebook.pipeline.book import Book
from enginebook.pipeline.cells import FAILED
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.serving import READY_TIMEOUT_S
from enginebook.scenarios import Starts, Swap

COMPILE_CACHES = (
    "VLLM_CACHE_ROOT",
    "SGLANG_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TVM_FFI_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "CUDA_CACHE_PATH",
    "XDG_CACHE_HOME",
)
"""Variables by which engines and their compilers say where compiled code is kept."""

STEADY_S = 1.0
ANSWER_TIMEOUT_S = 60.0
STARTS_SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "scenario": pl.String,
    "arm": pl.String,
    "repeat": pl.Int64,
    "phase": pl.String,
    "seconds": pl.Float64,
    "source": pl.String,
}
SWAPS_SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "scenario": pl.String,
    "repeat": pl.Int64,
    "to_model": pl.String,
    "stop_s": pl.Float64,
    "ready_s": pl.Float64,
    "first_token_s": pl.Float64,
    "outage_s": pl.Float64,
    "failed": pl.Int64,
    "clients": pl.Int64,
}


def measure_starts(book: Book, scenario: Starts) -> list[dict[str, Any]]:
    """Start and stop the engine once a repeat and arm; return rows of the frame `starts`.

    The arms take turns, so that drift of the machine falls on all of them. One start before them
    all fills the caches that the warm arm is about. A start that fails is a row without seconds.
    """
    progress = Progress(f"{scenario.name}: {book.engine.name}")
    with _served(book, progress):
        pass
    rows: list[dict[str, Any]] = []
    for repeat in range(scenario.repeats):
        for arm in scenario.arms:
            progress.update(label=f"{book.engine.name}: start {repeat + 1}, {arm}")
            rows += [
                {"scenario": scenario.name, "arm": arm, "repeat": repeat, **row}
                for row in _start(book, arm, progress)
            ]
    return rows


def _start(book: Book, arm: str, progress: Progress) -> list[dict[str, Any]]:
    with _prepared(book, arm) as (caches, env):
        try:
            with _served(book, progress, env=env) as server:
                times = phase_times(server.phases, server.ready_s, server.first_token_s)
        except EnginebookError as error:
            why = f"{FAILED}{error.message.splitlines()[0]}"
            return [{"phase": "first_token", "seconds": None, "source": why}]
    return [{"phase": p, "seconds": seconds, "source": caches} for p, seconds in times.items()]


def phase_times(
    phases: Iterable[Phase], ready_s: float | None, first_token_s: float | None
) -> dict[str, float | None]:
    """Return seconds by phase, and from process start to ``ready`` and to ``first_token``.

    What an engine does in several steps (vLLM compiles twice) is added up. The time between the
    last line of the log and readiness is ``warm_up``.
    """
    times: dict[str, float | None] = {}
    for phase in phases:
        name = {"ready": "warm_up", "first_token": None}.get(phase.name, phase.name)
        if name is not None:
            times[name] = (times.get(name) or 0.0) + phase.end_s - phase.start_s
    return times | {"ready": ready_s, "first_token": first_token_s}


@contextlib.contextmanager
def _prepared(book: Book, arm: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Make the caches as the arm wants them; yield what was done, in words, and variables."""
    if arm == "cold_page_cache":
        yield str(page_cache.drop(_files(book))), {}
    elif arm == "cold_compile_cache":
        with tempfile.TemporaryDirectory(
            prefix="enginebook-cold-", ignore_cleanup_errors=True
        ) as empty:
            yield "compile caches in an empty folder", cold_variables(empty, os.environ)
    else:
        yield "started before on this host", {}


def cold_variables(empty: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return variables that put compiled code into an empty folder, and leave the hub's models.

    They are set for the engine alone: our own cache of environments and models also follows
    ``XDG_CACHE_HOME`` and would be made anew.
    """
    cache = Path(inherited.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hub = inherited.get("HF_HOME") or str(cache / "huggingface")
    return {**dict.fromkeys(COMPILE_CACHES, empty), "HF_HOME": hub}


def _files(book: Book) -> list[Path]:
    """Return the files that a start reads: the model's, and all of the engine's environment."""
    model = prepare_model(book.model, book.recipe.model_format).path
    found = [model] if model.is_file() else [p for p in model.rglob("*") if p.is_file()]
    facts = book.result(book.plan.stage(f"install-{book.engine.name}"), "install.json") or {}
    place = (facts.get("installation") or {}).get("directory")
    if place:
        found += [p for p in Path(place).rglob("*") if p.is_file() and not p.is_symlink()]
    return found


@contextlib.contextmanager
def _served(
    book: Book,
    progress: Progress,
    *,
    model: ModelSpec | None = None,
    port: int = 0,
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    with serve(
        book.engine,
        model or book.model,
        directory=book.folder,
        port=port or book.study.port,
        timeout_s=READY_TIMEOUT_S,
        on_event=lambda text: progress.update(label=f"{book.engine.name}: {text}"),
        env=env,
    ) as server:
        yield server


def measure_swap(book: Book, scenario: Swap) -> list[dict[str, Any]]:
    """Swap the model under load once a repeat; return rows of the frame `swaps`.

    The engine is asked to stop, answers what it has begun, and is started with the other model (or
    the same) on the same port. The outage is what clients saw: from the last good answer before to
    the first one after.
    """
    progress = Progress(f"{scenario.name}: {book.engine.name}")
    return [
        {"scenario": scenario.name, "repeat": repeat, **_swap(book, scenario, progress)}
        for repeat in range(scenario.repeats)
    ]


def _swap(book: Book, scenario: Swap, progress: Progress) -> dict[str, Any]:
    target = scenario.to_model or book.model
    with contextlib.ExitStack() as stack:
        with _served(book, progress) as first:
            clients = Clients(Address.of(first.base_url), first.model_id, scenario.clients)
            stack.enter_context(clients.asking())
            time.sleep(STEADY_S)
            begun = time.monotonic()
            stop = first.stop()
        with _served(book, progress, model=target, port=clients.address.port) as second:
            clients.model_id, back = second.model_id, time.monotonic()
            clients.answered_since(back, ANSWER_TIMEOUT_S)
            stack.close()  # the clients end before the engine does
            ready_s, first_token_s = second.ready_s, second.first_token_s
    return {
        "to_model": target.label,
        "stop_s": stop.seconds,
        "ready_s": ready_s,
        "first_token_s": first_token_s,
        "outage_s": outage_s(clients.good, begun, back),
        "failed": sum(t >= begun for t in clients.failed),
        "clients": scenario.clients,
    }


def measure_service(book: Book) -> dict[str, list[dict[str, Any]]]:
    """Measure what the study's `starts` and `swap` scenarios want of the notebook's engine."""
    found: dict[str, list[dict[str, Any]]] = {"starts": [], "swaps": []}
    for scenario in book.study.of_kind("starts", "swap"):
        foreign = book.recipe.environment.kind == "external"  # neither started nor stopped here
        if foreign or not scenario.wants(book.engine.name):
            continue
        if isinstance(scenario, Starts):
            found["starts"] += measure_starts(book, scenario)
        elif isinstance(scenario, Swap):
            found["swaps"] += measure_swap(book, scenario)
    return found


def service_frames(book: Book) -> dict[str, pl.DataFrame]:
    """Return the frames `starts` and `swaps` of all engines."""
    launches = book.results("launch", "launch.json").values()
    rows = {
        kind: [{"engine": v["engine"], **r} for v in launches for r in v.get(kind) or []]
        for kind in ("starts", "swaps")
    }
    return {
        "starts": pl.DataFrame(rows["starts"], schema=STARTS_SCHEMA),
        "swaps": pl.DataFrame(rows["swaps"], schema=SWAPS_SCHEMA),
    }
