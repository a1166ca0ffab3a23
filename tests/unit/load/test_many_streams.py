"""The benchmark of many streams, at a size that any host can carry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="pins processes to cores")
def test_a_small_ladder_loses_nothing_and_tells_reading_from_truth(tmp_path):
    path = tmp_path / "out.json"
    argv = [sys.executable, str(ROOT / "benchmarks" / "many_streams.py"), "--ladder", "4,9"]
    argv += ["--seconds", "1", "--servers", "2", "--client-cores", "1", "--json", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    value = json.loads(path.read_text())
    assert json.loads(done.stdout) == value
    for result, streams in zip(value["results"], (4, 9), strict=True):
        assert result["streams"] == streams
        assert (result["servers"], result["client_processes"]) == (2, 2)
        assert result["lost"] == result["failed"] == 0
        assert result["events"] == streams * 10 * 8
        assert result["ttft_p50_ms"] >= result["ttft_true_p50_ms"] >= 20.0
        assert result["stamp_delay_p50_ms"] > 0
