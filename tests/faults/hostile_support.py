"""What attackers send and where it must not arrive: texts, bytes, canaries, servers."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil

TESTS = Path(__file__).parents[1]
for folder in ("unit/load", "unit/report", "browser"):
    sys.path.insert(0, str(TESTS / folder))

from load_support import (  # noqa: E402
    DONE,
    END,
    STREAM_HEAD,
    delta,
    http,
    sse,
    text,
    usage,
)

from enginebook.load.connection import Connection  # noqa: E402
from enginebook.load.exchange import Exchange  # noqa: E402
from enginebook.load.plan import Planned  # noqa: E402

# -- texts

SCRIPT = "<script>document.title='owned'</script>"
HTML = (
    SCRIPT,
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg onload=document.title='owned'>",
    "<iframe src=\"javascript:parent.document.title='owned'\"></iframe>",
    "[click](javascript:document.title='owned')",
    "![x](http://evil.example/pixel.png)",
    '"><style>@import url(http://evil.example/x.css);</style>',
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<!--<script>document.title='owned'</script>-->",
    "--></title><base href=http://evil.example/>",
    "{{ 7 * 7 }}{% raw %}",
    "${constructor.constructor('document.title=\"owned\"')()}",
)
VEGA = (
    "datum.constructor.constructor('document.title=1')()",
    "\\\" + warn('x') + \\\"",
    '{"signal": "warn(1)"}',
    "event.view.alert(1)",
)
TERMINAL = (
    "\x1b[31mred\x1b[2J\x1b[H",
    "\x1b]0;owned\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;b3duZWQ=\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b31m",
    "over\rwritten",
    "bell\x07 back\x08\x08\x08",
    "\x00nul",
)
UNSEEN = (
    "\u202egnp.exe",
    "\u2066hidden\u2069",
    "vl\u200blm",
    "\ufeffvllm",
    "\U000e0041tag",
    "a\u2028b",
)
NOTEBOOK = '{"cells": [{"cell_type": "code", "source": "import os", "outputs": []}]}'
LONG = "A" * 1_000_000
# a carriage return takes what stands before it, so what shall be seen comes last
EVIL = "".join((*TERMINAL, *UNSEEN, *VEGA, *HTML))
# what stays of the texts above when nothing of them may act
FORBIDDEN_CHARACTERS = "\x00\x07\x08\x1b\x9b\x7f\u202e\u2066\u2069\u200b\ufeff\U000e0041\u2028"


def is_quiet(shown: str) -> bool:
    """Return whether a text may be given to a terminal."""
    return not any(c in shown for c in FORBIDDEN_CHARACTERS) and "\r" not in shown


# -- secrets

KEY = "sk-canary-9f8e7d6c5b4a39281706"
TOKEN = "hf_CanaryTokenZxCvBnMq0123456789"
PASSWORD = "canary+Passw0rd-in=url"
CANARIES = (KEY, TOKEN, PASSWORD, quote(PASSWORD, safe=""))
SECRETS = {
    "ENGINEBOOK_API_KEY": KEY,
    "HF_TOKEN": TOKEN,
    "PIP_EXTRA_INDEX_URL": f"https://reader:{quote(PASSWORD, safe='')}@127.0.0.1:9/simple",
}
"""Variables as an operator may have set them."""


def secret_environment(**more: str) -> dict[str, str]:
    """Return this process's environment with secrets, and others of its own left out."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ENGINEBOOK_")}
    return {**kept, **SECRETS, **more}


def files_with(folder: Path, words: Iterable[str]) -> list[str]:
    """Return the files below a folder whose bytes or names hold one of some words."""
    found = []
    wanted = [w.encode() for w in words]
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes() + os.fsencode(path)
        found += [f"{path}: {w.decode()}" for w in wanted if w in data]
    return found


