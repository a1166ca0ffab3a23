"""From exchanges to wire records: every fault by its kind, every chunk with its arrival."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from enginebook.load.answers import (
    EMPTY,
    GENERATED,
    VISIBLE,
    Answer,
    read_answer,
    said,
    whole,
)
from enginebook.load.exchange import Exchange
from enginebook.load.framing import Reply, read_reply
from enginebook.load.tokens import LocalTokens
from enginebook.masking import Mask
from enginebook.plain import neutral

CHECKED_ANSWERS = 64
_OK = 200
_SAID_LENGTH, _HEADER_LENGTH = 300, 100


@dataclass
class Columns:
    """Growing columns of the two record tables."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    request: list[np.ndarray] = field(default_factory=list)
    seq: list[np.ndarray] = field(default_factory=list)
    recv_ns: list[np.ndarray] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    text: list[str | None] = field(default_factory=list)
    tokens: list[int | None] = field(default_factory=list)
    byte_start: list[int] = field(default_factory=list)
    byte_end: list[int] = field(default_factory=list)


class Decoder:
    """Decodes the exchanges of one process.

    Parameters
    ----------
    tokenizer
        Counts tokens where the server's own counts do not say how many a chunk brought, and checks
        the server's counts on the first answers; None leaves those unknown.
    mask
        Hides what a server must not have known or must not repeat: the key it was asked with.
    """

    def __init__(
        self, worker: int, tokenizer: LocalTokens | None, mask: Mask | None = None
    ) -> None:
        self._worker = worker
        self._tokenizer = tokenizer
        self._mask = mask or Mask(())
        self._checked = 0
        self.columns = Columns()

    def add(self, exchange: Exchange) -> None:
        """Decode one exchange."""
        reply = read_reply(exchange)
        reply.body = self._mask.data(reply.body)
        row = self._row(exchange, reply)
        coding = reply.headers.get("content-encoding", "identity").strip().lower()
        readable = reply.status == _OK and coding == "identity" and reply.body
        answer = read_answer(reply) if readable else None
        row["error_kind"], error = fault_of(exchange, reply, answer)
        row["error"] = None if error is None else self._mask.text(neutral(error))
        row["status"] = _status(row["error_kind"])
        if answer is not None:
            self._add_answer(row, reply, answer)
        self.columns.requests.append(row)

    def _row(self, exchange: Exchange, reply: Reply) -> dict[str, Any]:
        planned = exchange.planned
        return {
            "request": planned.index,
            "phase": "warmup" if planned.warmup else "measured",
            "worker": self._worker,
            "stream": exchange.stream,
            "session": planned.session,
            "turn": planned.turn,
            "scheduled_ns": exchange.scheduled_ns or None,
            "connect_start_ns": exchange.connect_start_ns or None,
            "connected_ns": exchange.connected_ns or None,
            "sent_ns": exchange.sent_ns or None,
            "first_byte_ns": exchange.stamps[0] if exchange.stamps else None,
            "end_ns": exchange.end_ns or None,
            "attempts": exchange.attempts,
            "http_status": reply.status,
            "retry_after": self._header(reply, "retry-after"),
            "input_asked": planned.input_tokens,
            "output_asked": planned.output_tokens,
            "bytes": len(reply.body),
        }

    def _header(self, reply: Reply, name: str) -> str | None:
        value = reply.headers.get(name)
        return None if value is None else self._mask.text(neutral(value))[:_HEADER_LENGTH]

    def _add_answer(self, row: dict[str, Any], reply: Reply, answer: Answer) -> None:
        count = len(answer.kinds)
        arrivals = reply.arrival_ns(answer.ends)
        tokens, source, client = self._tokens(answer)
        row.update(_answer_fields(answer, arrivals), tokens_source=source, client_tokens=client)
        columns = self.columns
        columns.request.append(np.full(count, row["request"], np.int32))
        columns.seq.append(np.arange(count, dtype=np.int32))
        columns.recv_ns.append(arrivals)
        columns.kind += answer.kinds
        columns.text += answer.texts
        columns.tokens += tokens
        columns.byte_start += answer.starts
        columns.byte_end += answer.ends

    def _tokens(self, answer: Answer) -> tuple[list[int | None], str | None, int | None]:
        """Return tokens for each event, how they are known, and the client's own count."""
        total = whole((answer.usage or {}).get("completion_tokens"))
        tokens, source = _tokens_by_server(answer, total)
        client = None
        if self._tokenizer is not None and (source is None or self._checked < CHECKED_ANSWERS):
            self._checked += 1
            ends = self._tokenizer.ends(answer.text)
            client = len(ends)
            if source is None:
                tokens, source = _tokens_by_text(answer, ends), "tokenizer"
        return tokens, source, client


def _status(error_kind: str | None) -> str:
    if error_kind is None:
        return "completed"
    return "cancelled" if error_kind == "cancelled" else "failed"


