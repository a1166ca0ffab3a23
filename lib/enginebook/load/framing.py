"""From stamped pieces of a TCP stream to a body of which each byte's arrival is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import httptools
import numpy as np
import numpy.typing as npt

from enginebook.load.exchange import Exchange


@dataclass
class Reply:
    """An HTTP answer.

    Attributes
    ----------
    status
        The status code; None when no complete head of a final answer arrived.
    headers
        By lower-case name.
    body
        The bytes of the body, transfer coding removed.
    ends, stamps
        After piece i the body had ``ends[i]`` bytes, at ``stamps[i]`` ns; shapes (pieces,).
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ends: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    stamps: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    complete: bool = False
    problem: str = ""

    def arrival_ns(self, offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return when the first ``offset`` bytes of the body were all there, for each offset."""
        index = np.searchsorted(self.ends, np.asarray(offsets), side="left")
        return self.stamps[np.minimum(index, len(self.stamps) - 1)]


class _Collector:
    """Callbacks of the parser."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.parts: list[bytes] = []
        self.size = 0
        self.past: int | None = None  # the parts of a second answer begin here
        self.final = False
        self.on_body = self.parts.append  # the parser looks its callbacks up when it is made
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        if not self.reply.complete:
            self.reply.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.reply.complete:
            self.reply.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.reply.complete:
            self.reply.problem = "a second answer follows the one that was asked for"
            return
        status = self.parser.get_status_code()
        self.final = status >= 200  # noqa: PLR2004 - 1xx announces another head
        self.reply.status = status if self.final else None

    def on_message_complete(self) -> None:
        if self.final and not self.reply.complete:
            self.reply.complete = True
            self.past = len(self.parts)


def read_reply(exchange: Exchange) -> Reply:
    """Return the answer in an exchange's pieces, as far as it goes."""
    collector = _Collector()
    reply, parts, feed = collector.reply, collector.parts, collector.parser.feed_data
    counts: list[int] = []
    try:
        for piece in exchange.pieces:
            feed(piece)
            counts.append(len(parts))
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        reply.problem = str(error) or type(error).__name__
        counts.append(len(parts))
    past = len(parts) if collector.past is None else collector.past
    sizes = [0, *accumulate(map(len, parts[:past]))]
    reply.body = b"".join(parts[:past])
    reply.ends = np.fromiter((sizes[min(n, past)] for n in counts), np.int64, len(counts))
    reply.stamps = np.asarray(exchange.stamps[: len(counts)], np.int64)
    return reply
