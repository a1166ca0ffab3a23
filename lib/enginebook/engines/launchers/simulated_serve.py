"""A simulated engine: the OpenAI interface over simulated_scheduler.py. Its text means nothing.

For trying studies, notebooks and lifecycle quickly, and for faults on demand. Answers are
words of one token each, or JSON where a schema is asked for; prompts count by the model's
tokenizer. It never stands in for a real engine: it says ``simulated`` in its version, its model
list and every metric name.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import simulated_json  # type: ignore[import-not-found]
from simulated_scheduler import Costs, Limits, Scheduler, Sequence  # type: ignore[import-not-found]

FAULTS = ("none", "crash-at-start", "hang-at-start", "crash", "error", "truncate", "short", "deaf")
MAX_HEAD_BYTES = 65536
MOST_WORDS = 500
STREAM_HEAD = (
    b"HTTP/1.1 200 -\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CRASH_STATUS = 70
TOO_LONG = 400


class Engine:
    """The scheduler driven by the clock; a queue of tokens for each request."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._queues: dict[Any, asyncio.Queue[int]] = {}
        self._work = asyncio.Event()

    def submit(self, sequence: Any) -> asyncio.Queue[int]:
        """Queue a request and return where its tokens come."""
        self.scheduler.add(sequence)
        self._queues[sequence] = asyncio.Queue()
        self._work.set()
        return self._queues[sequence]

    def forget(self, sequence: Any) -> None:
        """Drop a request that is done or whose client went away."""
        self._queues.pop(sequence, None)
        self.scheduler.remove(sequence)

    async def run(self) -> None:
        """Step for ever; a step that was due late is followed at once."""
        due = time.monotonic()
        while True:
            if not self.scheduler.waiting and not self.scheduler.running:
                self._work.clear()
                await self._work.wait()
                due = time.monotonic()
            seconds, grown = self.scheduler.step()
            due = max(due, time.monotonic() - seconds) + seconds
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for sequence in grown:
                queue = self._queues.get(sequence)
                if queue is not None:
                    queue.put_nowait(sequence.produced)


