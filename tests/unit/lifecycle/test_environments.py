"""install(): whole or not there, proved, locked with hashes, refused with a remedy."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from enginebook.engines.recipes import (
    ExistingEnvironment,
    ExternalEnvironment,
    Recipe,
    Requires,
    Torch,
    VenvEnvironment,
)
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import environments, gpu, installation, installers, requirements
from enginebook.lifecycle.environments import install, installed

# iniconfig: one small pure-Python wheel without dependencies.
LOCK = """\
iniconfig==2.1.0 \\
    --hash=sha256:3abbd2e30b36733fee78f9c7f7308f2d0050e88f0087fd25c2645f63c773e1c7 \\
    --hash=sha256:9deba5723312380e77435581c6bf4935c94cbfab9b1ed33ef8d238ea168eb760
"""


def recipe(folder: Path, lock: str = LOCK, version: str = "2.1.0", **changed: object) -> Recipe:
    (folder / "tiny.lock").write_text(lock)
    environment = {
        "lock": "tiny.lock",
        "distribution": "iniconfig",
        "imports": ("iniconfig",),
        "disk_gb": 0.1,
        **changed,
    }
    return Recipe(
        name="tiny",
        directory=folder,
        engine="fake",
        title="Tiny",
        version=version,
        environment=VenvEnvironment(**environment),
        model_format="hf",
    )


@pytest.fixture
def forced(monkeypatch):
    return lambda name: monkeypatch.setenv("ENGINEBOOK_INSTALLER", name)


@pytest.mark.parametrize("name", ["uv", "pip"])
def test_installs_proves_and_finds_again(tmp_path, forced, name):
    forced(name)
    said: list[str] = []
    made = install(recipe(tmp_path), on_progress=said.append)
    assert (made.version, made.installer, made.kind, made.torch) == ("2.1.0", name, "venv", None)
    assert not made.reused
    assert made.packages >= 1
    assert made.bytes > 10_000
    assert made.seconds > 0
    assert made.received_bytes is None or made.received_bytes >= 0
    assert made.steps[0].name == "empty environment"
    assert "--require-hashes" in made.steps[1].command
    assert "--no-deps" in made.steps[1].command
    assert any("2.1.0 is installed" in text for text in said)
    shown = subprocess.run(
        [made.python, "-c", "import iniconfig; print(iniconfig.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(made.directory) in shown.stdout
    again = install(recipe(tmp_path))
    assert again.reused
    assert again.seconds == made.seconds
    assert installed(recipe(tmp_path)) == again


def test_force_makes_it_again(tmp_path):
    first = install(recipe(tmp_path))
    second = install(recipe(tmp_path), force=True)
    assert not second.reused
    assert second.directory == first.directory
    assert second.log != first.log or second.steps != first.steps


def test_another_lock_is_another_environment(tmp_path):
    base = requirements.find_python(">=3.11")
    one = environments.environment_dir(recipe(tmp_path), base)
    assert one == environments.environment_dir(recipe(tmp_path), base)
    assert one != environments.environment_dir(recipe(tmp_path, LOCK + "# more\n"), base)
    torch = recipe(tmp_path, torch=Torch(version="2.13.0"))
    assert one != environments.environment_dir(torch, base)


def test_not_installed_is_said_without_installing(tmp_path):
    assert installed(recipe(tmp_path)) is None
    assert not environments.environments_dir().exists()


@pytest.mark.parametrize("name", ["uv", "pip"])
def test_wrong_hash_is_refused_and_nothing_is_left(tmp_path, forced, name):
    forced(name)
    wrong = "iniconfig==2.1.0 --hash=sha256:" + "0" * 64 + "\n"
    with pytest.raises(InstallError, match=r"could not install tiny\.lock(.|\n)*(?i:hash)"):
        install(recipe(tmp_path, wrong))
    assert not list(environments.environments_dir().glob("tiny-*"))


@pytest.mark.parametrize("name", ["uv", "pip"])
def test_lock_without_hashes_is_refused(tmp_path, forced, name):
    forced(name)
    with pytest.raises(InstallError):
        install(recipe(tmp_path, "iniconfig==2.1.0\n"))


def test_uv_that_fails_is_followed_by_pip(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    said: list[str] = []
    assert install(recipe(tmp_path), on_progress=said.append).installer == "pip"
    assert "uv could not do it: trying again with pip" in said


def test_no_network_names_what_could_not_be_reached(tmp_path, monkeypatch, forced):
    forced("uv")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(InstallError, match=r"127\.0\.0\.1:9") as raised:
        install(recipe(tmp_path))
    assert "bundle" in raised.value.remedy
    assert "log:" in raised.value.remedy


def test_version_that_differs_from_the_recipe_is_refused(tmp_path):
    with pytest.raises(InstallError, match=r"holds iniconfig 2\.1\.0, the recipe says 3\.0"):
        install(recipe(tmp_path, version="3.0"))
    assert installed(recipe(tmp_path, version="3.0")) is None


def test_package_that_cannot_be_imported_is_refused(tmp_path):
    with pytest.raises(InstallError, match=r"cannot be imported(.|\n)*no_such_module"):
        install(recipe(tmp_path, imports=("no_such_module",)))
    assert not list(environments.environments_dir().glob("tiny-*"))


def test_torn_environment_is_made_again(tmp_path):
    """As after a killed process or a power cut: files are there, the marker is not."""
    made = install(recipe(tmp_path))
    (made.directory / installation.MARKER).unlink()
    for file in made.directory.rglob("iniconfig/*.py"):
        file.unlink()
    said: list[str] = []
    again = install(recipe(tmp_path), on_progress=said.append)
    assert not again.reused
    assert any("not whole" in text for text in said)


def test_marker_without_interpreter_is_not_believed(tmp_path):
    made = install(recipe(tmp_path))
    made.python.unlink()
    assert installed(recipe(tmp_path)) is None
    assert not install(recipe(tmp_path)).reused


SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from enginebook.lifecycle import environments, installers
from test_environments import recipe
# A slow installer: what is killed in the middle of its work.
class Slow(installers.Uv):
    def sync(self, lock):
        code = "import time, pathlib; print('begun', flush=True); time.sleep(4)"
        return [{python!r}, "-c", code]
installers.Uv = Slow
environments.install(recipe(Path(sys.argv[1])), on_progress=lambda t: print(t, flush=True))
"""


