"""Several runs as one study: engines named by their run, frames joined, differences kept in view.

The runs were not interleaved, so what changed between them is part of every difference between
their engines. Engines of different runs are compared only where the runs asked the same: one
model, equal loads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import polars as pl

from enginebook.claims.ranking import margins_of
from enginebook.errors import InputError
from enginebook.report import schema
from enginebook.report.answer import machine_name, model_name
from enginebook.report.data import StudyData
from enginebook.report.labels import ENGINE_COLUMNS, SIMULATED, labels_of
from enginebook.report.outcome import LOAD
from enginebook.report.text import Language, listing, say
from enginebook.stats import comparisons

JOINED = (
    "cells", "points", "launches", "memory", "installs", "loads", "arms", "starts", "swaps",
    "probes", "quantiles", "samples",
)  # fmt: skip
"""Frames that are joined. Claims and simulations stay in each run's own report."""
MARGIN = 0.03
LONGEST = 20
_COMMON = re.compile(
    r"\((?:R|TM|tm)\)|\b(?:NVIDIA|AMD|Intel|Apple|GeForce|Tesla|Processor|CPU|GPU)\b"
    r"|\b\d+-Core\b|@.*$",
)


@dataclass(frozen=True)
class SideBySide:
    """Several runs and what they are together.

    Attributes
    ----------
    runs
        As they were read, in the order given.
    labels
        What tells them apart, one a run.
    data
        All of them as one study, for charts and tables; an engine is called ``engine · label``.
    same_work
        Whether engines of different runs did the same work and may be compared.
    """

    runs: tuple[StudyData, ...]
    labels: tuple[str, ...]
    data: StudyData
    same_work: bool


def side_by_side(folders: Sequence[Path | str], language: Language | None = None) -> SideBySide:
    """Return several finished runs side by side.

    Parameters
    ----------
    folders
        Two or more run folders.
    language
        Of titles and tables; the first run's own when None.

    Raises
    ------
    InputError
        With fewer than two runs, with one given twice, or when one cannot be read.
    """
    if len(folders) < 2:  # noqa: PLR2004
        raise InputError("one run stands beside nothing", "name two runs or more")
    runs = tuple(StudyData.read(folder) for folder in folders)
    names = [run.run_id for run in runs]
    if len(set(names)) < len(names):
        raise InputError(f"a run is named twice among {', '.join(names)}", "name each run once")
    labels = run_labels(runs)
    same = same_work(runs)
    data = _joined(runs, labels, language or runs[0].language, same=same)
    return SideBySide(runs, labels, data, same)