class Service:
    """HTTP/1.1 over asyncio streams: one request after another on a connection."""

    def __init__(
        self, args: argparse.Namespace, engine: Engine, count: Any, words: list[str]
    ) -> None:
        self.args, self.engine, self.count, self.words = args, engine, count, words
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the client closes."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split("\r\n", 1)[0].split(" ", 2)
        lengths = [x for x in head.lower().split("\r\n") if x.startswith("content-length:")]
        body = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b""
        if method == "POST" and path in {"/v1/completions", "/v1/chat/completions"}:
            return await self._complete(writer, json.loads(body), chat="chat" in path)
        await self._plain(writer, *self._page(path.split("?")[0]))
        return True

    def _page(self, path: str) -> tuple[int, str, str]:
        model = {"id": self.args.name, "object": "model", "owned_by": "simulated"}
        pages: dict[str, Any] = {
            "/health": {"status": "ok", "engine": "simulated"},
            "/version": {"version": f"{self.args.version}+simulated"},
            "/v1/models": {"object": "list", "data": [model]},
        }
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4", self._metrics()
        if path in pages:
            return 200, "application/json", json.dumps(pages[path])
        return 404, "application/json", json.dumps({"error": {"message": f"no {path}"}})

    def _metrics(self) -> str:
        s = self.engine.scheduler
        values = {
            "num_requests_running": len(s.running),
            "num_requests_waiting": len(s.waiting),
            "kv_cache_usage": s.used / s.limits.kv_tokens,
            **{f"{f.name}_total": getattr(s.counters, f.name) for f in fields(s.counters)},
        }
        return "".join(f"simulated:{name} {value}\n" for name, value in values.items())

    async def _plain(self, writer: asyncio.StreamWriter, status: int, kind: str, text: str) -> None:
        data = text.encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()

    async def _complete(
        self, writer: asyncio.StreamWriter, body: dict[str, Any], *, chat: bool
    ) -> bool:
        number = next(self._numbers)
        hit = number % self.args.every == 0
        if hit and self.args.fault == "crash":
            os._exit(CRASH_STATUS)
        if hit and self.args.fault == "error":
            await self._error(writer, 500, "simulated failure")
            return True
        wanted = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        pieces = constrained_pieces(body, number)
        wanted = min(wanted, len(pieces)) if pieces else wanted
        if hit and self.args.fault == "short":
            wanted = max(1, wanted // 2)
        sequence = Sequence(tuple(self.count(prompt_of(body))), wanted)
        if len(sequence.prompt) + wanted > self.args.max_model_len:
            await self._error(writer, TOO_LONG, "the request is longer than max_model_len")
            return True
        queue = self.engine.submit(sequence)
        answer = Answer(
            self.args.name, number, body, sequence, pieces=pieces, words=self.words, chat=chat
        )
        try:
            if body.get("stream"):
                cut = hit and self.args.fault == "truncate"
                return await self._stream(writer, queue, answer, cut=cut)
            words = [answer.word(await queue.get()) for _ in range(wanted)]
            await self._plain(writer, 200, "application/json", json.dumps(answer.whole(words)))
            return True
        finally:
            self.engine.forget(sequence)

    async def _error(self, writer: asyncio.StreamWriter, status: int, message: str) -> None:
        text = json.dumps({"error": {"message": message, "type": "simulated"}})
        await self._plain(writer, status, "application/json", text)

    async def _stream(
        self,
        writer: asyncio.StreamWriter,
        queue: asyncio.Queue[int],
        answer: Answer,
        *,
        cut: bool,
    ) -> bool:
        writer.write(STREAM_HEAD)
        for left in range(answer.sequence.output_tokens - 1, -1, -1):
            event = answer.event(answer.word(await queue.get()), last=left == 0)
            writer.write(chunk(f"data: {json.dumps(event)}\n\n"))
            await writer.drain()
            if cut:
                writer.transport.abort()
                return False
        if (answer.body.get("stream_options") or {}).get("include_usage"):
            writer.write(chunk(f"data: {json.dumps(answer.last())}\n\n"))
        writer.write(chunk("data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()
        return True


class Answer:
    """The JSON of one answer, whole or in pieces."""

    def __init__(
        self,
        model: str,
        number: int,
        body: dict[str, Any],
        sequence: Any,
        *,
        pieces: list[str],
        words: list[str],
        chat: bool,
    ) -> None:
        self.body, self.sequence, self.chat = body, sequence, chat
        self._pieces, self._words = pieces, words
        self._seed = hash(sequence.prompt) % 997
        name = "chat.completion" if chat else "text_completion"
        self._base = {"id": f"sim-{number}", "object": name, "model": model}

    @property
    def _reason(self) -> str:
        """Return why the answer ends: JSON ends by itself, text at its length."""
        return "stop" if len(self._pieces) == self.sequence.output_tokens else "length"

    def word(self, position: int) -> str:
        """Return the text of one token; positions count from 1."""
        if self._pieces:
            return self._pieces[position - 1]
        return self._words[(self._seed + 31 * position) % len(self._words)]

    def event(self, text: str, *, last: bool) -> dict[str, Any]:
        """Return one event of a stream."""
        piece: dict[str, Any] = {"delta": {"content": text}} if self.chat else {"text": text}
        choice = {"index": 0, "finish_reason": self._reason if last else None, **piece}
        return {**self._base, "choices": [choice]}

    def last(self) -> dict[str, Any]:
        """Return the event that carries the usage."""
        return {**self._base, "choices": [], "usage": self.usage()}

    def whole(self, words: list[str]) -> dict[str, Any]:
        """Return an answer that is not streamed."""
        text = "".join(words)
        message = {"role": "assistant", "content": text}
        piece: dict[str, Any] = {"message": message} if self.chat else {"text": text}
        choice = {"index": 0, "finish_reason": self._reason, **piece}
        return {**self._base, "choices": [choice], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """Return token counts."""
        prompt, made = len(self.sequence.prompt), self.sequence.output_tokens
        details = {"cached_tokens": self.sequence.cached}
        total = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        return {**total, "prompt_tokens_details": details}


def constrained_pieces(body: dict[str, Any], seed: int) -> list[str]:
    """Return the tokens of an answer whose form is given, or nothing."""
    schema = simulated_json.constraint(body)
    return list(simulated_json.pieces(schema, seed)) if schema is not None else []


def chunk(text: str) -> bytes:
    """Return a chunk of the chunked transfer coding."""
    data = text.encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def prompt_of(body: dict[str, Any]) -> str | list[int]:
    """Return a prompt as text or as token ids."""
    if "messages" in body:
        return " ".join(str(m.get("content", "")) for m in body["messages"])
    prompt = body.get("prompt", "")
    return prompt if isinstance(prompt, (str, list)) else str(prompt)


def tokenizer_of(folder: str) -> Any:
    """Return the model's own tokenizer."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - the workbook's, in whose Python this runs

    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def words_of(tokenizer: Any) -> list[str]:
    """Return words that are one token each, so that whoever counts the text counts as we do."""
    known = dict.fromkeys(t.removeprefix("\u0120") for t in sorted(tokenizer.get_vocab()))
    plain = (t for t in known if t.isascii() and t.isalnum() and t.islower())
    single = (t for t in plain if len(tokenizer.encode(f" {t} {t}").ids) == 2)  # noqa: PLR2004
    return [f" {t}" for t in itertools.islice(single, MOST_WORDS)] or [" t"]


def counter(tokenizer: Any) -> Any:
    """Return a function from a prompt to token ids."""

    def count(prompt: str | list[int]) -> list[int]:
        return prompt if isinstance(prompt, list) else list(tokenizer.encode(prompt).ids)

    return count


def parse_arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--version", default="0")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--load-seconds", type=float, default=0.2)
    parser.add_argument("--costs", type=json.loads, default={})
    parser.add_argument("--limits", type=json.loads, default={})
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--every", type=int, default=1, help="the fault hits every n-th request")
    return parser.parse_args()


async def run(args: argparse.Namespace) -> None:
    """Load, listen, and serve until a signal comes."""
    if args.fault == "crash-at-start":
        raise SystemExit("simulated: crash at start")
    await asyncio.sleep(args.load_seconds)
    if args.fault == "hang-at-start":
        await asyncio.Event().wait()
    engine = Engine(Scheduler(Costs(**args.costs), Limits(**args.limits)))
    print("simulated: weights loaded", flush=True)
    tokenizer = tokenizer_of(args.tokenizer)
    service = Service(args, engine, counter(tokenizer), words_of(tokenizer))
    stop = asyncio.Event()
    for number in () if args.fault == "deaf" else (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stepping = asyncio.create_task(engine.run())
    await asyncio.start_server(service.serve, args.host, args.port, limit=MAX_HEAD_BYTES)
    print(f"simulated: listening on {args.host}:{args.port}", flush=True)
    await stop.wait()
    stepping.cancel()


def main() -> None:
    """Run the simulated engine."""
    args = parse_arguments()
    if args.fault == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(run(args))


if __name__ == "__main__":
    main()
