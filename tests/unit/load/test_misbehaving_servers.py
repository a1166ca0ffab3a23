"""Every way in which a server can misbehave ends as the right record."""

from __future__ import annotations

import gzip
import socket

import pytest
from load_support import (
    CLOSE,
    DONE,
    END,
    HOLD,
    RESET,
    STREAM_HEAD,
    chunk,
    delta,
    http,
    sse,
    text,
    usage,
)

from enginebook.load.workload import Workload
from enginebook.metrics import summarise

FOUR = b"".join(sse(text(w)) for w in "abcd")
GOOD = [STREAM_HEAD + FOUR + sse(usage(4)) + DONE + END]


def kinds(records):
    return [str(k) for k in records.chunks["kind"].to_list()]


def row(records, index=0):
    return records.requests.row(index, named=True)


def failure(records):
    r = row(records)
    return r["status"], r["error_kind"]


def test_a_well_behaved_stream(serve_script, drive):
    server = serve_script(GOOD)
    r = row(drive(server.url))
    assert (r["status"], r["error_kind"], r["chunks"], r["completion_tokens"]) == (
        "completed",
        None,
        4,
        4,
    )
    assert r["sent_ns"] < r["first_byte_ns"] <= r["first_token_ns"] <= r["last_token_ns"]
    assert r["last_token_ns"] <= r["end_ns"]
    assert r["connect_start_ns"] < r["connected_ns"] <= r["sent_ns"]


def test_the_role_chunk_is_no_token(serve_script, drive):
    role = sse(delta('{"role":"assistant","content":""}'))
    rest = sse(delta('{"content":"x"}')) + sse(delta("{}", '"stop"')) + sse(usage(1)) + DONE + END
    server = serve_script([STREAM_HEAD + role, 0.08, rest])
    records = drive(server.url)
    r = row(records)
    assert kinds(records) == ["empty", "content", "finish", "usage", "done"]
    assert r["first_token_ns"] - r["sent_ns"] >= 80_000_000
    assert r["first_byte_ns"] < r["first_token_ns"]


def test_empty_text_chunks_hold_tokens_but_are_not_the_first(serve_script, drive):
    body = sse(text("")) + sse(text("ab")) + sse(text("")) + sse(text("c", '"length"'))
    server = serve_script([STREAM_HEAD + body + sse(usage(4)) + DONE + END])
    records = drive(server.url)
    assert kinds(records)[:4] == ["empty", "content", "empty", "content"]
    assert records.chunks["tokens"].to_list()[:4] == [1, 1, 1, 1]
    assert row(records)["chunks"] == 2


def test_several_tokens_in_one_chunk_without_a_tokenizer_are_unknown(serve_script, drive):
    body = sse(text("a b c")) + sse(text("d e", '"length"'))
    server = serve_script([STREAM_HEAD + body + sse(usage(5)) + DONE + END])
    records = drive(server.url, output_tokens=5)
    assert records.chunks["tokens"].null_count() == len(records.chunks)
    summary = summarise(records)
    assert summary["output_tokens"] == {"total": 5, "source": "usage", "mismatches": 0}
    assert summary["tpot_ms"]["p50"] is None
    assert summary["tpot_n1_ms"]["p50"] is not None


def test_usage_on_each_chunk_tells_the_tokens_of_each(serve_script, drive):
    def with_usage(word, so_far):
        return sse(
            text(word)[:-1] + f',"usage":{{"prompt_tokens":8,"completion_tokens":{so_far}}}}}'
        )

    body = with_usage("a b", 2) + with_usage("c", 3) + with_usage("d e f", 6)
    server = serve_script([STREAM_HEAD + body + DONE + END])
    records = drive(server.url, output_tokens=6)
    assert records.chunks["tokens"].to_list()[:3] == [2, 1, 3]
    assert row(records)["tokens_source"] == "usage"


def test_one_event_split_over_http_chunks(serve_script, drive):
    event = f"data: {text('hello')}\n\n".encode()
    last = sse(text("x", '"stop"')) + sse(usage(2)) + DONE + END
    server = serve_script(
        [STREAM_HEAD + chunk(event[:9]), 0.06, chunk(event[9:20]) + chunk(event[20:]) + last]
    )
    records = drive(server.url)
    assert records.texts()["text"].to_list() == ["hellox"]
    r = row(records)
    assert r["first_token_ns"] > r["first_byte_ns"], "the event is there when its last part is"


