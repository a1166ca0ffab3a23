"""Bundles: made with the network, checked, split, and installed without any."""

from __future__ import annotations

import argparse
import json

import pytest
from test_environments import recipe

from enginebook.commands import bundle as command
from enginebook.engines.recipes import ExistingEnvironment
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import bundles
from enginebook.lifecycle.environments import install


@pytest.fixture
def made(tmp_path):
    return bundles.make(recipe(tmp_path), tmp_path / "tiny-2.1.0")


@pytest.fixture
def offline(monkeypatch):
    """Point every index at a closed port."""
    nowhere = "http://127.0.0.1:9/simple"
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, nowhere)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


def test_holds_wheels_recipe_lock_and_sums(made, tmp_path):
    names = {str(p.relative_to(made.directory)) for p in made.directory.rglob("*") if p.is_file()}
    wheels = {n for n in names if n.startswith("wheels/iniconfig-2.1.0")}
    assert names == {"SHA256SUMS", "bundle.json", "tiny.lock", *wheels}
    assert len(wheels) == 1
    assert bundles.read(made.directory) == made


@pytest.mark.parametrize("name", ["uv", "pip"])
def test_installs_without_network(made, tmp_path, offline, monkeypatch, name):
    monkeypatch.setenv("ENGINEBOOK_INSTALLER", name)
    with pytest.raises(InstallError):
        install(recipe(tmp_path))
    installed = install(recipe(tmp_path), bundle=made.directory)
    assert (installed.version, installed.installer) == ("2.1.0", name)
    assert "--no-index" in installed.steps[1].command
    assert "--require-hashes" in installed.steps[1].command


def test_parts_are_joined(made, tmp_path, offline):
    parts = bundles.pack(made.directory, part_bytes=5000)
    assert len(parts) > 2
    assert parts[0].name == "tiny-2.1.0.tar.000"
    assert all(p.stat().st_size <= 5000 for p in parts)
    assert install(recipe(tmp_path), bundle=parts[0]).version == "2.1.0"


def test_one_tar_is_opened(made, tmp_path, offline):
    (archive,) = bundles.pack(made.directory)
    assert install(recipe(tmp_path), bundle=archive).version == "2.1.0"


def test_missing_part_is_told(made, tmp_path):
    parts = bundles.pack(made.directory, part_bytes=5000)
    parts[-2].unlink()
    with pytest.raises(InputError, match="copy"):
        install(recipe(tmp_path), bundle=parts[0])


def test_changed_wheel_is_refused(made, tmp_path):
    (wheel,) = made.wheels.iterdir()
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=f"{wheel.name} is changed"):
        install(recipe(tmp_path), bundle=made.directory)


def test_missing_and_strange_files_are_refused(made):
    (made.directory / "tiny.lock").rename(made.directory / "other.lock")
    with pytest.raises(InputError, match=r"other\.lock is not listed"):
        bundles.check(made.directory)
    (made.directory / "other.lock").unlink()
    with pytest.raises(InputError, match=r"tiny\.lock is missing"):
        bundles.check(made.directory)


def test_bundle_of_another_lock_is_refused(made, tmp_path):
    other = recipe(tmp_path, (tmp_path / "tiny.lock").read_text() + "# changed\n")
    with pytest.raises(InstallError, match="whose lock is not that of tiny"):
        install(other, bundle=made.directory)


def test_what_is_no_bundle_is_told(tmp_path):
    with pytest.raises(InputError, match="there is no bundle at"):
        install(recipe(tmp_path), bundle=tmp_path / "nothing")
    with pytest.raises(InputError, match="is not a bundle"):
        install(recipe(tmp_path), bundle=tmp_path)


def test_failed_making_leaves_nothing(tmp_path):
    wrong = recipe(tmp_path, "iniconfig==2.1.0 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(InstallError):
        bundles.make(wrong, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="there already"):
        bundles.make(wrong, tmp_path / "b")


def test_recipe_without_a_lock_cannot_be_bundled(tmp_path):
    environment = ExistingEnvironment(kind="existing", python="python3")
    with pytest.raises(InputError, match="no lock to bundle"):
        bundles.make(
            recipe(tmp_path).model_copy(update={"environment": environment}), tmp_path / "b"
        )


def test_bundled_torch_is_locked_by_its_digest(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "torch-2.13.0+cpu-cp311-none-any.whl").write_bytes(b"wheel")
    held = bundles.Bundle(tmp_path, "r", "1", "3.11", "torch==2.13.0+cpu", "somewhere")
    lock = held.torch_lock(tmp_path)
    assert lock.read_text() == f"torch==2.13.0+cpu --hash=sha256:{held.torch_sha256()}\n"
    assert bundles.Bundle(tmp_path, "r", "1", "3.11", None, "x").torch_lock(tmp_path) is None


def test_command_makes_and_installs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("enginebook.engines.recipes.load_recipe", lambda name: recipe(tmp_path))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out = str(tmp_path / "b")
    assert command.run(parser.parse_args(["tiny", "--output", out, "--tar"])) == 0
    assert f"--install {out}.tar" in capsys.readouterr().out
    json_file = tmp_path / "o.json"
    argv = ["tiny", "--install", f"{out}.tar", "--json", str(json_file)]
    assert command.run(parser.parse_args(argv)) == 0
    assert json.loads(json_file.read_text())["version"] == "2.1.0"
    with pytest.raises(InputError, match="no size"):
        command.run(parser.parse_args(["tiny", "--part-size", "0"]))
