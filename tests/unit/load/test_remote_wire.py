"""Who knows the secret is heard; forged, repeated and missing messages are not."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from enginebook.errors import InputError
from enginebook.load.remote_wire import (
    SECRET_VARIABLE,
    Channel,
    RefusedError,
    answer_greeting,
    greet,
    parse_place,
    secret_of,
)

SECRET = b"sixteen letters or more"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    with one, other:
        for end in (one, other):
            end.settimeout(20)  # a test that waits for ever would stop the whole suite
        yield one, other


def aside(do: Callable[[], Any]) -> Callable[[], Any]:
    """Start something in a thread; the function returned waits for its result or its error."""
    kept: list[Any] = []

    def work() -> None:
        try:
            kept.append(do())
        except Exception as error:  # noqa: BLE001 - handed on
            kept.append(error)

    thread = threading.Thread(target=work)
    thread.start()

    def result() -> Any:
        thread.join(timeout=30)
        if isinstance(kept[0], Exception):
            raise kept[0]
        return kept[0]

    return result


def channels(pair: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    worker = aside(lambda: answer_greeting(pair[1], SECRET, "coordinator"))
    return greet(pair[0], SECRET, "worker"), worker()


def test_messages_and_their_bytes_arrive(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = channels(pair)
    here.send({"order": "job", "n": 1}, [b"", b"\0" * 100_000, b"x"])
    message = there.receive()
    assert message.values == {"order": "job", "n": 1}
    assert [len(b) for b in message.blobs] == [0, 100_000, 1]
    assert message.at_ns > 0
    there.send({"ok": True})
    assert here.receive().values == {"ok": True}


def test_a_worker_with_another_secret_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    worker = aside(lambda: answer_greeting(pair[1], b"another secret, also long", "c"))
    with pytest.raises(RefusedError, match="does not know the shared secret"):
        greet(pair[0], SECRET, "w")
    pair[0].close()
    with pytest.raises((EOFError, OSError)):
        worker()


def test_a_coordinator_that_cannot_prove_itself_is_refused(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    worker = aside(lambda: answer_greeting(pair[1], SECRET, "c"))
    say(pair[0], b'{"hello": "enginebook load", "version": 1, "nonce": "%s"}' % (b"00" * 32))
    hear(pair[0])
    say(pair[0], b'{"proof": "00"}')
    with pytest.raises(RefusedError, match="shared secret"):
        worker()


def test_what_one_side_proves_cannot_be_sent_back_to_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """A worker's proof, reflected, is no coordinator's proof."""
    worker = aside(lambda: answer_greeting(pair[1], SECRET, "c"))
    say(pair[0], b'{"hello": "enginebook load", "version": 1, "nonce": "%s"}' % (b"00" * 32))
    say(pair[0], hear(pair[0]))
    with pytest.raises(RefusedError):
        worker()


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 7 + b"\2[]"])
def test_strangers_are_refused(pair: tuple[socket.socket, socket.socket], junk: bytes) -> None:
    worker = aside(lambda: answer_greeting(pair[1], SECRET, "c"))
    pair[0].sendall(junk)
    with pytest.raises(RefusedError, match="does not speak"):
        worker()


@pytest.mark.parametrize("place", [8, 45, -1])
def test_a_changed_message_is_refused(
    pair: tuple[socket.socket, socket.socket], place: int
) -> None:
    here, there = channels(pair)
    frame = captured(here, {"order": "job"})
    frame[place] ^= 1
    pair[0].sendall(frame)
    with pytest.raises(RefusedError, match="code of this connection"):
        there.receive()


def test_a_repeated_message_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = channels(pair)
    frame = captured(here, {"order": "go"})
    pair[0].sendall(frame + frame)
    assert there.receive().values == {"order": "go"}
    with pytest.raises(RefusedError):
        there.receive()


def test_a_channel_that_closes_in_the_middle_is_an_end(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = channels(pair)
    pair[0].sendall(captured(here, {"order": "go"})[:20])
    pair[0].close()
    with pytest.raises(EOFError):
        there.receive()


def captured(channel: Channel, values: dict[str, Any]) -> bytearray:
    """The bytes that a channel would send."""
    one, other = socket.socketpair()
    with one, other:
        before, channel.sock = channel.sock, one
        channel.send(values)
        channel.sock = before
        return bytearray(other.recv(65536))


def say(sock: socket.socket, data: bytes) -> None:
    sock.sendall(struct.pack(">Q", len(data)) + data)


def hear(sock: socket.socket) -> bytes:
    return sock.recv(struct.unpack(">Q", sock.recv(8))[0])


@pytest.mark.parametrize("text", [None, "", "short"])
def test_a_secret_is_wanted_and_long(text: str | None) -> None:
    environ = {} if text is None else {SECRET_VARIABLE: text}
    with pytest.raises(InputError, match=SECRET_VARIABLE):
        secret_of(environ)


def test_places() -> None:
    assert parse_place("127.0.0.1:7471") == ("127.0.0.1", 7471)
    assert parse_place("[::1]:7471") == ("::1", 7471)
    for wrong in ("7471", ":7471", "host:", "host:x", "host:99999"):
        with pytest.raises(InputError, match="HOST:PORT"):
            parse_place(wrong)
