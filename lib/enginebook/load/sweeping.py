"""The same load at several points: one run after another, each with prompts of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from enginebook.load.records import Records
from enginebook.load.run import OnProgress, run_load
from enginebook.load.target import Target
from enginebook.load.workload import Workload


def sweep(
    target: Target,
    workload: Workload,
    field: str,
    values: Sequence[Any],
    *,
    directory: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[tuple[Any, Records]]:
    """Yield (value, records) for each value of one field of a workload, in order.

    All points are checked before the first is run. Seeds differ, so that no point finds the prompts
    of another in a prefix cache.

    Parameters
    ----------
    field
        Name of a field of ``Workload``, such as ``concurrency`` or ``rate``.
    directory
        Each point's records go into a folder ``<field>-<value>`` in it.
    """
    points = [
        (value, workload.but(**{field: value, "seed": workload.seed * 1000 + number}))
        for number, value in enumerate(values)
    ]
    for value, point in points:
        folder = directory / f"{field}-{value}" if directory is not None else None
        yield value, run_load(target, point, folder, on_progress)
