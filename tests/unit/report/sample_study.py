# ruff: noqa: E501 - tables of invented figures read better on one line
"""A made-up study, written to disk as a run leaves it: invented figures, for tests only.

Nothing here was measured. Two engines with known differences: "llamacpp" is ahead in throughput
under load, "vllm" in the first token of long prompts, and both are close at one stream, so that a
report holds wins, an undecided case and a tie.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from enginebook.report import schema
from enginebook.stats import comparisons, points

ENGINES = ("llamacpp", "vllm")
CONCURRENCY, LENGTHS, BLOCKS = (1, 2, 4, 8), (64, 256, 1024), 5
FULL = ("llamacpp", "vllm", "vllm-equal", "sglang")
RATE_AT_ONE = {"llamacpp": 61.0, "vllm": 60.6, "sglang": 48.0, "vllm-equal": 59.0}
GAIN = {"llamacpp": 0.86, "vllm": 0.68, "sglang": 0.6, "vllm-equal": 0.7}
RUN = "sample-0123456789ab"


def cell_metrics(
    engine: str, load: tuple[int, int, int], rng: np.random.Generator
) -> dict[str, float]:
    streams, inputs, _ = load
    noise = np.exp(rng.normal(0, 0.008, 8))
    rate = RATE_AT_ONE[engine] * streams ** GAIN[engine]
    tpot = 1000 * streams / rate
    per_token = 0.62 if engine == "llamacpp" else 0.44
    ttft = (14 if engine == "llamacpp" else 38) + per_token * inputs * (1 + 0.35 * (streams - 1))
    return {
        "output_tokens_per_s": rate * noise[0],
        "input_tokens_per_s": rate * inputs / 32 * noise[0],
        "requests_per_s": rate / 32 * noise[0],
        "ttft_p50_ms": ttft * noise[1],
        "ttft_p95_ms": ttft * 1.4 * noise[2],
        "tpot_p50_ms": tpot * noise[3],
        "itl_p50_ms": tpot * 0.98 * noise[4],
        "itl_p99_ms": tpot * 2.3 * noise[5],
        "e2e_p50_ms": (ttft + 31 * tpot) * noise[6],
        "e2e_p95_ms": (ttft * 1.4 + 31 * tpot) * noise[6],
        "others_cpu_share": float(abs(rng.normal(0.02, 0.01))),
    }


def loads() -> Iterator[tuple[str, tuple[int, int, int]]]:
    for streams in CONCURRENCY:
        yield "throughput", (streams, 64, 32)
    for length in LENGTHS:
        yield "input_length", (1, length, 4)


def cells(
    engines: tuple[str, ...] = ENGINES, blocks: int = BLOCKS, flagged: bool = True
) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    for block in range(blocks):
        for engine in engines:
            for scenario, load in loads():
                bad = flagged and (engine, block, load[0]) == ("vllm", 1, 4)
                for metric, value in cell_metrics(engine, load, rng).items():
                    rows.append(
                        {
                            "engine": engine, "scenario": scenario, "block": block,
                            "concurrency": load[0], "input_tokens": load[1],
                            "output_tokens": load[2], "metric": metric, "value": value, "n": 16,
                            "gate_ok": not bad, "flags": ["host"] if bad else [],
                            "cell": f"{engine}-{block}-{scenario}-{load[0]}-{load[1]}",
                        }
                    )  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["cells"]))


def launches(engines: tuple[str, ...], blocks: int) -> pl.DataFrame:
    phases = {
        "llamacpp": [("process", 0.05), ("imports", 0.31), ("weights", 0.42), ("ready", 0.1), ("first_token", 0.06)],
        "vllm": [("process", 0.2), ("imports", 9.4), ("weights", 2.2), ("compile", 3.1), ("cache", 0.8), ("ready", 0.6), ("first_token", 0.2)],
        "sglang": [("process", 0.2), ("imports", 11.4), ("weights", 3.2), ("ready", 1.6), ("first_token", 0.3)],
    }  # fmt: skip
    rows = []
    for engine in engines:
        for block in range(-1, blocks):
            at = 0.0
            for phase, seconds in phases[engine.removesuffix("-equal")]:
                long = seconds * (1.0 + 0.03 * block)
                rows.append((engine, block, phase, at, at + long, "log"))
                at += long
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["launches"]), orient="row")


def memory(engines: tuple[str, ...]) -> pl.DataFrame:
    mib = 2**20
    parts = {
        "llamacpp": {"weights": 513, "kv_cache": 180, "activations": 52, "total": 812},
        "vllm": {"weights": 513, "kv_cache": 1024, "activations": 210, "total": 2290},
        "sglang": {"weights": 513, "kv_cache": 900, "total": 2600},
    }
    rows = [
        (
            e,
            name,
            size * mib,
            "PSS of the process tree" if name == "total" else "engine log",
            "ready",
        )
        for e in engines
        for name, size in parts[e.removesuffix("-equal")].items()
    ]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["memory"]), orient="row")


def installs(engines: tuple[str, ...]) -> pl.DataFrame:
    facts = {
        "llamacpp": ("0.3.5", 6.2, 61_000_000, 9, None),
        "vllm": ("0.32.0", 95.0, 1_930_000_000, 141, "2.13.0+cpu"),
        "sglang": ("0.5.23", 120.0, 2_400_000_000, 160, "2.13.0+cpu"),
    }
    rows = [
        (e, v, s, b, p, t, "venv", e == "vllm")
        for e, (v, s, b, p, t) in facts.items()
        if e in engines
    ]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["installs"]), orient="row")


def claims() -> pl.DataFrame:
    rows = [
        ("THR-1", "throughput", "vLLM serves 42 tokens/s at one stream", "42 tokens/s", "physics", "S01", "impossible", "contradicted", None, None, None, None, "more than the memory can read"),
        ("RAT-1", "ratio", "SGLang is 29 % faster than vLLM <b>at low load</b>", "1.29", "ratio", "S01", "possible", "unverifiable", None, None, None, None, "not in this study"),
        ("RAT-2", "ratio", "llama.cpp leads vLLM on a CPU", "> 1", "order", "S01", "possible", "supported", "1.45", 1.40, 1.50, 5, "the interval lies above 1"),
        ("ARC-1", "architecture", "RadixAttention is unique to SGLang", None, "meta", None, "n/a", "contradicted", None, None, None, None, "other engines reuse prefixes too"),
        ("DEP-1", "deployment", "TensorRT-LLM must be compiled first", None, "meta", None, "n/a", "outdated", None, None, None, None, "true of earlier versions"),
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["claims"]), orient="row")


def limits() -> pl.DataFrame:
    rows = [
        ("throughput", c, 64, 32, "output_tokens_per_s", 75.0 * c, 88.0 * c, "memory bandwidth")
        for c in CONCURRENCY
    ]
    rows += [
        ("input_length", 1, n, 4, "ttft_p50_ms", 0.28 * n, 0.33 * n, "arithmetic") for n in LENGTHS
    ]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["limits"]), orient="row")


def quantiles(engines: tuple[str, ...]) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    rows = []
    for place, engine in enumerate(engines):
        for metric, middle in (("ttft_ms", 130 + 60 * place), ("itl_ms", 30 + 9 * place)):
            times = np.sort(middle * np.exp(rng.normal(0, 0.25, 400)))
            rows += [
                (
                    engine,
                    "throughput",
                    8,
                    64,
                    32,
                    metric,
                    q / 100,
                    float(np.quantile(times, q / 100)),
                )
                for q in range(1, 100)
            ]
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["quantiles"]), orient="row")


def samples(engines: tuple[str, ...]) -> pl.DataFrame:
    rows = []
    for place, engine in enumerate(engines):
        for t in np.arange(0, 20, 0.5):
            load = (engine, 0, "throughput", 8, 64, 32)
            rows.append((*load, "running", "", float(t), float(min(8, 2 * t))))
            rows.append((*load, "cpu_share", "%", float(t), 88 + 5 * np.sin(t + place)))
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["samples"]), orient="row")


def manifest(engines: tuple[str, ...], blocks: int, language: str) -> dict[str, Any]:
    question = {
        "en": "Which engine serves SmolLM2-135M better on this CPU, llama.cpp or vLLM?",
        "zh": "在这颗 CPU 上，llama.cpp 和 vLLM 哪个更适合服务 SmolLM2-135M？",
    }[language]
    return {
        "schema": 1,
        "run": RUN,
        "study": {
            "study": "sample", "question": question, "language": language,
            "model": {"name": "smollm2-135m-instruct"},
            "engines": [{"name": e, "recipe": f"{e}-cpu", "options": {}} for e in engines],
            "scenarios": [{"name": "throughput", "concurrency": list(CONCURRENCY), "input_tokens": [64]}],
            "blocks": blocks, "seed": 1, "margin": 0.05, "port": 0,
        },
        "versions": {"python": "3.11.7", "enginebook": "0.1.0", "polars": "2.1.0"},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "changed": False},
        "data": "data",
        "claims": "data",
        "report": {"notebook": "report/notebook.ipynb", "html": f"../../reports/{RUN}.html"},
        "starts_unix": [1796000000.0],
        "outcome": {"exit_status": 0},
    }  # fmt: skip


def host() -> dict[str, Any]:
    return {
        "cpu": {
            "model": "Example CPU (invented)",
            "logical_cores": 2,
            "flags": ["avx2", "avx512f"],
        },
        "memory": {"total_bytes": 25_000_000_000},
        "os": {"name": "Linux", "kernel": "6.1"},
        "gpus": [],
        "gpu_reason": "no driver",
        "ceilings": {"memory_read": {"bytes_per_s": 2.1e10, "threads": 2, "method": "invented"}},
        "calibration": {
            "ok": True,
            "verdict": "exact up to 64 streams on this host (invented)",
            "levels": [
                {
                    "streams": n,
                    "events_per_s": 200.0 * n,
                    "ttft_error_p50_ms": 0.2,
                    "ttft_error_p99_ms": 1.1,
                    "itl_error_p99_ms": 0.6,
                    "cpu_us_per_token": 9.8,
                    "lost": 0,
                }
                for n in (1, 64)
            ],
        },
    }


def load_rows() -> pl.DataFrame:
    """Return the loads of the sample's further scenarios, and those of its sweep."""
    plain = {
        "rate": None, "arrival": "poisson", "prefix_tokens": 0, "prefix_share": 1.0, "turns": 1,
        "think_time_s": 0.0, "answer_format": "text", "schema_name": None, "trace": None,
        "trace_speed": 1.0, "cache": "cold", "search": False,
    }  # fmt: skip
    rows = [
        *[plain | {"scenario": name, "concurrency": streams, "input_tokens": inputs,
                   "output_tokens": outputs, "kind": "closed_loop"}
          for name, (streams, inputs, outputs) in loads()],
        plain | {"scenario": "prefix.p128.h0.5", "concurrency": 2, "kind": "closed_loop",
                 "prefix_tokens": 128, "prefix_share": 0.5, "cache": "warm"},
        plain | {"scenario": "chat", "concurrency": 2, "kind": "sessions", "turns": 10,
                 "think_time_s": 1.5},
        plain | {"scenario": "json.text", "concurrency": 1, "kind": "closed_loop"},
        plain | {"scenario": "json.json_schema.flat", "concurrency": 1, "kind": "closed_loop",
                 "answer_format": "json_schema", "schema_name": "flat"},
        plain | {"scenario": "online.r2", "concurrency": 0, "kind": "open_loop", "rate": 2.0},
        plain | {"scenario": "online.search", "concurrency": 0, "kind": "open_loop", "search": True},
        plain | {"scenario": "replay", "concurrency": 0, "kind": "trace",
                 "trace": "builtin:synthetic-conversation"},
    ]  # fmt: skip
    titled = [
        {"input_tokens": 64, "output_tokens": 32} | r | {"family": str(r["scenario"]).split(".")[0],
             "title": f"The <b>{str(r['scenario']).split('.')[0]}</b> load"}
        for r in rows
    ]  # fmt: skip
    return pl.DataFrame(titled, schema=dict(schema.SCHEMAS["loads"]))


