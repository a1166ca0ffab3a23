"""Whatever way a server cuts its bytes, the same answer is read and each byte has its time."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from load_support import DONE, END, STREAM_HEAD, chunk

from enginebook.load.answers import CONTENT, EMPTY, FINISH, read_stream
from enginebook.load.connection import Connection
from enginebook.load.decode import Decoder
from enginebook.load.exchange import Exchange
from enginebook.load.framing import read_reply
from enginebook.load.plan import Planned
from enginebook.load.records import frames_of
from enginebook.load.sse import _read_any, read_events

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def event(text, finish=None):
    choice = {"index": 0, "text": text, "finish_reason": finish}
    value = {"id": "x", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def exchange_of(pieces, output=4):
    exchange = Exchange(Planned(0, 8, output), 1)
    exchange.sent_ns = 1
    exchange.pieces = list(pieces)
    exchange.stamps = [1000 * (i + 1) for i in range(len(pieces))]
    exchange.end_ns = exchange.stamps[-1]
    return exchange


def cut(data, places):
    edges = [0, *sorted({p % len(data) for p in places} - {0}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(words, min_size=1, max_size=30), st.lists(st.integers(0, 10**6), max_size=40))
@settings(deadline=None, max_examples=150)
def test_any_cutting_of_the_bytes_reads_the_same(texts, places):
    body = b"".join(chunk(event(t)) for t in texts) + chunk(event("", "stop")) + DONE
    data = STREAM_HEAD + body + END
    decoder = Decoder(0, None)
    decoder.add(exchange_of(cut(data, places)))
    decoder.add(exchange_of([data]))
    rows = decoder.columns.requests
    assert [r["error_kind"] for r in rows] in ([None, None], ["truncated", "truncated"])
    n = len(decoder.columns.kind) // 2
    assert decoder.columns.kind[:n] == decoder.columns.kind[n:]
    assert decoder.columns.text[:n] == decoder.columns.text[n:]
    assert decoder.columns.byte_end[:n] == decoder.columns.byte_end[n:]
    assert "".join(t or "" for t in decoder.columns.text[:n]) == "".join(texts)


@given(st.lists(words, min_size=1, max_size=12), st.lists(st.integers(0, 10**6), max_size=25))
@settings(deadline=None, max_examples=150)
def test_an_event_has_the_time_of_the_piece_that_completed_it(texts, places):
    data = STREAM_HEAD + b"".join(chunk(event(t)) for t in texts) + DONE + END
    pieces = cut(data, places)
    decoder = Decoder(0, None)
    decoder.add(exchange_of(pieces))
    _, chunks = frames_of(decoder.columns)
    past = np.cumsum([len(p) for p in pieces])
    offset = len(STREAM_HEAD)
    for text, stamp in zip(texts, chunks["recv_ns"].to_list(), strict=False):
        whole = chunk(event(text))
        # the last byte that matters is the line's end: the blank line and the chunk's mark follow
        needed = offset + len(whole) - len(b"\n\r\n")
        assert stamp == 1000 * (int(np.searchsorted(past, needed)) + 1)
        offset += len(whole)


@given(st.lists(words, min_size=10, max_size=60), st.booleans())
@settings(deadline=None, max_examples=150)
def test_the_short_cut_through_equal_events_changes_nothing(texts, ascii_only):
    def one(text, finish=None):
        value = {"choices": [{"delta": {"content": text}, "finish_reason": finish}], "created": 1}
        return b"data: " + json.dumps(value, ensure_ascii=ascii_only).encode() + b"\n\n"

    parts = [one(t) for t in texts] + [one("", "stop"), b"data: [DONE]\n\n"]
    answer = read_stream(b"".join(parts))
    assert answer.texts[: len(texts)] == [t or None for t in texts]
    assert answer.kinds[: len(texts)] == [CONTENT if t else EMPTY for t in texts]
    assert answer.kinds[len(texts)] == FINISH
    ends = np.cumsum([len(p) for p in parts]) - 1
    assert answer.ends == ends.tolist()
    assert answer.starts == [0, *(ends[:-1] + 1).tolist()]
    assert answer.done
    assert answer.finish_reason == "stop"


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:b", b": c", b"event: error", b"id: 1", b"", b"x"]),
        max_size=25,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_the_quick_reader_of_events_agrees_with_the_full_one(lines, newline):
    body = newline.join(lines)
    quick, full = read_events(body), _read_any(body)
    assert quick.payloads == full.payloads
    assert quick.starts == full.starts
    assert quick.ends == full.ends
    assert quick.names == full.names


class Recorder:
    def __init__(self):
        self.ended_with = []

    def ended(self, connection, exchange):
        self.ended_with.append(exchange)


class Transport:
    def write(self, data):
        self.written = data

    def get_write_buffer_size(self):
        return 0

    def abort(self):
        self.aborted = True


@given(
    st.lists(words, min_size=1, max_size=8),
    st.lists(st.integers(0, 10**6), max_size=30),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_the_connection_sees_the_end_exactly_when_the_last_byte_is_in(
    texts, places, done, by_length
):
    events = (
        b"".join(event(t) for t in texts)
        + event("", "stop")
        + (b"data: [DONE]\n\n" if done else b"")
    )
    if by_length:
        data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(events), events)
    else:
        data = STREAM_HEAD + b"".join(chunk(e + b"\n\n") for e in events.split(b"\n\n")[:-1]) + END
    owner = Recorder()
    connection = Connection(owner, False, 0)
    connection.connection_made(Transport())
    exchange = Exchange(Planned(0, 8, 4), 1)
    connection.send(exchange, b"request")
    pieces = cut(data, places)
    for piece in pieces:
        assert owner.ended_with == []
        connection.data_received(piece)
    assert owner.ended_with == [exchange]
    assert exchange.fault == ""
    assert connection.alive
    assert read_reply(exchange).body == events


def test_two_answers_on_one_connection():
    owner = Recorder()
    connection = Connection(owner, False, 0)
    connection.connection_made(Transport())
    data = STREAM_HEAD + chunk(event("a")) + DONE + END
    for n in range(3):
        exchange = Exchange(Planned(n, 8, 4), 1)
        connection.send(exchange, b"request")
        connection.data_received(data)
        assert owner.ended_with[-1] is exchange
        assert exchange.reused == (n > 0)
