"""Whatever a server sends, the client ends each request once, in bounded memory, with a record."""

from __future__ import annotations

import gzip
import json
import random
import resource
import socket
import threading
import time
from dataclasses import replace

import pytest
from hostile_support import USUAL_ANSWERS, answered, mutated, opened, pieces_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from load_support import (
    CLOSE,
    DONE,
    END,
    HOLD,
    RESET,
    STREAM_HEAD,
    chunk,
    drive,
    http,
    serve_script,
    sse,
    text,
)

from enginebook.errors import InputError
from enginebook.inquiry import page
from enginebook.lifecycle.readiness import Address, model_ids
from enginebook.load import connection as wire
from enginebook.load.client import Client
from enginebook.load.decode import Decoder
from enginebook.load.gauges import Scraper, common_gauges, parse_prometheus
from enginebook.load.probe import ask
from enginebook.load.question import NoAnswerError, post_json
from enginebook.load.records import Records, frames_of
from enginebook.load.target import Target, parse_address
from enginebook.load.workload import Workload
from enginebook.metrics import summarise
from enginebook.pipeline.steps.probes import figures_of

__all__ = ["drive", "serve_script"]
KINDS = {
    None, "connect", "timeout", "http_status", "protocol", "truncated", "server_error", "cancelled",
}  # fmt: skip
FUZZ = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
MIB = 1 << 20


def recorded(*exchanges) -> Records:
    """Return what becomes of exchanges: decoded, as frames, summarised, written as JSON."""
    decoder = Decoder(0, None)
    for number, exchange in enumerate(exchanges):
        exchange.planned = replace(exchange.planned, index=number)
        decoder.add(exchange)
    records = Records(*frames_of(decoder.columns), {})
    assert set(records.requests["error_kind"]) <= KINDS
    json.dumps(summarise(records), allow_nan=False)
    return records


# -- any bytes


@given(st.integers(0, 2**32), st.integers(0, 12), st.booleans())
@FUZZ
def test_mutated_answers_end_in_a_record(seed, times, reset):
    rng = random.Random(seed)
    data = mutated(rng.choice(USUAL_ANSWERS), rng, times)
    error = ConnectionResetError("reset") if reset else None
    recorded(answered(pieces_of(data, rng), error))


@given(st.binary(max_size=400), st.lists(st.binary(max_size=60), max_size=6))
@FUZZ
def test_any_bytes_end_in_a_record(first, others):
    recorded(answered([first, *others]))
    recorded(answered([STREAM_HEAD, chunk(first or b"x"), *others]))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            *("choices", "usage", "delta", "message", "text", "content", "error", "function"),
            *("finish_reason", "tool_calls", "name", "arguments", "reasoning_content", "model"),
            *("completion_tokens", "prompt_tokens", "prompt_tokens_details", "cached_tokens"),
        ]),
        inner,
        max_size=4,
    ),
    max_leaves=14,
)  # fmt: skip


@given(st.lists(json_values, min_size=1, max_size=5), st.booleans(), st.sampled_from([200, 500]))
@FUZZ
def test_json_of_any_form_is_read_as_far_as_it_has_a_meaning(values, streamed, status):
    if streamed:
        events = b"".join(chunk(b"data: %b\n\n" % json.dumps(v).encode()) for v in values)
        data = STREAM_HEAD + events + DONE + END
    else:
        data = http(json.dumps(values[0]).encode(), f"{status} X")
    recorded(answered([data]))


@given(json_values, json_values, json_values)
@FUZZ
def test_an_answer_of_the_right_form_with_wrong_values(choice, usage, error):
    value = {
        "choices": [{"text": choice, "delta": {"content": choice, "tool_calls": [usage]}}],
        "usage": usage if isinstance(usage, dict) else {"completion_tokens": usage},
        "model": error,
    }
    events = [value, {"error": error}, {"choices": [choice]}, {"choices": choice, "usage": usage}]
    data = b"".join(sse(json.dumps(v)) for v in events)
    recorded(answered([STREAM_HEAD + data + DONE + END]))


