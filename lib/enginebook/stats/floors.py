"""A run that holds an engine against itself, read as the noise floor of its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from enginebook.errors import InputError
from enginebook.stats.noise import noise_floor
from enginebook.store import canonical_json, read_json

_AGAIN: Final = "run the A/A study on this host (params/aa_llamacpp.yaml) and name that run"


@dataclass(frozen=True)
class MeasuredFloor:
    """The noise floor that an A/A run measured.

    Attributes
    ----------
    by_metric
        Relative difference below which two engines are not told apart; for
        `comparisons(noise_floor=...)`.
    pairs
        The labels that stand for one and the same engine.
    """

    by_metric: Mapping[str, float]
    run: str
    host_id: str
    pairs: tuple[tuple[str, str], ...]
    blocks: int


def run_folder(reference: str, outputs: Path) -> Path:
    """Return the folder of a run that is named by its id below outputs/runs, or by its folder."""
    for folder in (outputs / "runs" / reference, Path(reference)):
        if (folder / "manifest.json").is_file():
            return folder
    raise InputError(f"noise_floor: no run {reference!r} below {outputs / 'runs'}", _AGAIN)


def noise_floor_of_run(folder: Path, host_id: str | None = None) -> MeasuredFloor:
    """Return the noise floor that an A/A run measured, by metric.

    Parameters
    ----------
    folder
        Of a run, with its manifest.json.
    host_id
        The host that the floor is for; None: whichever the run was taken on.

    Raises
    ------
    InputError
        When the run was taken on another host, did not reach its compare stage, or holds no engine
        twice (same recipe, options, environment and model under two labels).
    """
    manifest = read_json(folder / "manifest.json")
    if host_id is not None and manifest["host_id"] != host_id:
        raise InputError(
            f"noise_floor: {folder.name} was measured on another host ({manifest['host_id']}; "
            f"this one is {host_id})",
            _AGAIN,
        )
    cells = _cells(folder, manifest)
    pairs = same_engines(manifest["study"])
    if not pairs:
        raise InputError(f"noise_floor: {folder.name} holds no engine under two labels", _AGAIN)
    floors = [noise_floor(cells, a, b) for a, b in pairs]
    return MeasuredFloor(
        by_metric={m: max(f.get(m, 0.0) for f in floors) for m in {k for f in floors for k in f}},
        run=str(manifest.get("run", folder.name)),
        host_id=str(manifest["host_id"]),
        pairs=tuple(pairs),
        blocks=cells["block"].n_unique(),
    )


def _cells(folder: Path, manifest: Mapping[str, Any]) -> pl.DataFrame:
    """Return the cells that passed their gate."""
    path = folder / str(manifest.get("data", "data")) / "cells.parquet"
    if not path.is_file():
        raise InputError(
            f"noise_floor: {folder.name} has no cells.parquet",
            "that run has not reached its compare stage: continue it with `enginebook run`",
        )
    return pl.read_parquet(path).filter(pl.col("gate_ok"))


def same_engines(study: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs of labels that stand for one engine: all equal but for the name."""
    groups: dict[str, list[str]] = {}
    for engine in study["engines"]:
        rest = {k: v for k, v in engine.items() if k != "name"}
        groups.setdefault(canonical_json(rest), []).append(str(engine["name"]))
    return [(names[0], other) for names in groups.values() for other in names[1:]]
