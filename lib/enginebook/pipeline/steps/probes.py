"""Probes: what an installed engine offers (S19, S20), and what a running one exports (S12)."""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import polars as pl

from enginebook import engines
from enginebook.cells import Cell
from enginebook.engines.base import LaunchPlan, ModelFiles
from enginebook.engines.recipes import Recipe
from enginebook.engines.registry import adapter
from enginebook.inquiry import page
from enginebook.lifecycle import environ
from enginebook.lifecycle.server import Server
from enginebook.load import run_load
from enginebook.metrics import summarise
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.cell import metrics_url, target_of, workload_of
from enginebook.scenarios import Monitoring
from enginebook.study_file import read_yaml

TIMEOUT_S = 300.0
SCRAPE_TIMEOUT_S = 10.0
COUNTERS_AGREE = 0.01
SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "scenario": pl.String,
    "topic": pl.String,
    "probe": pl.String,
    "claim": pl.String,
    "ok": pl.Boolean,
    "value": pl.String,
    "source": pl.String,
}
Probe = dict[str, Any]


@functools.cache
def _known() -> dict[str, list[Probe]]:
    return read_yaml(Path(engines.__file__).with_name("probes.yaml"))


def ask_installed(book: Book, installation: Mapping[str, Any]) -> list[Probe]:
    """Ask the installed engine what the study's ``features`` and ``metadata`` scenarios want.

    It runs in the engine's own Python, starts no server, and ends by itself. An engine without a
    Python of its own (a container, a program, somebody else's server) is not asked, and says so.
    """
    wanted = [s for s in book.study.of_kind("features", "metadata") if s.wants(book.engine.name)]
    if not wanted:
        return []
    python = installation.get("python")
    if python is None:
        return [
            _row(s.name, s.kind, {"probe": "installed packages", "ok": None, "value": ""},
                 f"not asked: an installation of kind {installation['kind']} has no Python of ours")
            for s in wanted
        ]  # fmt: skip
    answers = _answers(book.recipe, str(python))
    rows: list[Probe] = []
    for scenario in wanted:
        chosen = answers[1:] if scenario.kind == "features" else answers[:1]
        topic = "feature" if scenario.kind == "features" else "metadata"
        for answer in chosen:
            rows += _rows(scenario.name, topic, answer)
    return rows


def _rows(scenario: str, topic: str, answer: Probe) -> list[Probe]:
    if topic == "feature":
        topic = str(answer.get("topic", topic))
        return [_row(scenario, topic, answer, "asked in the engine's own Python")]
    return [
        _row(scenario, topic, {"probe": name, "ok": None, "value": _text(value)}, "its metadata")
        for name, value in answer["package"].items()
    ]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _row(scenario: str, topic: str, answer: Probe, source: str) -> Probe:
    kept = {key: answer.get(key) for key in ("probe", "claim", "ok", "value")}
    return {"scenario": scenario, "topic": topic, **kept, "source": source}