def _answer_fields(answer: Answer, arrivals: np.ndarray) -> dict[str, Any]:
    # plain lists: an answer is short, and numpy's start-up per call would cost more than the work
    generated = [i for i, kind in enumerate(answer.kinds) if kind in GENERATED]
    visible = next((i for i in generated if answer.kinds[i] in VISIBLE), None)
    usage = answer.usage or {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return {
        "first_token_ns": int(arrivals[generated[0]]) if generated else None,
        "first_output_ns": int(arrivals[visible]) if visible is not None else None,
        "last_token_ns": int(arrivals[generated[-1]]) if generated else None,
        "prompt_tokens": whole(usage.get("prompt_tokens")),
        "completion_tokens": whole(usage.get("completion_tokens")),
        "cached_tokens": whole(cached),
        "chunks": len(generated),
        "finish_reason": answer.finish_reason,
        "done": answer.done,
        "streamed": answer.streamed,
        "served_model": answer.served_model,
    }


def _tokens_by_server(answer: Answer, total: int | None) -> tuple[list[int | None], str | None]:
    """Return tokens for each event as far as the server's own counts tell them.

    Either each event carries the count so far, or there are as many events with text as tokens, or
    as many deltas (a delta without text is a token whose bytes are no whole character yet).
    """
    kinds = answer.kinds
    blank: list[int | None] = [None] * len(kinds)
    if not answer.streamed:
        return blank, None
    running = [c for c, k in zip(answer.counts, kinds, strict=True) if k in GENERATED]
    if len(running) > 1 and None not in running:
        return _differences(answer), "usage"
    texts = len(running)
    if total == texts:
        return [1 if k in GENERATED else None for k in kinds], "chunks"
    if total == texts + sum(k == EMPTY for k in kinds):
        return [1 if k in GENERATED or k == EMPTY else None for k in kinds], "chunks"
    return blank, None


def _differences(answer: Answer) -> list[int | None]:
    before = 0
    found: list[int | None] = []
    for kind, count in zip(answer.kinds, answer.counts, strict=True):
        if kind in GENERATED and count is not None:
            found.append(max(0, count - before))
            before = count
        else:
            found.append(None)
    return found


def _tokens_by_text(answer: Answer, ends: list[int]) -> list[int | None]:
    """Return tokens for each event: those whose last character arrived with it."""
    lengths = np.array([len(t) if t else 0 for t in answer.texts])
    past = np.searchsorted(np.asarray(ends), np.cumsum(lengths), side="right")
    counts = np.diff(past, prepend=0)
    return [int(n) if k in GENERATED else None for n, k in zip(counts, answer.kinds, strict=True)]


def fault_of(
    exchange: Exchange, reply: Reply, answer: Answer | None
) -> tuple[str | None, str | None]:
    """Return the kind of error and its text, or (None, None) for a complete answer."""
    if exchange.fault in {"connect", "timeout", "cancelled"}:
        return exchange.fault, exchange.fault_text
    if reply.status is not None and reply.status != _OK:
        return "http_status", f"{reply.status} {_message_of(reply)}".strip()
    if answer is not None and answer.error:
        return "server_error", answer.error
    if exchange.fault == "protocol" or reply.problem:
        return "protocol", exchange.fault_text or f"malformed HTTP: {reply.problem}"
    if exchange.fault == "closed":
        where = "before it answered" if reply.status is None else "before the answer was complete"
        return "truncated", f"the connection was closed {where} ({exchange.fault_text})"
    return _fault_of_complete(exchange, reply, answer)


def _fault_of_complete(
    exchange: Exchange, reply: Reply, answer: Answer | None
) -> tuple[str | None, str | None]:
    coding = reply.headers.get("content-encoding", "identity").strip().lower()
    if answer is None and coding != "identity":
        return "protocol", f"the reply is encoded ({coding}) although identity was asked for"
    if answer is None:
        return "truncated", "the answer is empty"
    if answer.malformed:
        return "protocol", answer.malformed
    if not answer.done and answer.finish_reason is None:
        return "truncated", "the stream ended without a finish reason or [DONE]"
    if _says_nothing(answer) and exchange.planned.output_tokens > 0:
        return "truncated", "the stream ended without a single token"
    return None, None


def _says_nothing(answer: Answer) -> bool:
    usage = answer.usage or {}
    return not answer.text and not usage.get("completion_tokens")


def _message_of(reply: Reply) -> str:
    """Return what a server says of an error, from JSON or from the text itself."""
    text = reply.body[:2000].decode("utf-8", "replace")
    try:
        value = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return text[:_SAID_LENGTH].strip()
    if isinstance(value, dict):
        error = value.get("error", value.get("message", value.get("detail", value)))
        value = error.get("message", error) if isinstance(error, dict) else error
    return said(value, _SAID_LENGTH)
