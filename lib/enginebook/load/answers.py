"""What an OpenAI-compatible server said: events of a stream, as kinds, texts and usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from enginebook.load.exchange import Exchange
from enginebook.load.framing import Reply, read_reply
from enginebook.load.sse import read_events
from enginebook.load.template import find_run

KINDS = (
    "content", "reasoning", "tool", "empty", "finish", "usage", "done", "error", "other", "whole",
)  # fmt: skip
(CONTENT, REASONING, TOOL, EMPTY, FINISH, USAGE, DONE, ERROR, OTHER, WHOLE) = range(len(KINDS))
GENERATED = frozenset({CONTENT, REASONING, TOOL})
VISIBLE = frozenset({CONTENT, TOOL})
_DONE_MARK = b"[DONE]"
_NAME_LENGTH, _ERROR_LENGTH = 200, 500
MOST_COUNT = 2**31 - 1  # a count of tokens beyond that is none
_MOST_RUNS = 4  # reasoning, content, and whatever interrupts them


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
    starts, ends
        Byte offsets in the body, see ``sse.Events``.
    """

    kinds: list[int] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
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
    answer = read_stream(reply.body)
    if not answer.kinds and reply.body.strip(b"\r\n :") and reply.complete:
        answer.malformed = f"neither an event stream nor JSON: {_excerpt(reply.body)}"
    return answer


def read_stream(body: bytes) -> Answer:
    """Return the content of an event stream."""
    answer, offset = Answer(), 0
    for _ in range(_MOST_RUNS):
        run = find_run(body, lambda choice: _take_choice(Answer(), choice))
        if run is None:
            break
        _take_events(answer, run.head, offset)
        answer.kinds += [run.kind if text else EMPTY for text in run.texts]
        answer.texts += [text or None for text in run.texts]
        answer.counts += [None] * len(run.texts)
        answer.starts += [offset + start for start in run.starts]
        answer.ends += [offset + end for end in run.ends]
        offset += len(body) - len(run.tail)
        body = run.tail
    _take_events(answer, body, offset)
    return answer


def _take_events(answer: Answer, body: bytes, offset: int) -> None:
    """Add the events of a part of a body that begins at an offset."""
    events = read_events(body)
    for position, payload in enumerate(events.payloads):
        name = events.names.get(position, b"")
        try:
            value = orjson.loads(payload)
        except orjson.JSONDecodeError:
            value = None
        kind, text, count = (
            _take_object(answer, value, name)
            if type(value) is dict
            else (_take_odd(answer, payload, name), None, None)
        )
        answer.kinds.append(kind)
        answer.texts.append(text)
        answer.counts.append(count)
    answer.starts += [offset + start for start in events.starts]
    answer.ends += [offset + end for end in events.ends]


def _take_object(
    answer: Answer, value: dict[str, Any], name: bytes
) -> tuple[int, str | None, int | None]:
    """Return kind, text and count so far of an event that is a JSON object."""
    usage = value.get("usage")
    count = _take_usage(answer, usage) if usage else None
    choices = value.get("choices")
    if choices and isinstance(choices, list):
        if answer.served_model is None and value.get("model"):
            answer.served_model = said(value["model"], _NAME_LENGTH)
        return (*_take_choice(answer, choices[0]), count)
    if value.get("error") or name == b"error":
        return _take_error(answer, value.get("error") or value), None, count
    return (USAGE if usage else OTHER), None, count


def _take_usage(answer: Answer, usage: Any) -> int | None:
    if not isinstance(usage, dict):
        return None
    answer.usage = usage
    return whole(usage.get("completion_tokens"))


def whole(value: Any) -> int | None:
    """Return a count of tokens that a server tells, or None when it is none."""
    return value if type(value) is int and 0 <= value <= MOST_COUNT else None


def said(value: Any, most: int) -> str:
    """Return what a server said as text of at most so many characters; texts as they are."""
    if isinstance(value, str):
        return value[:most]
    try:
        return orjson.dumps(value)[:most].decode("utf-8", "ignore")
    except TypeError:  # nested deeper than can be shown
        return "(an object nested very deep)"


def _take_choice(answer: Answer, choice: Any) -> tuple[int, str | None]:
    if not isinstance(choice, dict):
        return OTHER, None
    finish = choice.get("finish_reason")
    if finish:
        answer.finish_reason = said(finish, _NAME_LENGTH)
    text = _text(choice.get("text"))
    if text:
        return CONTENT, text
    delta = choice.get("delta") or choice.get("message")
    if isinstance(delta, dict):
        kind, shown = _delta(delta)
        if shown:
            return kind, shown
    return (FINISH if finish else EMPTY), None


def _delta(delta: dict[str, Any]) -> tuple[int, str | None]:
    """Return the kind and text of a chat delta; text shown to the user names the kind."""
    content = _text(delta.get("content"))
    reasoning = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
    if content:
        return CONTENT, reasoning + content
    if reasoning:
        return REASONING, reasoning
    calls = delta.get("tool_calls")
    if not calls or not isinstance(calls, list):
        return EMPTY, None
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    known = [f for f in functions if isinstance(f, dict)]
    text = "".join(_text(f.get("name")) + _text(f.get("arguments")) for f in known)
    return TOOL, text or None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _take_error(answer: Answer, error: Any) -> int:
    message = error.get("message") if isinstance(error, dict) else None
    answer.error = said(message or error, _ERROR_LENGTH)
    return ERROR


def _take_odd(answer: Answer, payload: bytes, name: bytes) -> int:
    """Return the kind of an event that is no JSON object."""
    if payload.strip() == _DONE_MARK:
        answer.done = True
        return DONE
    if name == b"error":
        return _take_error(answer, payload.decode("utf-8", "replace"))
    if not answer.malformed:
        answer.malformed = f"an event is no JSON object: {_excerpt(payload)}"
    return OTHER


def _read_whole(body: bytes) -> Answer:
    """Return the answer of a server that does not stream."""
    answer = Answer(streamed=False, done=True, starts=[0], ends=[len(body)])
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer.malformed = f"the reply is not JSON: {_excerpt(body)}"
        value = {}
    kind, text, count = _take_object(answer, value, b"")
    answer.kinds = [WHOLE if kind in {*GENERATED, FINISH, EMPTY} else kind]
    answer.texts, answer.counts = [text], [count]
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