PARTS = {
    "prefix.p128.h0.5": {"cached_share": 0.4, "ttft_p50_ms": 80.0, "output_tokens_per_s": 90.0},
    "chat": {"ttft_turn_first_p50_ms": 90.0, "ttft_turn_last_p50_ms": 40.0, "sessions_per_s": 0.5},
    "json.text": {"valid_json_share": 0.0, "e2e_p50_ms": 700.0},
    "json.json_schema.flat": {"valid_json_share": 1.0, "time_per_valid_answer_ms": 800.0},
    "online.r2": {
        "goodput_per_s.chat": 1.8,
        "slo_share.chat": 0.9,
        "ttft_p95_ms": 400.0,
        "response_ttft_p95_ms": 410.0,
    },
    "online.search": {"capacity_per_s.chat": 2.5},
    "replay": {"ttft_p50_ms": 70.0, "goodput_per_s.chat": 1.1},
}


def part_cells(engines: tuple[str, ...], blocks: int) -> pl.DataFrame:
    """Return figures of the further scenarios; each engine is a little slower than the one before."""
    rows = [
        {
            "engine": engine, "block": block, "scenario": r["scenario"],
            "concurrency": r["concurrency"], "input_tokens": r["input_tokens"],
            "output_tokens": r["output_tokens"], "metric": metric, "value": value * (1 + 0.1 * place + 0.01 * block), "n": 20,
            "gate_ok": True, "flags": [], "cell": f"{engine}-{r['scenario']}-{block}",
        }
        for place, engine in enumerate(engines)
        for block in range(blocks)
        for r in load_rows().iter_rows(named=True)
        for metric, value in PARTS.get(r["scenario"], {"energy_j_per_output_token": 1.2}).items()
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.SCHEMAS["cells"]))


