"""Opening a run by its id or folder: where its frames, host and manifest lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.errors import InputError
from enginebook.paths import default_outputs_dir, inside
from enginebook.store import read_json

FRAMES = (
    "cells", "points", "comparisons", "installs", "launches", "memory", "loads", "arms", "probes",
    "starts", "swaps", "simulations",
)  # fmt: skip


@dataclass(frozen=True)
class OpenRun:
    """What judging needs of a run; frames that a run does not have are absent."""

    folder: Path
    manifest: Mapping[str, Any]
    host: Mapping[str, Any] | None
    frames: Mapping[str, pl.DataFrame]

    @property
    def cells(self) -> pl.DataFrame:
        """Return the cells frame; a run without one cannot be compared."""
        if "cells" not in self.frames:
            raise InputError(
                f"{self.folder} has no cells.parquet",
                "the run has not reached its compare stage: continue it with `enginebook run`",
            )
        return self.frames["cells"]


def open_run(reference: str, outputs: Path | None = None) -> OpenRun:
    """Return a run.

    Parameters
    ----------
    reference
        A run's id, or the folder that holds its manifest.json.
    outputs
        Where runs/ lies; None: outputs/ of the checkout.

    Raises
    ------
    InputError
        When there is no such run.
    """
    folder = Path(reference)
    if not (folder / "manifest.json").is_file():
        folder = (outputs or default_outputs_dir()) / "runs" / reference
    if not (folder / "manifest.json").is_file():
        raise InputError(
            f"no run {reference!r}: neither a folder with manifest.json nor an id below "
            f"{folder.parent}",
            "list the runs with `ls outputs/runs`",
        )
    manifest = read_json(folder / "manifest.json")
    root = folder.absolute().parent.parent
    data = inside(root, folder, manifest.get("data", "data"))
    host_file = inside(root, folder, manifest.get("host_file", "host.json"))
    host = read_json(host_file) if host_file.is_file() else manifest.get("host")
    frames = {
        name: pl.read_parquet(data / f"{name}.parquet")
        for name in FRAMES
        if (data / f"{name}.parquet").is_file()
    }
    return OpenRun(folder, manifest, host, frames)
