"""Tables of the scenarios beyond throughput and length: one row an engine and load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from enginebook.report.cellname import load_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure, seconds
from enginebook.report.numbers import share as percent
from enginebook.report.outcome import LOAD, Load, outcome
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import known, say
from enginebook.report.wording import capital, metric_name, unit

SHARES = ("_share",)
S_PER_HOUR, MILLION = 3600.0, 1e6


def prefix_reuse(data: StudyData) -> Fragment | NoData:
    """Return what reuse of shared prefixes does to TTFT and throughput."""
    metrics = ["cached_share", "ttft_p50_ms", "ttft_p95_ms", "output_tokens_per_s"]
    return _series(data, "prefix", pl.col("cache") == "warm", metrics)


def conversations(data: StudyData) -> Fragment | NoData:
    """Return the first and the last turn's TTFT, beside what came from the cache."""
    metrics = [
        "ttft_turn_first_p50_ms", "ttft_turn_last_p50_ms", "cached_share", "sessions_per_s",
    ]  # fmt: skip
    return _series(data, "sessions", pl.col("kind") == "sessions", metrics)


def structured(data: StudyData) -> Fragment | NoData:
    """Return how many answers were valid, and what a valid one took."""
    families = data.loads.filter(pl.col("answer_format") != "text")["family"].unique()
    metrics = ["valid_json_share", "time_per_valid_answer_ms", "e2e_p50_ms", "tpot_p50_ms"]
    return _series(data, "structured", pl.col("family").is_in(families.to_list()), metrics)


def online(data: StudyData) -> Fragment | NoData:
    """Return goodput and the share of requests within each objective, by rate."""
    metrics = ["ttft_p95_ms", "tpot_p50_ms", *_objectives(data)]
    return _series(data, "online", pl.col("kind") == "open_loop", metrics)


def trace_replay(data: StudyData) -> Fragment | NoData:
    """Return latency and goodput under replayed traffic."""
    metrics = ["ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", *_objectives(data)]
    return _series(data, "trace", pl.col("kind") == "trace", metrics)


def _objectives(data: StudyData) -> list[str]:
    kinds = ("goodput_per_s.", "slo_share.", "capacity_per_s.")
    return sorted(m for m in data.points["metric"].unique().to_list() if m.startswith(kinds))


def _series(
    data: StudyData, part: str, chosen: pl.Expr, metrics: Sequence[str]
) -> Fragment | NoData:
    """Return one row a load and engine, one column a metric that was measured there."""
    language, caption = data.language, say(f"part.{part}", data.language)
    loads = data.loads.filter(chosen)
    points = data.points.join(loads.select(LOAD), on=list(LOAD), how="semi")
    there = set(points.drop_nulls("value")["metric"].to_list())
    shown = [m for m in metrics if m in there]
    rows: list[Row] = []
    for load in loads.iter_rows(named=True):
        at = Load(*(load[k] for k in LOAD))
        rows += _load_rows(data, at, load_name(data, at), shown)
    if not rows:
        return NoData(caption, say("part.nothing", language))
    columns = [
        Column(say("table.load", language), filtered=True),
        Column(say("table.engine", language), filtered=True),
        *[Column(capital(_name(m, data)), _unit(m, data), numeric=True) for m in shown],
    ]
    return table(columns, rows, caption=caption, interactive=True)


def _load_rows(data: StudyData, load: Load, name: str, metrics: Sequence[str]) -> Iterable[Row]:
    frames = {m: load.rows(data.points, m) for m in metrics}
    winners = {m: _winner(data, load, m) for m in metrics}
    for engine in data.engines:
        found = {m: f.filter(pl.col("engine") == engine) for m, f in frames.items()}
        if all(f.is_empty() for f in found.values()):
            continue
        cells = [_cell(found[m], m, best=winners[m] == engine) for m in metrics]
        yield [name, engine, *cells]


def _winner(data: StudyData, load: Load, metric: str) -> str | None:
    if load.rows(data.comparisons, metric).is_empty():
        return None
    found = outcome(data, load, metric)
    return found.winner if found else None


def _cell(found: pl.DataFrame, metric: str, *, best: bool) -> Value:
    if found.is_empty() or found["value"][0] is None:
        return Value(NONE)
    row = found.row(0, named=True)
    text = percent if _is_share(metric) else figure
    note = ""
    if row["low"] is not None and row["high"] is not None:
        note = f"{text(row['low'])} – {text(row['high'])}"
    return Value(text(row["value"]), sort=float(row["value"]), best=best, note=note)


def _is_share(metric: str) -> bool:
    return metric.split(".", maxsplit=1)[0].endswith(SHARES)


def _name(metric: str, data: StudyData) -> str:
    stem, _, objective = metric.partition(".")
    name = metric_name(stem, data.language)
    return f"{name}: {objective}" if objective else name


def _unit(metric: str, data: StudyData) -> str:
    return unit(metric.split(".", maxsplit=1)[0], data.language)


