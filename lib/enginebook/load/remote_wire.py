"""The connection between the coordinator of a load and a worker on another host.

Both prove that they know a shared secret, which never travels; every later message carries a code
made with keys of this one connection and a running number, so that none can be forged, repeated or
left out unseen. Nothing is encrypted: prompts and answers can be read on the way, as they can
between client and server over plain HTTP. API keys are therefore never sent; each worker has its
own in its environment.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from enginebook.errors import InputError, LoadError
from enginebook.load.clock import NS_PER_S, now_ns

SECRET_VARIABLE = "ENGINEBOOK_LOAD_SECRET"  # noqa: S105 - a variable's name
LEAST_SECRET = 16
VERSION = 1
ANSWER_TIMEOUT_S = 20.0
_HELLO_LIMIT = 4096
_NONCE = re.compile(r"[0-9a-f]{64}")
_MESSAGE_LIMIT = 1 << 32
_LENGTH = struct.Struct(">Q")
_CODE_BYTES = 32


class RefusedError(LoadError):
    """The other side does not know the secret, or speaks another version."""


def secret_of(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the shared secret.

    Raises
    ------
    InputError
        When it is missing or too short to withstand guessing.
    """
    text = environ.get(SECRET_VARIABLE, "")
    if len(text) < LEAST_SECRET:
        raise InputError(
            f"{SECRET_VARIABLE} is {'not set' if not text else 'too short'}: load workers take "
            "orders only from who knows a shared secret",
            f"set it to the same {LEAST_SECRET} characters or more on all hosts, for example: "
            f"export {SECRET_VARIABLE}=$(openssl rand -hex 32)",
        )
    return text.encode()


