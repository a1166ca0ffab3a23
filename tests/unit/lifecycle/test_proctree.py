"""The process table by /proc and by ps, and identities that survive recycled pids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from enginebook.lifecycle import proctree

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def child():
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def test_process_of_this_interpreter():
    me = proctree.process(os.getpid())
    assert me.parent == os.getppid()
    assert me.identity == proctree.identity_of(os.getpid())
    assert proctree.is_alive(os.getpid(), me.identity)


def test_other_identity_is_another_process():
    assert not proctree.is_alive(os.getpid(), "1")


def test_gone_process():
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        identity = proctree.identity_of(process.pid)
        process.wait()
    assert proctree.process(process.pid) is None
    assert proctree.identity_of(process.pid) == ""
    assert not proctree.is_alive(process.pid, identity)


def test_zombies_are_not_alive():
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    while proctree.process(process.pid).state != "Z":
        time.sleep(0.01)
    assert not proctree.is_alive(process.pid, proctree.identity_of(process.pid))
    process.wait()


def test_descendants_parents_first():
    code = f"import subprocess, time; subprocess.Popen({SLEEP}); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        below = proctree.descendants(os.getpid())
        pids = [p.pid for p in below]
        (grandchild,) = [p.pid for p in below if p.parent == process.pid]
        assert pids.index(process.pid) < pids.index(grandchild)
        killed, left = proctree.kill_until_gone(
            lambda: [
                p for p in proctree.descendants(os.getpid()) if p.pid in {process.pid, grandchild}
            ],
            5,
        )
        assert (killed, left) == (2, [])


def test_command_names_with_brackets_do_not_confuse(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as process:
        assert proctree.process(process.pid).parent == os.getpid()
        process.kill()


def test_variable_marks_a_process():
    with subprocess.Popen(SLEEP, env={**os.environ, "MARK": "xyz"}) as process:
        deadline = time.monotonic() + 5
        found = []
        while not found and time.monotonic() < deadline:
            found = [p.pid for p in proctree.with_variable("MARK", "xyz")]
        assert found == [process.pid]
        assert proctree.with_variable("MARK", "xy") == []
        process.kill()


def test_send_spares_a_recycled_pid(child):
    row = proctree.process(child.pid)
    proctree.send(row._replace(identity="1"), signal.SIGKILL)
    time.sleep(0.1)
    assert child.poll() is None
    proctree.send(row, signal.SIGKILL)
    assert child.wait(5) == -signal.SIGKILL


def test_without_proc_ps_tells_the_same(child, monkeypatch):
    monkeypatch.setattr(proctree, "has_proc", lambda: False)
    row = proctree.process(child.pid)
    assert row.parent == os.getpid()
    assert proctree.is_alive(child.pid, row.identity)
    assert child.pid in [p.pid for p in proctree.descendants(os.getpid())]
    assert proctree.with_variable("A", "b") == []
    assert proctree.process(2**22 - 1) is None
