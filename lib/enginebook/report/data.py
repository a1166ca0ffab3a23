"""All that a report is made of, read once: a study's frames, host, manifest and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from enginebook.errors import InputError
from enginebook.paths import inside
from enginebook.report import raw, schema
from enginebook.report.labels import labelled, labels_of
from enginebook.report.limits import limits, served_model
from enginebook.report.text import LANGUAGES, Language
from enginebook.store import read_json

Json = Mapping[str, Any]


class Book(Protocol):
    """What a notebook holds: its plan and the outputs folder (see `enginebook.pipeline.book`)."""

    @property
    def plan(self) -> Any:
        """Return the plan: ``run_id``, ``stages`` and ``stage(name).folder``."""

    @property
    def study(self) -> Any:
        """Return the study as a pydantic model."""

    @property
    def outputs(self) -> Path:
        """Return the outputs folder."""


@dataclass(frozen=True)
class StudyData:
    """A study's results, ready for charts, tables and findings.

    Attributes
    ----------
    host, manifest
        The JSON objects of the host stage and of the run.
    cells, points, comparisons, launches, memory, installs, claims, limits, quantiles, samples
    loads, arms, starts, swaps, probes, simulations
        Frames with the columns of `enginebook.report.schema.SCHEMAS`; empty where nothing was
        measured.
    calibration
        The load generator's own error on this host, or None when it was not measured.
    no_limits
        Why what physics allows is not stated, where it is not; empty otherwise.
    failures
        What went wrong: objects with ``reason`` and, where known, ``engine`` and ``cell``.
    missing
        Load cells that the study asks for and that were not measured.
    greedy, accuracy
        Whether the engines gave the same text for the same prompts, and how many short questions
        each one answers.
    folder
        The run's folder, for links to the data; None for data made in memory.
    """

    host: Json
    manifest: Json
    cells: pl.DataFrame
    points: pl.DataFrame
    comparisons: pl.DataFrame
    launches: pl.DataFrame = field(default_factory=lambda: schema.empty("launches"))
    memory: pl.DataFrame = field(default_factory=lambda: schema.empty("memory"))
    installs: pl.DataFrame = field(default_factory=lambda: schema.empty("installs"))
    claims: pl.DataFrame = field(default_factory=lambda: schema.empty("claims"))
    limits: pl.DataFrame = field(default_factory=lambda: schema.empty("limits"))
    audit: pl.DataFrame = field(default_factory=lambda: schema.empty("audit"))
    loads: pl.DataFrame = field(default_factory=lambda: schema.empty("loads"))
    arms: pl.DataFrame = field(default_factory=lambda: schema.empty("arms"))
    starts: pl.DataFrame = field(default_factory=lambda: schema.empty("starts"))
    swaps: pl.DataFrame = field(default_factory=lambda: schema.empty("swaps"))
    probes: pl.DataFrame = field(default_factory=lambda: schema.empty("probes"))
    simulations: pl.DataFrame = field(default_factory=lambda: schema.empty("simulations"))
    quantiles: pl.DataFrame = field(default_factory=lambda: schema.empty("quantiles"))
    samples: pl.DataFrame = field(default_factory=lambda: schema.empty("samples"))
    calibration: Json | None = None
    no_limits: str = ""
    failures: tuple[Json, ...] = ()
    missing: tuple[str, ...] = ()
    greedy: tuple[Json, ...] = ()
    accuracy: tuple[Json, ...] = ()
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Call simulated engines so wherever they are named, so that no chart can forget it."""
        labels = labels_of(self.arms, self.manifest, self.language)
        if labels:
            for name, value in labelled(vars(self), labels).items():
                object.__setattr__(self, name, value)

    @property
    def study(self) -> Json:
        """Return the study file's contents as the manifest keeps them."""
        study = self.manifest.get("study")
        return study if isinstance(study, Mapping) else {}

    @property
    def question(self) -> str:
        """Return what the study asks."""
        return str(self.study.get("question") or self.study.get("study") or "Enginebook")

    @property
    def language(self) -> Language:
        """Return the report's language."""
        chosen = self.study.get("language", "en")
        return chosen if chosen in LANGUAGES else "en"

    @property
    def engines(self) -> list[str]:
        """Return engine labels in the study's order, then any others that data hold."""
        labels = labels_of(self.arms, self.manifest, self.language)
        written = [str(e["name"]) for e in self.study.get("engines", []) if isinstance(e, Mapping)]
        named = [labels.get(name, name) for name in written]
        frames = (self.points, self.launches, self.memory, self.installs)
        found = sorted({e for frame in frames for e in frame["engine"].to_list()})
        return [e for e in named if e in found] + [e for e in found if e not in named]

    @property
    def blocks(self) -> int:
        """Return how many blocks were really measured."""
        return int(self.cells["block"].n_unique())

    @property
    def run_id(self) -> str:
        """Return the run's name."""
        return str(self.manifest.get("run", "unnamed"))

    @classmethod
    def read(cls, folder: Path | str) -> StudyData:
        """Read a finished run.

        Parameters
        ----------
        folder
            ``outputs/runs/<id>``: manifest.json names where the frames and the host lie
            (relative to the folder; ``data/`` and ``host.json`` when it names none).

        Raises
        ------
        InputError
            When the folder holds no manifest, or a frame is damaged.
        """
        folder = Path(folder)
        manifest_file = folder / "manifest.json"
        if not manifest_file.is_file():
            raise InputError(
                f"{folder} is no run: it has no manifest.json",
                "give a folder below outputs/runs, or run the study first",
            )
        manifest = _object(manifest_file)
        root = folder.absolute().parent.parent
        host = _object(inside(root, folder, manifest.get("host_file", "host.json")))
        data = inside(root, folder, manifest.get("data", "data"))
        claims = inside(root, folder, manifest.get("claims", "data"))
        return _read(data, claims, host=host, manifest=manifest, folder=folder)

    @classmethod
    def of(cls, book: Book) -> StudyData:
        """Read the results of a notebook's study, from a batch run or from single notebooks."""
        run = book.outputs / "runs" / book.plan.run_id
        manifest: Json = {
            "run": book.plan.run_id,
            "study": book.study.model_dump(),
            "stages": {stage.name: stage.folder for stage in book.plan.stages},
        }
        if (run / "manifest.json").is_file():
            manifest = {**_object(run / "manifest.json"), **manifest}
        place = {
            name: book.outputs / book.plan.stage(name).folder
            for name in ("host", "compare", "claims")
        }
        host = _object(place["host"] / "host.json")
        data, claims = place["compare"] / "data", place["claims"] / "data"
        return _read(data, claims, host=host, manifest=manifest, folder=run)


