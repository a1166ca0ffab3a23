"""What an engine holds in memory at three moments: ready, at the peak under load, and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.engines.base import MemoryPart
from enginebook.lifecycle import gpu_context
from enginebook.pipeline.book import Book
from enginebook.store import read_json
from enginebook.study import EngineSpec

SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "component": pl.String,
    "bytes": pl.Int64,
    "source": pl.String,
    "state": pl.String,
}

Part = Mapping[str, Any]


def memory_frame(book: Book) -> pl.DataFrame:
    """Return one row an engine, state and component; see docs/method.md for what each one is.

    ``ready`` is taken by the launch stage, ``loaded_peak`` from the samples under load in the
    first block, ``drained`` after its last cell.
    """
    rows: list[dict[str, Any]] = []
    for value in book.results("launch", "launch.json").values():
        rows += [{"engine": value["engine"], "state": "ready", **p} for p in value["memory"]]
    for value in book.results("load", "load.json").values():
        if value["block"] == 0 and value.get("memory"):
            engine = book.study.engine(value["engine"])
            found = {"drained": value["memory"]["drained"]}
            found["loaded_peak"] = _peak(value["memory"]["ready"], _cell_folders(book, engine))
            rows += [
                {"engine": engine.name, "state": state, **part}
                for state, parts in found.items()
                for part in parts
            ]
    return pl.DataFrame(rows, schema=SCHEMA)


def context_of(book: Book, env: Mapping[str, str]) -> MemoryPart | None:
    """Return what bare CUDA contexts hold with the engine's libraries, one for each device.

    None for engines that do not compute on NVIDIA GPUs or have no Python of ours. The engine has
    to have ended.
    """
    installed = book.result(book.plan.stage(f"install-{book.engine.name}"), "install.json") or {}
    facts = installed.get("installation") or {}
    if "cuda" not in book.recipe.labels or not facts.get("python"):
        return None
    one = gpu_context.measure(Path(facts["python"]), str(facts["version"]), env)
    devices = int(book.recipe.options.get("tensor_parallel") or 1)  # type: ignore[arg-type]
    if one is None or devices == 1:
        return one
    return replace(one, bytes=one.bytes * devices, source=f"{one.source}, {devices} devices")


def _cell_folders(book: Book, engine: EngineSpec) -> list[Path]:
    return [book.cell_folder(cell, engine) for cell in book.study.cells(engine.name, 0)]


def _peak(ready: Sequence[Part], folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the highest total under load, what that is above ready, and the live KV cache."""
    sizes = {p["component"]: int(p["bytes"]) for p in ready}
    series = [pl.read_parquet(p / "samples.parquet") for p in folders if _sampled(p)]
    on_gpu = any(p["component"] == "total" and "NVML" in str(p.get("source")) for p in ready)
    grown = [g for g in (_grown(s, on_gpu=on_gpu) for s in series) if g is not None]
    rows: list[dict[str, Any]] = []
    if "total" in sizes and grown:
        most = max(0, int(max(grown)))
        source = "highest sample under load, above that before it"
        rows.append({"component": "total", "bytes": sizes["total"] + most, "source": source})
        rows.append({"component": "activations_seen", "bytes": most, "source": source})
    usage = [u for u in map(_kv_usage, series) if u is not None]
    if "kv_cache" in sizes and usage:
        live = int(max(usage) * sizes["kv_cache"])
        rows.append({"component": "kv_live", "bytes": live, "source": "pool x highest usage"})
    return rows


def _sampled(folder: Path) -> bool:
    whole = (folder / "cell.json").is_file() and (folder / "samples.parquet").is_file()
    return whole and read_json(folder / "cell.json")["status"] == "ok"


def _grown(samples: pl.DataFrame, *, on_gpu: bool) -> float | None:
    """Return by how much the engine's memory rose above its first sample, in bytes.

    Where NVML does not tell the memory of single processes, the devices' own use rises by it.
    """
    gpu = pl.col("source").str.starts_with("gpu")
    process = gpu & (pl.col("name") == "engine_memory_bytes")
    device = gpu & (pl.col("name") == "memory_used_bytes") & pl.lit(on_gpu)
    host = (pl.col("source") == "engine") & (pl.col("name") == "rss_bytes")
    for chosen in (process, device, host):
        found = samples.filter(chosen & (pl.col("value") > 0)).sort("t_ns")
        if not found.is_empty():
            rises = found.group_by("source").agg(
                (pl.col("value").max() - pl.col("value").first()).alias("rise")
            )
            return float(rises["rise"].sum())
    return None


def _kv_usage(samples: pl.DataFrame) -> float | None:
    found = samples.filter((pl.col("source") == "server") & (pl.col("name") == "kv_usage"))
    return None if found.is_empty() else float(found["value"].to_numpy().max())
