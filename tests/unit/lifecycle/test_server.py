"""serve(): ready means that our engine answers; the end of the block means that nothing is left."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from enginebook.errors import EngineError, InputError
from enginebook.lifecycle import leases, owned, ports, server
from enginebook.lifecycle.server import serve

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_serves_and_leaves_nothing(fake, model, tmp_path):
    with serve(fake(), model, directory=tmp_path / "s") as s:
        assert s.alive()
        assert s.pid in s.processes()
        body = urllib.request.urlopen(f"{s.base_url}/v1/models").read()
        assert json.loads(body)["data"][0]["id"] == s.model_id == "tiny-model"
        assert s.version == "9.9"
        pid, port = s.pid, int(s.base_url.rsplit(":", 1)[1])
        (noted,) = leases.all_noted()
        assert noted.facts["port"] == port
    assert not running(pid)
    assert ports.can_bind(port)
    assert leases.all_noted() == []


def test_phases_follow_each_other(fake, model, tmp_path):
    with serve(fake(load_s=0.3, busy_s=0.4), model, directory=tmp_path / "s") as s:
        assert s.ready_s >= 0.3
        assert s.ready_s + 0.3 <= s.first_token_s
        names = [p.name for p in s.phases]
        assert names == ["weights", "ready", "first_token"]
        for before, after in zip(s.phases, s.phases[1:], strict=False):
            assert before.end_s <= after.start_s
            assert after.start_s <= after.end_s


def test_memory_is_the_log_and_the_system(fake, model, tmp_path):
    with serve(fake(fault="fork"), model, directory=tmp_path / "s") as s:
        parts = {p.component: p for p in s.memory()}
    assert parts["weights"].bytes == 1000
    assert parts["total"].bytes > 5_000_000
    assert "2 processes" in parts["total"].source


def test_secrets_are_masked_and_offline_is_set(fake, model, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    with serve(fake(), model, directory=tmp_path / "s") as s:
        shown = dict(s.command.env)
        inside = Path(f"/proc/{s.pid}/environ").read_bytes().split(b"\0")
    assert shown["FAKE_SECRET_TOKEN"] == "***"
    assert shown["HF_HUB_OFFLINE"] == "1"
    assert b"FAKE_SECRET_TOKEN=hunter2" in inside
    assert b"DO_NOT_TRACK=1" in inside
    assert not any(b"hunter2" in p.read_bytes() for p in (tmp_path / "s").iterdir())


def test_stop_reports_and_can_be_called_twice(fake, model, tmp_path):
    with serve(fake(fault="fork"), model, directory=tmp_path / "s") as s:
        report = s.stop()
        assert report.killed == 0
        assert report.reason == "stopped"
        assert not s.alive()
        assert s.stop() == report


def test_two_servers_do_not_clash(fake, model, tmp_path):
    with (
        serve(fake(), model, directory=tmp_path / "a") as a,
        serve(fake(), model, directory=tmp_path / "b") as b,
    ):
        assert a.base_url != b.base_url
        assert a.alive()
        assert b.alive()
        a.stop()
        assert b.alive()


def test_given_port_in_use_names_its_holder(fake, model, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(InputError, match=f"port {port}.*pid {os.getpid()}") as raised,
            serve(fake(), model, directory=tmp_path / "s", port=port),
        ):
            pass
    assert raised.value.exit_status == 2
    assert not (tmp_path / "s" / "engine.log").exists()


def test_given_port_is_taken(fake, model, tmp_path):
    port = ports.free_port()
    with serve(fake(), model, directory=tmp_path / "s", port=port) as s:
        assert s.base_url == f"http://127.0.0.1:{port}"


def test_crash_at_start_is_explained(fake, model, tmp_path):
    with (
        pytest.raises(EngineError) as raised,
        serve(fake(fault="crash-at-start"), model, directory=tmp_path / "s"),
    ):
        pass
    text = str(raised.value)
    assert "exit status 3" in text
    assert "GPU's memory is not enough" in text
    assert "Tried to allocate 20 GiB" in text
    assert "engine.log" in raised.value.remedy
    assert leases.all_noted() == []


def test_death_by_signal_is_named(fake, model, tmp_path):
    with (
        pytest.raises(EngineError, match="SIGKILL"),
        serve(fake(fault="die-by-signal"), model, directory=tmp_path / "s"),
    ):
        pass


def test_hang_at_start_ends_with_the_log(fake, model, tmp_path):
    said: list[str] = []
    with (
        pytest.raises(EngineError, match=r"within 4 s(.|\n)*fake engine: loading"),
        serve(
            fake(fault="hang,fork"),
            model,
            directory=tmp_path / "s",
            timeout_s=4,
            on_event=said.append,
        ),
    ):
        pass
    assert said
    assert leases.all_noted() == []


def test_program_that_is_not_there(fake, model, tmp_path):
    with (
        pytest.raises(EngineError, match="could not start: No such file"),
        serve(fake(program="/nowhere/python"), model, directory=tmp_path / "s"),
    ):
        pass


def test_another_model_is_refused(fake, model, tmp_path):
    with (
        pytest.raises(EngineError, match="serves other, not tiny-model"),
        serve(fake(served="other"), model, directory=tmp_path / "s"),
    ):
        pass


def test_crash_later_is_seen(fake, model, tmp_path):
    with serve(fake(fault="crash-later"), model, directory=tmp_path / "s") as s:
        deadline = time.monotonic() + 10
        while s.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not s.alive()
        report = s.stop()
    assert report.reason == "engine exited"


def test_foreign_answer_on_the_port_is_not_taken_for_ready(fake, model, tmp_path, monkeypatch):
    """The engine hangs while another server, which looks like it, answers on its port."""
    port = ports.free_port()
    argv = [sys.executable, str(FAKE_ENGINE), "--port", str(port), "--model", "tiny-model"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        while b"listening" not in other.stdout.readline():
            pass
        monkeypatch.setattr(server.ports, "require_free", lambda _: None)
        try:
            with (
                pytest.raises(EngineError, match=f"answered by pid {other.pid}"),
                serve(fake(fault="hang"), model, directory=tmp_path / "s", port=port),
            ):
                pass
        finally:
            other.kill()


def test_exception_in_the_block_ends_the_engine(fake, model, tmp_path):
    seen: list[int] = []

    def interrupted() -> None:
        with serve(fake(fault="setsid,double-fork"), model, directory=tmp_path / "s") as s:
            seen.extend(s.processes())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(seen) == 3
    assert not any(map(running, seen))


def test_interrupt_while_starting_ends_the_engine(fake, model, tmp_path):
    timer = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with (
        pytest.raises(KeyboardInterrupt),
        serve(fake(fault="hang"), model, directory=tmp_path / "s"),
    ):
        pass
    assert leases.all_noted() == []
    report = json.loads((tmp_path / "s" / "guard.json").read_text())
    assert report["state"] == "ended"


def test_external_server_is_used_and_left_alone(fake, model, tmp_path):
    argv = [sys.executable, str(FAKE_ENGINE), "--model", "its-own-name"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        line = ""
        while "listening" not in line:
            line = other.stdout.readline()
        url = f"http://127.0.0.1:{line.split()[-1]}/v1"
        said: list[str] = []
        spec = fake(environment={"kind": "external", "base_url": url})
        try:
            with serve(spec, model, directory=tmp_path / "s", on_event=said.append) as s:
                assert s.model_id == "its-own-name"
                assert s.version == "9.9"
                assert s.pid is None
                assert s.ready_s is None
                assert s.memory() == []
                assert s.alive()
            assert other.poll() is None
            assert any("somebody else" in text for text in said)
        finally:
            other.kill()


def test_external_server_that_is_not_there(fake, model, tmp_path):
    url = f"http://127.0.0.1:{ports.free_port()}"
    spec = fake(environment={"kind": "external", "base_url": url})
    with (
        pytest.raises(EngineError, match="no server answers at"),
        serve(spec, model, directory=tmp_path / "s"),
    ):
        pass


def test_proxy_is_not_used_for_the_loopback(fake, model, tmp_path, monkeypatch):
    hits = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def parse_request(self):
            hits.append(self.raw_requestline)
            return False

    with http.server.HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        with serve(fake(), model, directory=tmp_path / "s") as s:
            inside = Path(f"/proc/{s.pid}/environ").read_bytes().split(b"\0")
        proxy.shutdown()
    assert hits == []
    assert any(v.startswith(b"no_proxy=") and b"127.0.0.1" in v for v in inside)


def test_interrupt_before_the_guards_first_word_leaves_nothing(tmp_path, monkeypatch):
    """The traceback is kept, as a notebook keeps it; the engine must end all the same."""
    started = []

    def interrupted(popen, log):
        started.append(popen)
        raise KeyboardInterrupt

    monkeypatch.setattr(owned, "_first_word", interrupted)
    argv = [sys.executable, str(FAKE_ENGINE), "--fault", "fork"]
    with pytest.raises(KeyboardInterrupt) as kept:
        owned.start(argv, env=dict(os.environ), directory=tmp_path)
    started[0].wait(10)
    started[0].stdout.close()
    assert kept.tb is not None
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in shown.stdout
