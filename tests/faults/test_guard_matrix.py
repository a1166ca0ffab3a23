"""Whatever dies, and however: within seconds nothing is left of the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from enginebook.lifecycle import leases, owned, proctree

FAKE = Path(__file__).parents[1] / "unit" / "lifecycle" / "fake_engine.py"
LIMIT_S = 8.0
OWNER = """
import os, signal, sys, time
from pathlib import Path
from enginebook.lifecycle import leases, owned

fake, directory, faults, keep_warm = sys.argv[1:]
lease = leases.Lease.new("fake", "fake", 0, Path(directory))
process = owned.start(
    [sys.executable, "-S", fake, "--fault", faults],
    env={**os.environ, owned.TOKEN: lease.token},
    directory=Path(directory),
    lease=leases.lease_path(lease.token),
    about=lease.about(),
    orphan_grace_s=1.0,
    keep_warm_s=float(keep_warm),
)
print("up", flush=True)
time.sleep(300)
"""
EVERYTHING = "fork,deaf-child,setsid,double-fork,ignore-term"


class Scene:
    """An owner process with an engine below it, and everybody's pid and start time."""

    def __init__(self, folder: Path, faults: str, keep_warm: str = "0") -> None:
        self.folder = folder
        self.owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(FAKE), str(folder), faults, keep_warm],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ENGINEBOOK_CACHE": str(folder / "cache")},
        )
        assert self.owner.stdout is not None
        assert self.owner.stdout.readline() == "up\n"
        self.facts = json.loads((folder / "guard.json").read_text())
        self.expected = 1 + len(set(faults.split(",")) & set(EVERYTHING.split(",")[:4]))
        self.tree = self._wait_for_tree()

    def _wait_for_tree(self) -> list[proctree.Process]:
        """Wait until engine and children are there; a daemon's short-lived parents do not count."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            below = proctree.descendants(self.facts["guard_pid"])
            text = (self.folder / "engine.log").read_text()
            if len(below) >= self.expected and "listening" in text:
                return below
            time.sleep(0.05)
        raise AssertionError(f"the engine's children did not come: {text}")

    @property
    def everybody(self) -> list[proctree.Process]:
        """Return the engine's processes and both guards."""
        named = [
            proctree.Process(self.facts[f"{w}_pid"], 0, "", self.facts[f"{w}_identity"])
            for w in ("sentinel", "guard")
        ]
        return [*self.tree, *named]

    def left(self) -> list[proctree.Process]:
        return [p for p in self.everybody if proctree.is_alive(p.pid, p.identity)]

    def seconds_until_gone(self) -> float:
        begun = time.monotonic()
        while self.left() and time.monotonic() - begun < LIMIT_S:
            time.sleep(0.02)
        assert not self.left(), f"still there after {LIMIT_S} s: {self.left()}"
        return time.monotonic() - begun

    def report(self) -> dict:
        return json.loads((self.folder / "guard.json").read_text())

    def end(self) -> None:
        self.owner.kill()
        self.owner.wait()
        self.owner.stdout.close()
        for row in self.left():
            with suppress(ProcessLookupError):
                os.kill(row.pid, signal.SIGKILL)


