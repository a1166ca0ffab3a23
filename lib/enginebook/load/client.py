"""A pool of keep-alive connections: opened beforehand, last used first, none with a limit."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from enginebook.load.clock import NS_PER_MS, NS_PER_S, now_ns
from enginebook.load.connection import Connection
from enginebook.load.exchange import Exchange
from enginebook.load.target import Target

_SOCKET_BUFFER_BYTES = 1 << 20
_RETRY_AFTER_REFUSAL_S = 0.05
OPEN_AT_ONCE = 64
MOST_HELD_BYTES = 1 << 30  # by all answers in flight of one process


class Client:
    """Sends exchanges and reports each one's end.

    Parameters
    ----------
    target
        Where to.
    request_timeout_s, connect_timeout_s
        Limits of one exchange from its sending, and of opening a connection.
    """

    def __init__(self, target: Target, request_timeout_s: float, connect_timeout_s: float) -> None:
        self._target = target
        self._address = target.address
        self._tls = target.tls_context()
        self._timeout_ns = int(request_timeout_s * NS_PER_S)
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[Connection] = []
        self._opening: dict[asyncio.Task[None], Exchange] = {}
        self._numbers = 0
        self._sockaddr: tuple[int, tuple[object, ...]] | None = None
        self.on_end: Callable[[Exchange], None] = lambda _: None
        self.active: dict[Exchange, Connection | None] = {}
        self.finished: deque[Exchange] = deque()
        self.payloads: dict[Exchange, bytes] = {}

    # -- opening

    async def open(self, count: int) -> None:
        """Open connections before the start; those that fail are opened (and fail) in use."""
        for done in range(0, count, OPEN_AT_ONCE):
            batch = [self._connect() for _ in range(min(OPEN_AT_ONCE, count - done))]
            for result in await asyncio.gather(*batch, return_exceptions=True):
                if isinstance(result, Connection):
                    self._idle.append(result)
        self._idle.reverse()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        number, self._numbers = self._numbers, self._numbers + 1
        start_ns = now_ns()
        async with asyncio.timeout(self._connect_timeout_s):
            if self._sockaddr is None:
                found = await loop.getaddrinfo(
                    self._address.host, self._address.port, type=socket.SOCK_STREAM
                )
                self._sockaddr = (found[0][0], found[0][4])
            sock = _new_socket(self._sockaddr[0])
            try:
                await loop.sock_connect(sock, self._sockaddr[1])
                connection = await self._start(loop, sock, number)
            except BaseException:
                sock.close()
                raise
        connection.connect_start_ns, connection.connected_ns = start_ns, now_ns()
        return connection

    async def _start(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, number: int
    ) -> Connection:
        _, connection = await loop.create_connection(
            lambda: Connection(self, direct=self._tls is None, number=number),
            sock=sock,
            ssl=self._tls,
            server_hostname=self._address.host if self._tls else None,
        )
        return connection

    # -- exchanges

    def submit(self, exchange: Exchange, payload: bytes) -> None:
        """Send on an idle connection at once, or on a new one as soon as it is open."""
        self.payloads[exchange] = payload
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                self._send(connection, exchange)
                return
        self._submit_new(exchange)

    def _submit_new(self, exchange: Exchange) -> None:
        self.active[exchange] = None
        task = asyncio.get_running_loop().create_task(self._connect_and_send(exchange))
        self._opening[task] = exchange
        task.add_done_callback(lambda t: self._opening.pop(t, None))

    async def _connect_and_send(self, exchange: Exchange) -> None:
        exchange.connect_start_ns = now_ns()
        try:
            connection = await self._connect()
        except (OSError, TimeoutError) as error:
            await asyncio.sleep(_RETRY_AFTER_REFUSAL_S)  # no hot loop against a dead server
            exchange.fault = "connect"
            exchange.fault_text = _connect_text(error, self._connect_timeout_s)
            exchange.end_ns = now_ns()
            self._over(exchange)
            return
        exchange.connected_ns = connection.connected_ns
        self._send(connection, exchange)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        if connection.served == 0:
            exchange.connect_start_ns = connection.connect_start_ns
            exchange.connected_ns = connection.connected_ns
        exchange.attempts += 1
        self.active[exchange] = connection
        connection.send(exchange, self.payloads[exchange])
        exchange.timeout_ns = exchange.sent_ns + self._timeout_ns

    def ended(self, connection: Connection, exchange: Exchange) -> None:
        """Take an exchange from a connection; called by the connection."""
        if connection.alive:
            self._idle.append(connection)
        if _worth_a_retry(exchange):
            exchange.fault, exchange.fault_text = "", ""
            self._submit_new(exchange)
            return
        self._over(exchange)

    def _over(self, exchange: Exchange) -> None:
        self.active.pop(exchange, None)
        self.payloads.pop(exchange, None)
        self.finished.append(exchange)
        self.on_end(exchange)

    # -- limits

    def expire(self, at_ns: int) -> None:
        """Give up the exchanges whose time is over."""
        late = [
            (e, c) for e, c in self.active.items() if c is not None and 0 < e.timeout_ns <= at_ns
        ]
        for exchange, connection in late:
            waited_ms = (at_ns - exchange.sent_ns) // NS_PER_MS
            connection.abort("timeout", f"no complete answer within {waited_ms} ms")
        self._shed()

    def _shed(self) -> None:
        """Give up the largest answers while those in flight hold more than a process may."""
        held = {c: c.held_bytes for c in self.active.values() if c is not None}
        total = sum(held.values())
        if total <= MOST_HELD_BYTES:
            return
        for connection in sorted(held, key=lambda c: -held[c]):
            connection.abort("protocol", "all answers together grew beyond the client's memory")
            total -= held[connection]
            if total <= MOST_HELD_BYTES:
                return

    def cancel_all(self, reason: str) -> None:
        """Give up everything in flight."""
        for exchange, connection in list(self.active.items()):
            if connection is not None:
                connection.abort("cancelled", reason)
            else:
                exchange.fault, exchange.fault_text = "cancelled", reason
                exchange.end_ns = now_ns()
                self._over(exchange)
        for task in list(self._opening):
            task.cancel()

    def close(self) -> None:
        """Close all idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _worth_a_retry(exchange: Exchange) -> bool:
    """Return whether an idle connection had been closed by the server before it was used again.

    That is no failure of the request: every HTTP client sends it again on a new connection.
    """
    return (
        exchange.fault == "closed"
        and exchange.reused
        and not exchange.pieces
        and exchange.attempts == 1
    )


def _connect_text(error: BaseException, limit_s: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no connection within {limit_s:g} s"
    return str(error) or type(error).__name__


def _new_socket(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)  # noqa: FBT003
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
    return sock
