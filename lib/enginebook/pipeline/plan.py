"""A study as a plan of stages, each one notebook whose folder is named by what it depends on.

A stage's digest covers all that can change its result: its notebook, the parameters it uses, the
locks, the host, the instrument's version, and the digests of the stages before it. Equal inputs
therefore meet equal folders: what is there is done, and a changed parameter runs only what
depends on it. Stages that derive (compare, claims, report) also cover the package's source, since
running them again costs seconds; stages that measure do not, since that would cost GPU hours for
a changed comment. What changes a measurement bumps `INSTRUMENT_VERSION`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from enginebook.engines.recipes import recipe_for
from enginebook.paths import engine_recipes_dir, notebooks_dir, params_dir
from enginebook.store import digest_of, read_json
from enginebook.study import Cell, EngineSpec, ModelSpec, Study
from enginebook.study_file import read_yaml

INSTRUMENT_VERSION = 1
"""Raise when a measurement changes its meaning: stored cells are then taken anew."""

NOTEBOOK_OF = {
    "host": "00_host.ipynb",
    "install": "10_install.ipynb",
    "launch": "20_launch.ipynb",
    "load": "30_load.ipynb",
    "compare": "40_compare.ipynb",
    "claims": "50_claims.ipynb",
    "report": "60_report.ipynb",
}
PROMISED = {
    "host": ("host.json",),
    "install": ("install.json",),
    "launch": ("launch.json",),
    "load": ("load.json",),
    "compare": ("data/cells.parquet", "data/points.parquet", "data/comparisons.parquet"),
    "claims": ("data/claims.parquet",),
    "report": ("findings.json",),
}
"""Files that a stage of each kind must leave; a notebook that "succeeds" without them failed."""
EXCLUSIVE = frozenset({"host", "install", "launch", "load"})
"""Kinds that measure this machine, and so run alone on it."""


@dataclass(frozen=True)
class Stage:
    """One notebook run.

    Attributes
    ----------
    name
        Unique in the plan: ``launch-vllm``, ``load-vllm-b0``.
    kind
        Key of `NOTEBOOK_OF`.
    parameters
        What the notebook gets on top of the study's own parameters.
    needs
        Names of the stages whose results it reads.
    folder
        Its place below the outputs folder, ``stages/<name>-<digest>``.
    order
        Position in the running order; drift of the machine cancels in it (A B, B A).
    """

    name: str
    kind: str
    digest: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    order: int = 0

    @property
    def folder(self) -> str:
        """Return the stage's folder, relative to the outputs folder."""
        return f"stages/{self.name}-{self.digest}"

    @property
    def marker(self) -> str:
        """Return the file that says the stage is done, relative to the outputs folder."""
        return f"{self.folder}/stage.json"

    @property
    def exclusive(self) -> bool:
        """Return whether nothing else may run beside it."""
        return self.kind in EXCLUSIVE


