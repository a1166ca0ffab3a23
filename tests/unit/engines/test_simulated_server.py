"""The simulated engine as a process: its interface, its metrics and its faults."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from enginebook.engines import simulated
from enginebook.engines.base import LaunchPlan
from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.ports import free_port
from enginebook.lifecycle.server import serve
from enginebook.study import EngineSpec, ModelSpec

sys.path.insert(0, str(simulated.LAUNCHER.parent))  # it runs as a program, its parts beside it
from simulated_serve import words_of

QUICK = {"load_seconds": 0, "step_us": 500, "prefill_us_per_token": 1}
DUMMY = ModelSpec(dummy="tiny-4-layers")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINEBOOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        return prepare_model(DUMMY, "hf")


def start(model, **options):
    port = free_port()
    plan = LaunchPlan(
        Path(sys.executable), model, "127.0.0.1", port, {**QUICK, **options}, Path("/tmp")
    )
    argv = adapter("simulated").command(plan).argv
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([argv[0], "-u", *argv[1:]], text=True, **pipes), port


@contextmanager
def running(model, **options):
    process, port = start(model, **options)
    try:
        for line in process.stdout:
            if "listening" in line:
                break
        yield process, port
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(port, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST" if body else "GET", path, body and json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def complete(port, **body):
    status, text = ask(port, "/v1/completions", {"prompt": "t1 t2 t3", "max_tokens": 4, **body})
    return status, json.loads(text)


def test_an_answer_has_the_length_asked_for(model):
    with running(model) as (_, port):
        status, answer = complete(port, prompt="t1 t2 t3 t4 t5", max_tokens=7)
        assert status == 200
        assert answer["usage"]["prompt_tokens"] == 5
        assert answer["usage"]["completion_tokens"] == 7
        assert len(answer["choices"][0]["text"].split()) == 7
        ids = complete(port, prompt=[1, 2, 3, 4, 5], max_tokens=7)[1]
        assert ids["choices"] == answer["choices"]


def test_a_stream_has_an_event_for_each_token_and_usage_on_demand(model):
    body = {"prompt": "t1 t2", "max_tokens": 5, "stream": True}
    with running(model) as (_, port):
        _, text = ask(port, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
        events = [line.removeprefix("data: ") for line in text.splitlines() if line]
        assert events[-1] == "[DONE]"
        parsed = [json.loads(e) for e in events[:-1]]
        assert len(parsed) == 6
        assert parsed[-1]["usage"]["completion_tokens"] == 5
        reasons = [e["choices"][0]["finish_reason"] for e in parsed[:-1]]
        assert reasons == [None] * 4 + ["length"]
        assert "usage" not in ask(port, "/v1/completions", body)[1]


def test_chat(model):
    body = {"messages": [{"role": "user", "content": "t1 t2"}], "max_tokens": 3}
    with running(model) as (_, port):
        answer = json.loads(ask(port, "/v1/chat/completions", body)[1])
        assert len(answer["choices"][0]["message"]["content"].split()) == 3
        streamed = ask(port, "/v1/chat/completions", {**body, "stream": True})[1]
        assert '"delta"' in streamed


def test_reuse_shows_in_usage_and_metrics(model):
    prompt = " ".join(f"t{i}" for i in range(100))
    with running(model) as (_, port):
        cached = [
            complete(port, prompt=prompt)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
            for _ in range(2)
        ]
        assert cached == [0, 96]
        text = ask(port, "/metrics")[1]
    values = dict(line.rsplit(" ", 1) for line in text.splitlines())
    assert set(adapter("simulated").metrics.values()) <= set(values)
    assert float(values["simulated:cached_tokens_total"]) == 96
    assert float(values["simulated:generation_tokens_total"]) == 8


def test_every_page_says_that_it_is_simulated(model):
    with running(model) as (_, port):
        for path in ("/version", "/v1/models", "/health", "/metrics"):
            status, text = ask(port, path)
            assert status == 200
            assert "simulated" in text
        assert ask(port, "/nowhere")[0] == 404


def test_too_long_a_request_is_refused(model):
    with running(model, max_model_len=64) as (_, port):
        assert complete(port, max_tokens=100)[0] == 400
        assert complete(port, max_tokens=10)[0] == 200


def test_a_batch_is_quicker_than_its_requests_one_after_another(model):
    """Eight at once take the steps of one: a property of batching, by count and not by clock."""
    with running(model, step_us=3000) as (_, port):
        threads = [
            threading.Thread(target=complete, args=(port,), kwargs={"max_tokens": 40})
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        text = ask(port, "/metrics")[1]
    steps = float(next(x for x in text.splitlines() if "steps_total" in x).split()[1])
    assert 40 <= steps < 8 * 40


def test_error_and_short_and_truncate(model):
    with running(model, fault="error", fault_every=2) as (_, port):
        assert [complete(port)[0] for _ in range(4)] == [200, 500, 200, 500]
    with running(model, fault="short") as (_, port):
        assert complete(port, max_tokens=8)[1]["usage"]["completion_tokens"] == 4
    with running(model, fault="truncate") as (_, port):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            complete(port, stream=True)
        assert ask(port, "/health")[0] == 200


def test_crash_under_load(model):
    with running(model, fault="crash", fault_every=2) as (process, port):
        assert complete(port)[0] == 200
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            complete(port)
        assert process.wait(timeout=10) == 70


def test_crash_and_hang_at_start(model):
    process, _ = start(model, fault="crash-at-start")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "simulated: crash at start" in out
    process, port = start(model, fault="hang-at-start")
    time.sleep(1)
    assert process.poll() is None
    with pytest.raises(ConnectionError):
        ask(port, "/health")
    process.kill()
    process.communicate()


@pytest.mark.parametrize(("fault", "ends"), [("none", True), ("deaf", False)])
def test_sigterm(model, fault, ends):
    with running(model, fault=fault) as (process, port):
        process.send_signal(signal.SIGTERM)
        if ends:
            assert process.wait(timeout=10) == 0
        else:
            time.sleep(0.5)
            assert ask(port, "/health")[0] == 200


def test_through_the_lifecycle(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    spec = EngineSpec(name="sim", recipe="simulated", options={"load_seconds": 0.3})
    with serve(spec, DUMMY, directory=tmp_path / "run") as server:
        assert [p.name for p in server.phases][:1] == ["weights"]
        port = int(server.base_url.rsplit(":", 1)[1])
        assert complete(port)[0] == 200
        pids = server.processes()
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_its_recipe_is_labelled():
    recipe = load_recipe("simulated")
    assert recipe.labels == ("simulated",)
    assert recipe.environment.python == sys.executable


def test_the_text_counts_as_many_tokens_as_usage_says(model):
    tokenizer = Tokenizer.from_file(str(model.tokenizer_dir / "tokenizer.json"))
    with running(model) as (_, port):
        _, answer = complete(port, max_tokens=23)
    assert len(tokenizer.encode(answer["choices"][0]["text"]).ids) == 23
    assert answer["usage"]["completion_tokens"] == 23


def test_words_of_a_byte_level_vocabulary_are_single_tokens():
    vocabulary = ["a", "b", "Ġ", "Ġa", "Ġb", "ab"]
    merges = [("Ġ", "a"), ("Ġ", "b"), ("a", "b")]
    made = Tokenizer(models.BPE({t: i for i, t in enumerate(vocabulary)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert words_of(made) == [" a", " b"]
    empty = Tokenizer(models.BPE({"<x>": 0}, []))
    assert words_of(empty) == [" t"]
