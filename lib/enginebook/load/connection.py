"""The hot path: one HTTP/1.1 connection that stamps what arrives and looks at it later.

A chunk of a streamed answer costs one read of the clock and two appends. The bytes are given to
the HTTP parser only when they end like a chunked body ends; what stands in them is decoded after
the run.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Protocol, cast

import httptools

from enginebook.load.clock import now_ns
from enginebook.load.exchange import Exchange, Fault

_BODY_END = b"0\r\n\r\n"
_BODY_END_BYTES = len(_BODY_END)
_FINAL = 200  # statuses below announce another head
# What an answer may hold in memory: far above what any engine sends for a token, and yet a bound.
# Each piece counts for its own objects, too, or an answer byte by byte would hold a hundredfold.
MOST_BYTES, MOST_BYTES_PER_TOKEN = 16 << 20, 4 << 10
MOST_HEAD_BYTES = 1 << 20
_PIECE_BYTES = 128
_KEPT_OF_TOO_MUCH = 16
# OpenAI's own mark of the end in a chunk of its own, and the end of the chunks behind it: no body
# goes on after that, and the parser need not walk through the whole answer between two stamps.
_STREAM_END = b"data: [DONE]\n\n\r\n0\r\n\r\n"


class Owner(Protocol):
    """Who is told when an exchange is over."""

    def ended(self, connection: Connection, exchange: Exchange) -> None:
        """Take an exchange whose last byte is in, or which failed."""


class Connection(asyncio.Protocol):
    """A keep-alive connection that carries one exchange at a time."""

    def __init__(self, owner: Owner, direct: bool, number: int) -> None:  # noqa: FBT001
        self._owner = owner
        self._direct = direct  # plain TCP: hand bytes to the kernel ourselves
        self.number = number
        self._fd = -1
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._pieces: list[bytes] = []
        self._stamps: list[int] = []
        self._fed = 0
        self._eager = True
        self._complete = False
        self._until_close = False
        self._chunked = self._sized = self._trailer = self._keep_alive = False
        self._final = self._beyond = False
        self._room = self._most = MOST_BYTES
        self._parser: Any = None
        self.alive = False
        self.served = 0
        self.connect_start_ns = 0
        self.connected_ns = 0

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if self._direct:
            self._fd = transport.get_extra_info("socket").fileno()
        self.alive = True

    def data_received(self, data: bytes) -> None:
        """Stamp a piece of the answer and keep it."""
        self._stamps.append(now_ns())
        self._pieces.append(data)
        self._room -= len(data) + _PIECE_BYTES
        if self._room < 0:
            self._give_up_too_much("the answer", self._most)
            return
        # a chunked body can only end here if the piece does, or if it is a rest of the end mark
        if self._eager or data.endswith(_BODY_END) or len(data) < _BODY_END_BYTES:
            if not self._eager and data.endswith(_STREAM_END):
                self._end("")
            else:
                self._feed()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange in flight, if there is one."""
        self.alive = False
        exchange = self._exchange
        if exchange is None:
            return
        if self._pieces and self._fed < len(self._pieces):
            self._feed()  # a body may have ended in a way that data_received did not see
            if self._exchange is None:
                return
        if self._until_close and exc is None:
            self._end("")
        else:
            self._end("closed", str(exc) if exc else "the server closed the connection")

    # -- use

    def send(self, exchange: Exchange, payload: bytes) -> None:
        """Send a request; its time of sending is read just before the kernel takes it."""
        self._exchange = exchange
        exchange.stream = self.number
        exchange.reused = self.served > 0
        self._pieces, self._stamps = exchange.pieces, exchange.stamps
        self._fed = 0
        self._eager, self._complete, self._until_close = True, False, False
        self._final = self._beyond = False
        self._most = MOST_BYTES + MOST_BYTES_PER_TOKEN * exchange.planned.output_tokens
        self._room = self._most
        self._parser = httptools.HttpResponseParser(self)
        self.served += 1
        assert self._transport is not None  # noqa: S101 - only open connections are used
        exchange.sent_ns = now_ns()
        if self._fd < 0 or self._transport.get_write_buffer_size():
            self._transport.write(payload)
            return
        try:
            written = os.write(self._fd, payload)
        except OSError:  # full buffer, or a broken pipe: the transport knows how to report it
            written = 0
        if written < len(payload):
            self._transport.write(payload[written:])

    def abort(self, fault: Fault, text: str) -> None:
        """Give the exchange in flight up and close the connection."""
        if self._exchange is not None:
            if self._fed < len(self._pieces):
                self._feed()
            if self._exchange is not None:
                self._end(fault, text)
        self.close()

    @property
    def held_bytes(self) -> int:
        """Return about how much memory the answer in flight holds."""
        return self._most - self._room if self._exchange is not None else 0

    def _give_up_too_much(self, what: str, most: int) -> None:
        if self._exchange is None:
            self.close()
            return
        # the record needs how it began, not what no reader could use
        del self._pieces[_KEPT_OF_TOO_MUCH:], self._stamps[_KEPT_OF_TOO_MUCH:]
        self._end("protocol", f"{what} grew beyond {most >> 20} MiB")

    def close(self) -> None:
        """Close the connection."""
        self.alive = False
        if self._transport is not None:
            self._transport.abort()

    # -- HTTP

    def _feed(self) -> None:
        if self._exchange is None:
            self.close()  # bytes that nobody asked for: no answer here can be trusted any more
            return
        pieces, first = self._pieces, self._fed
        self._fed = len(pieces)
        data = pieces[first] if self._fed == first + 1 else b"".join(pieces[first:])
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end("protocol", "the server asked to switch protocols")
        except httptools.HttpParserError as error:
            if self._exchange is not None:
                self._end("protocol", f"malformed HTTP: {error}")
        else:
            if self._beyond:
                self._end("protocol", "a second answer follows the one that was asked for")
            elif self._complete:
                self._end("")
            elif not self._final and self.held_bytes > MOST_HEAD_BYTES:
                self._give_up_too_much("the head of the answer", MOST_HEAD_BYTES)

    def on_message_begin(self) -> None:
        """Reset the framing (called by the parser)."""
        self._beyond = self._complete
        self._chunked = self._sized = self._trailer = self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note how the body is framed (called by the parser)."""
        lowered = name.lower()
        if lowered == b"transfer-encoding":
            self._chunked = b"chunked" in value.lower()
        elif lowered == b"content-length":
            self._sized = True
        elif lowered == b"trailer":
            self._trailer = True

    def on_headers_complete(self) -> None:
        """Decide how to look for the end (called by the parser)."""
        self._final = self._parser.get_status_code() >= _FINAL
        if not self._final:
            return
        self._eager = not self._chunked or self._trailer  # trailers hide the end mark
        self._until_close = not self._chunked and not self._sized
        self._keep_alive = bool(self._parser.should_keep_alive())  # forgotten once it is complete

    def on_message_complete(self) -> None:
        """Note the end of the answer (called by the parser)."""
        self._complete = self._final

    def _end(self, fault: Fault, text: str = "") -> None:
        exchange = self._exchange
        assert exchange is not None  # noqa: S101 - callers have checked
        self._exchange = None
        exchange.fault, exchange.fault_text = fault, text
        exchange.end_ns = self._stamps[-1] if self._stamps and not fault else now_ns()
        self._pieces, self._stamps, self._eager = [], [], True  # the record is closed
        if fault or self._until_close or not self._keep_alive:
            self.close()
        self._owner.ended(self, exchange)
