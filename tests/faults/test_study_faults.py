"""A study that is broken while it runs goes on where it stood and ends whole."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from study_support import ROLES, Scene, halve, until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]


def test_kill_9_of_each_kind_of_process(scene: Scene) -> None:
    rng = random.Random(7)
    killed = []
    for role in ("kernel", "engine", "worker", "stage", "snakemake", "guard", "cli"):
        process = scene.start("--retry-failed")
        while victim := scene.await_role(role, process):
            time.sleep(rng.uniform(0, 0.3))
            with suppress(psutil.NoSuchProcess):  # it may be over by now; the next one comes
                victim.kill()
                killed.append(role)
                break
        said, _ = process.communicate(timeout=150)
        scene.assert_nothing_lives()
        if process.returncode > 0:
            assert "go on with: enginebook run" in said
            assert str(scene.outputs) in said
        elif process.returncode == 0:  # it came to its end all the same; the next one wants work
            shutil.rmtree(scene.outputs)
    assert set(killed) == set(ROLES)
    status, said = scene.run("--retry-failed")
    assert status == 0, said
    scene.assert_nothing_lives()
    scene.assert_whole()


def test_what_is_half_written_is_found_and_made_again(scene: Scene) -> None:
    status, said = scene.run()
    assert status == 0, said
    scene.assert_whole()
    one, two = sorted((scene.outputs / "cells").iterdir())
    halve(one / "requests.parquet")
    halve(two / "cell.json")
    (one.parent / f".{one.name}.123").mkdir()
    for pattern in ("runs/*/manifest.json", "stages/install-*/install.json",
                    "stages/launch-*/launch.json", "stages/host-*/stage.json",
                    "stages/load-*/load.json"):  # fmt: skip
        (path,) = scene.outputs.glob(pattern)
        halve(path)
    locks = scene.outputs / ".snakemake" / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    for name in ("0.input.lock", "0.output.lock"):
        (locks / name).write_text("stages/x/stage.json\n")
    status, said = scene.run("--retry-failed")
    assert status == 0, said
    assert said.count("is damaged; taken again") == 2
    assert said.count("json is damaged; the stage runs again") == 3
    scene.assert_whole()
    scene.assert_nothing_lives()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Scene, Callable[[str], None]]]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=260m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system of its own needs root and the right to mount")
    made = Scene(tmp_path, place / "outputs")

    def remount(mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(place)], check=True)

    yield made, remount
    made.end()
    until(lambda: not made.processes(), 10)
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_and_a_read_only_disk(small_disk: tuple[Scene, Callable[[str], None]]) -> None:
    scene, remount = small_disk
    scene.outputs.mkdir()
    remount("ro")
    status, said = scene.run()
    assert status == 2
    assert "cannot be written" in said
    assert "--output" in said
    remount("rw")

    process = scene.start()
    assert scene.await_role("kernel", process) is not None
    filler = scene.outputs.parent / "filler"
    fill(filler)
    said, _ = process.communicate(timeout=150)
    assert process.returncode not in (0, 2), said
    assert "No space left" in said
    assert "go on with: enginebook run" in said
    assert "Traceback" not in said
    scene.assert_nothing_lives()
    filler.unlink()
    status, said = scene.run("--retry-failed")
    assert status == 0, said
    scene.assert_whole()


def fill(path: Path) -> None:
    """Write until the disk takes no more."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
