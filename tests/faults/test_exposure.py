"""Who else can reach what Enginebook starts and read what it puts aside: nobody, unless told."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hostile_support import secret_environment
from load_support import DONE, END, STREAM_HEAD, http, serve_script, sse, text, usage

from enginebook import store
from enginebook.commands.load_worker import USUAL_PLACE
from enginebook.engines.exposure import EXPOSE, exposed_address, is_loopback, refuse_exposure
from enginebook.engines.registry import ALL, adapter
from enginebook.errors import BAD_INPUT, InputError
from enginebook.lifecycle import leases, owners
from enginebook.lifecycle.server import serve
from enginebook.load.reference import reference_server
from enginebook.load.remote_wire import parse_place
from enginebook.models import ModelSpec
from enginebook.paths import project_root
from enginebook.study import EngineSpec

__all__ = ["serve_script"]
CLI = [sys.executable, "-m", "enginebook.cli"]
MODEL = ModelSpec(dummy="llama-3.1-8b")
ANSWER = STREAM_HEAD + sse(text("a", '"stop"')) + sse(usage(1)) + DONE + END


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))


def listens_on(*pids: int) -> set[str]:
    found = set()
    for pid in pids:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            sockets = process.net_connections(kind="inet")
            found |= {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- servers


def test_an_engine_listens_on_the_loopback_and_its_notes_are_private(tmp_path):
    engine = EngineSpec(name="a", recipe="simulated")
    with serve(engine, MODEL, directory=tmp_path / "s", keep_warm_s=5) as server:
        assert listens_on(*server.processes()) == {"127.0.0.1"}
        folder = leases.servers_dir()
        assert mode(folder) == 0o700
        (place,) = folder.glob("*.sock")
        assert mode(place) == 0o600
        server.stop()


def test_the_reference_server_listens_on_the_loopback():
    with reference_server() as server:
        assert listens_on(server.pid) == {"127.0.0.1"}


@pytest.mark.parametrize("name", [a.id for a in ALL if a.id != "ollama"])
@pytest.mark.parametrize(
    "words",
    [
        ["--host", "0.0.0.0"], ["--host=0.0.0.0"], ["--host", "::"], ["--host", "192.168.1.2"],
        ["--server-name", "0.0.0.0"], ['hostname="0.0.0.0"'], ["--host", "example.org"],
        ["--seed", "1", "--HOST=[::]"], ["--host"], ["--hos", "0.0.0.0"], ["--ho=0.0.0.0"],
        ["--server-n", "0.0.0.0"], ["--server_na=0.0.0.0"],
    ],
)  # fmt: skip
def test_an_address_that_others_reach_needs_an_explicit_word(monkeypatch, name, words):
    options = {"extra_args": words}
    with pytest.raises(InputError, match=EXPOSE):
        adapter(name).check_options(options)
    monkeypatch.setenv(EXPOSE, "yes")
    adapter(name).check_options(options)


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "127.0.0.1"],
        ["--host=::1"],
        ["--host", "localhost"],
        ["--seed", "0"],
        [],
        ["--hos", "127.0.0.1"],
        ["--h", "0.0.0.0"],
        ["ho=0.0.0.0"],
        ["--hosts-file", "x"],
    ],
)
def test_the_loopback_needs_none(words):
    refuse_exposure(words)
    assert exposed_address(words) is None


@pytest.mark.parametrize(
    ("address", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("0.0.0.0", False), ("", False),
     ("127.0.0.1.example.org", False), ("0", False), ("2130706433", False),
     ("::ffff:1.2.3.4", False)],
)  # fmt: skip
def test_what_is_this_host_alone(address, own):
    assert is_loopback(address) is own


def test_an_engine_that_others_reach_is_warned_about(tmp_path, monkeypatch):
    monkeypatch.setenv(EXPOSE, "yes")
    words = ["--host", "0.0.0.0"]
    engine = EngineSpec(name="a", recipe="simulated", options={"extra_args": words})
    with (
        pytest.warns(UserWarning, match=r"listens on 0\.0\.0\.0: whoever reaches"),
        serve(engine, MODEL, directory=tmp_path / "s") as server,
    ):
        assert listens_on(*server.processes()) == {"0.0.0.0"}


# -- load workers


def test_a_load_worker_waits_on_the_loopback_unless_told_otherwise():
    assert is_loopback(parse_place(USUAL_PLACE)[0])
    assert '"--listen", metavar="HOST:PORT", default=None' in _source("commands/load_worker.py")


def _source(name: str) -> str:
    return (Path(leases.__file__).parents[1] / name).read_text()


@pytest.fixture
def worker(tmp_path) -> Iterator[subprocess.Popen[str]]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str, **env: str) -> subprocess.Popen[str]:
        environ = secret_environment(ENGINEBOOK_CACHE=str(tmp_path / "cache"), **env)
        started.append(
            subprocess.Popen(
                [*CLI, "load-worker", *words], env=environ, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(10)
        process.stderr.close()


SECRET = {"ENGINEBOOK_LOAD_SECRET": "canary-of-all-load-hosts"}


def said_until(process: subprocess.Popen[str], wanted: str) -> str:
    said = ""
    while wanted not in said:
        line = process.stderr.readline()
        assert line, f"it ended without {wanted!r}: {said}"
        said += line
    return said


def test_a_load_worker_on_the_loopback_says_nothing_more(worker):
    process = worker("--listen", "127.0.0.1:0", **SECRET)
    said = said_until(process, "listening on 127.0.0.1:")
    assert listens_on(process.pid) == {"127.0.0.1"}
    assert "other hosts" not in said
    assert not any(w in said for w in SECRET.values())


def test_a_load_worker_that_others_reach_warns(worker):
    process = worker("--listen", "0.0.0.0:0", **SECRET)
    assert "not encrypted" in said_until(process, "other hosts reach this address")
    assert listens_on(process.pid) == {"0.0.0.0"}


@pytest.mark.parametrize("secret", [{}, {"ENGINEBOOK_LOAD_SECRET": "short"}])
def test_a_load_worker_without_a_secret_does_not_start(worker, secret):
    process = worker("--listen", "0.0.0.0:0", **secret)
    assert process.wait(30) == BAD_INPUT
    assert "ENGINEBOOK_LOAD_SECRET" in process.stderr.read()


# -- files


def test_files_are_private_until_they_are_whole(tmp_path, monkeypatch):
    seen = []
    real = os.fsync

    def look(handle: int) -> None:
        seen.extend(mode(p) for p in tmp_path.iterdir() if p.name.startswith(".x.json"))
        real(handle)

    monkeypatch.setattr(os, "fsync", look)
    store.write_json(tmp_path / "x.json", {"a": 1})
    assert seen == [0o600]


def test_what_a_load_puts_aside_is_private(serve_script, tmp_path):
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    tokens = http(json.dumps({"tokens": list(range(100, 500))}).encode())
    server = serve_script([tokens], [0.7, ANSWER])
    argv = [*CLI, "load", "--base-url", server.url, "--model", "m", "--concurrency", "1"]
    argv += ["--requests", "1", "--input-tokens", "8", "--output-tokens", "1"]
    environ = secret_environment(TMPDIR=str(scratch), ENGINEBOOK_CACHE=str(tmp_path / "cache"))
    seen: dict[str, int] = {}
    with subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            seen |= {p.name: mode(p) for p in scratch.iterdir()}
            time.sleep(0.02)
    assert process.returncode == 0
    assert [n for n in seen if n.startswith("enginebook-load-")]
    assert set(seen.values()) <= {0o700, 0o600}
    assert list(scratch.iterdir()) == []


def test_the_socket_of_a_warm_server_is_never_open_to_others(tmp_path):
    """Between its making and its chmod only the folder keeps others out."""
    path = leases.servers_dir() / "t.sock"
    assert mode(path.parent) == 0o700
    made = owners.Owners(os.getpid(), "", path)
    assert mode(path) == 0o600
    made.close()


# -- JupyterLab


def lab_words() -> list[str]:
    """Return the command line of `make lab`."""
    makefile = (project_root() / "Makefile").read_text()
    line = re.search(r"^\t@\$\(BIN\)/(jupyter lab.*)$", makefile, re.MULTILINE)
    assert line is not None
    return shlex.split(line[1])


def test_make_lab_keeps_token_and_loopback(tmp_path):
    words = lab_words()
    assert "--ip=127.0.0.1" in words
    open_doors = r"token|password|no-?auth|disable_check|allow_origin"
    assert not [w for w in words if re.search(open_doors, w)]
    port = _free_port()
    folder = tmp_path / "notebooks"
    folder.mkdir()
    words = [w for w in words[1:] if not w.startswith("--notebook-dir")]
    argv = [sys.executable, "-m", "jupyter", *words, f"--notebook-dir={folder}", "--no-browser"]
    argv += [f"--ServerApp.port={port}", "--ServerApp.allow_root=True"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY"))}
    environ |= {f"JUPYTER_{n}_DIR": str(tmp_path / n) for n in ("CONFIG", "DATA", "RUNTIME")}
    environ |= {"HOME": str(tmp_path), "JUPYTER_NO_CONFIG": "1"}
    with (tmp_path / "log").open("wb") as log:
        lab = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)
    try:
        (facts,) = _until(lambda: list((tmp_path / "RUNTIME").glob("jpserver-*.json")))
        token = json.loads(facts.read_text())["token"]
        url = f"http://127.0.0.1:{port}/api/contents"
        assert len(token) >= 40
        assert mode(facts) == 0o600
        assert _status(url) == 403
        assert _status(f"{url}?token={token}") == 200
        assert listens_on(lab.pid) == {"127.0.0.1"}
    finally:
        lab.terminate()
        try:
            lab.wait(15)
        except subprocess.TimeoutExpired:
            lab.kill()
            lab.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _until(look, timeout_s: float = 60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def _status(url: str, timeout_s: float = 30.0) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
