"""A stranger at the port of a load worker: refused in few words, and the worker goes on."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading

import pytest

from enginebook.load import remote_wire
from enginebook.load.remote_wire import RefusedError, greet
from enginebook.load.remote_worker import serve_one

SECRET = b"a secret of the hosts"
LENGTH = struct.Struct(">Q")


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        return server.accept()[0], far


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def hello(**changes: object) -> bytes:
    fields = {"hello": "x", "version": remote_wire.VERSION, "nonce": "a" * 64, **changes}
    return framed(json.dumps(fields).encode())


def nested(name: str) -> bytes:
    fields = {"nonce": "a" * 64, "version": remote_wire.VERSION, name: "HERE"}
    return framed(json.dumps(fields).replace('"HERE"', "[" * 900 + "]" * 900).encode())


STRANGE = {
    "nothing": b"",
    "a web browser": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "random": random.Random(3).randbytes(300),
    "a length of 2^64": b"\xff" * 8,
    "half a message": LENGTH.pack(4000) + b"{",
    "no JSON": framed(b"\xff\xfe{"),
    "deep JSON": framed(b"[" * 4000),
    "a list": framed(b"[1]"),
    "no nonce": hello(nonce=None),
    "a nonce that is no text": hello(nonce=[[1]]),
    "a surrogate as nonce": hello(nonce="\ud800" * 64),
    "another version": hello(version={"a": 1}),
    "a version nested deep": nested("version"),
    "no proof": hello() + framed(b"{}"),
    "a proof that is not ASCII": hello() + framed(json.dumps({"proof": "é\ud800"}).encode()),
    "a proof that is no text": hello() + nested("proof"),
    "a wrong proof": hello() + framed(json.dumps({"proof": "0" * 64}).encode()),
}  # fmt: skip


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
def test_a_stranger_is_refused_and_nothing_is_started(said: bytes) -> None:
    worker, stranger = connected()
    words: list[str] = []
    with stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        assert serve_one(worker, SECRET, "stranger", words.append) is False
    (told,) = words
    broken_off = said in {b"", STRANGE["half a message"]}
    assert told.startswith("lost stranger" if broken_off else "refused stranger"), told
    assert len(told) < 200
    assert SECRET.decode() not in told


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
def test_a_coordinator_takes_no_stranger_for_a_worker(said: bytes) -> None:
    mine, stranger = connected()
    with mine, stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError if said in {b"", STRANGE["half a message"]} else RefusedError):
            greet(mine, SECRET, "stranger")


def test_a_drip_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_wire, "ANSWER_TIMEOUT_S", 0.3)
    worker, stranger = connected()
    over = threading.Event()

    def drip() -> None:
        for byte in LENGTH.pack(4000) + b"{" * 4000:
            if over.wait(0.02):
                return
            try:
                stranger.send(bytes([byte]))
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    words: list[str] = []
    try:
        assert serve_one(worker, SECRET, "stranger", words.append) is False
    finally:
        over.set()
        thread.join()
        stranger.close()
    assert "took too long" in words[0]
