"""Stage host: what machine this is, its measured ceilings, and the instrument's own error here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from enginebook.engines.recipes import recipe_for
from enginebook.lifecycle.ceilings import measure_ceilings
from enginebook.lifecycle.host import host_facts
from enginebook.load import calibrate
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress

CEILINGS_S = 3.0
CALIBRATION_S = 3.0
CALIBRATION_STREAMS = (1, 64, 256)
SIMULATED_S = 0.5
SIMULATED_STREAMS = (1, 16)
QUIET_CHECK_S = 1.0


def examine_host(book: Book) -> dict[str, Any]:
    """Return and store the host's facts, ceilings and the load generator's calibration.

    ``ceilings.others_cpu_share`` is the share of the machine that other programs used just before
    and after, whichever is more: a ceiling that was measured beside others is too low, and nothing
    may be called impossible by it.
    """
    return dict(book.once("host.json", lambda: _measure(book)))


def _simulated(book: Book) -> bool:
    """Return whether all engines are simulated: then nothing is measured that needs ceilings."""
    return all("simulated" in recipe_for(e).labels for e in book.study.engines)


def torch_python(book: Book) -> Path | None:
    """Return the interpreter whose PyTorch can measure the GPU, or None where there is none."""
    for name in book.stage.needs:
        found = book.result(book.plan.stage(name), "install.json")
        python = found and found["installation"].get("python")
        if python:
            return Path(python)
    return None


def _measure(book: Book) -> dict[str, Any]:
    short = _simulated(book)
    seconds = SIMULATED_S if short else CALIBRATION_S
    streams = SIMULATED_STREAMS if short else CALIBRATION_STREAMS
    progress = Progress("reading the host", 3)
    facts = host_facts()
    progress.update(done=1, label="measuring ceilings")
    before = busy_share()
    ceilings = measure_ceilings(SIMULATED_S if short else CEILINGS_S, torch_python(book))
    others = max(before, busy_share())
    progress.update(done=2, label="calibrating the load generator")
    calibration = calibrate(seconds=seconds, streams=streams)
    progress.update(done=3, label="host examined")
    return facts | {
        "ceilings": ceilings | {"others_cpu_share": others},
        "calibration": dict(calibration),
    }


def busy_share() -> float:
    """Return the share of all cores in use over the next second, while this process sleeps."""
    return psutil.cpu_percent(QUIET_CHECK_S) / 100