class Watch(threading.Thread):
    """Looks at all command lines, and at the sockets of a process's tree, until it is told to end.

    Attributes
    ----------
    leaked
        Command lines that held a canary.
    addresses
        Where the tree's processes listened.
    looks
        How often it looked.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.leaked: set[bytes] = set()
        self.addresses: set[str] = set()
        self.looks = 0
        self._over = threading.Event()
        self._root = psutil.Process()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(10)

    def run(self) -> None:
        words = [w.encode() for w in CANARIES]
        while not self._over.wait(0.1):
            self.looks += 1
            self.leaked |= {line for _, line in command_lines() if any(w in line for w in words)}
            if self.looks % 5 == 0:
                self.addresses |= listening(self._root)


def command_lines() -> Iterator[tuple[int, bytes]]:
    """Yield the argument lists of all processes that there are."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes()


def listening(root: psutil.Process) -> set[str]:
    """Return the addresses on which processes below one listen."""
    found = set()
    for process in root.children(recursive=True):
        with suppress(psutil.Error):
            sockets = process.net_connections(kind="inet")
            found |= {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}
    return found


# -- bytes

USUAL_ANSWERS = (
    STREAM_HEAD + b"".join(sse(text(w)) for w in "abcdefghijkl") + sse(usage(12)) + DONE + END,
    STREAM_HEAD
    + sse(delta('{"role":"assistant","content":""}'))
    + sse(delta('{"reasoning_content":"hm"}'))
    + b"".join(sse(delta(f'{{"content":"{w}"}}')) for w in "abcd")
    + sse(delta('{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}', '"stop"'))
    + sse(usage(6))
    + DONE
    + END,
    http(b'{"choices":[{"text":"abcd","finish_reason":"length"}],"usage":{"completion_tokens":4}}'),
    http(b'{"error":{"message":"no slot","code":503}}', "503 Service Unavailable"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + http(b"{}"),
)
SPLICES = (
    b"\r\n\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"HTTP/1.1 200 OK\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"data: ",
    b"data: [DONE]\n\n", b'{"choices":', b"[" * 3000, b'{"a":' * 3000, b"\xff\xfe", b"\x00" * 50,
    b"event: error\n", b"Content-Encoding: gzip\r\n", b"1e309", b"-0", b"\xef\xbb\xbf", b"\\ud800",
)  # fmt: skip


def mutated(data: bytes, rng: random.Random, times: int) -> bytes:
    """Return bytes with so many of: a flip, a cut, a repetition, a splice."""
    for _ in range(times):
        a = rng.randrange(len(data) + 1)
        b = min(len(data), a + rng.randrange(1, 40))
        way = rng.randrange(4)
        if way == 0 and a < len(data):
            data = data[:a] + bytes([rng.randrange(256)]) + data[a + 1 :]
        elif way == 1:
            data = data[:a] + data[b:]
        elif way == 2:
            data = data[:b] + data[a:b] * rng.randrange(1, 4) + data[b:]
        else:
            data = data[:a] + rng.choice(SPLICES) + data[a:]
    return data


def pieces_of(data: bytes, rng: random.Random) -> list[bytes]:
    """Return bytes cut at random, as a network may cut them."""
    places = sorted(
        {0, len(data), *(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))}
    )
    return [data[a:b] for a, b in pairwise(places)] or [b""]


class Owner:
    """Takes the exchanges that a connection ends."""

    def __init__(self) -> None:
        self.ended_with: list[Exchange] = []

    def ended(self, connection: Connection, exchange: Exchange) -> None:
        self.ended_with.append(exchange)


class Transport:
    """A transport that takes everything and sends it nowhere."""

    aborted = False

    def write(self, data: bytes) -> None:
        """Take bytes."""

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True


def opened(output_tokens: int = 4) -> tuple[Connection, Owner, Exchange]:
    """Return a connection on which a request was sent, its owner and the exchange."""
    owner, exchange = Owner(), Exchange(Planned(0, 8, output_tokens), 1)
    connection = Connection(owner, False, 0)
    connection.connection_made(Transport())  # type: ignore[arg-type]
    connection.send(exchange, b"request")
    return connection, owner, exchange


def answered(pieces: Iterable[bytes], error: Exception | None = None) -> Exchange:
    """Return the exchange after a server sent these pieces and closed the connection."""
    connection, owner, exchange = opened()
    for piece in pieces:
        if connection.alive:  # a transport that was aborted delivers nothing more
            connection.data_received(piece)
    if connection.alive:
        connection.connection_lost(error)
    assert owner.ended_with == [exchange], "an exchange ends once"
    return exchange