def test_utf8_split_between_segments(serve_script, drive):
    whole = STREAM_HEAD + sse(text("péñ水")) + sse(text("z", '"stop"')) + sse(usage(2)) + DONE + END
    cut = whole.index("水".encode()) + 1
    server = serve_script([whole[:cut], 0.05, whole[cut:]])
    records = drive(server.url)
    assert records.texts()["text"].to_list() == ["péñ水z"]


def test_comments_and_keep_alive_lines(serve_script, drive):
    body = chunk(b": ping\n\n") + FOUR + chunk(b":\n\n") + sse(usage(4)) + DONE + END
    records = drive(serve_script([STREAM_HEAD + body]).url)
    assert kinds(records) == ["content"] * 4 + ["usage", "done"]


@pytest.mark.parametrize(
    "form",
    ["data: {}\r\n\r\n", "data:{}\n\n", "data:{}\r\n\r\n", "data: {}\r\r", "id: 7\ndata: {}\n\n"],
)
def test_forms_of_events(serve_script, drive, form):
    events = [text("a"), text("b", '"stop"'), usage(2), "[DONE]"]
    body = b"".join(chunk(form.replace("{}", e).encode()) for e in events)
    records = drive(serve_script([STREAM_HEAD + body + END]).url)
    assert records.texts()["text"].to_list() == ["ab"]
    assert kinds(records) == ["content", "content", "usage", "done"]
    assert failure(records) == ("completed", None)


def test_no_usage_at_all(serve_script, drive):
    server = serve_script([STREAM_HEAD + FOUR + sse(text("", '"length"')) + DONE + END])
    summary = summarise(drive(server.url))
    assert summary["requests"]["completed"] == 1
    assert summary["output_tokens"]["source"] == "chunks"
    assert summary["input_tokens_per_s"] is None


def test_no_done_mark_but_a_finish_reason(serve_script, drive):
    server = serve_script([STREAM_HEAD + FOUR + sse(text("", '"length"')) + END])
    r = row(drive(server.url))
    assert (r["status"], r["done"], r["finish_reason"]) == ("completed", False, "length")


def test_neither_done_nor_finish_reason_is_truncated(serve_script, drive):
    assert failure(drive(serve_script([STREAM_HEAD + FOUR + END]).url)) == ("failed", "truncated")


@pytest.mark.parametrize("ending", [CLOSE, RESET])
def test_connection_closed_in_the_middle(serve_script, drive, ending):
    server = serve_script([STREAM_HEAD + FOUR, 0.05, ending])
    records = drive(server.url)
    assert failure(records) == ("failed", "truncated")
    assert row(records)["chunks"] == 4, "what arrived stays on record"


def test_connection_closed_before_any_answer(serve_script, drive):
    server = serve_script([CLOSE])
    records = drive(server.url)
    assert failure(records) == ("failed", "truncated")
    assert "before it answered" in row(records)["error"]


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"message":"CUDA out of memory","code":500}}\n\n',
        b'event: error\ndata: {"message":"CUDA out of memory"}\n\n',
        b"event: error\ndata: CUDA out of memory\n\n",
    ],
)
def test_error_object_in_the_stream(serve_script, drive, event):
    server = serve_script([STREAM_HEAD + FOUR + chunk(event) + DONE + END])
    records = drive(server.url)
    assert failure(records) == ("failed", "server_error")
    assert "CUDA out of memory" in row(records)["error"]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("400 Bad Request", b'{"error":{"message":"too long"}}', "too long"),
        ("404 Not Found", b'{"detail":"no such model"}', "no such model"),
        ("500 Internal Server Error", b"<html>boom</html>", "boom"),
        ("503 Service Unavailable", b"", "503"),
    ],
)
def test_http_errors(serve_script, drive, status, body, said):
    records = drive(serve_script([http(body, status)]).url)
    assert failure(records) == ("failed", "http_status")
    assert said in row(records)["error"]
    errors = summarise(records)["errors"]
    assert [(e["kind"], e["code"], e["count"]) for e in errors] == [
        ("http_status", int(status[:3]), 1)
    ]


def test_429_keeps_retry_after_and_is_not_retried(serve_script, drive):
    server = serve_script([http(b"{}", "429 Too Many Requests", more="Retry-After: 7\r\n")])
    records = drive(server.url)
    assert row(records)["retry_after"] == "7"
    assert (row(records)["http_status"], len(server.requests)) == (429, 1)