def _answers(recipe: Recipe, python: str) -> list[Probe]:
    """Return the package's facts and then one answer a probe."""
    script = Path(engines.__file__).with_name("probe_code.py")
    asked = _known().get(recipe.engine, [])
    distribution = getattr(recipe.environment, "distribution", None)
    name = distribution or getattr(adapter(recipe.engine), "distribution", recipe.engine)
    prelude = adapter(recipe.engine).prelude
    try:
        done = subprocess.run(
            # -P: modules beside the script are named like engines
            [python, "-P", str(script), str(name), *([str(prelude)] if prelude else [])],
            env=_environment(recipe, python),
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [{"package": {}}, *({**a, "ok": None, "value": "no answer in time"} for a in asked)]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    facts: Probe = next((f for f in found if "package" in f), {"package": {}})
    by_name = {f["probe"]: f for f in found if "probe" in f}
    lost = {"ok": None, "value": (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]}
    return [facts, *({**a, **by_name.get(a["probe"], lost)} for a in asked)]


def _environment(recipe: Recipe, python: str) -> dict[str, str]:
    """Return the variables with which the engine's server would run."""
    engine = adapter(recipe.engine)
    here = Path(engines.__file__).parent
    model = ModelFiles("probe", here, engine.model_format, here)
    plan = LaunchPlan(Path(python), model, "127.0.0.1", 1, recipe.options, here)
    added = environ.additions(recipe.env, engine.command(plan).env, offline=True)
    return {**environ.inherited(), **added}


def ask_running(book: Book, server: Server) -> list[Probe]:
    """Ask a running server by short requests what the engine's static table says of it.

    A row whose value begins with ``unlike the table`` says that table and server disagree.
    """
    wanted = [s for s in book.study.of_kind("features") if s.wants(book.engine.name)]
    found = server.features() if wanted else []
    return [
        _row(s.name, "feature", {"probe": f.name.replace("_", " "), "ok": f.ok,
                                 "value": ("unlike the table: " if f.surprising else "") + f.value},
             "short requests to the running server")
        for s in wanted for f in found
    ]  # fmt: skip


def watch_server(book: Book, server: Server) -> list[Probe]:
    """Look at a running server's figures before, under and after load (S12).

    Returns
    -------
    list of dict
        One probe a common figure and moment, one for counters against the client's own count.
    """
    rows: list[Probe] = []
    for scenario in book.study.of_kind("monitoring"):
        if isinstance(scenario, Monitoring) and scenario.wants(book.engine.name):
            rows += _watch(book, server, scenario)
    return rows


def _watch(book: Book, server: Server, scenario: Monitoring) -> list[Probe]:
    url = metrics_url(book, server)
    if url is None:
        nothing = {"probe": "metrics page", "ok": False, "value": "the engine exports none"}
        return [_row(scenario.name, "monitoring", nothing, "adapter")]
    known = adapter(book.recipe.engine).metrics
    cell = _cell(scenario)
    look = Look(url, known)
    look.at("before load")
    records = run_load(
        target_of(book, server, cell),
        workload_of(cell),
        on_progress=lambda _: look.at("under load"),
    )
    look.at("after drain")
    seen = look.figures
    source = url.rsplit("/", 1)[-1]
    rows = [
        _row(scenario.name, "monitoring", probe, source)
        for moment, figures in seen.items()
        for probe in (*(_present(name, moment, figures) for name in known), look.time(moment))
    ]
    told = summarise(records)["output_tokens"]["total"]
    agree = _agreement(seen, float(told or 0))
    return [*rows, _row(scenario.name, "monitoring", agree, "client's records")]


class Look:
    """What a page told at each moment, and how long it let the asker wait."""

    def __init__(self, url: str, known: Mapping[str, str]) -> None:
        self._url, self._known = url, known
        self.figures: dict[str, dict[str, float]] = {}
        self._ms: dict[str, list[float]] = {}
        self._unanswered: dict[str, int] = {}

    def at(self, moment: str) -> None:
        """Look now; of several looks at one moment the largest figure counts.

        The last look under load may come when all is answered: what ran then tells nothing.
        """
        began_ns = time.monotonic_ns()
        found = scrape(self._url, self._known)
        waited_ms = (time.monotonic_ns() - began_ns) / 1e6
        self._ms.setdefault(moment, []).append(waited_ms)
        kept = self.figures.setdefault(moment, {})
        if found is None:
            self._unanswered[moment] = self._unanswered.get(moment, 0) + 1
            return
        kept.update({name: max(value, kept.get(name, value)) for name, value in found.items()})

    def time(self, moment: str) -> Probe:
        """Return the scrape's time: a monitor that asks each few seconds waits that long.

        Scrapes that got no page count, else the engine that answers least would look best.
        """
        waits, lost = self._ms.get(moment, []), self._unanswered.get(moment, 0)
        if not waits:
            return {"probe": f"scrape time, {moment}", "ok": None, "value": "no page was read"}
        text = f"{waits[0]:.1f} ms"
        if len(waits) > 1:
            middle, most = statistics.median(waits), max(waits)
            text = f"median {middle:.1f} ms, longest {most:.1f} ms, {len(waits)} scrapes"
        if lost:
            text += f"; {lost} of {len(waits)} not answered within {SCRAPE_TIMEOUT_S:g} s"
        ok = False if lost else None
        return {"probe": f"scrape time, {moment}", "ok": ok, "value": text}


def _cell(scenario: Monitoring) -> Cell:
    return Cell(
        scenario=scenario.name,
        kind="closed_loop",
        block=0,
        seed=19,
        concurrency=scenario.concurrency,
        input_tokens=scenario.input_tokens,
        output_tokens=scenario.output_tokens,
        requests=scenario.requests,
        warmup_requests=0,
        max_seconds=120.0,
    )


def _present(name: str, moment: str, figures: Mapping[str, float]) -> Probe:
    value = figures.get(name)
    text = "not exported" if value is None else f"{value:g}"
    return {"probe": f"{name}, {moment}", "ok": value is not None, "value": text}


def _agreement(seen: Mapping[str, Mapping[str, float]], counted: float) -> Probe:
    name = "generation_tokens_total"
    before, after = seen["before load"].get(name, 0.0), seen["after drain"].get(name)
    probe = "generated tokens, server against client"
    if after is None or not counted:
        return {"probe": probe, "ok": None, "value": "the server does not count them"}
    by_server = after - before
    ok = abs(by_server - counted) <= COUNTERS_AGREE * counted
    return {"probe": probe, "ok": ok, "value": f"{by_server:g} against {counted:g}"}


def scrape(url: str, known: Mapping[str, str]) -> dict[str, float] | None:
    """Return common figures of a Prometheus page: values of one name are summed over its labels.

    None means that no page was got.
    """
    try:
        text = page(url, SCRAPE_TIMEOUT_S).decode("utf-8", "replace")
    except (OSError, HTTPException, ValueError):
        return None
    return figures_of(text.splitlines(), known)


def figures_of(lines: Iterable[str], known: Mapping[str, str]) -> dict[str, float]:
    """Return the known figures on a page's lines, by their common names."""
    sums: dict[str, float] = {}
    for line in lines:
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        value = rest.rsplit(" ", 1)[-1]
        try:
            sums[name.strip()] = sums.get(name.strip(), 0.0) + float(value)
        except ValueError:
            continue
    # of a histogram the page holds counts and sums; that it counts is what matters here
    named = {c: next((n for n in (t, f"{t}_count") if n in sums), None) for c, t in known.items()}
    return {common: sums[name] for common, name in named.items() if name is not None}


def probes_frame(book: Book) -> pl.DataFrame:
    """Return all probes of the study's engines as one frame."""
    rows = []
    for kind in ("install", "launch", "load"):
        for value in book.results(kind, f"{kind}.json").values():
            rows += [{"engine": value["engine"], **probe} for probe in value.get("probes") or []]
    return pl.DataFrame(rows, schema=SCHEMA)