def starts(data: StudyData) -> Fragment | NoData:
    """Return the time to the first token by the state of caches, one row a start."""
    language, caption = data.language, say("part.starts", data.language)
    frame = data.starts.filter(pl.col("phase").is_in(["ready", "first_token"]))
    if frame.is_empty():
        return NoData(caption, say("part.nothing", language))
    keys = ["engine", "arm", "repeat"]
    wide = frame.pivot("phase", index=[*keys, "source"], values="seconds", aggregate_function="max")
    rows: list[Row] = [
        [
            r["engine"],
            say(f"arm.{r['arm']}", language),
            str(r["repeat"] + 1),
            Value(seconds(r.get("ready")), sort=r.get("ready")),
            Value(seconds(r.get("first_token")), sort=r.get("first_token")),
            r["source"],
        ]
        for r in wide.sort(*keys).iter_rows(named=True)
    ]
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("table.arm", language), filtered=True),
        Column(say("table.repeat", language), numeric=True),
        Column(capital(known("phase.ready", language, "ready")), numeric=True),
        Column(capital(known("phase.first_token", language, "first token")), numeric=True),
        Column(say("table.source", language)),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def swaps(data: StudyData) -> Fragment | NoData:
    """Return how long clients were without an answer while the engine restarted."""
    language, caption = data.language, say("part.swaps", data.language)
    if data.swaps.is_empty():
        return NoData(caption, say("part.nothing", language))
    rows: list[Row] = [
        [
            r["engine"],
            str(r["to_model"]),
            str(r["repeat"] + 1),
            Value(seconds(r["outage_s"]), sort=r["outage_s"]),
            Value(f"{r['failed']:,}", sort=float(r["failed"])),
            f"{r['clients']:,}",
        ]
        for r in data.swaps.sort("engine", "repeat").iter_rows(named=True)
    ]
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.to_model", language)),
        Column(say("table.repeat", language), numeric=True),
        Column(say("table.outage", language), numeric=True),
        Column(say("table.failed_requests", language), numeric=True),
        Column(say("table.streams", language), numeric=True),
    ]
    return table(columns, rows, caption=caption)


def probes(data: StudyData) -> Fragment | NoData:
    """Return what each engine was asked and what it answered."""
    language, caption = data.language, say("part.probes", data.language)
    if data.probes.is_empty():
        return NoData(caption, say("part.nothing", language))
    tones = {True: ("yes", "good"), False: ("no", "bad"), None: ("open", "open")}
    rows: list[Row] = []
    for r in data.probes.iter_rows(named=True):
        word, tone = tones[r["ok"]]
        offered = NONE if r["topic"] == "metadata" else say(f"yesno.{word}", language)
        rows.append(
            [
                r["engine"],
                known(f"probed.{r['topic']}", language, r["topic"]),
                r["probe"],
                Value(offered, tone="" if r["topic"] == "metadata" else tone),
                r["value"] or NONE,
                r["claim"] or NONE,
            ]
        )
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("table.topic", language), filtered=True),
        Column(say("table.probe", language)),
        Column(say("table.offered", language), filtered=True),
        Column(say("table.value", language)),
        Column(say("table.claim", language)),
    ]
    return table(columns, rows, caption=caption, interactive=True, folded=caption)


def simulations(data: StudyData) -> Fragment | NoData:
    """Return simulated and estimated figures; nothing of it was measured."""
    language, caption = data.language, say("part.simulations", data.language)
    if data.simulations.is_empty():
        return NoData(caption, say("part.nothing", language))
    rows: list[Row] = [
        [
            r["scenario"],
            r["label"],
            f"{r['x_name'].replace('_', ' ')} {r['x']:g}",
            metric_name(r["metric"], language),
            Value(percent(r["value"]) if _is_share(r["metric"]) else figure(r["value"])),
            r["source"],
        ]
        for r in data.simulations.iter_rows(named=True)
    ]
    columns = [
        Column(say("table.what", language), filtered=True),
        Column(say("table.load", language), filtered=True),
        Column(say("table.part", language)),
        Column(say("table.metric", language)),
        Column(say("table.value", language), numeric=True),
        Column(say("table.source", language)),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def energy(data: StudyData) -> Fragment | NoData:
    """Return energy per output token and, where the study names a price, cost per million."""
    language, caption = data.language, say("part.energy", data.language)
    price = data.study.get("hourly_price")
    rows: list[Row] = []
    for load in data.loads.filter(pl.col("concurrency") > 0).iter_rows(named=True):
        at = Load(*(load[k] for k in LOAD))
        rates = {r["engine"]: r for r in at.rows(data.points, "output_tokens_per_s").to_dicts()}
        used = {
            r["engine"]: r for r in at.rows(data.points, "energy_j_per_output_token").to_dicts()
        }
        for engine, rate in rates.items():
            joules = (used.get(engine) or {}).get("value")
            cost = price / S_PER_HOUR / rate["value"] * MILLION if price and rate["value"] else None
            if joules is not None or cost is not None:
                name = load_name(data, at)
                rows.append([name, engine, figure(joules), figure(cost)])
    if not rows:
        return NoData(caption, say("part.nothing", language))
    columns = [
        Column(say("table.load", language), filtered=True),
        Column(say("table.engine", language), filtered=True),
        Column(capital(metric_name("energy_j_per_output_token", language)), "J", numeric=True),
        Column(capital(metric_name("cost_per_million", language)), numeric=True),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def arms(data: StudyData) -> Fragment | NoData:
    """Return each engine's arm, model, version and options, as the study set them."""
    language, caption = data.language, say("part.arms", data.language)
    if data.arms.is_empty():
        return NoData(caption, say("part.nothing", language))
    rows: list[Row] = [
        [
            r["engine"],
            known(f"arm.{r['arm']}", language, r["arm"]),
            r["version"],
            r["model"],
            Value(r["options"], code=True),
        ]
        for r in data.arms.iter_rows(named=True)
    ]
    columns = [
        Column(say("table.engine", language)),
        Column(say("part.arms", language)),
        Column(say("table.version", language)),
        Column(say("table.model", language)),
        Column(say("table.options", language)),
    ]
    return table(columns, rows, caption=caption)
