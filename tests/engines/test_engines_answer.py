"""Each CPU engine for real: installed, started, asked, scraped, stopped, with nothing left behind.

One engine runs at a time; a lock keeps other test processes out.
"""

import json
import os
import time
from pathlib import Path

import pytest
from support import ANSWER, MODEL, QUESTION, RECIPES, call, complete, one_at_a_time

from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=RECIPES)
def server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    spec = EngineSpec(name=request.param, recipe=request.param)
    with one_at_a_time(), serve(spec, MODEL, directory=directory) as running:
        running.recipe_name = request.param
        yield running


def metric_names(text):
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1] != "#"}
    return names | {n.removesuffix("_bucket") for n in names}


def test_says_what_every_engine_says(server):
    body = {"model": server.model_id, "messages": QUESTION, "max_tokens": 16, "temperature": 0}
    answer = json.loads(call(server, "/v1/chat/completions", body))
    assert answer["choices"][0]["message"]["content"] == ANSWER
    assert answer["usage"]["prompt_tokens"] == 37
    assert answer["usage"]["completion_tokens"] == 8


def test_forces_the_length_past_the_end_of_text(server):
    usage = complete(server, 40, prompt="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert usage["usage"]["completion_tokens"] == 40


def test_reports_cached_tokens(server):
    prompt = "The history of the lighthouse is long. " * 40
    first = complete(server, 2, prompt=prompt)["usage"]
    second = complete(server, 2, prompt=prompt)["usage"]
    assert second["prompt_tokens"] == first["prompt_tokens"] > 256
    assert first["prompt_tokens_details"]["cached_tokens"] < 32
    assert second["prompt_tokens_details"]["cached_tokens"] >= 256


def test_has_the_metrics_that_the_adapter_names(server):
    engine = adapter(load_recipe(server.recipe_name).engine)
    seen = metric_names(call(server, "/metrics").decode())
    assert set(engine.metrics.values()) <= seen


def test_serves_the_recipe_s_version(server):
    assert server.version == load_recipe(server.recipe_name).version


def test_start_up_falls_into_phases(server):
    named = [p.name for p in server.phases]
    assert named[0] == "imports"
    assert {"imports", "weights", "cache"} <= set(named)
    for earlier, later in zip(server.phases, server.phases[1:], strict=False):
        assert earlier.start_s <= earlier.end_s <= later.start_s + 1e-6
    assert server.phases[-1].end_s <= server.first_token_s + 1e-6


def test_says_what_holds_memory(server):
    seen = server.memory()
    parts = {p.component: p.bytes for p in seen}
    (source,) = [p.source for p in seen if p.component == "weights"]
    # SGLang says by how much the machine's free memory fell, which other programs move, too.
    tolerance = 0.5 if "free memory" in source else 0.03
    assert parts["weights"] == pytest.approx(134_515_008 * 4, rel=tolerance)
    assert parts["kv_cache"] > 300 * 2**20
    assert parts["total"] > parts["weights"]


def test_computes_on_the_cpus_it_was_given(server):
    """An engine must leave a core to the load generator."""
    spare = len(os.sched_getaffinity(0)) - 1
    if spare < 1:
        pytest.skip("one CPU only")
    ticks = os.sysconf("SC_CLK_TCK")

    def cpu_seconds():
        total = 0
        for pid in server.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / ticks

    before, begun = cpu_seconds(), time.monotonic()
    complete(server, 96)
    used = (cpu_seconds() - before) / (time.monotonic() - begun)
    assert used < spare + 0.5  # the rest is the server's front end
