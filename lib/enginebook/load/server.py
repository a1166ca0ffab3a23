"""A reference server: OpenAI-compatible, and punctual to tens of microseconds.

It sends the first token a fixed time after a request is complete and then one token each fixed
interval, whatever the load, and keeps the true time of every send, so that a client's reading can
be held against the truth. It costs a few microseconds a token and runs as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import os
import socket
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import httptools
import orjson
import uvloop

from enginebook.load.clock import NS_PER_MS, Alarm, now_ns, sharpen_timers

MODEL = "reference"
_WORDS = (" harbour", " lamp", " of", " the", " valley", " map", " and", " tide")
_DEFAULT_TOKENS = 16
_BACKLOG = 4096


@dataclass(frozen=True)
class Schedule:
    """When tokens are sent: ``ttft_ms`` after the request, then each ``itl_ms``."""

    ttft_ms: float = 20.0
    itl_ms: float = 5.0

    @property
    def ttft_ns(self) -> int:
        """Return the time to the first token."""
        return round(self.ttft_ms * NS_PER_MS)

    @property
    def itl_ns(self) -> int:
        """Return the time between tokens."""
        return round(self.itl_ms * NS_PER_MS)


def chunk(payload: bytes) -> bytes:
    """Return bytes in HTTP's chunked framing."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(value: Any) -> bytes:
    """Return a JSON value as a server-sent event in one HTTP chunk."""
    return chunk(b"data: " + orjson.dumps(value) + b"\n\n")


def _choice(chat: bool, text: str, finish: str | None) -> dict[str, Any]:  # noqa: FBT001
    body: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
    return {**body, "delta": {"content": text}} if chat else {**body, "text": text}