@pytest.mark.parametrize("opening", [b"[", b'{"error":', b'{"choices":[', b'{"usage":{"a":'])
@pytest.mark.parametrize("depth", [200, 900, 1100, 200_000])
def test_deep_nesting_is_no_way_to_the_stacks_end(opening, depth):
    closing = {b"[": b"]", b'{"error":': b"}", b'{"choices":[': b"]}", b'{"usage":{"a":': b"}}"}
    nested = opening * depth + b"1" + closing[opening] * depth
    recorded(answered([STREAM_HEAD + chunk(b"data: " + nested + b"\n\n") + DONE + END]))
    recorded(answered([http(b'{"error":' + nested + b"}", "500 Oops")]))


@given(st.binary(max_size=300), st.text(max_size=200))
@FUZZ
def test_what_servers_say_of_themselves_is_read_or_left(data, words):
    assert isinstance(model_ids(data), list)
    assert all(abs(v) < float("inf") for v in parse_prometheus(words).values())
    common_gauges(parse_prometheus(data.decode("utf-8", "replace")))
    figures_of(words.splitlines(), {"running": "x"})


def test_figures_that_are_no_numbers_are_none():
    assert parse_prometheus("vllm:num_requests_running nan\nb inf\nc 2\n") == {"c": 2.0}


# -- too much


def endless(head, piece, limit_pieces, output_tokens=4):
    """Return (exchange, pieces that were taken) of a server that goes on for ever."""
    connection, owner, exchange = opened(output_tokens)
    connection.data_received(head)
    for number in range(limit_pieces):
        if owner.ended_with:
            assert connection._transport.aborted
            return exchange, number
        connection.data_received(piece)
    raise AssertionError("it would have gone on")


@pytest.mark.parametrize(
    ("head", "piece", "pieces", "said"),
    [
        (STREAM_HEAD + b"fffffffff\r\n", b"x" * 65536, 400, "the answer grew beyond 16 MiB"),
        (STREAM_HEAD, sse(text("a")) * 500, 500, "the answer grew beyond 16 MiB"),
        (STREAM_HEAD, chunk(b": ping\n\n"), 130_000, "the answer grew beyond 16 MiB"),
        (STREAM_HEAD + b"fffffff\r\n", b"x", 140_000, "the answer grew beyond 16 MiB"),
        (http(b"")[:-4] + b"\r\nA: ", b"x" * 65536, 400, "the head of the answer grew"),
        (b"HTTP/1.1 200 OK\r\n", b"X-Y: zzzzzzzz\r\n" * 4000, 400, "the head of the answer grew"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536, 400, "the answer grew beyond 16 MiB"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000, 400, "the head of the answer grew"),
    ],
    ids=["chunk", "events", "pings", "bytes", "header", "headers", "until-close", "continues"],
)
def test_what_never_ends_is_given_up_and_let_go(head, piece, pieces, said):
    exchange, taken = endless(head, piece, pieces)
    assert exchange.fault == "protocol"
    assert said in exchange.fault_text
    assert taken * len(piece) <= wire.MOST_BYTES + len(piece)
    assert sum(map(len, exchange.pieces)) <= 16 * max(len(piece), len(head))
    assert recorded(exchange).requests["error_kind"].to_list() == ["protocol"]


def test_longer_answers_may_be_larger():
    tokens = 100_000
    exchange, taken = endless(STREAM_HEAD + b"ffffffffff\r\n", b"x" * MIB, 1000, tokens)
    assert exchange.fault == "protocol"
    assert taken > 200


