"""What physics allows on this host, beside every measured cell."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from enginebook.engines.recipes import recipe_for
from enginebook.errors import InputError
from enginebook.lifecycle.models import load_registry
from enginebook.physics import (
    Hardware,
    ModelShape,
    Precision,
    WorkDone,
    audit_cells,
    gguf_precision,
    most_tokens_a_step,
    served_precision,
    with_work,
)
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.frames import loads_frame
from enginebook.store import read_json
from enginebook.study import EngineSpec, ModelSpec, Study

MOST_OTHERS_CPU_SHARE = 0.08
LIMIT_KEYS = ("scenario", "concurrency", "input_tokens", "output_tokens", "metric")
GAP_SCHEMA = {"engine": pl.String, "scenario": pl.String, "reason": pl.String}


@dataclass(frozen=True)
class Audited:
    """The audit of all cells, the limits behind it, and why there is none where there is none.

    Attributes
    ----------
    reason
        Why nothing at all could be audited; empty otherwise.
    gaps
        engine, scenario, reason: what was left out, one row a series and engine.
    """

    audit: pl.DataFrame
    limits: pl.DataFrame
    reason: str = ""
    gaps: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=GAP_SCHEMA))


def audit_study(book: Book, cells: pl.DataFrame) -> Audited:
    """Hold every measured cell against the roofline of the study's host.

    Parameters
    ----------
    cells
        The `cells` frame of the contract in docs/method.md.

    Returns
    -------
    Audited
        Empty frames and a reason where the host was not examined or the model's shape is unknown.
    """
    host = book.result(book.plan.stage("host"), "host.json")
    if host is None:
        return _nothing("the host's ceilings were not measured: run 00_host")
    others = host["ceilings"]["others_cpu_share"]
    if not host.get("gpus") and others > MOST_OTHERS_CPU_SHARE:
        return _nothing(
            f"others used {others:.0%} of the CPU while the ceilings were measured, so that these "
            "are too low to call anything impossible; run 00_host again on a quiet machine"
        )
    try:
        hardware = Hardware.from_host(host)
    except InputError as error:
        return _nothing(error.message)
    usable, gaps = with_work(cells, loads_frame(book.study), _varied(book.study))
    parts, missing = [], []
    for engine in book.study.engines:
        mine = usable.filter(pl.col("engine") == engine.name)
        try:
            parts.append(_audit_engine(book, engine, mine, hardware))
        except InputError as error:
            missing.append(mine.select("engine", "scenario", reason=pl.lit(error.message)).unique())
    gaps = pl.concat([gaps, *missing])
    if not parts:
        reasons = "; ".join(gaps["reason"].unique(maintain_order=True).to_list())
        return replace(_nothing(reasons), gaps=gaps)
    audit = pl.concat(parts)
    return Audited(audit, _limits(audit, hardware), gaps=gaps)


def _audit_engine(
    book: Book, engine: EngineSpec, cells: pl.DataFrame, hardware: Hardware
) -> pl.DataFrame:
    recipe = recipe_for(engine)
    if "simulated" in recipe.labels:
        raise InputError("simulated: it computes nothing that a limit could hold for")
    step = most_tokens_a_step(recipe.options)
    return audit_cells(
        cells,
        _shape(book, engine),
        hardware,
        precision_of(book, engine),
        devices=_devices(engine),
        work=WorkDone(tokens_per_step={engine.name: step}),
    )


def _varied(study: Study) -> set[str]:
    """Return the series whose lengths follow a distribution."""
    cells = [c for block, name in study.block_order() for c in study.cells(name, block)]
    return {c.scenario for c in cells if c.input_lengths or c.output_lengths}


def _nothing(reason: str) -> Audited:
    return Audited(pl.DataFrame(), pl.DataFrame(), reason)


def _config(book: Book, engine: EngineSpec) -> dict[str, Any]:
    stage = book.plan.stage(f"install-{engine.name}")
    value = book.result(stage, "install.json")
    if value is not None:
        config = book.outputs / value["model"]["tokenizer_dir"] / "config.json"
        if config.is_file():
            return dict(read_json(config))
    raise InputError(f"{engine.name} is not installed: run 10_install")


def _shape(book: Book, engine: EngineSpec) -> ModelShape:
    return ModelShape.from_hf(_config(book, engine))


def precision_of(book: Book, engine: EngineSpec) -> Precision:
    """Return the precision an engine serves in: by its options, its GGUF file, or the model."""
    recipe, model = recipe_for(engine), book.study.model_of(engine)
    if recipe.model_format == "gguf":
        return gguf_precision(_gguf_name(model), recipe.options)
    return served_precision(_config(book, engine), recipe.options)


def _gguf_name(model: ModelSpec) -> str:
    """Return a GGUF file's type or name; what we convert without a type is in float32."""
    if model.path is not None or model.hub is not None:
        return str(model.path or model.hub)
    entry = load_registry().models.get(model.name or "")
    if entry is None:
        return "f32"
    if entry.gguf_type is not None:
        return entry.gguf_type
    return entry.member if entry.weights == "as-packaged" else "f32"


def _devices(engine: EngineSpec) -> int:
    return int(recipe_for(engine).options.get("tensor_parallel") or 1)  # type: ignore[arg-type]


def _limits(audit: pl.DataFrame, hardware: Hardware) -> pl.DataFrame:
    """Return each cell's limit over engines, widened by what the ceilings' own spread leaves open.

    A rate's limit is a ceiling, a time's limit a floor; the widening goes away from the observed.
    """
    rate = pl.col("metric").str.ends_with("_per_s")
    slack = hardware.slack
    return (
        audit.group_by(*LIMIT_KEYS, maintain_order=True)
        .agg(pl.col("limit").min().alias("least"), pl.col("limit").max().alias("most"))
        .with_columns(
            low=pl.when(rate).then(pl.col("least")).otherwise(pl.col("least") / (1 + slack)),
            high=pl.when(rate).then(pl.col("most") * (1 + slack)).otherwise(pl.col("most")),
            source=pl.lit(_source(hardware)),
        )
        .drop("least", "most")
    )


def _source(hardware: Hardware) -> str:
    """Return what sets the limit, and beside a datasheet what this host measured."""
    if hardware.measured:
        return f"{hardware.name}, measured here"
    if hardware.here is None:
        return f"{hardware.name}, datasheet"
    return (
        f"{hardware.name}, datasheet ({hardware.bandwidth / 1e12:.2f} TB/s; a copy reached "
        f"{hardware.here.bandwidth / 1e12:.2f} here)"
    )