def _read(data: Path, claims: Path, *, host: Json, manifest: Json, folder: Path) -> StudyData:
    frames = {name: schema.read(name, data / f"{name}.parquet") for name in schema.SCHEMAS}
    frames["claims"] = schema.read("claims", claims / "claims.parquet")
    cells_folder = folder.parent.parent / "cells"
    if frames["quantiles"].is_empty():
        frames["quantiles"] = raw.quantiles(frames["cells"], cells_folder)
    if frames["samples"].is_empty():
        frames["samples"] = raw.samples(frames["cells"], cells_folder)
    checks = _object(data / "checks.json")
    if frames["limits"].is_empty() and not checks.get("no_limits"):
        served = served_model(manifest, host, folder.parent.parent)
        frames["limits"] = limits(frames["points"], served) if served else frames["limits"]
    calibration = host.get("calibration")
    return StudyData(
        host=host,
        manifest=manifest,
        **frames,
        calibration=calibration if isinstance(calibration, Mapping) else None,
        no_limits=str(checks.get("no_limits") or ""),
        failures=tuple(checks.get("failures", ())),
        missing=tuple(checks.get("missing", ())),
        greedy=tuple(checks.get("greedy", ())),
        accuracy=tuple(checks.get("accuracy", ())),
        folder=folder,
    )


def _object(path: Path) -> dict[str, Any]:
    """Return a JSON object; an absent file is an empty one."""
    if not path.is_file():
        return {}
    try:
        value = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {error}", "remove it and run the study again"
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
