"""Time to serve with warm and cold caches (S09), and a model swap as its clients see it (S10)."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.readiness import Address
from enginebook.lifecycle.server import Server, serve
from enginebook.models import ModelSpec
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.serving import READY_TIMEOUT_S
from enginebook.scenarios import Starts, Swap

COMPILE_CACHES = (
    "VLLM_CACHE_ROOT",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "SGLANG_CACHE_DIR",
    "XDG_CACHE_HOME",
)
"""Variables by which engines and their compilers say where compiled code is kept."""

CLIENT_TIMEOUT_S = 5.0
BEFORE_S, AFTER_S = 1.0, 1.0
PAUSE_S = 0.01
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
    all fills the caches that the warm arm is about.
    """
    progress = Progress(f"{scenario.name}: {book.engine.name}")
    with _served(book, progress):
        pass
    rows: list[dict[str, Any]] = []
    for repeat in range(scenario.repeats):
        for arm in scenario.arms:
            progress.update(label=f"{book.engine.name}: start {repeat + 1}, {arm}")
            rows += [{"scenario": scenario.name, **row} for row in _start(book, arm, repeat)]
    return rows


def _start(book: Book, arm: str, repeat: int) -> list[dict[str, Any]]:
    progress = Progress(f"{arm}: {book.engine.name}")
    with _prepared(book, arm) as note, _served(book, progress) as server:
        times = {"ready": server.ready_s, "first_token": server.first_token_s}
        times |= {p.name: p.end_s - p.start_s for p in server.phases}
    return [
        {"arm": arm, "repeat": repeat, "phase": phase, "seconds": seconds, "source": note}
        for phase, seconds in times.items()
    ]


@contextlib.contextmanager
def _prepared(book: Book, arm: str) -> Iterator[str]:
    """Make the caches as the arm wants them; yield what was done, in words."""
    if arm == "cold_page_cache":
        left = drop_from_page_cache(_files(book))
        yield f"files dropped from the page cache; {left:.0%} of their pages stayed"
    elif arm == "cold_compile_cache":
        with tempfile.TemporaryDirectory(prefix="enginebook-cold-") as empty:
            kept = {name: os.environ.get(name) for name in COMPILE_CACHES}
            os.environ.update(dict.fromkeys(COMPILE_CACHES, empty))
            try:
                yield "compile caches in an empty folder"
            finally:
                _restore(kept)
    else:
        yield "started before on this host"


def _restore(kept: dict[str, str | None]) -> None:
    for name, value in kept.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _files(book: Book) -> list[Path]:
    """Return the files that a start reads: the model's, and the libraries of the environment."""
    model = prepare_model(book.model, book.recipe.model_format).path
    found = [model] if model.is_file() else [p for p in model.rglob("*") if p.is_file()]
    facts = book.result(book.plan.stage(f"install-{book.engine.name}"), "install.json") or {}
    place = (facts.get("installation") or {}).get("directory")
    if place:
        found += [p for p in Path(place).rglob("*.so*") if p.is_file()]
    return found


def drop_from_page_cache(files: Iterable[Path]) -> float:
    """Ask the kernel to forget files' pages; return the share of pages that it kept.

    This needs no root. Pages that a running process has mapped stay.
    """
    kept = pages = 0
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            resident, total = _resident_pages(file.fileno(), path.stat().st_size)
        kept, pages = kept + resident, pages + total
    return kept / pages if pages else 0.0


def _resident_pages(descriptor: int, size: int) -> tuple[int, int]:
    """Return how many of a file's pages are in memory, and how many it has (mincore)."""
    if size == 0:
        return 0, 0
    count = -(-size // mmap.PAGESIZE)
    seen = (ctypes.c_ubyte * count)()
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    failed = libc.mincore(address, size, seen)
    libc.munmap(address, size)
    # where the kernel does not tell, nothing is claimed: all pages count as kept
    return (count if failed else sum(page & 1 for page in seen)), count


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.mincore.argtypes = [pointer, size, pointer]
    return libc


@contextlib.contextmanager
def _served(
    book: Book, progress: Progress, model: ModelSpec | None = None, port: int = 0
) -> Iterator[Server]:
    with serve(
        book.engine,
        model or book.model,
        directory=book.folder,
        port=port or book.study.port,
        timeout_s=READY_TIMEOUT_S,
        on_event=lambda text: progress.update(label=f"{book.engine.name}: {text}"),
    ) as server:
        yield server


@dataclass
class Clients:
    """N clients that ask for one token again and again, whatever happens to the server."""

    address: Address
    model_id: str
    count: int
    good: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Ask while the block runs."""
        threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(2 * CLIENT_TIMEOUT_S)

    def _ask_on(self) -> None:
        while not self._over.is_set():
            answered = one_token(self.address, self.model_id)
            (self.good if answered else self.failed).append(time.monotonic())
            time.sleep(PAUSE_S)

    def outage_s(self, moment: float) -> float | None:
        """Return the time without a good answer around a moment of the monotonic clock."""
        before = [t for t in self.good if t <= moment]
        after = [t for t in self.good if t > moment]
        return min(after) - max(before) if before and after else None


def one_token(address: Address, model_id: str) -> bool:
    """Return whether the server answers a request for one token."""
    body = json.dumps({"model": model_id, "prompt": "a", "max_tokens": 1, "temperature": 0})
    connection = http.client.HTTPConnection(address.host, address.port, timeout=CLIENT_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return response.status == http.client.OK


def measure_swap(book: Book, scenario: Swap) -> list[dict[str, Any]]:
    """Swap the model under load once a repeat; return rows of the frame `swaps`.

    The engine ends, drains what it drains, and starts with the other model (or the same) on the
    same port. The outage is what clients saw: from the last good answer to the next one.
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
            address = Address.of(first.base_url)
            clients = Clients(address, first.model_id, scenario.clients)
            stack.enter_context(clients.asking())
            time.sleep(BEFORE_S)
            moment = time.monotonic()
            stop = first.stop()
        with _served(book, progress, target, address.port) as second:
            clients.model_id = second.model_id
            time.sleep(AFTER_S)
            ready_s, first_token_s = second.ready_s, second.first_token_s
        stack.close()
    failed = [t for t in clients.failed if t >= moment]
    return {
        "to_model": target.label,
        "stop_s": stop.seconds,
        "ready_s": ready_s,
        "first_token_s": first_token_s,
        "outage_s": clients.outage_s(moment),
        "failed": len(failed),
        "clients": scenario.clients,
    }


def measure_service(book: Book) -> dict[str, list[dict[str, Any]]]:
    """Measure what the study's `starts` and `swap` scenarios want of the notebook's engine."""
    found: dict[str, list[dict[str, Any]]] = {"starts": [], "swaps": []}
    for scenario in book.study.of_kind("starts", "swap"):
        if not scenario.wants(book.engine.name):
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
