"""Probes of installed engines, and figures read from a Prometheus page."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from enginebook import engines
from enginebook.engines import probe_code
from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.lifecycle.live_features import Feature
from enginebook.pipeline.book import begin
from enginebook.pipeline.steps.probes import Look, _environment, ask_running, figures_of
from enginebook.study_file import read_yaml

SCRIPT = Path(engines.__file__).with_name("probe_code.py")
PAGE = """# HELP vllm:num_requests_running Running.
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
vllm:generation_tokens_total{engine="0"} 120
vllm:time_to_first_token_seconds_bucket{le="0.1"} 7
vllm:time_to_first_token_seconds_count{engine="0"} 9
plain 2.5
broken{ x
"""
KNOWN = {
    "running": "vllm:num_requests_running",
    "generation_tokens_total": "vllm:generation_tokens_total",
    "ttft_seconds": "vllm:time_to_first_token_seconds",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "plain": "plain",
}


def ask(*probes: dict[str, Any], distribution: str = "pydantic") -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), distribution],
        input=json.dumps(probes), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_values_of_one_name_are_summed_and_histograms_count() -> None:
    assert figures_of(PAGE.splitlines(), KNOWN) == {
        "running": 7.0, "generation_tokens_total": 120.0, "ttft_seconds": 9.0, "plain": 2.5,
    }  # fmt: skip


@pytest.fixture
def slow_page() -> Iterator[str]:
    """Serve the page 40 ms late."""

    class Late(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.04)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()


def test_a_look_times_its_scrapes(slow_page: str) -> None:
    look = Look(slow_page, KNOWN)
    look.at("under load")
    look.at("under load")
    assert look.figures["under load"]["running"] == 7.0
    said = look.time("under load")["value"]
    assert said.endswith("2 scrapes")
    assert float(said.split()[1]) >= 40
    nowhere = Look("http://127.0.0.1:9/metrics", KNOWN)
    nowhere.at("before load")
    assert nowhere.time("after drain")["value"] == "no page was read"
    assert nowhere.figures["before load"] == {}
    told = nowhere.time("before load")
    assert told["ok"] is False
    assert told["value"].endswith(" ms; 1 of 1 not answered within 10 s")


@pytest.mark.parametrize("failing", [{"status": 500}, {"wait_s": 0.5}], ids=["refused", "silent"])
def test_scrapes_without_an_answer_count(
    monkeypatch: pytest.MonkeyPatch, failing: dict[str, float]
) -> None:
    monkeypatch.setattr("enginebook.pipeline.steps.probes.SCRAPE_TIMEOUT_S", 0.2)
    times = itertools.count()

    class EverySecond(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fails = next(times) % 2 == 1
            if fails:
                time.sleep(failing.get("wait_s", 0.0))
            self.send_response(int(failing.get("status", 200)) if fails else 200)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), EverySecond) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        look = Look(f"http://127.0.0.1:{server.server_address[1]}/metrics", KNOWN)
        for _ in range(5):
            look.at("under load")
        server.shutdown()
    told = look.time("under load")
    assert told["ok"] is False
    assert told["value"].endswith("5 scrapes; 2 of 5 not answered within 0.2 s")
    if "wait_s" in failing:
        longest = float(told["value"].split("longest ")[1].split()[0])
        assert longest >= 200, "the wait in vain is the longest"
    assert look.figures["under load"]["running"] == 7.0


def test_the_largest_figure_under_load_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([{"running": 3.0, "tokens": 10.0}, {"running": 16.0, "tokens": 90.0}, {},
                 {"running": 0.0, "tokens": 128.0}])  # fmt: skip
    monkeypatch.setattr("enginebook.pipeline.steps.probes.scrape", lambda url, known: next(seen))
    look = Look("http://127.0.0.1:9/metrics", {})
    for _ in range(4):
        look.at("under load")
    assert look.figures["under load"] == {"running": 16.0, "tokens": 128.0}


def test_facts_of_a_package_come_first() -> None:
    facts = ask()[0]["package"]
    assert facts["version"][0].isdigit()
    assert facts["requirements"] >= 1


def test_every_probe_answers_for_itself() -> None:
    found = ask(
        {"probe": "there", "ask": "names", "names": ["pydantic:BaseModel.model_validate"]},
        {"probe": "gone", "ask": "names", "names": ["pydantic:NoSuchThing"]},
        {"probe": "no module", "ask": "names", "names": ["no_such_module:x"]},
        {"probe": "fields", "ask": "fields", "of": "enginebook.cells:Cell", "fields": ["rate"]},
        {"probe": "field", "ask": "fields", "of": "enginebook.cells:Cell", "fields": ["nothing"]},
    )[1:]
    assert [f["ok"] for f in found] == [True, False, None, True, False]
    assert "no nothing" in found[-1]["value"]


def test_a_broken_instrument_has_seen_nothing(tmp_path: Path) -> None:
    """Neither a package that does not import nor a prelude that fails says what an engine lacks."""
    package = tmp_path / "brittle"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "whole.py").write_text("name = 1\n")
    (package / "torn.py").write_text("import no_such_dependency\n")
    failing = tmp_path / "prelude.py"
    failing.write_text("import no_such_tool\n")
    asked = [
        {"probe": "there", "ask": "names", "names": ["brittle.whole:name"]},
        {"probe": "no name", "ask": "names", "names": ["brittle.whole:other"]},
        {"probe": "no module", "ask": "names", "names": ["brittle.gone:name"]},
        {"probe": "dependency", "ask": "names", "names": ["brittle.torn:name"]},
        {"probe": "parser", "ask": "flag", "parser": "vllm", "flag": "--x"},
        {"probe": "command", "ask": "script", "name": "no-such-command"},
    ]

    def told(*preludes: str) -> list[bool | None]:
        done = subprocess.run(
            [sys.executable, "-P", str(SCRIPT), "pydantic", *preludes],
            input=json.dumps(asked), env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        facts, *found = [json.loads(x) for x in done.stdout.splitlines() if x]
        assert facts["package"]["version"]
        return [f["ok"] for f in found]

    assert told() == [True, False, False, None, None, False]
    assert told(str(failing)) == [None, None, None, None, None, False]


def test_modules_beside_the_script_hide_no_engine() -> None:
    (found,) = ask({"probe": "x", "ask": "names", "names": ["vllm:LLM"]})[1:]
    assert "No module named 'vllm'" in found["value"]


def test_every_engine_of_the_table_is_known_and_its_probes_are_whole() -> None:
    for engine, probes in read_yaml(SCRIPT.with_name("probes.yaml")).items():
        assert adapter(engine)
        assert len({p["probe"] for p in probes}) == len(probes)
        assert all(p["ask"] in probe_code.KINDS for p in probes)
        assert all(p.get("topic", "snippet") == "snippet" for p in probes)


def test_attributes_commands_files_and_imports() -> None:
    page = {"probe": "value", "ask": "value", "of": "enginebook.pipeline.steps.probes:TIMEOUT_S"}
    script = {"ask": "script", "name": "pytest"}
    file = {"ask": "file", "distribution": "pytest", "name": "__main__.py"}
    uses = {"ask": "imports", "package": "_pytest", "distribution": "pytest", "of": "pluggy"}
    found = ask(
        {**page, "is": 300.0},
        {**page, "probe": "other", "is": 4},
        {**script, "probe": "command"},
        {**script, "probe": "no command", "name": "trtllm-build"},
        {**file, "probe": "file"},
        {**file, "probe": "no file", "name": "convert_checkpoint.py"},
        {**uses, "probe": "imports"},
        {**uses, "probe": "no imports", "of": "vllm"},
        {**uses, "probe": "no package", "package": "no_such_package"},
    )[1:]
    assert [f["ok"] for f in found] == [True, False, True, False, True, False, True, False, None]
    assert found[0]["value"] == "300.0"
    assert "pytest/__main__.py" in found[4]["value"]
    assert "imports in" in found[6]["value"]
    assert "required: pluggy" in found[6]["value"]
    assert found[7]["value"].startswith("0 imports in 0 of")


def test_a_flag_cut_short_is_not_that_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp-size", type=int)
    parser.add_argument("--kind", choices=["a"])
    monkeypatch.setattr(probe_code, "parser_of", lambda _: parser)

    def parse(*words: str) -> tuple[bool, str]:
        return probe_code.parse({"parser": "x", "argv": list(words)})

    assert parse("--tp-size", "4") == (True, "taken")
    assert parse("--tp", "4") == (False, "taken for a longer flag: --tp")
    assert parse("--tp=4") == (False, "taken for a longer flag: --tp=4")
    assert parse("--kind", "b")[0] is False
    assert "unrecognized arguments: --other" in parse("--other")[1]


def test_what_an_import_needs_first_is_run_first(tmp_path: Path) -> None:
    (tmp_path / "prelude.py").write_text("import sys; sys.modules['made_up'] = sys\n")
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "pydantic", str(tmp_path / "prelude.py")],
        input=json.dumps([{"probe": "x", "ask": "names", "names": ["made_up:path"]}]),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1])["ok"] is True


def test_probes_run_with_the_variables_of_the_engine_s_server() -> None:
    env = _environment(load_recipe("sglang-cpu"), sys.executable)
    assert env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert env["PYTHONPATH"].endswith("sglang_cpu_stubs")


class Running:
    def features(self) -> list[Feature]:
        return [
            Feature("prefix_cache", ok=False, value="0 of 9", table=True),
            Feature("stream_usage", ok=True, value="3 events"),
        ]


def test_a_server_that_does_not_do_what_its_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    study = {
        "study": "s", "question": "?", "model": "m", "engines": ["simulated"],
        "scenarios": [{"name": "f", "kind": "features"}],
        "engine": "simulated",
    }  # fmt: skip
    study["model"] = {"dummy": "tiny-4-layers"}
    book = begin("launch", study, outputs=tmp_path / "outputs")
    rows = ask_running(book, Running())  # type: ignore[arg-type]
    assert [(r["probe"], r["ok"], r["value"]) for r in rows] == [
        ("prefix cache", False, "unlike the table: 0 of 9"),
        ("stream usage", True, "3 events"),
    ]
    other = {**study, "scenarios": [{"name": "f", "kind": "features", "skip": ["simulated"]}]}
    book = begin("launch", other, outputs=tmp_path / "outputs")
    assert ask_running(book, Running()) == []  # type: ignore[arg-type]
