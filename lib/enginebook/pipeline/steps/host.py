"""Stage host: what machine this is, its measured ceilings, and the instrument's own error here."""

from __future__ import annotations

from typing import Any

from enginebook.lifecycle.ceilings import measure_ceilings
from enginebook.lifecycle.host import host_facts
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress


def examine_host(book: Book) -> dict[str, Any]:
    """Return and store the host's facts, ceilings and the load generator's calibration."""
    return dict(book.once("host.json", _measure))


def _measure() -> dict[str, Any]:
    progress = Progress("reading the host", 3)
    facts = host_facts()
    progress.update(done=1, label="measuring ceilings")
    ceilings = measure_ceilings()
    progress.update(done=2, label="calibrating the load generator")
    calibration = _calibration()
    progress.update(done=3, label="host examined")
    return facts | {"ceilings": ceilings, "calibration": calibration}


def _calibration() -> dict[str, Any]:
    from enginebook.load.calibration import calibrate  # noqa: PLC0415 (starts a server of its own)

    return dict(calibrate(seconds=10))
