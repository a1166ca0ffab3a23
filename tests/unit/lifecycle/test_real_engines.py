"""Real engines on this machine's CPU: install, start, answer, metrics, memory, stop."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path

import pytest

from enginebook import paths
from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.lifecycle import ports, requirements
from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec, ModelSpec

MODEL = ModelSpec(name="smollm2-135m-instruct")
RECIPES = [
    pytest.param("llamacpp-cpu", marks=pytest.mark.engine),
    pytest.param("vllm-cpu", marks=[pytest.mark.engine, pytest.mark.slow]),
    pytest.param("sglang-cpu", marks=[pytest.mark.engine, pytest.mark.slow]),
]


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch):
    """Engines and models are large: these tests use the user's cache, as a study does."""
    monkeypatch.delenv("ENGINEBOOK_CACHE", raising=False)
    if "ENGINEBOOK_TEST_CACHE" in os.environ:
        monkeypatch.setenv("ENGINEBOOK_CACHE", os.environ["ENGINEBOOK_TEST_CACHE"])
    return paths.cache_dir()


def post(base_url: str, path: str, body: dict) -> dict:
    connection = http.client.HTTPConnection(base_url.removeprefix("http://"), timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    return json.loads(answer.read())


def get(base_url: str, path: str) -> str:
    connection = http.client.HTTPConnection(base_url.removeprefix("http://"), timeout=30)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


@pytest.mark.parametrize("name", RECIPES)
def test_from_cold_start_to_nothing_left(name, tmp_path):
    recipe = load_recipe(name)
    against = requirements.obstacles(recipe.environment.requires)
    if against:
        pytest.skip(f"{name} cannot run here: {against[0].what}")
    engine = EngineSpec(name=name, recipe=name)
    with serve(engine, MODEL, directory=tmp_path, timeout_s=500) as server:
        pids = server.processes()
        question = {"role": "user", "content": "What is the capital of France?"}
        asked = {"model": server.model_id, "messages": [question], "temperature": 0}
        answer = post(server.base_url, "/v1/chat/completions", {**asked, "max_tokens": 16})
        assert "Paris" in answer["choices"][0]["message"]["content"]
        assert answer["usage"]["completion_tokens"] <= 16
        scraped = get(server.base_url, "/metrics")
        assert adapter(recipe.engine).metrics["running"] in scraped
        parts = {p.component: p.bytes for p in server.memory()}
        # 134.5 million parameters of four bytes.
        assert 500e6 < parts["weights"] < 700e6
        assert parts["total"] > parts["weights"]
        assert 0 < server.ready_s < server.first_token_s
        assert server.version == recipe.version
        report = server.stop()
    assert report.killed == 0
    assert report.left == ()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert ports.can_bind(int(server.base_url.rsplit(":", 1)[1]))