def _frame(chat: bool, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:  # noqa: FBT001
    kind = "chat.completion.chunk" if chat else "text_completion"
    identity = {"id": "cmpl-reference-0000000000000000", "object": kind, "created": 1700000000}
    return {**identity, "model": MODEL, "choices": choices, **more}


_TOKEN_BYTES = {
    chat: tuple(event(_frame(chat, [_choice(chat, word, None)])) for word in _WORDS)
    for chat in (False, True)
}
_FINISH_BYTES = {chat: event(_frame(chat, [_choice(chat, "", "length")])) for chat in (False, True)}
_ROLE_BYTES = event(_frame(True, [{"index": 0, "delta": {"role": "assistant", "content": ""}}]))  # noqa: FBT003
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Stream:
    """One answer being sent."""

    __slots__ = ("chat", "connection", "due_ns", "head", "itl_ns", "position", "sent_ns", "tail",
                 "total")  # fmt: skip

    def __init__(self, connection: ServerConnection, fields: dict[str, Any], chat: bool) -> None:  # noqa: FBT001
        self.connection = connection
        self.chat = chat
        self.total = max(0, int(fields.get("max_tokens") or _DEFAULT_TOKENS))
        self.position = 0
        self.itl_ns = 0
        self.due_ns = 0
        self.sent_ns = array("q")
        self.head = _HEAD + (_ROLE_BYTES if chat else b"")
        prompt_tokens = count_prompt(fields)
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.total,
            "total_tokens": prompt_tokens + self.total,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        wanted = (fields.get("stream_options") or {}).get("include_usage")
        last = event(_frame(chat, [], usage=usage)) if wanted else b""
        self.tail = _FINISH_BYTES[chat] + last + _END

    def step(self) -> bool:
        """Send what is due; return whether more follows."""
        words = _TOKEN_BYTES[self.chat]
        data = words[self.position % len(words)] if self.total else b""
        if self.position == 0:
            data = self.head + data
        self.position += 1
        over = self.position >= self.total
        if over:
            data += self.tail
        self.sent_ns.append(now_ns())
        self.connection.write(data)
        self.due_ns += self.itl_ns
        return not over


def count_prompt(fields: dict[str, Any]) -> int:
    """Return the tokens of a prompt: ids, or words of a text."""
    prompt = fields.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    if isinstance(prompt, str):
        return len(prompt.split())
    messages = fields.get("messages") or []
    return sum(len(str(m.get("content", "")).split()) for m in messages)


class Reference:
    """The server's state: streams by the time at which they are due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, schedule: Schedule) -> None:
        self.schedule = schedule
        self._due: list[tuple[int, int, Stream]] = []
        self._count = 0
        self._alarm = Alarm(loop, self._ring)
        self.truth: dict[str, tuple[int, array[int]]] = {}

    def start(self, stream: Stream, at_ns: int, request_id: str, ttft_ns: int) -> None:
        """Take up a stream whose request was complete at ``at_ns``."""
        self._count += 1
        stream.due_ns = at_ns + ttft_ns
        self.truth[request_id or str(self._count)] = (at_ns, stream.sent_ns)
        heapq.heappush(self._due, (stream.due_ns, self._count, stream))
        if self._due[0][2] is stream:
            self._alarm.set(stream.due_ns)

    def _ring(self) -> None:
        due = self._due
        while due and due[0][0] <= now_ns():
            _, number, stream = due[0]
            if stream.connection.alive and stream.step():
                heapq.heapreplace(due, (stream.due_ns, number, stream))
            else:
                heapq.heappop(due)
        if due:
            self._alarm.set(due[0][0])

    def report(self) -> bytes:
        """Return the true times and the server's own CPU time, and forget the times."""
        truth = {k: {"received": at, "sent": sent.tolist()} for k, (at, sent) in self.truth.items()}
        self.truth = {}
        times = os.times()
        return orjson.dumps({"cpu_s": times.user + times.system, "requests": truth})


class ServerConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._url = b""
        self._id = ""
        self.alive = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._fd = transport.get_extra_info("socket").fileno()
        self.alive = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Forget the client."""
        self.alive = False

    def data_received(self, data: bytes) -> None:
        """Read a request."""
        self._arrival_ns = now_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """Begin a request (called by the parser)."""
        self._body, self._url, self._id = [], b"", ""

    def on_url(self, url: bytes) -> None:
        """Take the path (called by the parser)."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take the request's id (called by the parser)."""
        if name.lower() == b"x-request-id":
            self._id = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body (called by the parser)."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Answer (called by the parser)."""
        path = self._url.decode("latin-1").partition("?")[0]
        if path.endswith("/completions"):
            self._complete(path.endswith("/chat/completions"))
        elif path.endswith("/tokenize"):
            self._reply({"tokens": tokenize(self._json()), "max_model_len": 1 << 20})
        elif path.endswith("/models"):
            self._reply({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif path.endswith("/truth"):
            self._reply_bytes(self._reference.report())
        else:
            self._reply({"status": "ok"})

    def _json(self) -> dict[str, Any]:
        try:
            value = orjson.loads(b"".join(self._body))
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    def _complete(self, chat: bool) -> None:  # noqa: FBT001
        fields = self._json()
        schedule = self._reference.schedule
        stream = Stream(self, fields, chat)
        stream.itl_ns = round(fields.get("itl_ms", schedule.itl_ms) * NS_PER_MS)
        ttft_ns = round(fields.get("ttft_ms", schedule.ttft_ms) * NS_PER_MS)
        if fields.get("stream"):
            self._reference.start(stream, self._arrival_ns, self._id, ttft_ns)
            return
        words = "".join(_WORDS[i % len(_WORDS)] for i in range(stream.total))
        usage = {"prompt_tokens": count_prompt(fields), "completion_tokens": stream.total}
        choice = _choice(chat, words, "length")
        if chat:
            choice["message"] = {"role": "assistant", "content": words}
        self._reply(_frame(chat, [choice], usage=usage))

    def _reply(self, value: Any) -> None:
        self._reply_bytes(orjson.dumps(value))

    def _reply_bytes(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)

    def write(self, data: bytes) -> None:
        """Hand bytes to the kernel now, not at the end of the loop's turn."""
        if self._transport.get_write_buffer_size():
            self._transport.write(data)
            return
        try:
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        if written < len(data):
            self._transport.write(data[written:])


def tokenize(fields: dict[str, Any]) -> list[int]:
    """Return made-up ids, one for each word of a text; equal words have equal ids."""
    text = str(fields.get("prompt") or fields.get("content") or "")
    known: dict[str, int] = {}
    return [known.setdefault(word, len(known) + 3) for word in text.split()]


async def serve(sock: socket.socket, schedule: Schedule) -> None:
    """Serve on a bound socket until cancelled."""
    loop = asyncio.get_running_loop()
    reference = Reference(loop, schedule)
    server = await loop.create_server(
        lambda: ServerConnection(reference), sock=sock, backlog=_BACKLOG
    )
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    await _parent_gone(loop)
    server.close()


async def _parent_gone(loop: asyncio.AbstractEventLoop) -> None:
    """Return when standard input closes: the server never outlives who started it."""
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve with the schedule of the command line; print the port; end with standard input."""
    parser = argparse.ArgumentParser(description="reference server for load generators")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--itl-ms", type=float, default=5.0)
    args = parser.parse_args(argv)
    sharpen_timers()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.bind(("127.0.0.1", args.port))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sock, Schedule(args.ttft_ms, args.itl_ms)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
