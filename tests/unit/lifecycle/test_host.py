"""Host facts, limits of containers, and the measured ceilings."""

from __future__ import annotations

import copy
import json

import psutil
import pytest

from enginebook.errors import EnginebookError
from enginebook.lifecycle import ceilings, gpu, host, limits


def test_facts_are_json_and_true():
    facts = host.host_facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["cpu"]["logical_cores"] == psutil.cpu_count()
    assert facts["memory"]["total_bytes"] == psutil.virtual_memory().total
    assert 0 < facts["cpu"]["effective_cores"] <= facts["cpu"]["logical_cores"]
    assert facts["gpus"] or facts["gpu_reason"]
    assert facts["disk"]["free_bytes"] > 0


def test_id_follows_the_hardware_only():
    facts = host.host_facts()
    same = copy.deepcopy(facts)
    same["load"]["load_1m"] = 99.0
    same["disk"]["free_bytes"] = 1
    same["memory"]["available_bytes"] = 1
    same["memory"]["total_bytes"] += 1 << 20
    same["variables"] = {"OMP_NUM_THREADS": "1"}
    assert host.host_id(same) == host.host_id(facts)
    for change in (
        lambda f: f["cpu"].update(model="other"),
        lambda f: f["cpu"].update(effective_cores=0.5),
        lambda f: f["memory"].update(total_bytes=f["memory"]["total_bytes"] * 2),
        lambda f: f["gpus"].append({"uuid": "GPU-1", "name": "H200", "memory_bytes": 1}),
    ):
        other = copy.deepcopy(facts)
        change(other)
        assert host.host_id(other) != host.host_id(facts)


def test_arithmetic_variables_are_recorded(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert host.host_facts()["variables"]["OPENBLAS_CORETYPE"] == "Haswell"


@pytest.fixture
def cgroup(tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    return inner


def test_tightest_quota_counts(cgroup):
    (cgroup / "cpu.max").write_text("max 100000\n")
    (cgroup.parent / "cpu.max").write_text("150000 100000\n")
    assert limits.cpu_quota_cores([cgroup, cgroup.parent]) == 1.5
    assert limits.cpu_quota_cores([cgroup]) is None


def test_tightest_memory_limit_counts(cgroup):
    (cgroup / "memory.max").write_text("max\n")
    (cgroup.parent / "memory.max").write_text("1073741824\n")
    assert limits.memory_limit_bytes([cgroup, cgroup.parent]) == 1 << 30
    assert limits.memory_limit_bytes([cgroup]) is None


def test_own_cgroup_is_found_below_the_mount(tmp_path, cgroup):
    proc = tmp_path / "cgroup.txt"
    proc.write_text("0::/outer/inner\n")
    assert limits.own_cgroup(proc, tmp_path) == [cgroup, cgroup.parent, tmp_path]
    proc.write_text("0::/not/there\n")
    assert limits.own_cgroup(proc, tmp_path) == [tmp_path]


def test_effective_cores_are_cut_by_the_quota(monkeypatch):
    monkeypatch.setattr(limits, "cpu_quota_cores", lambda: 0.5)
    assert limits.effective_cores() == 0.5
    monkeypatch.setattr(limits, "cpu_quota_cores", lambda: None)
    assert limits.effective_cores() == limits.usable_cores()


def test_container_kind(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert limits.container_kind() == "kubernetes"


def test_no_gpu_gives_a_reason(monkeypatch):
    view = gpu.look()
    if view.devices:
        pytest.skip("this machine has a GPU")
    assert view.reason
    assert gpu.used_bytes(view) == 0
    assert gpu.process_memory_bytes([1]) is None
    assert gpu.wait_until_free(view, 0, 0) == ""


def test_ceilings_are_measured():
    found = ceilings.measure_ceilings(seconds=0.5)
    for name, unit in (
        ("memory_copy", "bytes_per_s"),
        ("memory_read", "bytes_per_s"),
        ("matmul_float32", "flops_per_s"),
    ):
        row = found[name]
        assert row[unit] >= row[f"median_{unit}"] > 1e8
        assert row["repeats"] >= 5
        assert row["spread"] >= 0
        assert row["threads"] >= 1
        assert row["method"]
    assert found["matmul_bfloat16"] is None
    assert "PyTorch" in found["missing"]["matmul_bfloat16"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_failed_measurement_says_why(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no torch here' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(EnginebookError, match="no torch here"):
        ceilings.measure_ceilings(seconds=0.1, torch_python=broken)