def test_a_reply_that_is_not_streamed(serve_script, drive):
    body = (
        b'{"choices":[{"text":"abcd","finish_reason":"length"}],'
        b'"usage":{"prompt_tokens":8,"completion_tokens":4}}'
    )
    records = drive(serve_script([http(body)]).url)
    r = row(records)
    assert (r["status"], r["streamed"], r["completion_tokens"]) == ("completed", False, 4)
    summary = summarise(records)
    assert summary["ttft_ms"]["p50"] is None, "no stream, no first token"
    assert summary["tpot_ms"]["p50"] is None
    assert summary["e2e_ms"]["p50"] > 0
    assert records.texts()["text"].to_list() == ["abcd"]


def test_an_error_with_status_200_and_json(serve_script, drive):
    records = drive(serve_script([http(b'{"error":{"message":"no slot"}}')]).url)
    assert failure(records) == ("failed", "server_error")


def test_zero_tokens_where_some_were_asked(serve_script, drive):
    server = serve_script([STREAM_HEAD + sse(text("", '"stop"')) + sse(usage(0)) + DONE + END])
    assert failure(drive(server.url)) == ("failed", "truncated")


def test_zero_tokens_where_none_were_asked(serve_script, drive):
    server = serve_script([STREAM_HEAD + sse(text("", '"length"')) + sse(usage(0)) + DONE + END])
    records = drive(server.url, output_tokens=0)
    assert failure(records) == ("completed", None)
    summary = summarise(records)
    assert summary["ttft_ms"]["p50"] is None
    assert summary["output_tokens"]["total"] == 0


def test_one_token_has_a_ttft_and_no_tpot(serve_script, drive):
    server = serve_script([STREAM_HEAD + sse(text("a", '"length"')) + sse(usage(1)) + DONE + END])
    summary = summarise(drive(server.url, output_tokens=1))
    assert summary["ttft_ms"]["p50"] > 0
    assert summary["tpot_ms"]["p50"] is None
    assert summary["tpot_n1_ms"]["p50"] is None
    assert summary["itl_ms"]["p50"] is None


def test_a_server_that_never_answers(serve_script, drive):
    records = drive(serve_script([HOLD]).url, request_timeout_s=0.3)
    assert failure(records) == ("failed", "timeout")


def test_a_server_that_drips(serve_script, drive):
    drops = [step for byte in STREAM_HEAD[:40] for step in (bytes([byte]), 0.05)]
    records = drive(serve_script(drops).url, request_timeout_s=0.4)
    assert failure(records) == ("failed", "timeout")


def test_the_time_limit_of_the_run_cancels(serve_script, drive):
    records = drive(serve_script([HOLD]).url, max_seconds=0.3, requests=3)
    assert records.requests["status"].to_list() == ["cancelled"] * 3
    assert [e is not None for e in records.requests["sent_ns"]] == [True, False, False]
    assert summarise(records)["requests"] == {"completed": 0, "failed": 0, "cancelled": 3}


def test_content_length_instead_of_chunked(serve_script, drive):
    events = [text("a"), text("b", '"stop"'), usage(2), "[DONE]"]
    body = "".join(f"data: {e}\n\n" for e in events).encode()
    records = drive(serve_script([http(body, kind="text/event-stream")]).url)
    assert failure(records) == ("completed", None)
    assert row(records)["chunks"] == 2


def test_neither_length_nor_chunks_ends_with_the_connection(serve_script, drive):
    events = [text("a"), text("b", '"stop"'), usage(2), "[DONE]"]
    body = "".join(f"data: {e}\n\n" for e in events).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    records = drive(serve_script([head + body, CLOSE]).url, requests=2)
    assert records.requests["status"].to_list() == ["completed"] * 2


def test_gzip_is_refused(serve_script, drive):
    server = serve_script([http(gzip.compress(b"data: {}\n\n"), more="Content-Encoding: gzip\r\n")])
    records = drive(server.url)
    assert failure(records) == ("failed", "protocol")
    assert b"accept-encoding: identity" in server.requests[0].lower()


def test_connection_refused_from_the_start(drive):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    records = drive(f"http://127.0.0.1:{port}", requests=3, concurrency=2)
    assert records.requests["error_kind"].to_list() == ["connect"] * 3
    assert records.requests["sent_ns"].null_count() == 3


def test_connection_refused_in_the_middle(serve_script, drive):
    server = serve_script([*GOOD, CLOSE], [RESET])
    original = server._play

    def play(sock, script):
        server.stop_listening()
        return original(sock, script)

    server._play = play
    records = drive(server.url, requests=3)
    assert records.requests["error_kind"].to_list() == [None, "connect", "connect"]


