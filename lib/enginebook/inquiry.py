"""Short questions to a server: one request, one answer, both bounded in bytes and in time.

Plain ``http.client`` limits neither: a server that drips a byte at a time keeps its reader for
ever, and one that never ends fills its memory. Proxies are not used and redirects are not
followed, so that a key goes to the address it was given for and to no other.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST_BYTES = 16 << 20
MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """Where a server is asked; ``tls`` is None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=self.tls
        )


@contextmanager
def asking(
    place: Place,
    method: str,
    path: str,
    timeout_s: float,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """Send a request and yield its response; all of it must come within ``timeout_s``.

    Raises
    ------
    OSError, http.client.HTTPException
        When the server cannot be reached, breaks off, or takes longer.
    """
    connection = place.connect(timeout_s)
    over = threading.Event()
    reached: list[socket.socket] = []  # a connection forgets its own where the answer closes it

    def hang_up() -> None:
        over.set()
        for sock in reached:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, hang_up)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        reached.append(connection.sock)
        if over.is_set():
            hang_up()  # it came before there was a socket
        connection.request(method, path, body, dict(headers or {}))
        with connection.getresponse() as response:
            yield response
    except Exception as error:  # an answer that was cut off may fail in any way
        if over.is_set():
            raise TimeoutError(f"no complete answer within {timeout_s:g} s") from error
        raise
    finally:
        timer.cancel()
        connection.close()
    if over.is_set():
        raise TimeoutError(f"no complete answer within {timeout_s:g} s")


def whole_of(response: http.client.HTTPResponse, most: int = MOST_BYTES) -> bytes:
    """Return the body of a response.

    Raises
    ------
    http.client.HTTPException
        When it is larger than ``most`` bytes.
    """
    body = response.read(most + 1)
    if len(body) > most:
        raise http.client.HTTPException(f"the answer is larger than {most >> 20} MiB")
    return body


def page(url: str, timeout_s: float, most: int = MOST_BYTES) -> bytes:
    """Return the body behind an http or https address.

    Raises
    ------
    OSError, http.client.HTTPException, ValueError
        When there is none, it is larger than ``most`` bytes, or the status is not 200.
    """
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    place = Place(parts.hostname or "", parts.port or (80 if tls is None else 443), tls)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with asking(place, "GET", path, timeout_s) as response:
        body = whole_of(response, most)
    if response.status != http.client.OK:
        raise http.client.HTTPException(f"HTTP {response.status}")
    return body


def lines_of(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a response.

    Raises
    ------
    http.client.HTTPException
        When one is longer than ``MOST_LINE_BYTES``.
    """
    while line := response.readline(MOST_LINE_BYTES):
        if len(line) == MOST_LINE_BYTES:
            raise http.client.HTTPException(f"a line is longer than {MOST_LINE_BYTES >> 20} MiB")
        yield line
