"""What physics allows on this host, beside every measured cell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

from enginebook.engines.recipes import recipe_for
from enginebook.errors import InputError
from enginebook.lifecycle.models import load_registry
from enginebook.physics import Hardware, ModelShape, Precision, audit_cells, precision_named
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.frames import loads_frame
from enginebook.store import read_json
from enginebook.study import EngineSpec, ModelSpec

MOST_OTHERS_CPU_SHARE = 0.08
LIMIT_KEYS = ("scenario", "concurrency", "input_tokens", "output_tokens", "metric")
LOAD_KEYS = ["scenario", "concurrency", "input_tokens", "output_tokens"]
PRECISION_OF_DTYPE = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}


@dataclass(frozen=True)
class Audited:
    """The audit of all cells, the limits behind it, and why there is none where there is none."""

    audit: pl.DataFrame
    limits: pl.DataFrame
    reason: str = ""


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
    auditable = cells.join(_plain_loads(book), on=LOAD_KEYS, how="semi")
    try:
        hardware = Hardware.from_host(host)
        parts = [
            audit_cells(
                auditable.filter(pl.col("engine") == e.name),
                _shape(book, e),
                hardware,
                _precision(book, e),
                devices=_devices(e),
            )
            for e in book.study.engines
        ]
    except InputError as error:
        return _nothing(error.message)
    audit = pl.concat(parts)
    return Audited(audit, _limits(audit, hardware))


def _plain_loads(book: Book) -> pl.DataFrame:
    """Return the loads whose work follows from their lengths alone.

    Where prefixes are reused, sessions grow or a grammar ends answers, an engine does less work
    than the lengths say, and a bound on the full work would call a true figure impossible.
    """
    loads = loads_frame(book.study)
    plain = (pl.col("kind") == "closed_loop") & (pl.col("cache") == "cold")
    return loads.filter(plain & (pl.col("answer_format") == "text")).select(LOAD_KEYS)


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


def _precision(book: Book, engine: EngineSpec) -> Precision:
    """Return the precision an engine serves in: by its options, its GGUF file, or the model.

    A GGUF that we converted is in float32; the registry says which came
    quantised, or is quantised here.
    """
    recipe, model = recipe_for(engine), book.study.model_of(engine)
    if recipe.model_format == "gguf":
        return _gguf_precision(model)
    quantisation = recipe.options.get("quantization")
    if quantisation:
        return precision_named(str(quantisation))
    dtype = str(recipe.options.get("dtype") or "auto")
    if dtype == "auto":
        return Precision.from_hf(_config(book, engine))
    return precision_named(PRECISION_OF_DTYPE.get(dtype, dtype))


def _gguf_precision(model: ModelSpec) -> Precision:
    if model.path is not None:
        raise InputError(f"the precision of {model.path} is not known, so no limit can be stated")
    entry = load_registry().models.get(model.name or "")
    if entry is not None and entry.gguf_type is not None:
        return precision_named(f"gguf-{entry.gguf_type}")
    if entry is None or entry.weights != "as-packaged":
        return precision_named("fp32")
    kind = re.search(r"\.(q\d[\w]*)\.gguf$", entry.member.lower())
    if kind is None:
        raise InputError(f"the precision of {entry.member} is not known, so no limit is stated")
    return precision_named(f"gguf-{kind[1]}")


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
            source=pl.lit(hardware.name),
        )
        .drop("least", "most")
    )
