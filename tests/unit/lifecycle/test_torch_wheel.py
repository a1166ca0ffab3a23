"""PyTorch is taken from the first source that has it, and the source is told."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from enginebook.engines.recipes import Torch
from enginebook.errors import InstallError
from enginebook.lifecycle.installers import Pip, Uv
from enginebook.lifecycle.logged import Log
from enginebook.lifecycle.torch_wheel import install_torch

# Writes what it was asked to the file named first, and a pip report where one is wanted.
SCRIPT = """
import json, sys
from pathlib import Path
calls, status, *rest = sys.argv[1:]
with open(calls, "a") as file:
    file.write(" ".join(rest) + chr(10))
if "--report" in rest and status == "0":
    hashes = {"sha256": "ab" * 32}
    report = {"install": [{"download_info": {"archive_info": {"hashes": hashes}}}]}
    Path(rest[rest.index("--report") + 1]).write_text(json.dumps(report))
print("status", status)
sys.exit(int(status))
"""
TORCH = Torch(version="2.13.0", variant="cpu")


@dataclass
class FakeInstaller:
    """Commands that succeed or fail as told, and note what they were asked."""

    calls: Path
    works: set[str] = field(default_factory=set)
    has_pip: bool = True
    name = "uv"
    python = Path("python")

    def _command(self, kind: str) -> list[str]:
        status = "0" if kind in self.works else "1"
        return [sys.executable, "-c", SCRIPT, str(self.calls), status, kind]

    def create(self) -> list[str]:
        return []

    def pip(self) -> list[str] | None:
        return self._command("pip") if self.has_pip else None

    def torch_from_pytorch_index(self, version: str, variant: str) -> list[str]:
        return [*self._command("index"), version, variant]

    def sync(self, lock: Path) -> list[str]:
        return [*self._command("lock"), str(lock)]

    def from_index(self, requirement: str, index_url: str) -> list[str]:
        return []


def attempt(tmp_path, works, *, fallback=True, has_pip=True):
    installer = FakeInstaller(tmp_path / "calls", works, has_pip)
    said: list[str] = []
    log = Log(tmp_path / "log.txt", said.append)
    lock = tmp_path / "torch.lock" if fallback else None
    try:
        return install_torch(TORCH, lock, installer, log), said, installer
    finally:
        attempt.kinds = [c.split()[0] for c in installer.calls.read_text().splitlines()]


def test_own_pip_configuration_comes_first(tmp_path):
    source, said, installer = attempt(tmp_path, {"pip", "index", "lock"})
    assert attempt.kinds == ["pip"]
    assert "pip configuration" in source.text
    assert source.sha256 == "ab" * 32
    assert "torch==2.13.0+cpu" in installer.calls.read_text()
    assert "--no-deps" in installer.calls.read_text()
    assert any("trying the wheel" in text for text in said)


def test_then_the_index_of_pytorch(tmp_path):
    source, _, installer = attempt(tmp_path, {"index", "lock"})
    assert attempt.kinds == ["pip", "index"]
    assert "https://download.pytorch.org/whl/cpu" in source.text
    assert source.sha256 is None
    assert "2.13.0 cpu" in installer.calls.read_text()


def test_then_the_ordinary_wheel(tmp_path):
    source, _, _ = attempt(tmp_path, {"lock"})
    assert attempt.kinds == ["pip", "index", "lock"]
    assert "torch.lock" in source.text


def test_nothing_left_names_all_that_was_tried(tmp_path):
    with pytest.raises(InstallError) as raised:
        attempt(tmp_path, set())
    text = str(raised.value)
    assert "pip configuration" in text
    assert "download.pytorch.org" in text
    assert "torch.lock" in text
    assert "status 1" in text


def test_without_a_fallback_lock_two_are_tried(tmp_path):
    with pytest.raises(InstallError):
        attempt(tmp_path, set(), fallback=False)
    assert attempt.kinds == ["pip", "index"]


def test_host_without_pip_starts_at_the_index(tmp_path):
    attempt(tmp_path, {"index"}, has_pip=False)
    assert attempt.kinds == ["index"]


def test_steps_hold_what_succeeded_only(tmp_path):
    installer = FakeInstaller(tmp_path / "calls", {"index"})
    log = Log(tmp_path / "log.txt")
    install_torch(TORCH, None, installer, log)
    assert [s.name.startswith("PyTorch from PyTorch's index") for s in log.steps] == [True]
    assert "exit status 1" in log.path.read_text()


def test_a_strange_report_gives_no_digest(tmp_path):
    class Strange(FakeInstaller):
        def pip(self):
            code = "import sys; open(sys.argv[sys.argv.index('--report') + 1], 'w').write('[]')"
            return [sys.executable, "-c", code]

    source = install_torch(TORCH, None, Strange(tmp_path / "calls"), Log(tmp_path / "log.txt"))
    assert source.sha256 is None
    assert json.loads((tmp_path / "log.torch.json").read_text()) == []


def test_real_command_lines_ask_for_the_cpu_build(tmp_path):
    base = Path(sys.executable)
    uv = Uv(tmp_path, base).torch_from_pytorch_index("2.13.0", "cpu")
    assert uv[uv.index("--torch-backend") + 1] == "cpu"
    assert "torch==2.13.0" in uv
    pip = Pip(tmp_path, base).torch_from_pytorch_index("2.13.0", "cu130")
    assert pip[pip.index("--index-url") + 1] == "https://download.pytorch.org/whl/cu130"
    assert "torch==2.13.0+cu130" in pip
