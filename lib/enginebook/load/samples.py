"""Samples beside a load: processors, GPUs and the server's own gauges, on the clock of the stamps.

The sampler is a thread of the calling process. The load runs in processes of its own, so a slow
scrape delays the next sample and no stamp.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from enginebook.load.clock import NS_PER_S, now_ns
from enginebook.load.cputime import Pids, TreeTime, machine_seconds, own_tree
from enginebook.load.gauges import Scraper
from enginebook.load.gpus import Gpus
from enginebook.metrics.sampling import summarise_samples

SAMPLES_FILE = "samples.parquet"
SAMPLE_SCHEMA = pl.Schema(
    {"t_ns": pl.Int64(), "source": pl.String(), "name": pl.String(), "value": pl.Float64()}
)
_SLOW_EVERY = 10  # process trees and server gauges: once in so many samples


class Sampler:
    """Samples while a block runs and leaves samples.parquet.

    Parameters
    ----------
    directory
        Where samples.parquet is written at the end; None keeps them in memory.
    server_pids
        The engine's processes, or a function that returns them; their CPU time is not "others".
    metrics_url
        A Prometheus address of the server, or None.
    interval_s
        Between samples of processors and GPUs; server gauges and process trees are read ten times
        less often.
    client_pids
        Our own processes; None means this one and all that it started.
    """

    def __init__(
        self,
        directory: Path | None = None,
        server_pids: Pids = (),
        metrics_url: str | None = None,
        interval_s: float = 0.1,
        client_pids: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        self._directory = directory
        self._interval_s = interval_s
        self._server = TreeTime(server_pids)
        self._client = TreeTime(client_pids or own_tree)
        self._server_pids = server_pids
        self._scraper = Scraper(metrics_url) if metrics_url else None
        self._rows: list[tuple[int, str, str, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._frame: pl.DataFrame | None = None

    def __enter__(self) -> Self:
        self._gpus = Gpus()
        self._round(slow=True)
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._round(slow=True)
        self._gpus.close()
        self._frame = self.frame()
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._frame.write_parquet(self._directory / SAMPLES_FILE)

    def frame(self) -> pl.DataFrame:
        """Return the samples so far: t_ns, source, name, value."""
        return pl.DataFrame(list(self._rows), schema=SAMPLE_SCHEMA, orient="row")

    def summary(self) -> dict[str, Any]:
        """Return what the samples say; see ``metrics.sampling.summarise_samples``."""
        return summarise_samples(self._frame if self._frame is not None else self.frame())

    def _run(self) -> None:
        number, due_ns = 0, now_ns()
        while not self._stop.is_set():
            number += 1
            due_ns = max(due_ns + int(self._interval_s * NS_PER_S), now_ns())
            if self._stop.wait(max(0.0, (due_ns - now_ns()) / NS_PER_S)):
                return
            self._round(slow=number % _SLOW_EVERY == 0)

    def _round(self, *, slow: bool) -> None:
        if slow:
            self._slow()
        busy_s, total_s = machine_seconds()
        self._add("cpu", {"busy_s": busy_s, "total_s": total_s})
        if len(self._gpus):
            for index, sample in enumerate(self._gpus.read(self._pids())):
                self._add(f"gpu{index}", sample)

    def _slow(self) -> None:
        for name, tree in (("engine", self._server), ("client", self._client)):
            tree.refresh()
            self._add(name, {"cpu_s": tree.seconds(), "rss_bytes": float(tree.rss_bytes)})
        if self._scraper is not None:
            self._add("server", self._scraper.read())

    def _pids(self) -> set[int]:
        pids = self._server_pids() if callable(self._server_pids) else self._server_pids
        return set(pids)

    def _add(self, source: str, values: dict[str, float]) -> None:
        t_ns = now_ns()
        self._rows += [(t_ns, source, name, float(value)) for name, value in values.items()]