def start_slow(folder: Path) -> subprocess.Popen:
    code = SLOW.format(here=str(Path(__file__).parent), python=sys.executable)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    )
    while process.stdout.readline() not in {"begun\n", ""}:
        pass
    assert process.poll() is None
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_interrupted_installation_is_done_again(tmp_path, number):
    with start_slow(tmp_path) as process:
        process.send_signal(number)
        process.wait()
    said: list[str] = []
    made = install(recipe(tmp_path), on_progress=said.append)
    assert not made.reused
    assert made.version == "2.1.0"
    # An installer that outlives its killed owner still holds the lock: nobody builds beside it.
    waited = any("another installation" in text for text in said)
    assert waited == (number != signal.SIGINT)


def test_two_at_once_install_once(tmp_path):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(install(recipe(tmp_path)))) for _ in range(2)
    ]
    recipe(tmp_path)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.reused for r in results) == [False, True]


def test_full_disk_is_refused_before_anything_is_done(tmp_path):
    with pytest.raises(InputError, match=r"needs 1e\+09 GB of disk") as raised:
        install(recipe(tmp_path, disk_gb=1e9))
    assert "ENGINEBOOK_CACHE" in raised.value.remedy
    assert not list(environments.environments_dir().glob("tiny-*"))


@pytest.mark.parametrize(
    ("requires", "text"),
    [
        ({"glibc": "9.9"}, "glibc 9.9"),
        ({"cpu_flags": ("avx2048",)}, "avx2048"),
        ({"platforms": ("darwin-arm64",)}, "this machine is linux"),
        ({"commands": ("no-such-program",)}, "no-such-program"),
        ({"gpu": "nvidia"}, "NVIDIA GPU"),
    ],
)
def test_host_that_lacks_something_is_refused(tmp_path, requires, text, monkeypatch):
    monkeypatch.setattr(gpu, "look", lambda: gpu.View((), None, None, "no driver"))
    with pytest.raises(InputError, match=text) as raised:
        install(recipe(tmp_path, requires=Requires(**requires)))
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("driver", "capability", "count"),
    [
        ("580.95", "9.0", 0),
        ("535.104.05", "9.0", 1),
        ("535.104.05", "7.5", 2),
        ("580.95", None, 0),
        (None, None, 0),
        ("not a version", "9.0", 0),
    ],
)
def test_gpu_whose_figures_are_unknown_is_not_refused(monkeypatch, driver, capability, count):
    blank = dict.fromkeys(gpu.Device.__dataclass_fields__)
    device = gpu.Device(**{**blank, "name": "H200", "compute_capability": capability})
    monkeypatch.setattr(gpu, "look", lambda: gpu.View((device,), driver, "13.0", ""))
    requires = Requires(gpu="nvidia", driver="570", compute_capability="8.0")
    assert len(requirements.obstacles(requires)) == count