def test_all_answers_together_are_bounded(monkeypatch):
    monkeypatch.setattr("enginebook.load.client.MOST_HELD_BYTES", 8 * MIB)
    client = Client(Target("http://127.0.0.1:9", "m"), 600.0, 10.0)
    ended = []
    client.on_end = ended.append
    for size in (1, 2, 3, 4):
        connection, _, exchange = opened()
        connection._owner = client
        client.active[exchange], client.payloads[exchange] = connection, b""
        connection.data_received(STREAM_HEAD + b"ffffffff\r\n")
        for _ in range(size):
            connection.data_received(b"x" * MIB)
    client.expire(0)
    assert [e.fault for e in ended] == ["protocol"], "the largest one is enough"
    assert "client's memory" in ended[0].fault_text
    assert len(client.active) == 3


def test_a_bomb_in_gzip_is_not_opened(serve_script, drive):
    bomb = gzip.compress(bytes(256 * MIB), 9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records = drive(serve_script([http(bomb, more="Content-Encoding: gzip\r\n")]).url)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert records.requests["error_kind"].to_list() == ["protocol"]
    assert grown_kib < 64 * 1024
    server = serve_script([http(bomb, more="Content-Encoding: gzip\r\n")])
    with pytest.raises(InputError, match="did not answer a first request"):
        ask(Target(server.url, "m"), "x", 1)


@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_heads_before_the_head_are_passed_over(serve_script, drive, status):
    early = f"HTTP/1.1 {status}\r\nLink: </x>\r\n\r\n".encode()
    server = serve_script([early, 0.02, early + USUAL_ANSWERS[0]])
    records = drive(server.url, requests=2)
    assert records.requests["status"].to_list() == ["completed"] * 2
    assert records.requests["chunks"].to_list() == [12, 12]


def test_a_second_answer_in_the_same_bytes_is_no_part_of_the_first(serve_script, drive):
    first, second = http(b'{"choices":[{"text":"a","finish_reason":"stop"}]}'), http(b"{}", "500 X")
    records = drive(serve_script([first + second], USUAL_ANSWERS[:1]).url, requests=2)
    row = records.requests.row(0, named=True)
    assert (row["error_kind"], row["http_status"]) == ("protocol", 200)
    assert "second answer" in row["error"]
    assert records.requests["status"].to_list()[1] == "completed"


# -- over real connections


def test_random_answers_over_real_connections(serve_script, drive):
    rng = random.Random(20261201)
    scripts = []
    for _ in range(60):
        data = mutated(rng.choice(USUAL_ANSWERS), rng, rng.randrange(1, 8))
        pieces = pieces_of(data, rng)
        scripts.append([*pieces, rng.choice([CLOSE, RESET, CLOSE, 0.0])])
    scripts.append([USUAL_ANSWERS[0], CLOSE])
    server = serve_script(*scripts)
    load = Workload(concurrency=6, requests=len(scripts), input_tokens=8, output_tokens=4)
    records = drive(server.url, load, request_timeout_s=0.5)
    assert len(records.requests) == len(scripts)
    assert set(records.requests["error_kind"]) <= KINDS
    assert records.requests["end_ns"].null_count() == 0
    json.dumps(summarise(records), allow_nan=False)


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize(
    "count", [2000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_connections_that_are_refused_cost_little(drive, count):
    load = Workload(
        concurrency=min(1000, count // 10), requests=count, input_tokens=8, output_tokens=4
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records = drive(f"http://127.0.0.1:{closed_port()}", load)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(records.requests) == count
    assert set(records.requests["error_kind"]) == {"connect"}
    assert grown_kib < 64 * 1024 + 3 * count


def test_a_drip_does_not_hold_the_others_up(serve_script, drive):
    drops = [step for byte in USUAL_ANSWERS[0][:60] for step in (bytes([byte]), 0.02)]
    server = serve_script([*drops, HOLD], [USUAL_ANSWERS[0]])
    load = Workload(concurrency=2, requests=12, input_tokens=8, output_tokens=4)
    records = drive(server.url, load, request_timeout_s=0.7)
    assert sorted(records.requests["error_kind"].to_list(), key=str) == [None] * 11 + ["timeout"]


# -- single questions


def target(server, **more):
    return Target(server.url, "m", **more)


@pytest.mark.parametrize(
    "script",
    [
        [HOLD],
        [step for byte in http(b'{"a": 1}') * 9 for step in (bytes([byte]), 0.05)],
        [STREAM_HEAD, *[chunk(b" "), 0.05] * 100],
        [b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n", 0.05] * 90],
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", *[b" ", 0.05] * 100],
        [b"HTTP/1.0 200 OK\r\n\r\n", *[b" ", 0.05] * 100],
    ],
    ids=["silent", "drip", "drip of chunks", "drip of headers", "drip till closed", "drip of 1.0"],
)
def test_a_question_has_one_time_limit_for_all_of_it(serve_script, script):
    begun = time.monotonic()
    with pytest.raises(NoAnswerError):
        post_json(target(serve_script(script)), "/v1/completions", {}, 0.5)
    assert time.monotonic() - begun < 4.0


@pytest.mark.parametrize(
    "reply",
    [
        http(b"[" * 100_000),
        http(b"x" * (17 * MIB)),
        http(b"{}", "500 Oops"),
        http(b"\xff\xfe"),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        STREAM_HEAD + b"zz\r\n",
    ],
    ids=["deep", "large", "500", "no utf-8", "ssh", "headers", "header", "chunk"],
)
def test_a_question_with_an_impossible_answer_says_so(serve_script, reply):
    server = serve_script([reply, CLOSE])
    with pytest.raises(NoAnswerError) as told:
        post_json(target(server), "/v1/completions", {}, 5.0)
    assert len(str(told.value)) < 600


def test_a_key_does_not_follow_a_redirect(serve_script):
    thief = serve_script([http(b"{}")])
    for status in ("301 X", "302 X", "303 X", "307 X", "308 X"):
        server = serve_script([http(b"", status, more=f"Location: {thief.url}/v1/completions\r\n")])
        with pytest.raises(NoAnswerError, match=status[:3]):
            post_json(target(server, api_key="sk-123456789"), "/v1/completions", {}, 5.0)
        with pytest.raises(Exception, match=status[:3]):
            page(server.url + "/metrics", 5.0)
    assert thief.requests == []


def test_a_first_token_is_not_waited_for_in_an_endless_line(serve_script):
    server = serve_script([STREAM_HEAD, *[chunk(b"x" * MIB)] * 3, HOLD])
    with pytest.raises(Exception, match="longer than 1 MiB"):
        Address.of(server.url).first_token("m", 5.0)
    server = serve_script([STREAM_HEAD + sse("5") + sse("[1]") + sse('"x"') + DONE + END, CLOSE])
    with pytest.raises(Exception, match="without a token"):
        Address.of(server.url).first_token("m", 5.0)


def test_a_page_of_metrics_may_be_anything(serve_script):
    for reply in (b"not http", http(b"\xff" * 100), http(b"x" * (5 * MIB)), http(b"", "500 X")):
        assert Scraper(serve_script([reply, CLOSE]).url + "/metrics").read() == {}
    assert Scraper("http://[::1/metrics").read() == {}


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "http://" + "a" * 300, "http://a..b", "http://host:0", "http://host:99999",
        "http://host/a b", "http://h\nost", "file:///etc/passwd", "http://", "http://\u202ehost",
        "http://host/\x1b[31m", "ftp://host", "http://user:pass@host", "http://key@host:80",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_told_before_anything_is_sent(url):
    with pytest.raises(InputError) as told:
        parse_address(url)
    assert "user:pass" not in str(told.value)
    assert "key@" not in str(told.value)
    with pytest.raises(InputError):
        Target(url, "m")


def timers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_a_quiet_thread_count_after_questions(serve_script):
    server = serve_script([http(b"{}")])
    for _ in range(20):
        post_json(target(server), "/x", {}, 30.0)
    deadline = time.monotonic() + 5
    while (left := timers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == [], "no timer is left to run for its 30 s"