def service(engines: tuple[str, ...]) -> dict[str, pl.DataFrame]:
    """Return starts, swaps, probes, simulations and arms."""
    first = engines[0]
    rows: dict[str, list[dict[str, object]]] = {
        "starts": [
            {"engine": e, "scenario": "s", "arm": arm, "repeat": 0, "phase": phase, "seconds": 2.0,
             "source": "started before on this host"}
            for e in engines for arm in ("warm", "cold_page_cache")
            for phase in ("ready", "first_token")
        ],
        "memory": [
            {**r, "state": state, "bytes": int(r["bytes"] * more)}
            for r in memory(engines).filter(pl.col("component") == "total").iter_rows(named=True)
            for state, more in (("loaded_peak", 1.3), ("drained", 1.1))
        ] + memory(engines).to_dicts(),
        "swaps": [
            {"engine": first, "scenario": "w", "repeat": 0, "to_model": "m", "stop_s": 0.2,
             "ready_s": 1.0, "first_token_s": 1.2, "outage_s": 1.6, "failed": 12, "clients": 4}
        ],
        "probes": [
            {"engine": first, "scenario": "f", "topic": topic, "probe": "<i>--flag</i>",
             "claim": "", "ok": ok, "value": "", "source": "x"}
            for topic, ok in (("feature", True), ("monitoring", False), ("metadata", None))
        ],
        "simulations": [
            {"scenario": "kv", "kind": "kv_simulation", "label": "paged:16", "x": 2048.0,
             "x_name": "max_len", "metric": "utilisation_share", "value": 0.96, "low": None,
             "high": None, "source": "simulated"}
        ],
        "audit": [
            {"engine": e, "block": block, "scenario": "s", "concurrency": streams,
             "input_tokens": 64, "output_tokens": 8, "metric": "output_tokens_per_s",
             "efficiency": 0.1 * streams + 0.01 * block, "mbu": 0.1 * streams, "mfu": None,
             "verdict": "implausible" if streams == 9 and block else "possible"}
            for e in engines for block in (0, 1) for streams in (1, 4, 9)
        ],
        "arms": [
            {"engine": e, "engine_id": e.removesuffix("-equal"), "recipe": e, "model": "m",
             "arm": "equalised" if e.endswith("-equal") else "defaults",
             "version": "1", "simulated": e == "sglang", "options": "{}"}
            for e in engines
        ],
    }  # fmt: skip
    return {n: pl.DataFrame(r, schema=dict(schema.SCHEMAS[n])) for n, r in rows.items()}


