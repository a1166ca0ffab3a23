"""The wall clock jumps while a study runs: no figure changes, and the study goes on.

A preloaded library shifts what every process reads as wall time; monotonic clocks and the times of
files stay, as they do when a host's clock is set. All measuring uses monotonic clocks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from study_support import Scene

JUMPS = (-86400, 7200, -3600)  # seconds against the true time: a day back, hours ahead
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
    long seconds = 0;
    const char *path = getenv("CLOCK_SHIFT_FILE");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, at);
    if (id == CLOCK_REALTIME && status == 0) at->tv_sec += shift();
    return status;
}

time_t time(time_t *out) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return status;
}
"""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not shutil.which("gcc") or sys.platform != "linux", reason="needs gcc"),
]


@pytest.fixture
def clock(scene: Scene, tmp_path: Path) -> Callable[[int], None]:
    """Put the shim before every process of the study; return what sets its clock."""
    source, library, shift = (tmp_path / name for name in ("clock.c", "clock.so", "shift"))
    source.write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    shift.write_text("0\n")
    scene.environ |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(shift)}
    ask = [sys.executable, "-c", "import time; print(time.time())"]

    def jump(seconds: int) -> None:
        shift.write_text(f"{seconds}\n")
        told = subprocess.run(ask, env=scene.environ, check=True, capture_output=True, text=True)
        assert abs(float(told.stdout) - time.time() - seconds) < 60

    return jump


def test_the_wall_clock_jumps_under_load(scene: Scene, clock: Callable[[int], None]) -> None:
    process = scene.start()
    began = time.monotonic()
    for role, jump in zip(("kernel", "engine", "worker"), JUMPS, strict=True):
        assert scene.await_role(role, process) is not None
        clock(jump)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    scene.assert_nothing_lives()
    scene.assert_whole()
    took = time.monotonic() - began
    for facts in map(json.loads, (f.read_text() for f in scene.outputs.glob("cells/*/cell.json"))):
        assert 0 < facts["seconds"] < took
        assert set(facts["flags"]) <= {"host", "steady"}, facts["flags"]  # others' load is no jump
    for requests in map(pl.read_parquet, scene.outputs.glob("cells/*/requests.parquet")):
        spans = requests["end_ns"] - requests["sent_ns"]
        assert 0 < spans.min() <= spans.max() < took * 1e9  # type: ignore[operator]
    for stage in scene.outputs.glob("stages/*/stage.json"):
        assert 0 <= json.loads(stage.read_text())["seconds"] < took
    clock(-172800)  # before everything was made
    status, said = scene.run()
    assert status == 0, said
    assert "already" in said or "done" in said
    scene.assert_whole()
