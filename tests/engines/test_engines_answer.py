"""Each CPU engine for real: installed, started, asked, scraped, stopped, with nothing left behind.

Each is started once for all of these tests, since vLLM and SGLang take a minute. One engine runs
at a time; a lock keeps other test processes out.
"""

import json
import os
import time
from pathlib import Path

import pytest
from support import ANSWER, MODEL, QUESTION, RECIPES, call, complete, one_at_a_time

from enginebook.engines.cpus import compute_cpus
from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.lifecycle import ports, requirements
from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=RECIPES)
def server(request, tmp_path_factory):
    against = requirements.obstacles(load_recipe(request.param).environment.requires)
    if against:
        pytest.skip(f"{request.param} cannot run here: {against[0].what}")
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


def test_offers_what_its_table_says(server):
    found = {f.name: f for f in server.features()}
    assert not [f for f in found.values() if f.surprising]
    off = {name for name, f in found.items() if not f.ok}
    assert off == {"speculative_decoding"}, found  # not asked for


def test_says_what_it_settled_on(server):
    settled, asked = server.settled(), load_recipe(server.recipe_name).options
    assert settled["max_model_len"] == asked["max_model_len"]
    assert settled["prefix_cache"] is True
    assert settled["kv_tokens"] >= 8 * 2048
    if "dtype" in asked:
        assert settled["dtype"] == "float32"


def test_serves_the_recipe_s_version(server):
    assert server.version == load_recipe(server.recipe_name).version


def test_start_up_falls_into_phases(server):
    named = [p.name for p in server.phases]
    assert named[0] == "imports"
    assert {"imports", "weights", "cache"} <= set(named)
    for earlier, later in zip(server.phases, server.phases[1:], strict=False):
        assert earlier.start_s <= earlier.end_s <= later.start_s + 1e-6
    assert server.phases[-1].end_s <= server.first_token_s + 1e-6
    assert 0 < server.ready_s < server.first_token_s


def test_says_what_holds_memory(server):
    seen = server.memory()
    parts = {p.component: p.bytes for p in seen}
    (source,) = [p.source for p in seen if p.component == "weights"]
    # SGLang says by how much the machine's free memory fell, which other programs move, too.
    tolerance = 0.5 if "free memory" in source else 0.03
    assert parts["weights"] == pytest.approx(134_515_008 * 4, rel=tolerance)
    assert parts["kv_cache"] > 300 * 2**20
    assert parts["total"] > parts["weights"]


def threads(server):
    """Return {thread: (name, CPUs it may use, CPU seconds)} of all the engine's processes."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for pid in server.processes():
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                status, stat = (task / "status").read_text(), (task / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            said = dict(line.split(":", 1) for line in status.splitlines())
            used = [int(n) for n in stat.rsplit(")", 1)[1].split()[11:13]]
            name, cpus = said["Name"].strip(), said["Cpus_allowed_list"].strip()
            found[int(task.name)] = (name, cpus, sum(used) / ticks)
    return found


def test_computes_on_the_cpus_it_was_given(server):
    """An engine must leave a core to the load generator.

    CPU seconds of the whole tree do not tell: vLLM's scheduler waits for its worker in a loop of
    sched_yield, which gives way to everybody else and still counts as up to a core.
    """
    given = compute_cpus()
    if len(given) == len(os.sched_getaffinity(0)):
        pytest.skip("one CPU only")
    before, begun = threads(server), time.monotonic()
    complete(server, 96)
    seconds, after = time.monotonic() - begun, threads(server)
    share = {t: (row[2] - before.get(t, row)[2]) / seconds for t, row in after.items()}
    workers = [row for row in after.values() if row[0] == "VLLM::Worker"]
    if server.recipe_name.startswith("vllm"):
        assert workers
        assert {cpus for _, cpus, _ in workers} == {ranges(given)}
    else:
        busy = [after[t][0] for t, used in share.items() if used > 0.2]
        assert 1 <= len(busy) <= len(given), busy


def ranges(cpus):
    """Return CPU numbers as the kernel lists them: 0-2,5."""
    groups = []
    for cpu in sorted(cpus):
        if groups and groups[-1][-1] == cpu - 1:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    return ",".join(f"{g[0]}-{g[-1]}" if len(g) > 1 else str(g[0]) for g in groups)


def test_ends_and_leaves_nothing_behind(server):
    """The last test of each engine: SIGTERM to its first process ends every other one."""
    pids, port = server.processes(), int(server.base_url.rsplit(":", 1)[1])
    assert pids
    report = server.stop()
    assert report.killed == 0
    assert report.left == ()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert ports.can_bind(port)