def compared(raw: pl.DataFrame, *, parts: bool) -> pl.DataFrame:
    """Return comparisons as a run makes them: within an arm, and none of a simulated engine."""
    if not parts:
        return comparisons(raw, margin=0.05)
    equal = pl.col("engine").str.ends_with("-equal")
    arms = [raw.filter(~equal), raw.filter(equal)]
    return pl.concat([comparisons(a, margin=0.05, simulated_engines=["sglang"]) for a in arms])


def stages(root: Path) -> dict[str, Any]:
    """Write two stages' own records, one of them of an earlier run, and return their places."""
    begun = {"host": 1795000000.0, "install-vllm": 1796000001.0}
    for name, started in begun.items():
        (root / "stages" / name).mkdir(parents=True)
        facts = {"name": name, "seconds": 90.5, "started_unix": started}
        (root / "stages" / name / "stage.json").write_text(json.dumps(facts), encoding="utf-8")
    return {"stages": {name: f"stages/{name}" for name in (*begun, "report")}}


def write(
    root: Path,
    *,
    engines: tuple[str, ...] = ENGINES,
    blocks: int = BLOCKS,
    language: str = "en",
    flagged: bool = True,
    parts: bool = False,
    without: tuple[str, ...] = (),
) -> Path:
    """Write the sample below ``root`` (an outputs folder) and return its run folder."""
    folder = root / "runs" / RUN
    (folder / "data").mkdir(parents=True, exist_ok=True)
    raw = cells(engines, blocks, flagged)
    if parts:
        raw = pl.concat([raw, part_cells(engines, blocks)])
    frames = {
        "cells": raw, "points": points(raw), "comparisons": compared(raw, parts=parts),
        "launches": launches(engines, blocks), "memory": memory(engines),
        "installs": installs(engines), "claims": claims(), "limits": limits(),
        "quantiles": quantiles(engines), "samples": samples(engines),
        **({"loads": load_rows(), **service(engines)} if parts else {}),
    }  # fmt: skip
    for name, frame in frames.items():
        if name not in without:
            frame.write_parquet(folder / "data" / f"{name}.parquet")
    checks = {
        "failures": [{"engine": "vllm", "cell": "throughput c=8", "reason": "timeout\x1b[31m <script>alert(1)</script>"}],
        "missing": [],
        "greedy": [{"engine": "vllm", "reference": "llamacpp", "prompt": "The capital of France is", "equal": True, "first_difference": None}],
        "accuracy": [
            {"engine": "llamacpp", "right": 31, "of": 40, "low": 0.62, "high": 0.877, "reference": None, "same_weights": None, "lost": None, "gained": None, "p": None, "wrong": False},
            {"engine": "vllm", "right": 30, "of": 40, "low": 0.598, "high": 0.858, "reference": "llamacpp", "same_weights": True, "lost": 2, "gained": 1, "p": 0.5, "wrong": False},
        ],
    }  # fmt: skip
    for path, value in (
        (folder / "data" / "checks.json", checks),
        (
            folder / "manifest.json",
            manifest(engines, blocks, language) | (stages(root) if parts else {}),
        ),
        (folder / "host.json", host()),
    ):
        path.write_text(json.dumps(value), encoding="utf-8")
    return folder
