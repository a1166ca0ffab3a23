"""``enginebook doctor`` and ``enginebook servers`` as programs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from enginebook.commands import doctor, servers
from enginebook.errors import InputError
from enginebook.lifecycle import examination, gpu, leases, owned

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


def parse(command, *argv):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.fixture
def two_servers(tmp_path):
    started = []
    for i in (1, 2):
        lease = leases.Lease.new(f"engine-{i}", "tiny", 40_000 + i, tmp_path)
        started.append(
            owned.start(
                [sys.executable, "-S", str(FAKE_ENGINE)],
                env={**os.environ, owned.TOKEN: lease.token},
                directory=tmp_path / str(i),
                lease=leases.lease_path(lease.token),
                about=lease.about(),
            )
        )
    yield started
    for process in started:
        process.stop()


def test_doctor_judges_machine_and_recipes(tmp_path, capsys):
    status = doctor.run(parse(doctor, "--offline", "--json", str(tmp_path / "d.json")))
    seen = json.loads((tmp_path / "d.json").read_text())
    subjects = {f["subject"]: f for f in seen["findings"]}
    assert {"Python", "glibc", "CPU", "Memory", "Disk", "Ports", "Containers", "GPU"} <= set(
        subjects
    )
    assert "Model hub" not in subjects
    assert all(f["verdict"] in {"ok", "note", "problem"} for f in seen["findings"])
    assert all(f["remedy"] for f in seen["findings"] if f["verdict"] != "ok")
    recipes = {r["recipe"]: r for r in seen["recipes"]}
    assert "llamacpp-cpu" in recipes
    assert not any(r["installed"] for r in seen["recipes"] if r["recipe"].endswith("-cpu"))
    able = any(r["runs"] for r in seen["recipes"])
    assert status == (0 if able else 1)
    assert "llamacpp-cpu" in capsys.readouterr().out


def test_doctor_says_why_a_recipe_cannot_run(monkeypatch):
    monkeypatch.setattr(examination.requirements, "cpu_flags", lambda: frozenset({"sse"}))
    recipes = {r.recipe: r for r in examination.examine(network=False).recipes}
    assert not recipes["vllm-cpu"].runs
    assert "avx2" in recipes["vllm-cpu"].reasons[0]
    assert recipes["vllm-cpu"].remedies


def test_doctor_sees_who_holds_a_gpu(monkeypatch):
    blank = dict.fromkeys(gpu.Device.__dataclass_fields__)
    device = gpu.Device(
        **{
            **blank,
            "name": "H200",
            "memory_bytes": 140 << 30,
            "memory_used_bytes": 70 << 30,
            "processes": (77,),
        }
    )
    monkeypatch.setattr(gpu, "look", lambda: gpu.View((device,), "580.1", "13.0", ""))
    found = {f.subject: f for f in examination.examine(network=False).findings}
    assert found["GPU"].verdict == "note"
    assert "70.0 GiB in use by pids [77]" in found["GPU"].detail


def test_unreachable_hub_is_a_note(monkeypatch):
    monkeypatch.setattr(examination, "HUB", "http://127.0.0.1:9/")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    found = examination._hub()
    assert found.verdict == "note"
    assert "cannot be reached" in found.detail
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "switched off" in examination._hub().detail


def test_servers_lists_them(two_servers, tmp_path, capsys):
    assert servers.run(parse(servers, "--json", str(tmp_path / "s.json"))) == 0
    rows = json.loads((tmp_path / "s.json").read_text())
    assert [r["port"] for r in rows] == [40_001, 40_002]
    assert [r["engine_pid"] for r in rows] == [p.pid for p in two_servers]
    assert "engine-2 serving tiny" in capsys.readouterr().out


def test_servers_ends_one(two_servers, capsys):
    assert servers.run(parse(servers, "--stop", "40001")) == 0
    assert not two_servers[0].alive()
    assert two_servers[1].alive()
    assert [r.facts["port"] for r in leases.all_noted()] == [40_002]
    assert "ended engine-1" in capsys.readouterr().out


def test_servers_ends_all(two_servers):
    assert servers.run(parse(servers, "--stop-all")) == 0
    assert not any(p.alive() for p in two_servers)
    assert leases.all_noted() == []


def test_servers_knows_its_ports(two_servers):
    with pytest.raises(InputError, match="no server of ours on port 1") as raised:
        servers.run(parse(servers, "--stop", "1"))
    assert "40001, 40002" in raised.value.remedy


def test_nothing_runs(capsys):
    assert servers.run(parse(servers)) == 0
    assert capsys.readouterr().out == "no server runs\n"


def test_guard_starts_without_heavy_modules():
    code = owned.START.replace("sys.exit(guard.main())", "print(*sys.modules)")
    shown = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"psutil", "pydantic", "numpy", "yaml", "argparse", "asyncio", "site"}
    assert not heavy & set(shown.stdout.split())
