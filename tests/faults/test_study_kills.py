"""kill -9 of any of our processes at random moments, again and again: each study ends whole."""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from study_support import LIMIT_S, ROLES, Scene

KILLS = int(os.environ.get("ENGINEBOOK_SOAK_KILLS", "200"))
SEED = int(os.environ.get("ENGINEBOOK_SOAK_SEED", "20261201"))
WITHIN_S = 14.0
"""A start of this study takes longer, so that most kills meet a living run."""
MOST_STARTS = 40
"""Kills of one study before it may end; then the next one begins with an empty folder."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(30 * KILLS + 600)]


def test_random_kills(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    told: dict[str, int] = {}
    number = 0
    while sum(told.values()) < KILLS:
        number += 1
        folder = tmp_path / f"study{number}"
        folder.mkdir()
        scene = Scene(folder)
        try:
            _break_until_whole(scene, rng, told)
        finally:
            scene.end()
    print(f"kills by role: {told}, in {number} studies")


def _break_until_whole(scene: Scene, rng: random.Random, told: dict[str, int]) -> None:
    """Break one study up to `MOST_STARTS` times, then let it end and look at all of it."""
    for _ in range(MOST_STARTS):
        process = scene.start("--retry-failed")
        role = _kill_one(scene, rng, process.pid)
        said, _ = process.communicate(timeout=LIMIT_S)
        scene.assert_nothing_lives()
        assert "Traceback" not in said, said
        if process.returncode == 2:  # before anything was started
            assert "remedy:" in said, (role, said)
        elif process.returncode > 0:
            assert "go on with: enginebook run" in said, (role, said)
        if role is None:  # this start was over before its moment came
            assert process.returncode == 0, said
            scene.assert_whole()
            return
        told[role] = told.get(role, 0) + 1
        print(f"{sum(told.values())}: {role}, exit status {process.returncode}", flush=True)
        if sum(told.values()) >= KILLS:
            break
    status, said = scene.run("--retry-failed")
    assert status == 0, said
    scene.assert_nothing_lives()
    scene.assert_whole()


def _kill_one(scene: Scene, rng: random.Random, cli: int) -> str | None:
    """Kill a process of the study at a random moment; return its role, None when all were gone."""
    deadline = time.monotonic() + rng.uniform(0.3, WITHIN_S)
    while time.monotonic() < deadline:
        if not psutil.pid_exists(cli) or psutil.Process(cli).status() == psutil.STATUS_ZOMBIE:
            return None
        time.sleep(0.05)
    victims = scene.processes()
    rng.shuffle(victims)
    for victim in victims:
        with suppress(psutil.Error):
            line = " ".join(victim.cmdline())
            victim.kill()
            return next((role for role, mark in ROLES.items() if mark in line), line[:80])
    return None
