"""The bytes of requests, made before they are due; and conversations, which cannot be."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any

import numpy as np

from enginebook.load.answers import answer_text
from enginebook.load.constraints import constraint_fields
from enginebook.load.exchange import Exchange
from enginebook.load.plan import Plan, Planned
from enginebook.load.prompts import PromptSource, exact_text
from enginebook.load.target import Target, body_of, head_template, request_bytes
from enginebook.load.tokens import Tokens

MOST_BYTES_AHEAD = 256 << 20
AHEAD_OF_ENDLESS = 512


@dataclass
class Writer:
    """Turns planned requests into bytes.

    Attributes
    ----------
    overhead_tokens
        What the server's chat template or beginning-of-sequence token adds to a text; the text is
        made shorter by so much.
    """

    target: Target
    plan: Plan
    source: PromptSource
    tokens: Tokens | None
    overhead_tokens: int = 0

    def __post_init__(self) -> None:
        self._template = head_template(self.target)

    @property
    def as_text(self) -> bool:
        """Return whether prompts are sent as text."""
        workload = self.plan.workload
        return self.target.api == "chat" or workload.prompt_as == "text" or workload.turns > 1

    def prompt(self, planned: Planned) -> list[int] | str:
        """Return the prompt of a request, exactly as long as planned."""
        if planned.block_keys:
            ids = self.source.blocks(planned.block_keys, planned.input_tokens, planned.block_tokens)
        else:
            ids = self.source.ids(planned.index, planned.input_tokens)
        if not self.as_text:
            return [*ids.tolist()]
        assert self.tokens is not None  # noqa: S101 - a worker that sends text has a tokenizer
        length = max(1, planned.input_tokens - self.overhead_tokens)
        tail = self.source.tail_of(length)
        head = np.asarray(ids)[: planned.input_tokens - len(tail)]
        return exact_text(self.tokens, head, length, tail)

    def request(self, planned: Planned) -> bytes:
        """Return the whole HTTP request."""
        prompt: Any = self.prompt(planned)
        if self.target.api == "chat":
            prompt = [{"role": "user", "content": prompt}]
        return self.wrap(planned, prompt)

    def wrap(self, planned: Planned, prompt: Any) -> bytes:
        """Return the HTTP request around a finished prompt."""
        workload = self.plan.workload
        body = body_of(
            self.target,
            prompt,
            planned.output_tokens,
            constraint_fields(self.target, workload, planned.index),
            free_length=workload.free_length,
        )
        return request_bytes(self._template, planned.index, body)


class Payloads:
    """A queue of (planned request, bytes), filled ahead of use.

    Parameters
    ----------
    indexes
        Indexes of requests in sending order, possibly endless.
    writer
        Makes the bytes.
    """

    def __init__(self, indexes: Iterator[int], writer: Writer, *, endless: bool) -> None:
        self._indexes = indexes
        self._writer = writer
        self._ready: deque[tuple[Planned, bytes]] = deque()
        self.endless = endless
        self._ahead = AHEAD_OF_ENDLESS if endless else None
        self.made_late = 0
        self._bytes = 0

    def fill(self, most: int | None = None) -> None:
        """Make requests until enough are ready (all of them, within the limit of memory)."""
        made = 0
        while (most is None or made < most) and self._room():
            if not self._make():
                return
            made += 1

    def _room(self) -> bool:
        few = self._ahead is None or len(self._ready) < self._ahead
        return few and self._bytes < MOST_BYTES_AHEAD

    def _make(self) -> bool:
        index = next(self._indexes, None)
        if index is None:
            return False
        planned = self._writer.plan.planned(index)
        payload = self._writer.request(planned)
        self._bytes += len(payload)
        self._ready.append((planned, payload))
        return True

    def take(self) -> tuple[Planned, bytes] | None:
        """Return the next request, made now if none is ready, or None at the end."""
        if not self._ready:
            if not self._make():
                return None
            self.made_late += 1
        planned, payload = self._ready.popleft()
        self._bytes -= len(payload)
        return planned, payload

    def rest(self) -> Iterator[Planned]:
        """Return what was planned and not taken; for a run that ended early."""
        for planned, _ in self._ready:
            yield planned
        for index in self._indexes:
            yield self._writer.plan.planned(index)


@dataclass
class Conversation:
    """The turns of one session and all that was said so far."""

    writer: Writer
    turns: deque[Planned]
    messages: list[dict[str, Any]] = field(default_factory=list)
    questions: dict[int, Any] = field(default_factory=dict)

    def prepare(self) -> Conversation:
        """Make the user's side of all turns beforehand."""
        self.questions = {p.index: self.writer.prompt(p) for p in self.turns}
        return self

    def ask(self) -> tuple[Planned, bytes]:
        """Return the next turn's request: everything said so far and a new question."""
        planned = self.turns.popleft()
        question = self.questions.pop(planned.index)
        if self.writer.target.api == "chat":
            self.messages.append({"role": "user", "content": question})
            return planned, self.writer.wrap(planned, self.messages)
        said = "".join(m["content"] for m in self.messages)
        self.messages.append({"content": question})
        return planned, self.writer.wrap(planned, said + question)

    def hear(self, exchange: Exchange) -> bool:
        """Take an answer verbatim; return whether there is another turn."""
        answer = answer_text(exchange)
        if not self.turns or answer is None:
            return False
        self.messages.append({"role": "assistant", "content": answer})
        return True


def conversations(indexes: Iterator[int], writer: Writer, ahead: int) -> Iterator[Conversation]:
    """Return sessions in order, each prepared; ``ahead`` of them before the first is asked for."""
    turns = writer.plan.workload.turns

    def made() -> Iterator[Conversation]:
        for _, group in groupby(indexes, key=lambda index: index // turns):
            yield Conversation(writer, deque(writer.plan.planned(i) for i in group)).prepare()

    source = made()
    return chain(list(islice(source, ahead)), source)