def parse_place(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` (``[::1]:7471`` for IPv6).

    Raises
    ------
    InputError
        When it is anything else.
    """
    host, _, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() else -1
    if not host or not 0 <= number <= 65535:  # noqa: PLR2004 - the ports of TCP
        raise InputError(f"{text!r} is no HOST:PORT", "for example 127.0.0.1:7471")
    return host.strip("[]"), number


@dataclass(frozen=True)
class Message:
    """JSON values and the byte strings that belong to them; ``at_ns`` is when it was here."""

    values: dict[str, Any]
    blobs: tuple[bytes, ...] = ()
    at_ns: int = 0


@dataclass
class Channel:
    """One connection after the handshake."""

    sock: socket.socket
    send_key: bytes
    receive_key: bytes
    peer: str
    _sent: int = 0
    _received: int = 0

    def send(self, values: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Send one message."""
        head = json.dumps({**values, "blobs": [len(b) for b in blobs]}).encode()
        payload = b"".join([_LENGTH.pack(len(head)), head, *blobs])
        code = _code(self.send_key, self._sent, payload)
        self._sent += 1
        self.sock.sendall(_LENGTH.pack(len(payload)) + code + payload)

    def receive(self) -> Message:
        """Wait for one message.

        Raises
        ------
        EOFError
            When the other side is gone.
        RefusedError
            When a message was forged or damaged.
        TimeoutError
            When the socket's time limit is over.
        """
        length = _LENGTH.unpack(_exactly(self.sock, _LENGTH.size))[0]
        at_ns = now_ns()
        if length > _MESSAGE_LIMIT:
            raise RefusedError(f"{self.peer} announced a message of {length} bytes")
        code = _exactly(self.sock, _CODE_BYTES)
        payload = _exactly(self.sock, length)
        if not hmac.compare_digest(code, _code(self.receive_key, self._received, payload)):
            raise RefusedError(
                f"a message of {self.peer} does not bear the code of this connection"
            )
        self._received += 1
        head_bytes = _LENGTH.unpack_from(payload)[0]
        start = _LENGTH.size + head_bytes
        values = json.loads(payload[_LENGTH.size : start])
        blobs = []
        for size in values.pop("blobs"):
            blobs.append(payload[start : start + size])
            start += size
        return Message(values, tuple(blobs), at_ns)

    def ask(self, values: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> Message:
        """Send a message and return its answer."""
        self.send(values, blobs)
        return self.receive()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


def _code(key: bytes, number: int, payload: bytes) -> bytes:
    return hmac.digest(key, _LENGTH.pack(number) + payload, "sha256")


def _exactly(sock: socket.socket, size: int, until_ns: int | None = None) -> bytes:
    found = bytearray()
    while len(found) < size:
        if until_ns is not None and now_ns() > until_ns:
            raise TimeoutError("the greeting took too long")
        piece = sock.recv(min(size - len(found), 1 << 20))
        if not piece:
            raise EOFError("the connection was closed")
        found += piece
    return bytes(found)


# -- the handshake


def greet(sock: socket.socket, secret: bytes, peer: str) -> Channel:
    """Open a channel as the coordinator, who speaks first.

    Raises
    ------
    RefusedError
        When the worker does not prove that it knows the secret.
    """
    _prepare(sock)
    mine = secrets.token_hex(32)
    _say(sock, {"hello": "enginebook load", "version": VERSION, "nonce": mine})
    answer = _hear(sock, peer)
    theirs = _nonce(answer, peer)
    _check_version(answer, peer)
    _check_proof(answer, _proof(secret, "worker", mine, theirs), peer)
    _say(sock, {"proof": _proof(secret, "coordinator", mine, theirs)})
    return _channel(sock, secret, mine, theirs, peer, coordinator=True)


def answer_greeting(sock: socket.socket, secret: bytes, peer: str) -> Channel:
    """Open a channel as a worker.

    Raises
    ------
    RefusedError
        When the coordinator does not prove that it knows the secret.
    """
    _prepare(sock)
    hello = _hear(sock, peer)
    theirs, mine = _nonce(hello, peer), secrets.token_hex(32)
    proof = _proof(secret, "worker", theirs, mine)
    _say(sock, {"version": VERSION, "nonce": mine, "proof": proof})
    _check_version(hello, peer)
    _check_proof(_hear(sock, peer), _proof(secret, "coordinator", theirs, mine), peer)
    return _channel(sock, secret, theirs, mine, peer, coordinator=False)


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.settimeout(ANSWER_TIMEOUT_S)


def _proof(secret: bytes, who: str, first: str, second: str) -> str:
    return hmac.new(secret, f"{who}:{first}:{second}".encode(), hashlib.sha256).hexdigest()


def _channel(
    sock: socket.socket, secret: bytes, first: str, second: str, peer: str, *, coordinator: bool
) -> Channel:
    keys = [
        bytes.fromhex(_proof(secret, w, first, second)) for w in ("to worker", "to coordinator")
    ]
    mine, theirs = keys if coordinator else reversed(keys)
    return Channel(sock, mine, theirs, peer)


def _nonce(values: Mapping[str, Any], peer: str) -> str:
    nonce = values.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise RefusedError(f"{peer} does not speak the load protocol")
    return nonce


def _check_version(values: Mapping[str, Any], peer: str) -> None:
    if values.get("version") != VERSION:
        raise RefusedError(
            f"{peer} does not speak version {VERSION} of the load protocol",
            "install the same Enginebook on all hosts",
        )


def _check_proof(values: Mapping[str, Any], expected: str, peer: str) -> None:
    proof = values.get("proof")
    # as bytes: the comparison takes no text but ASCII, and a stranger may send any
    given = proof.encode("utf-8", "replace") if isinstance(proof, str) else b""
    if not hmac.compare_digest(given, expected.encode()):
        raise RefusedError(
            f"{peer} does not know the shared secret", f"set {SECRET_VARIABLE} alike on all hosts"
        )


def _say(sock: socket.socket, values: Mapping[str, Any]) -> None:
    data = json.dumps(values).encode()
    sock.sendall(_LENGTH.pack(len(data)) + data)


def _hear(sock: socket.socket, peer: str) -> dict[str, Any]:
    until_ns = now_ns() + int(ANSWER_TIMEOUT_S * NS_PER_S)
    length = _LENGTH.unpack(_exactly(sock, _LENGTH.size, until_ns))[0]
    if length > _HELLO_LIMIT:
        raise RefusedError(f"{peer} does not speak the load protocol")
    try:
        values = orjson.loads(_exactly(sock, length, until_ns))
    except orjson.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise RefusedError(f"{peer} does not speak the load protocol")
    return values