def test_python_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no Python ==3\.99"):
        install(recipe(tmp_path, python="==3.99.*"))


def test_unknown_installer_is_refused(tmp_path, forced):
    forced("conda")
    with pytest.raises(InputError, match="neither uv nor pip"):
        install(recipe(tmp_path))


def other(folder: Path, environment: object) -> Recipe:
    return Recipe(
        name="tiny",
        directory=folder,
        engine="fake",
        title="Tiny",
        version="1",
        environment=environment,
        model_format="hf",
    )


def test_an_interpreter_that_is_killed_when_asked_is_not_called_wrong(tmp_path, fake):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o755)
    environment = ExistingEnvironment(kind="existing", python=str(python), distribution="pip")
    with pytest.raises(InputError, match="was ended by SIGKILL") as raised:
        install(other(tmp_path, environment))
    assert raised.value.remedy == "start again"


def test_existing_python_is_asked_for_its_version(tmp_path, fake):
    environment = ExistingEnvironment(
        kind="existing", python=sys.executable, distribution="pytest", imports=("pytest",)
    )
    made = install(other(tmp_path, environment))
    assert made.version == pytest.__version__
    assert (made.kind, made.directory, made.seconds, made.bytes) == ("existing", None, None, None)


def test_existing_python_without_the_engine_is_refused(tmp_path, fake):
    environment = ExistingEnvironment(
        kind="existing", python=sys.executable, imports=("no_such_engine",)
    )
    with pytest.raises(InputError, match="no_such_engine"):
        install(other(tmp_path, environment))
    environment = ExistingEnvironment(kind="existing", python="/nowhere/python")
    with pytest.raises(InputError, match="/nowhere/python"):
        install(other(tmp_path, environment))


def test_external_needs_nothing(tmp_path):
    made = install(
        other(tmp_path, ExternalEnvironment(kind="external", base_url="http://127.0.0.1:1/v1"))
    )
    assert made.base_url == "http://127.0.0.1:1/v1"
    assert made.python is None


def test_installation_survives_json(tmp_path):
    made = install(recipe(tmp_path))
    assert installation.Installation.from_json(made.to_json()) == made


def test_commands_never_go_without_hashes(tmp_path):
    for kind in (installers.Uv, installers.Pip):
        argv = kind(tmp_path, Path(sys.executable)).sync(tmp_path / "x.lock")
        assert {"--require-hashes", "--no-deps", "-r"} <= set(argv)


def test_interrupted_installers_children_end_too(tmp_path):
    with start_slow(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=3)
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "print('begun', flush=True)" not in shown.stdout
