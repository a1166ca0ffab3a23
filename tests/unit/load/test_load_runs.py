"""Whole runs against the reference server: closed and open loops, sessions, traces, the command."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from load_support import DONE, END, STREAM_HEAD, delta, http, sse, usage
from tokenizers import Tokenizer, models, pre_tokenizers

from enginebook.commands import calibrate as calibrate_command
from enginebook.commands import load as load_command
from enginebook.errors import InputError, LoadError
from enginebook.load import (
    Sampler,
    Slo,
    Target,
    Workload,
    calibrate,
    read_records,
    reference_server,
    run_load,
    run_load_async,
    sweep,
)
from enginebook.load.calibration import paired_stamps
from enginebook.load.corpus import prose
from enginebook.load.gauges import common_gauges, parse_prometheus
from enginebook.load.payloads import Writer
from enginebook.load.run import Crew
from enginebook.load.saturation import Trial, search
from enginebook.metrics import summarise
from enginebook.metrics.gate import gate
from enginebook.metrics.goodput import goodput


@pytest.fixture(scope="module")
def server():
    with reference_server(ttft_ms=5.0, itl_ms=1.0) as running:
        yield running


def target(server, **changes):
    return Target(server.base_url, "reference", **changes)


SMALL = Workload(concurrency=4, requests=12, input_tokens=16, output_tokens=6, warmup_requests=4)


def test_a_closed_loop_end_to_end(server, tmp_path):
    seen = []
    records = run_load(target(server), SMALL, tmp_path / "raw", seen.append)
    assert records.requests["request"].to_list() == list(range(-4, 12))
    assert set(records.requests["status"]) == {"completed"}
    s = summarise(records)
    assert s["requests"]["completed"] == 12
    assert s["output_tokens"] == {"total": 72, "source": "usage", "mismatches": 0}
    assert s["itl_ms"]["n"] == 12 * 5
    assert s["instrument"]["processes"] == 1
    assert s["instrument"]["client_cpu_s"] > 0
    again = read_records(tmp_path / "raw")
    assert summarise(again) == s
    assert seen[-1].done == seen[-1].total == 12
    assert seen[-1].failed == 0
    verdict = gate(records, SMALL)
    assert verdict.completed == 12
    for name in ("failures", "output_length", "input_length", "cache", "identity"):
        assert verdict.checks[name]["ok"] is True, verdict.checks[name]


def test_the_truth_of_the_server_is_what_is_read(server):
    server.truth()
    records = run_load(target(server), SMALL.but(warmup_requests=0))
    truth = {int(k): v for k, v in server.truth()["requests"].items()}
    sent, received, lost = paired_stamps(records.chunks, truth, set(range(12)))
    assert lost == 0
    for s, r in zip(sent, received, strict=True):
        assert (r > s).all(), "nothing is read before it was sent"
    for row in records.requests.iter_rows(named=True):
        at = truth[row["request"]]
        assert row["sent_ns"] <= at["received"] <= at["sent"][0] <= row["first_token_ns"]
    connected = records.requests["connected_ns"]
    assert connected.drop_nulls().n_unique() == connected.len() - connected.null_count() == 4, (
        "four streams, four connections, each used again and again"
    )


def test_processes_share_the_work_and_lose_nothing(server):
    records = run_load(target(server), SMALL.but(processes=2, requests=15, concurrency=5))
    assert records.requests.filter(phase="measured")["request"].to_list() == list(range(15))
    assert records.requests["worker"].n_unique() == 2
    assert set(records.requests["status"]) == {"completed"}


def test_no_process_is_left_behind(server):
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    run_load(target(server), SMALL)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


def test_inside_a_running_event_loop_as_in_a_notebook(server):
    async def cell():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        task = asyncio.create_task(tick())
        records = await run_load_async(target(server), SMALL)
        task.cancel()
        plain = run_load(target(server), SMALL)  # blocks, but works
        return len(records.requests), len(plain.requests), ticks

    done, plain, ticks = asyncio.run(cell())
    assert done == plain == 16
    assert ticks > 5


def test_an_interrupt_leaves_no_process(server):
    def interrupt(progress):
        raise KeyboardInterrupt

    before = {p.pid for p in psutil.Process().children(recursive=True)}
    with pytest.raises(KeyboardInterrupt):
        run_load(target(server), SMALL.but(requests=400), on_progress=interrupt)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


def test_workers_end_when_their_owner_is_killed(serve_script, tmp_path):
    _word_tokenizer(tmp_path)
    never = serve_script(["hold"])
    code = (
        "from pathlib import Path; from enginebook.load import *; "
        f"run_load(Target({never.url!r}, 'm', tokenizer=Path({str(tmp_path)!r})), "
        "Workload(concurrency=1, requests=1))"
    )
    owner = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: never.requests, 60)
    workers = psutil.Process(owner.pid).children(recursive=True)
    assert workers
    owner.kill()
    owner.wait()
    wait_for(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers), 20)


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_a_dead_worker_is_an_error_with_its_message(server, monkeypatch):
    monkeypatch.setattr(Crew, "_job", lambda self, number: "no json")
    with pytest.raises(LoadError, match="load process 0 died"):
        run_load(target(server), SMALL)


# -- load models, inside the test


def test_an_open_loop_counts_from_the_scheduled_time(serve_script, drive):
    slow = [
        STREAM_HEAD,
        0.2,
        sse('{"choices":[{"text":"a","finish_reason":"stop"}]}') + sse(usage(1)) + DONE + END,
    ]
    load = Workload(
        rate=50.0,
        arrival="constant",
        requests=4,
        max_concurrency=1,
        input_tokens=8,
        output_tokens=1,
    )
    records = drive(serve_script(slow).url, load)
    r = records.requests
    gaps = np.diff(r["scheduled_ns"].to_numpy()) / 1e6
    assert gaps == pytest.approx([20, 20, 20], abs=1e-3)
    s = summarise(records)
    assert s["ttft_ms"]["max"] < 320
    assert s["response_ttft_ms"]["max"] > 3 * 200, "the wait for a place counts"
    assert s["instrument"]["schedule_lag_ms"]["max"] > 400


def test_an_open_loop_does_not_wait_for_answers(serve_script, drive):
    slow = [STREAM_HEAD, 0.4, sse('{"choices":[{"text":"a","finish_reason":"stop"}]}') + DONE + END]
    load = Workload(rate=100.0, arrival="constant", requests=10, input_tokens=8, output_tokens=1)
    r = drive(serve_script(slow).url, load).requests
    assert r["sent_ns"].max() < r["end_ns"].min(), "all were sent before the first was answered"
    assert set(r["status"]) == {"completed"}


def test_a_duration_ends_the_sending_and_lets_answers_end(server, drive):
    load = Workload(concurrency=3, duration_s=0.4, input_tokens=8, output_tokens=5)
    records = drive(target(server), load)
    r = records.requests
    assert len(r) > 20
    assert set(r["status"]) == {"completed"}
    span_s = (r["sent_ns"].max() - r["sent_ns"].min()) / 1e9
    assert span_s < 0.8


def test_a_trace_is_replayed(server, drive, tmp_path):
    rows = [{"at_s": 0.05 * i, "input_tokens": 5 + i, "output_tokens": 2 + i} for i in range(6)]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    r = drive(target(server), Workload(trace=path)).requests
    assert r["prompt_tokens"].to_list() == [5, 6, 7, 8, 9, 10]
    assert r["completion_tokens"].to_list() == [2, 3, 4, 5, 6, 7]
    assert np.diff(r["scheduled_ns"].to_numpy()) / 1e6 == pytest.approx([50] * 5, abs=1e-3)


def test_sessions_feed_answers_back_verbatim(serve_script, drive, monkeypatch):
    monkeypatch.setattr(Writer, "prompt", lambda self, planned: f"question {planned.index}")
    monkeypatch.setattr("enginebook.load.worker.tokens_for", lambda target: None)
    reply = sse(delta('{"content":"an\\\\n"}')) + sse(delta('{"content":"swer"}', '"stop"'))
    server = serve_script([STREAM_HEAD + reply + sse(usage(2)) + DONE + END])
    load = Workload(
        concurrency=1, requests=4, turns=2, think_time_s=0.1, input_tokens=8, output_tokens=2
    )
    records = drive(Target(server.url, "m", api="chat"), load)
    bodies = [json.loads(r.partition(b"\r\n\r\n")[2])["messages"] for r in server.requests]
    assert [len(b) for b in bodies] == [1, 3, 1, 3]
    assert bodies[1] == [
        {"role": "user", "content": "question 0"},
        {"role": "assistant", "content": "an\\nswer"},
        {"role": "user", "content": "question 1"},
    ]
    r = records.requests
    assert r["session"].to_list() == [0, 0, 1, 1]
    think_ms = (r["sent_ns"][1] - r["end_ns"][0]) / 1e6
    assert think_ms >= 100
    assert r["scheduled_ns"][1] - r["end_ns"][0] == 100_000_000


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.floats(0, 8), st.integers(1, 12)), min_size=1, max_size=3
    )
)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_for_any_schedule_the_times_read_are_the_times_sent(server, drive, schedules):
    for ttft_ms, itl_ms, tokens in schedules:
        server.truth()
        extra = {"ttft_ms": ttft_ms, "itl_ms": itl_ms}
        load = Workload(concurrency=2, requests=4, input_tokens=8, output_tokens=tokens)
        records = drive(target(server, extra_body=extra), load)
        truth = server.truth()["requests"]
        for row in records.requests.iter_rows(named=True):
            at = truth[str(row["request"])]
            assert row["completion_tokens"] == tokens == len(at["sent"])
            read = records.chunks.filter(pl.col("request") == row["request"], pl.col("tokens") == 1)
            stamps = read["recv_ns"].to_list()
            assert len(stamps) == tokens
            assert all(r >= s for r, s in zip(stamps, at["sent"], strict=True))
            assert at["sent"][0] - at["received"] >= ttft_ms * 1e6


def test_a_sweep_has_prompts_of_its_own_at_each_point(server, tmp_path):
    server.truth()
    points = list(sweep(target(server), SMALL, "concurrency", [1, 2], directory=tmp_path))
    assert [value for value, _ in points] == [1, 2]
    assert {r.instrument["workload"]["seed"] for _, r in points} == {1000, 1001}
    assert len(read_records(tmp_path / "concurrency-2").requests) == 16


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def stream_of_one():
    event = '{"choices":[{"text":"a","finish_reason":"stop"}]}'
    return [STREAM_HEAD + sse(event) + sse(usage(1)) + DONE + END]


def test_tls_with_a_key_and_a_certificate_that_is_accepted(serve_script, drive, certificate):
    server = serve_script(stream_of_one(), tls=certificate)
    external = Target(server.url, "m", api_key="sesame", verify_tls=False)
    load = Workload(concurrency=1, requests=3, input_tokens=8, output_tokens=1)
    records = drive(external, load)
    assert set(records.requests["status"]) == {"completed"}
    assert b"Authorization: Bearer sesame\r\n" in server.requests[0]
    assert server.connections == 1, "kept alive"


def test_a_certificate_that_nobody_signed_is_refused(serve_script, drive, certificate):
    server = serve_script(stream_of_one(), tls=certificate)
    load = Workload(concurrency=1, requests=1, input_tokens=8, output_tokens=1)
    records = drive(Target(server.url, "m"), load)
    assert records.requests["error_kind"].to_list() == ["connect"]
    assert server.requests == [], "no request, and no key, left this host"


# -- samples


def test_the_sampler_leaves_samples_and_shares(tmp_path, server):
    with Sampler(tmp_path, server_pids=lambda: [server.pid], interval_s=0.02) as sampler:
        run_load(target(server), SMALL)
    frame = pl.read_parquet(tmp_path / "samples.parquet")
    assert {"cpu", "engine", "client"} <= set(frame["source"])
    s = sampler.summary()
    for name in ("busy_cpu_share", "engine_cpu_share", "client_cpu_share", "others_cpu_share"):
        assert 0 <= s[name] <= 1, name
    assert s["client_cpu_share"] > 0
    assert s["engine_rss_peak_bytes"] > 1_000_000
    assert s["samples"] >= 5


def test_a_process_that_burns_is_among_the_others(tmp_path):
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with Sampler(tmp_path, client_pids=lambda: [os.getpid()], interval_s=0.05) as sampler:
            time.sleep(1.0)
    finally:
        burner.kill()
        burner.wait()
    assert sampler.summary()["others_cpu_share"] > 0.2 / (os.cpu_count() or 1)


def test_prometheus_text_under_common_names():
    text = (
        "# HELP vllm:num_requests_running x\n"
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 2.0\n'
        "vllm:prefix_cache_hits_total 1e3\nllamacpp:requests_deferred NaN\nbroken line\n"
    )
    found = common_gauges(parse_prometheus(text))
    assert found["running"] == 5
    assert found["prefix_hits"] == 1000


# -- gate, goodput, saturation


def changed(records, **columns):
    return replace(records, requests=records.requests.with_columns(**columns))


@pytest.fixture(scope="module")
def good(server):
    return run_load(target(server), SMALL)


@pytest.mark.parametrize(
    ("check", "columns"),
    [
        ("output_length", {"completion_tokens": pl.lit(5, pl.Int32)}),
        ("input_length", {"prompt_tokens": pl.lit(99, pl.Int32)}),
        ("cache", {"cached_tokens": pl.lit(12, pl.Int32)}),
        (
            "failures",
            {"status": pl.lit("failed").cast(pl.Enum(["completed", "failed", "cancelled"]))},
        ),
        ("token_counts", {"client_tokens": pl.lit(1, pl.Int32)}),
    ],
)
def test_the_gate_sees_unequal_work(good, check, columns):
    verdict = gate(changed(good, **columns), SMALL)
    assert verdict.checks[check]["ok"] is False
    assert check in verdict.flags
    assert verdict.ok is False or not verdict.checks[check]["blocks"]


def test_what_cannot_be_proved_is_flagged_and_not_failed(good):
    verdict = gate(changed(good, completion_tokens=pl.lit(None, pl.Int32)), SMALL)
    assert verdict.checks["output_length"]["ok"] is None
    assert "output_length" in verdict.flags


def test_a_template_that_is_cached_is_no_warm_cache(good):
    chat = replace(good, instrument={**good.instrument, "prompt_overhead_tokens": 24})
    cached = {"cached_tokens": pl.lit(24, pl.Int32)}
    assert gate(changed(chat, **cached), SMALL).checks["cache"]["ok"] is True
    assert gate(changed(good, **cached), SMALL).checks["cache"]["ok"] is False


def test_a_busy_host_is_flagged(good):
    assert gate(good, SMALL, {"others_cpu_share": 0.5}).checks["host"]["ok"] is False
    assert gate(good, SMALL, {"others_cpu_share": 0.01}).checks["host"]["ok"] is True


def test_an_overloaded_client_gets_no_verdict(good):
    busy = replace(good, instrument={**good.instrument, "worker_cpu_share_max": 0.95})
    verdict = gate(busy, SMALL)
    assert verdict.checks["client"]["ok"] is False
    assert verdict.ok is False


def test_goodput_counts_failures_as_misses_and_undefined_as_neither(good):
    everything = goodput(good, {"response_ttft_ms": 1e6, "tpot_ms": 1e6})
    assert (everything["good"], everything["intended"], everything["share"]) == (12, 12, 1.0)
    assert goodput(good, {"response_ttft_ms": 0.001})["good"] == 0
    failed = changed(
        good,
        status=pl.when(pl.col("request") < 3).then(pl.lit("failed")).otherwise(pl.lit("completed")),
    )
    assert goodput(failed, {"tpot_ms": 1e6})["share"] == 9 / 12


def test_the_search_closes_in_on_the_capacity():
    tried = []

    def measure(rate):
        tried.append(rate)
        return Trial(rate, 1.0 if rate <= 37 else 0.2, rate, stable=rate <= 37, ok=rate <= 37)

    found = search(measure, 1.0, None)
    assert 35 <= found["rate"] <= 37 < found["failed_at"] <= 39
    assert len(tried) == len(set(tried)) <= 16
    assert search(lambda r: Trial(r, 0.0, r, stable=False, ok=False), 8.0, None)["rate"] is None


def test_the_gate_expects_of_the_cache_what_the_load_does(good):
    warm = SMALL.but(cache="warm")
    reused = changed(good, cached_tokens=pl.lit(8, pl.Int32))
    checks = {
        name: gate(records, load).checks["cache"]
        for name, records, load in (
            ("cold, reused", reused, SMALL),
            ("any, reused", reused, SMALL.but(cache="any")),
            ("warm, reused", reused, warm),
            ("warm, unused", good, warm),
        )
    }
    assert (checks["cold, reused"]["ok"], checks["cold, reused"]["blocks"]) == (False, True)
    assert checks["any, reused"]["ok"] is True
    assert checks["warm, reused"]["ok"] is True
    assert "50.0%" in checks["warm, reused"]["detail"]
    assert (checks["warm, unused"]["ok"], checks["warm, unused"]["blocks"]) == (False, False)
    assert SMALL.but(shared_prefix_tokens=8).expected_cache == "any"


def test_objectives_without_a_limit_are_refused():
    with pytest.raises(InputError):
        Slo()
    with pytest.raises(InputError):
        Slo(ttft_ms=10, share=0)


# -- commands


def run_command(command, *argv):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(a) for a in argv]))


def options(server):
    return (
        "--base-url",
        server.base_url,
        "--model",
        "reference",
        "--input-tokens",
        8,
        "--output-tokens",
        3,
    )


def test_the_load_command_writes_the_json_of_the_design(server, tmp_path, capsys):
    out, raw = tmp_path / "o.json", tmp_path / "raw"
    argv = (*options(server), "--concurrency", 2, "--requests", 4, "--json", out, "--raw", raw)
    assert run_command(load_command, *argv) == 0
    d = json.loads(out.read_text())
    assert d["requests"] == {"completed": 4, "failed": 0, "cancelled": 0}
    assert d["output_tokens"]["total"] == 12
    assert d["ttft_ms"]["p99"] is None
    assert "TTFT" in capsys.readouterr().out
    assert len(read_records(raw).requests) == 4
    with pytest.raises(InputError, match="not empty"):
        run_command(load_command, *argv)


def test_the_load_command_constrains_answers_and_ends_early(server, tmp_path, capsys):
    out = tmp_path / "o.json"
    work = ("--concurrency", 2, "--requests", 4000, "--warmup", 2, "--input-tokens", 60)
    form = ("--prompts", "json", "--answer-format", "json_schema", "--schema", "nested")
    rule = ("--half-width", 0.5, "--min-requests", 8, "--min-seconds", 1.2)
    argv = (*options(server), *work, *form, *rule, "--json", out)
    assert run_command(load_command, *argv) == 0
    d = json.loads(out.read_text())
    assert d["instrument"]["stopped_by"] == "precision"
    assert d["instrument"]["precision"]["achieved_half_width"] <= 0.5
    assert d["answers"]["sent"] == d["requests"]["completed"] < 4000
    assert d["answers"]["valid"] == 0, "the reference server knows no JSON"
    said = capsys.readouterr().out
    assert "0 of" in said
    assert "ended by   precision" in said


def test_the_load_command_replays_a_built_in_trace(server, tmp_path):
    out = tmp_path / "o.json"
    trace = ("--trace", "builtin:synthetic-conversation", "--requests", 12, "--trace-speed", 30)
    fit = ("--length-divisor", 32, "--max-input-tokens", 48, "--max-output-tokens", 6)
    assert run_command(load_command, *options(server), *trace, *fit, "--json", out) == 0
    d = json.loads(out.read_text())
    assert d["requests"]["completed"] == 12
    assert d["output_tokens"]["total"] <= 72
    assert d["answers"] is None


def test_the_load_command_fails_with_status_1_when_requests_fail(serve_script, server, tmp_path):
    bad = serve_script([http(b"{}", "500 Oops")])
    tokenizer = tmp_path / "model"
    tokenizer.mkdir()
    _word_tokenizer(tokenizer)
    argv = ["--base-url", bad.url, "--model", "m", "--tokenizer", tokenizer, "--concurrency", 1,
            "--requests", 2, "--json", tmp_path / "o.json"]  # fmt: skip
    assert run_command(load_command, *argv) == 1
    d = json.loads((tmp_path / "o.json").read_text())
    assert d["errors"][0]["kind"] == "http_status"
    assert d["errors"][0]["code"] == 500
    assert d["ttft_ms"]["p50"] is None


def test_wrong_options_start_nothing(server):
    with pytest.raises(InputError):
        run_command(load_command, *options(server), "--concurrency", 2)
    with pytest.raises(SystemExit) as error:
        run_command(load_command, *options(server), "--requests", 4)
    assert error.value.code == 2


def test_a_server_without_tokenize_and_no_tokenizer_is_told_plainly(serve_script):
    server = serve_script([http(b"{}", "404 Not Found")])
    with pytest.raises(InputError, match="no tokenizer is given") as error:
        run_load(Target(server.url, "m"), SMALL)
    assert "--tokenizer" in error.value.remedy


def _word_tokenizer(folder: Path) -> None:
    words = [*sorted(set(prose(400_000).split())), "[UNK]"]
    hf = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    hf.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    hf.save(str(folder / "tokenizer.json"))


def test_chat_prompts_have_exact_lengths_by_usage(server, tmp_path):
    _word_tokenizer(tmp_path)
    load = SMALL.but(input_tokens="uniform:5:30")
    records = run_load(target(server, api="chat", tokenizer=tmp_path), load)
    r = records.requests
    assert set(r["status"]) == {"completed"}
    assert r["prompt_tokens"].to_list() == r["input_asked"].to_list()
    assert set(records.chunks["kind"].cast(pl.String)) >= {"empty", "content", "finish"}


def test_calibration_measures_and_judges(tmp_path):
    result = calibrate(seconds=1.0, streams=(1, 4))
    assert [level["streams"] for level in result["levels"]] == [1, 4]
    for level in result["levels"]:
        assert level["lost"] == 0
        assert level["failed"] == 0
        assert level["stamp_delay_p50_ms"] > 0
        assert level["ttft_p50_ms"] >= 20
        assert level["cpu_us_per_token"] > 0
    assert result["capacity_events_per_s"] > 0
    assert isinstance(result["verdict"], str)
    json.dumps(result, allow_nan=False)


def test_the_calibrate_command(tmp_path, capsys):
    status = run_command(
        calibrate_command, "--seconds", 0.5, "--streams", "2", "--json", tmp_path / "c.json"
    )
    d = json.loads((tmp_path / "c.json").read_text())
    assert status == (0 if d["ok"] else 1)
    assert d["verdict"] in capsys.readouterr().out
    with pytest.raises(InputError):
        run_command(calibrate_command, "--streams", "0")
