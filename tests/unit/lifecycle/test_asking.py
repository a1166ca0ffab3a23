"""Clients that keep asking, and the outage that they see."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from enginebook.lifecycle.asking import RETRY_S, Clients, one_token, outage_s
from enginebook.lifecycle.readiness import Address


class Handler(BaseHTTPRequestHandler):
    status, body = 200, {"choices": [{"text": "a"}]}

    def do_POST(self) -> None:
        data = json.dumps(self.body).encode()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[Address]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Address("127.0.0.1", server.server_port)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("good", "since", "until", "expected"),
    [
        ([1, 2, 3, 9, 10], 3.5, 8.5, 6),
        # what was begun before the stop is still answered after it
        ([1, 2, 3, 4, 9, 10], 2.5, 8.5, 5),
        ([1, 2, 9, 9.5, 30], 2.5, 8.5, 7),
        ([1, 2, 3], 2.5, 8.5, None),
        ([9, 10], 2.5, 8.5, None),
        ([], 0, 1, None),
        ([10, 3, 2, 9, 1], 3.5, 8.5, 6),
    ],
)
def test_an_outage_is_the_longest_silence_of_the_swap(
    good: list[float], since: float, until: float, expected: float | None
) -> None:
    assert outage_s(good, since, until) == expected


def test_clients_ask_until_they_are_told_to_end(address: Address) -> None:
    clients = Clients(address, "m", 3)
    with clients.asking():
        assert clients.answered_since(time.monotonic(), 5)
    count = len(clients.good)
    time.sleep(0.1)
    assert len(clients.good) == count > 0
    assert clients.failed == []


def test_refused_clients_do_not_hammer() -> None:
    clients = Clients(Address("127.0.0.1", 9), "m", 2)
    begun = time.monotonic()
    with clients.asking():
        assert not clients.answered_since(begun, 0.5)
    spent = time.monotonic() - begun
    assert 0 < len(clients.failed) <= 2 * (spent / RETRY_S + 1)
    assert clients.good == []


@pytest.mark.parametrize(
    ("status", "body"), [(503, {"choices": [{}]}), (200, {"error": {}}), (200, {"choices": []})]
)
def test_only_an_answer_counts(
    address: Address, monkeypatch: pytest.MonkeyPatch, status: int, body: dict[str, object]
) -> None:
    assert one_token(address, "m")
    monkeypatch.setattr(Handler, "status", status)
    monkeypatch.setattr(Handler, "body", body)
    assert not one_token(address, "m")