def test_a_keep_alive_connection_that_the_server_had_closed_is_no_failure(serve_script, drive):
    server = serve_script([*GOOD, 0.0, CLOSE])
    load = Workload(concurrency=1, requests=4, input_tokens=8, output_tokens=4)
    records = drive(server.url, load)
    assert records.requests["status"].to_list() == ["completed"] * 4
    assert server.connections >= 4


def test_finish_before_max_tokens_is_complete_and_on_record(serve_script, drive):
    records = drive(serve_script(GOOD).url, output_tokens=100)
    r = row(records)
    assert (r["status"], r["completion_tokens"], r["output_asked"]) == ("completed", 4, 100)


def test_reasoning_counts_for_ttft_and_content_for_ttfo(serve_script, drive):
    first = sse(delta('{"reasoning_content":"hm"}'))
    rest = sse(delta('{"content":"x"}', '"stop"')) + sse(usage(2)) + DONE + END
    records = drive(serve_script([STREAM_HEAD + first, 0.06, rest]).url)
    summary = summarise(records)
    assert kinds(records)[:2] == ["reasoning", "content"]
    assert summary["ttfo_ms"]["mean"] > summary["ttft_ms"]["mean"]
    r = row(records)
    assert r["first_token_ns"] < r["first_output_ns"] == r["last_token_ns"]


def test_tool_call_deltas_are_tokens(serve_script, drive):
    calls = [
        '{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}',
    ]
    body = b"".join(sse(delta(c)) for c in calls) + sse(delta("{}", '"tool_calls"'))
    records = drive(serve_script([STREAM_HEAD + body + sse(usage(2)) + DONE + END]).url)
    assert kinds(records)[:3] == ["tool", "tool", "finish"]
    assert records.texts()["text"].to_list() == ["f{}"]


def test_a_chunk_of_ten_megabytes(serve_script, drive):
    big = "x" * 10_000_000
    body = sse(text(big)) + sse(text("y", '"stop"')) + sse(usage(2)) + DONE + END
    records = drive(serve_script([STREAM_HEAD + body]).url)
    assert failure(records) == ("completed", None)
    assert len(records.texts()["text"][0]) == 10_000_001


@pytest.mark.parametrize(
    "reply",
    [
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        STREAM_HEAD + chunk(b'data: {"choices": [\n\n') + DONE + END,
        http(b"<html>hello</html>", kind="text/html"),
        http(b'{"choices": [', kind="application/json"),
    ],
)
def test_malformed_replies(serve_script, drive, reply):
    assert failure(drive(serve_script([reply, HOLD]).url)) == ("failed", "protocol")


def test_the_end_mark_split_between_segments(serve_script, drive):
    whole = GOOD[0]
    for cut in range(1, 8):
        server = serve_script([whole[:-cut], 0.02, whole[-cut:]])
        assert failure(drive(server.url, request_timeout_s=2.0)) == ("completed", None)


def test_bytes_that_look_like_the_end_inside_the_body(serve_script, drive):
    trap = chunk(b'data: {"choices":[{"text":"0\\r\\n\\r\\n"}]}\n\n:0\r\n\r\n')
    server = serve_script(
        [STREAM_HEAD + trap[:-2], 0.03, trap[-2:] + FOUR + sse(usage(5)) + DONE + END]
    )
    records = drive(server.url)
    assert failure(records) == ("completed", None)
    assert row(records)["chunks"] == 5


def test_trailers_after_the_body(serve_script, drive):
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nTrailer: X-Sum\r\n\r\n")
    server = serve_script([head + FOUR + sse(usage(4)) + DONE + b"0\r\nX-Sum: 1\r\n\r\n"])
    assert failure(drive(server.url, request_timeout_s=2.0)) == ("completed", None)


def test_one_bad_answer_does_not_disturb_the_next(serve_script, drive):
    server = serve_script([STREAM_HEAD + FOUR, CLOSE], [http(b"x", "500 Oops")], GOOD)
    records = drive(server.url, requests=3)
    assert records.requests["error_kind"].to_list() == ["truncated", "http_status", None]


def test_bytes_that_nobody_asked_for_close_the_connection_and_spoil_no_record(serve_script, drive):
    server = serve_script([*GOOD, 0.05, b"HTTP/1.1 200 OK\r\n"], GOOD)
    load = Workload(rate=5.0, arrival="constant", requests=3, input_tokens=8, output_tokens=4)
    records = drive(server.url, load)
    assert records.requests["status"].to_list() == ["completed"] * 3
    assert records.requests["chunks"].to_list() == [4, 4, 4]
    assert server.connections >= 2