@dataclass(frozen=True)
class Plan:
    """All stages of a study on one host, in running order."""

    run_id: str
    study: Mapping[str, Any]
    parameters: Mapping[str, Any]
    host_id: str
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """Return the stage with this name."""
        return next(s for s in self.stages if s.name == name)

    def of_kind(self, kind: str) -> list[Stage]:
        """Return the stages of one kind, in order."""
        return [s for s in self.stages if s.kind == kind]

    def without(self, lost: Collection[str]) -> Plan:
        """Return the plan of what is left when some stages cannot be had.

        Stages that measure and are lost are dropped; those that derive need only what is left,
        and get digests of their own, so that a partial result is never taken for the whole.
        """
        stages: dict[str, Stage] = {}
        for stage in self.stages:
            if stage.name in lost and stage.exclusive:
                continue
            needs = tuple(n for n in stage.needs if n in stages)
            digest = stage.digest
            if not stage.exclusive:
                digest = digest_of([digest, [stages[n].digest for n in needs]])
            stages[stage.name] = replace(stage, needs=needs, digest=digest)
        return replace(self, stages=tuple(stages.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self) | {"stages": [asdict(s) for s in self.stages]}

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read a plan written by `to_json`."""
        value = read_json(path)
        stages = tuple(Stage(**{**s, "needs": tuple(s["needs"])}) for s in value.pop("stages"))
        return cls(**value, stages=stages)


def _sha256(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()


@functools.cache
def source_digest() -> str:
    """Return a digest of the package's own source and templates."""
    package = Path(__file__).resolve().parents[1]
    files = sorted(p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return _sha256(str(p.relative_to(package)).encode() + b"\0" + p.read_bytes() for p in files)


def notebook_digest(kind: str) -> str:
    """Return a digest of a notebook's source cells; outputs and metadata do not count."""
    notebook = read_json(notebooks_dir() / NOTEBOOK_OF[kind])
    return digest_of([[c["cell_type"], "".join(c["source"])] for c in notebook["cells"]])


def recipe_digest(engine: EngineSpec) -> str:
    """Return a digest of an engine's recipe, the files it names, and the study's overrides."""
    folder = engine_recipes_dir()
    recipe = read_yaml(folder / f"{engine.recipe}.yaml")
    named = [folder / str(v) for v in recipe.get("environment", {}).values() if isinstance(v, str)]
    files = [p.read_bytes() for p in named if p.is_file()]
    return digest_of([recipe, _sha256(files), engine.options, engine.environment])


def model_digest(model: ModelSpec) -> str:
    """Return a digest of the model: its registry entry, or the names and sizes of its files."""
    identity: Any = model.model_dump()
    if model.name is not None:
        known = read_yaml(params_dir() / "models.yaml")
        identity = [identity, known.get("models", known).get(model.name)]
    elif model.path is not None:
        identity = [identity, _file_sizes(Path(model.path))]
    return digest_of(identity)


def _file_sizes(path: Path) -> list[list[Any]]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[p.name, p.stat().st_size] for p in files if p.is_file()]


def cell_digest(cell: Cell, engine: EngineSpec, model: ModelSpec, host_id: str) -> str:
    """Return what identifies one measured load cell, whichever study asks for it.

    The engine's label counts: in an A/A study the same engine runs under two labels, and each
    must be measured on its own.
    """
    return digest_of(
        [
            INSTRUMENT_VERSION,
            engine.name,
            cell.identity(),
            recipe_digest(engine),
            model_digest(model),
            host_id,
        ]
    )


class _Planner:
    """Builds stages one after the other, so that each may cover the digests before it."""

    def __init__(self, study: Study, host_id: str) -> None:
        self.study, self.host_id = study, host_id
        self.stages: dict[str, Stage] = {}

    def add(
        self, kind: str, name: str, *, needs: tuple[str, ...], covers: object, **parameters: Any
    ) -> str:
        measured = INSTRUMENT_VERSION if kind in EXCLUSIVE else source_digest()
        before = {need: self.stages[need].digest for need in needs}
        digest = digest_of([kind, notebook_digest(kind), measured, self.host_id, before, covers])
        order = len(self.stages)
        self.stages[name] = Stage(name, kind, digest, parameters, needs, order)
        return name

    def build(self) -> tuple[Stage, ...]:
        study = self.study
        on_gpu = [e for e in study.engines if "cuda" in recipe_for(e).labels]
        # A GPU's ceilings are measured with the PyTorch of an engine for GPUs, which comes first.
        measured = [self._install(engine) for engine in on_gpu[:1]]
        simulated = all("simulated" in recipe_for(e).labels for e in study.engines) or None
        measured.append(self.add("host", "host", needs=tuple(measured), covers=simulated))
        measured += [self._install(engine) for engine in study.engines if engine not in on_gpu[:1]]
        measured += [self._launch(engine) for engine in study.engines]
        measured += [self._load(block, name) for block, name in study.block_order()]
        everything = study.model_dump()
        compare = self.add("compare", "compare", needs=tuple(measured), covers=everything)
        claims = self.add("claims", "claims", needs=(compare, "host"), covers=everything)
        self.add("report", "report", needs=(*measured, compare, claims), covers=everything)
        return tuple(self.stages.values())

    def _install(self, engine: EngineSpec) -> str:
        covers = [recipe_digest(engine), model_digest(self.study.model_of(engine))]
        covers += self._scenarios(engine, "features", "metadata")
        name = f"install-{engine.name}"
        return self.add("install", name, needs=(), covers=covers, engine=engine.name)

    def _launch(self, engine: EngineSpec) -> str:
        covers = [_identity(engine), self.study.port]
        covers += self._scenarios(engine, "starts", "swap")
        needs = (f"install-{engine.name}",)
        name = f"launch-{engine.name}"
        return self.add("launch", name, needs=needs, covers=covers, engine=engine.name)

    def _load(self, block: int, name: str) -> str:
        engine = self.study.engine(name)
        cells = [c.identity() for c in self.study.cells(name, block)]
        covers = [_identity(engine), cells, self.study.port]
        if block == 0:
            covers += self._scenarios(engine, "monitoring")
        return self.add(
            "load",
            f"load-{name}-b{block}",
            needs=(f"install-{name}",),
            covers=covers,
            engine=name,
            block=block,
        )

    def _scenarios(self, engine: EngineSpec, *kinds: str) -> list[Any]:
        found = self.study.of_kind(*kinds)
        return [s.model_dump(exclude_defaults=True) for s in found if s.wants(engine.name)]


def _identity(engine: EngineSpec) -> dict[str, Any]:
    return engine.model_dump(exclude_defaults=True)


def make_plan(study: Study, parameters: Mapping[str, Any], host_id: str) -> Plan:
    """Return the plan of a study on one host.

    Parameters
    ----------
    study
        The validated study.
    parameters
        The study's flat parameters as its file gives them; every notebook receives them.
    host_id
        Digest of the hardware, from `enginebook.lifecycle.host.host_id`.
    """
    identity = digest_of(
        [
            study.model_dump(),
            [recipe_digest(e) for e in study.engines],
            [model_digest(study.model_of(e)) for e in study.engines],
            host_id,
        ]
    )
    return Plan(
        run_id=f"{study.study}-{identity}",
        study=study.model_dump(),
        parameters=dict(parameters),
        host_id=host_id,
        stages=_Planner(study, host_id).build(),
    )
