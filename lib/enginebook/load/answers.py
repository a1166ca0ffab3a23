"""What an OpenAI-compatible server said: events of a stream, as kinds, texts and usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from enginebook.load.exchange import Exchange
from enginebook.load.framing import Reply, read_reply
from enginebook.load.sse import Events, read_events

KINDS = (
    "content", "reasoning", "tool", "empty", "finish", "usage", "done", "error", "other", "whole",
)  # fmt: skip
(CONTENT, REASONING, TOOL, EMPTY, FINISH, USAGE, DONE, ERROR, OTHER, WHOLE) = range(len(KINDS))
GENERATED = (CONTENT, REASONING, TOOL)
_DONE_MARK = b"[DONE]"


@dataclass
class Answer:
    """The content of one reply; lists have one entry for each event.

    Attributes
    ----------
    kinds
        Positions in ``KINDS``. ``empty`` is a delta without text that does not finish (a role, or
        a token whose bytes are no whole character yet); ``whole`` is a reply that was not streamed.
    texts
        Generated text (content, reasoning or tool-call arguments), or None.
    counts
        ``usage.completion_tokens`` so far where an event carries it, else None.
    """

    events: Events
    kinds: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    done: bool = False
    streamed: bool = True
    served_model: str | None = None
    error: str = ""
    malformed: str = ""

    @property
    def text(self) -> str:
        """Return all generated text."""
        return "".join(t for t in self.texts if t)


def read_answer(reply: Reply) -> Answer:
    """Return the content of a reply with status 200."""
    content_type = reply.headers.get("content-type", "").lower()
    looks_json = reply.body.lstrip()[:1] == b"{"
    if looks_json and ("json" in content_type or "event-stream" not in content_type):
        return _read_whole(reply.body)
    answer = Answer(read_events(reply.body))
    payloads = answer.events.payloads
    if not payloads and reply.body.strip(b"\r\n :") and reply.complete:
        answer.malformed = f"neither an event stream nor JSON: {_excerpt(reply.body)}"
    for position, value in enumerate(_parse_all(payloads)):
        _take(answer, position, value)
    return answer


def _parse_all(payloads: list[bytes]) -> list[Any]:
    """Return the JSON value of each payload; bytes stay where it is the end mark or no JSON."""
    if payloads and payloads[-1] == _DONE_MARK:
        return [*_parse_many(payloads[:-1]), _DONE_MARK]
    return _parse_many(payloads)


def _parse_many(payloads: list[bytes]) -> list[Any]:
    # one call of the parser for the whole answer is several times cheaper than one an event
    try:
        values = orjson.loads(b"[" + b",".join(payloads) + b"]")
    except orjson.JSONDecodeError:
        values = []
    if len(values) == len(payloads) and all(type(v) is dict for v in values):
        return list(values)
    return [_parse_one(payload) for payload in payloads]


def _parse_one(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return payload


def _take(answer: Answer, position: int, value: Any) -> None:
    """Add one event to an answer."""
    kind, text, count = OTHER, None, None
    if type(value) is dict:
        usage = value.get("usage")
        if usage:
            count = _take_usage(answer, usage)
        choices = value.get("choices")
        if choices:
            if answer.served_model is None and value.get("model"):
                answer.served_model = str(value["model"])
            kind, text = _take_choice(answer, choices[0])
        elif value.get("error"):
            kind = _take_error(answer, value["error"])
        elif usage:
            kind = USAGE
        if answer.events.names.get(position) == b"error" and kind != ERROR:
            kind = _take_error(answer, value)
    else:
        kind = _take_odd(answer, position, value)
    answer.kinds.append(kind)
    answer.texts.append(text)
    answer.counts.append(count)


def _take_usage(answer: Answer, usage: Any) -> int | None:
    if not isinstance(usage, dict):
        return None
    answer.usage = usage
    count = usage.get("completion_tokens")
    return count if isinstance(count, int) else None


def _take_choice(answer: Answer, choice: Any) -> tuple[int, str | None]:
    if not isinstance(choice, dict):
        return OTHER, None
    finish = choice.get("finish_reason")
    if finish:
        answer.finish_reason = str(finish)
    text = choice.get("text")
    if text:
        return CONTENT, text
    delta = choice.get("delta") or choice.get("message")
    if delta:
        kind, text = _delta(delta)
        if text:
            return kind, text
    return (FINISH if finish else EMPTY), None


def _delta(delta: dict[str, Any]) -> tuple[int, str | None]:
    """Return the kind and text of a chat delta; text shown to the user names the kind."""
    content = delta.get("content")
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if content:
        return CONTENT, (reasoning or "") + content
    if reasoning:
        return REASONING, reasoning
    calls = delta.get("tool_calls")
    if not calls:
        return EMPTY, None
    functions = [call.get("function") or {} for call in calls]
    text = "".join((f.get("name") or "") + (f.get("arguments") or "") for f in functions)
    return TOOL, text or None


def _take_error(answer: Answer, error: Any) -> int:
    message = error.get("message") if isinstance(error, dict) else None
    answer.error = str(message or error)[:500]
    return ERROR


def _take_odd(answer: Answer, position: int, value: Any) -> int:
    payload = answer.events.payloads[position].strip()
    if payload == _DONE_MARK:
        answer.done = True
        return DONE
    if answer.events.names.get(position) == b"error":
        return _take_error(answer, payload.decode("utf-8", "replace"))
    if isinstance(value, bytes) and not answer.malformed:
        answer.malformed = f"an event is not JSON: {_excerpt(value)}"
    return OTHER


def _read_whole(body: bytes) -> Answer:
    """Return the answer of a server that does not stream."""
    answer = Answer(Events([body], [0], [len(body)]), streamed=False)
    value = _parse_one(body)
    if not isinstance(value, dict):
        answer.malformed = f"the reply is not JSON: {_excerpt(body)}"
        value = {}
    _take(answer, 0, value)
    if answer.kinds[0] in {*GENERATED, FINISH, EMPTY}:
        answer.kinds[0] = WHOLE
    answer.done = True
    return answer


def _excerpt(data: bytes) -> str:
    return repr(data[:120])[1:]


def answer_text(exchange: Exchange) -> str | None:
    """Return the generated text of a finished exchange, or None when it failed."""
    if exchange.fault:
        return None
    reply = read_reply(exchange)
    if reply.status != 200:  # noqa: PLR2004
        return None
    return read_answer(reply).text
