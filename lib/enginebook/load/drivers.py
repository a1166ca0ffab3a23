"""When requests go out: closed loop, open loop, sessions; one object each."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from enginebook.load.client import Client
from enginebook.load.clock import NS_PER_S, Alarm, now_ns
from enginebook.load.exchange import Exchange
from enginebook.load.payloads import Conversation, Payloads
from enginebook.load.plan import Planned

NEVER_SENT = "the run ended before it was sent"


class Driver(Protocol):
    """A load model."""

    def start(self, at_ns: int) -> None:
        """Begin; ``at_ns`` is the common start of all processes and has just come."""

    def on_end(self, exchange: Exchange) -> None:
        """Go on after an exchange."""

    def finish(self) -> None:
        """Begin nothing new; what is due or under way is done to its end."""

    def stop(self) -> None:
        """Send nothing more; what is in flight may end."""

    @property
    def done(self) -> bool:
        """Return whether nothing is in flight and nothing more will be sent."""

    def unsent(self) -> Iterator[Planned]:
        """Return what was planned and never sent, after the end of a run of a planned length."""


class ClosedLoop:
    """Each of N streams sends its next request the moment its answer is complete."""

    def __init__(self, client: Client, payloads: Payloads, streams: int) -> None:
        self._client = client
        self._payloads = payloads
        self._streams = streams
        self._stopped = False

    def start(self, at_ns: int) -> None:
        """Send the first request of every stream."""
        for _ in range(self._streams):
            self._next(at_ns)

    def on_end(self, exchange: Exchange) -> None:
        """Send the stream's next request."""
        self._next(exchange.end_ns)

    def _next(self, at_ns: int) -> None:
        if self._stopped:
            return
        planned = self._payloads.take()
        if planned is None:
            self._stopped = True
            return
        self._client.submit(Exchange(planned[0], at_ns), planned[1])

    def finish(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    @property
    def done(self) -> bool:
        """Return whether all is over."""
        return self._stopped and not self._client.active

    def unsent(self) -> Iterator[Planned]:
        """Return what is left of the plan."""
        return self._payloads.rest()


class OpenLoop:
    """Requests go out at their scheduled times whatever the server does.

    With ``limit`` requests in flight the next ones wait in order of arrival; their scheduled time
    stays, so that the wait counts in the response time.
    """

    def __init__(
        self, client: Client, payloads: Payloads, alarm: Callable[[Callable[[], None]], Alarm],
        limit: int | None,
    ) -> None:  # fmt: skip
        self._client = client
        self._payloads = payloads
        self._alarm = alarm(self._ring)
        self._limit = limit
        self._start_ns = 0
        self._waiting: deque[tuple[Exchange, bytes]] = deque()
        self._next = payloads.take()
        self._not_arrived: list[Planned] = []
        self._stopped = False

    def start(self, at_ns: int) -> None:
        """Set the clock for the first arrival."""
        self._start_ns = at_ns
        self._ring()

    def _ring(self) -> None:
        while self._next is not None and not self._stopped:
            due_ns = self._start_ns + (self._next[0].offset_ns or 0)
            if due_ns > now_ns():
                self._alarm.set(due_ns)
                return
            self._waiting.append((Exchange(self._next[0], due_ns), self._next[1]))
            self._send_waiting()
            self._next = self._payloads.take()

    def _send_waiting(self) -> None:
        limit = self._limit
        while self._waiting and (limit is None or len(self._client.active) < limit):
            self._client.submit(*self._waiting.popleft())

    def on_end(self, exchange: Exchange) -> None:  # noqa: ARG002 - the interface of all drivers
        """Send what waited for a free place."""
        self._send_waiting()

    def finish(self) -> None:
        """Let no further request arrive; those that wait for a free place are sent."""
        self._ring()  # what is due by now has arrived
        if self._next is not None:
            self._not_arrived.append(self._next[0])
        self._next, self._stopped = None, True

    def stop(self) -> None:
        """Send nothing more; requests still waiting are recorded as never sent."""
        self._stopped = True
        if self._next is not None:
            due_ns = self._start_ns + (self._next[0].offset_ns or 0)
            self._waiting.append((Exchange(self._next[0], due_ns), b""))
            self._next = None
        while self._waiting:
            exchange, _ = self._waiting.popleft()
            exchange.fault, exchange.fault_text = "cancelled", NEVER_SENT
            self._client.finished.append(exchange)

    @property
    def done(self) -> bool:
        """Return whether all is over."""
        over = self._stopped or self._next is None
        return over and not self._waiting and not self._client.active

    def unsent(self) -> Iterator[Planned]:
        """Return what is left of the plan."""
        return chain(self._not_arrived, self._payloads.rest())


class Sessions:
    """Each of N streams holds conversations: answer, think, ask again with all that was said."""

    def __init__(
        self, client: Client, conversations: Iterator[Conversation],
        alarm: Callable[[Callable[[], None]], Alarm], streams: int, think_time_s: float,
        *, endless: bool,
    ) -> None:  # fmt: skip
        self._client = client
        self._conversations = conversations
        self._alarm = alarm(self._ring)
        self._streams = streams
        self._think_ns = int(think_time_s * NS_PER_S)
        self._talking: dict[int, Conversation] = {}
        self._given_up: list[Conversation] = []  # with the turns that they still had
        self._endless = endless
        self._due: list[tuple[int, int, Conversation]] = []
        self._stopped = self._finishing = False

    def start(self, at_ns: int) -> None:
        """Open a conversation on every stream."""
        for _ in range(self._streams):
            self._open(at_ns)

    def _open(self, at_ns: int) -> None:
        over = self._stopped or self._finishing
        conversation = None if over else next(self._conversations, None)
        if conversation is not None:
            self._ask(conversation, at_ns)

    def _ask(self, conversation: Conversation, at_ns: int) -> None:
        planned, payload = conversation.ask()
        self._talking[planned.index] = conversation
        self._client.submit(Exchange(planned, at_ns), payload)

    def on_end(self, exchange: Exchange) -> None:
        """Feed the answer back and take up the next turn after the think time."""
        conversation = self._talking.pop(exchange.planned.index)
        goes_on = conversation.hear(exchange)
        if self._stopped or not goes_on:
            self._given_up.append(conversation)
            self._open(exchange.end_ns)
            return
        if self._think_ns == 0:
            self._ask(conversation, exchange.end_ns)
            return
        due_ns = exchange.end_ns + self._think_ns
        heapq.heappush(self._due, (due_ns, exchange.planned.index, conversation))
        self._alarm.set(self._due[0][0])

    def _ring(self) -> None:
        while self._due and self._due[0][0] <= now_ns() and not self._stopped:
            due_ns, _, conversation = heapq.heappop(self._due)
            self._ask(conversation, due_ns)
        if self._due and not self._stopped:
            self._alarm.set(self._due[0][0])

    def finish(self) -> None:
        """Begin no further conversation; those under way are held to their end."""
        self._finishing = True

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    @property
    def done(self) -> bool:
        """Return whether all is over."""
        return not self._client.active and (self._stopped or not self._due)

    def unsent(self) -> Iterator[Planned]:
        """Return the turns of broken-off conversations and of those never begun."""
        broken_off = [*self._given_up, *(c for _, _, c in self._due)]
        for conversation in chain(broken_off, () if self._endless else self._conversations):
            yield from conversation.turns