def run_labels(runs: Sequence[StudyData]) -> tuple[str, ...]:
    """Return what tells runs apart, short enough for charts: machine, versions, study, or letters.

    With letters, the table of the runs says which is which.
    """
    candidates: tuple[Callable[[StudyData], str], ...] = (
        lambda run: short_machine(machine_name(run.host)),
        _versions,
        lambda run: str(run.study.get("study", "")),
    )
    for name in candidates:
        found = [name(run) for run in runs]
        if all(0 < len(f) <= LONGEST for f in found) and len(set(found)) == len(found):
            return tuple(found)
    return tuple(ascii_uppercase[i % 26] * (1 + i // 26) for i in range(len(runs)))


def short_machine(name: str) -> str:
    """Return a processor's name without its maker and what all processors are called."""
    return " ".join(_COMMON.sub(" ", name).split())


def _versions(run: StudyData) -> str:
    versions = dict(run.installs.select("engine", "version").drop_nulls().iter_rows())
    return ", ".join(sorted(set(versions.values())))


def same_work(runs: Sequence[StudyData]) -> bool:
    """Return whether all runs served one model and what they call a load is the same everywhere."""
    if len({model_name(run) for run in runs}) > 1:
        return False
    parts = [run.loads.drop("title") for run in runs if not run.loads.is_empty()]
    if not parts:
        return True
    loads = pl.concat(parts).unique()
    return loads.select(LOAD).n_unique() == loads.height


def _joined(
    runs: Sequence[StudyData], labels: Sequence[str], language: Language, *, same: bool
) -> StudyData:
    renamed = [_renamed(run, label) for run, label in zip(runs, labels, strict=True)]
    frames: dict[str, Any] = {
        name: pl.concat([_relabelled(getattr(r, name), names)
                         for r, names in zip(runs, renamed, strict=True)])
        for name in JOINED
    }  # fmt: skip
    frames["loads"] = frames["loads"].unique(list(LOAD), keep="first", maintain_order=True)
    return StudyData(
        host={},
        manifest=_manifest(runs, labels, renamed, language),
        comparisons=_comparisons(runs, renamed, frames, same=same),
        limits=_limits(runs),
        calibration=None,
        greedy=_rows(runs, renamed, "greedy"),
        accuracy=_rows(runs, renamed, "accuracy"),
        failures=_rows(runs, renamed, "failures"),
        **frames,
    )


def _renamed(run: StudyData, label: str) -> dict[str, str]:
    """Return each engine's label in this run with the run's own after it.

    A simulated engine's word is taken off here; the joined study puts it at the end again.
    """
    mark = say("engine.simulated", run.language, engine="")
    return {e: f"{e.removesuffix(mark)} · {label}" for e in run.engines}


def _relabelled(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    columns = [c for c in ENGINE_COLUMNS if c in frame.columns]
    return frame.with_columns(pl.col(c).replace(names) for c in columns)


def _rows(
    runs: Sequence[StudyData], renamed: Sequence[Mapping[str, str]], name: str
) -> tuple[dict[str, Any], ...]:
    return tuple(
        {k: names.get(str(v), v) if k in {"engine", "reference"} else v for k, v in row.items()}
        for run, names in zip(runs, renamed, strict=True)
        for row in getattr(run, name)
    )


def _manifest(
    runs: Sequence[StudyData],
    labels: Sequence[str],
    renamed: Sequence[Mapping[str, str]],
    language: Language,
) -> dict[str, Any]:
    simulated = {
        names[engine]: {"recipe": {"labels": [SIMULATED]}}
        for run, names in zip(runs, renamed, strict=True)
        for engine in labels_of(run.arms, run.manifest, run.language).values()
        if engine in names
    }
    question = say("side.title", language, runs=listing(labels, language))
    engines = [{"name": name} for names in renamed for name in names.values()]
    study: dict[str, Any] = {"question": question, "language": language, "engines": engines}
    study |= {"study": "side by side", "margin": _margin(runs)}
    return {"run": " + ".join(r.run_id for r in runs), "study": study, "engines": simulated}


def _margin(runs: Sequence[StudyData]) -> float:
    """Return the widest margin that a run asks for: what one calls a tie is no difference here."""
    return max(float(run.study.get("margin") or MARGIN) for run in runs)


def _comparisons(
    runs: Sequence[StudyData],
    renamed: Sequence[Mapping[str, str]],
    frames: Mapping[str, pl.DataFrame],
    *,
    same: bool,
) -> pl.DataFrame:
    """Return all pairs of engines, or only each run's own where the runs asked different things."""
    if not same:
        own = zip(runs, renamed, strict=True)
        return pl.concat([_relabelled(run.comparisons, names) for run, names in own])
    if frames["cells"].is_empty():
        return schema.empty("comparisons")
    arms = frames["arms"] if not frames["arms"].is_empty() else None
    loads = frames["loads"] if not frames["loads"].is_empty() else None
    found = comparisons(
        frames["cells"], margin=_margin(runs), noise_floor=_floors(runs), arms=arms, loads=loads
    )
    return schema.conform("comparisons", found, "comparisons of several runs")


def _floors(runs: Sequence[StudyData]) -> dict[str, float]:
    """Return by metric the widest margin that a run was judged by, its host's noise floor in it."""
    found = [margins_of(run.comparisons) for run in runs]
    return {m: max(f.get(m, 0.0) for f in found) for m in {m for f in found for m in f}}


def _limits(runs: Sequence[StudyData]) -> pl.DataFrame:
    """Return what physics allows, if it is the same for all: a band cannot show two machines."""
    texts = {json.dumps(run.limits.to_dicts(), sort_keys=True) for run in runs}
    return runs[0].limits if len(texts) == 1 else schema.empty("limits")
