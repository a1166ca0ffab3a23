"""Free ports and their holders, with real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from enginebook.errors import InputError
from enginebook.lifecycle import ports


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_free_port_can_be_bound_and_is_below_the_ephemeral_range():
    port = ports.free_port()
    assert ports.FIRST <= port < ports.LAST
    assert ports.can_bind(port)


def test_holder_is_this_process(listening):
    assert not ports.can_bind(listening)
    assert ports.listeners(listening) == [os.getpid()]
    assert ports.listeners(listening, [os.getpid()]) == [os.getpid()]
    assert ports.listeners(listening, [1]) == []
    held = ports.holder(listening)
    assert held.pid == os.getpid()
    assert "py" in str(held)


def test_psutil_finds_the_same(listening):
    assert ports._listeners_by_psutil(listening, [os.getpid()]) == [os.getpid()]
    assert ports._listeners_by_psutil(ports.free_port(), [os.getpid()]) == []


def test_require_free_names_the_holder(listening):
    with pytest.raises(InputError, match=f"port {listening}.*pid {os.getpid()}") as raised:
        ports.require_free(listening)
    assert "port: 0" in raised.value.remedy
    ports.require_free(ports.free_port())


def test_another_processs_port_is_found():
    code = (
        "import socket, sys; s = socket.socket(socket.AF_INET6); s.bind(('::', 0)); s.listen();"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        port = int(other.stdout.readline())
        assert ports.holder(port).pid == other.pid
        other.stdin.close()


def test_nobody_listens():
    assert ports.listeners(ports.free_port()) == []
    assert ports.holder(ports.free_port()).pid is None


def test_no_port_left_is_told(monkeypatch):
    monkeypatch.setattr(ports, "can_bind", lambda _: False)
    with pytest.raises(InputError, match="no free port"):
        ports.free_port()