@pytest.fixture
def scene(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    scenes = []

    def make(faults: str = EVERYTHING, keep_warm: str = "0") -> Scene:
        scenes.append(Scene(tmp_path, faults, keep_warm))
        return scenes[-1]

    yield make
    for made in scenes:
        made.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("faults", ["", "ignore-term", EVERYTHING])
def test_owner_is_killed(scene, number, faults):
    at = scene(faults)
    at.owner.send_signal(number)
    at.owner.wait()
    at.seconds_until_gone()
    assert at.report()["reason"] == "owner gone"
    assert at.report()["left"] == []
    assert leases.all_noted() == []


def test_guard_is_killed(scene):
    at = scene()
    os.kill(at.facts["guard_pid"], signal.SIGKILL)
    at.seconds_until_gone()
    assert at.report()["reason"] == "guard killed"
    assert at.owner.poll() is None
    assert leases.all_noted() == []


def test_sentinel_is_killed(scene):
    at = scene()
    os.kill(at.facts["sentinel_pid"], signal.SIGKILL)
    at.seconds_until_gone()
    assert at.report()["reason"] == "sentinel killed"


def test_engine_is_killed(scene):
    at = scene()
    os.kill(at.facts["engine_pid"], signal.SIGKILL)
    at.seconds_until_gone()
    assert at.report()["reason"] == "engine exited"
    assert at.report()["exit_code"] == -signal.SIGKILL


def test_both_guards_are_killed_and_the_next_start_reaps(scene):
    at = scene()
    # The census in the note has to hold the daemon, which has dropped the token.
    deadline = time.monotonic() + 10
    daemons = {p.pid for p in at.tree}
    while time.monotonic() < deadline:
        noted = {pid for pid, _ in leases.all_noted()[0].facts["tree"]}
        if daemons <= noted:
            break
        time.sleep(0.1)
    os.kill(at.facts["sentinel_pid"], signal.SIGSTOP)
    os.kill(at.facts["guard_pid"], signal.SIGKILL)
    os.kill(at.facts["sentinel_pid"], signal.SIGKILL)
    while leases.all_noted()[0].guarded():
        time.sleep(0.01)
    said: list[str] = []
    assert leases.reap_leftovers(said.append) >= 3
    at.seconds_until_gone()
    assert "had left behind" in said[0]
    assert leases.all_noted() == []


def test_interrupt_to_the_whole_foreground_group_leaves_the_end_to_the_owner(scene):
    at = scene("")
    for who in ("sentinel", "guard"):
        os.kill(at.facts[f"{who}_pid"], signal.SIGINT)
        os.kill(at.facts[f"{who}_pid"], signal.SIGHUP)
    time.sleep(0.5)
    assert len(at.left()) == len(at.everybody)


def test_guard_asked_by_term_ends_the_engine(scene):
    at = scene("fork")
    os.kill(at.facts["sentinel_pid"], signal.SIGTERM)
    at.seconds_until_gone()
    assert at.report()["reason"] == "stopped"
    assert at.report()["killed"] == 0


def test_forked_sibling_that_holds_the_pipe_does_not_keep_the_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    fork_sibling = OWNER.replace(
        'print("up"', 'os.fork() == 0 and (os.close(1), time.sleep(20), os._exit(0))\nprint("up"'
    )
    monkeypatch.setitem(globals(), "OWNER", fork_sibling)
    at = Scene(tmp_path, "fork")
    try:
        at.owner.kill()
        at.owner.wait()
        at.seconds_until_gone()
    finally:
        at.end()


def test_keep_warm_outlives_its_owner_for_a_limited_time(scene):
    at = scene("fork", keep_warm="3")
    at.owner.kill()
    at.owner.wait()
    time.sleep(1.5)
    assert len(at.left()) == len(at.everybody)
    at.seconds_until_gone()
    assert at.report()["reason"] == "time limit"


def test_keep_warm_server_is_listed_and_ended(scene):
    at = scene(EVERYTHING, keep_warm="60")
    at.owner.kill()
    at.owner.wait()
    (running,) = leases.all_noted()
    assert running.guarded()
    assert running.facts["engine"] == "fake"
    assert leases.end(running) == []
    assert at.left() == []
    assert leases.all_noted() == []


def test_a_note_never_matches_a_recycled_pid(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path))
    me = os.getpid()
    facts = {"token": "none", "boot": proctree.boot_id(), "engine_pid": me, "tree": [[me, "1"]]}
    path = leases.lease_path("stale")
    owned.store.write_json(path, {**facts, "engine_identity": "1", "guard_pid": me})
    (running,) = leases.all_noted()
    assert not running.guarded()
    assert running.leftovers() == []
    assert leases.reap_leftovers(lambda _: None) == 0
    assert not path.exists()


def test_a_note_of_an_earlier_boot_is_void(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path))
    me = os.getpid()
    facts = {"token": "x", "boot": "another", "engine_pid": me, "tree": []}
    owned.store.write_json(
        leases.lease_path("x"), {**facts, "engine_identity": proctree.identity_of(me)}
    )
    assert leases.all_noted()[0].leftovers() == []
