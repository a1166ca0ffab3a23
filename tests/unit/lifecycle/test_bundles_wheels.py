"""Wheels: fetched by hash for another host, built where there is none, unpacked below a folder."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile

import pytest
from wheel_support import lock_of, make_wheel, only_from

from enginebook.errors import InstallError
from enginebook.lifecycle.bundles_pins import Target, pins
from enginebook.lifecycle.bundles_wheels import (
    Wheels,
    platforms,
    requires_dist,
    unpack_wheel,
)
from enginebook.lifecycle.logged import Log


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    only_from(monkeypatch, tmp_path / "index")
    return Wheels(tmp_path / "work" / "wheels", Target("3.12", "2.34"), Log(tmp_path / "log"))


def locked(tmp_path, *made, text=None):
    lock = tmp_path / "some.lock"
    lock.write_text(text or lock_of(*made))
    return pins(lock, Target("3.12"))


def test_wheels_of_the_target_are_fetched_and_no_others(tmp_path, wheels):
    """The interpreter that runs this is another one: cp312 is asked for, not its own."""
    index = tmp_path / "index"
    ours = make_wheel(index, "fast", "1.0", {}, tag="cp312-cp312-manylinux_2_34_x86_64")
    newer = make_wheel(index, "newer", "1.0", {}, tag="cp312-cp312-manylinux_2_39_x86_64")
    entries = locked(tmp_path, ours)
    wheels.fetch(entries)
    assert wheels.path("fast", entries["fast"]).read_bytes() == ours.read_bytes()
    with pytest.raises(InstallError, match=r"newer==1\.0 has no wheel for Python 3\.12"):
        wheels.fetch(locked(tmp_path, newer))


def test_a_wheel_with_another_hash_is_refused(tmp_path, wheels):
    made = make_wheel(tmp_path / "index", "tiny", "1.0", {"tiny.py": b"a"})
    entries = locked(tmp_path, made)
    make_wheel(tmp_path / "index", "tiny", "1.0", {"tiny.py": b"b"})
    with pytest.raises(InstallError, match="could not be fetched"):
        wheels.fetch(entries)


def test_wheels_are_fetched_once(tmp_path, wheels):
    entries = locked(tmp_path, make_wheel(tmp_path / "index", "tiny", "1.0", {}))
    wheels.fetch(entries)
    (tmp_path / "index" / "tiny-1.0-py3-none-any.whl").unlink()
    wheels.fetch(entries)
    with pytest.raises(InstallError, match="came as no wheel"):
        wheels.path("other", entries["tiny"])


SETUP = b"""
import zipfile
FILES = {
    "source_only.py": "x = 1",
    "source_only-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: source-only\\n"
    "Version: 1.0\\n",
    "source_only-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: %s\\n",
    "source_only-1.0.dist-info/RECORD": "",
}
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "source_only-1.0-%s.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as archive:
        for path, text in FILES.items():
            archive.writestr(path, text)
    return name
"""
PROJECT = b"""
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "source-only"
version = "1.0"
"""


def source_archive(folder, tag):
    folder.mkdir(exist_ok=True)
    path = folder / "source_only-1.0.tar.gz"
    info = b"Metadata-Version: 2.1\nName: source-only\nVersion: 1.0\n"
    backend = SETUP % (tag.encode(), tag.encode())
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (
            ("pyproject.toml", PROJECT),
            ("backend.py", backend),
            ("PKG-INFO", info),
        ):
            member = tarfile.TarInfo(f"source_only-1.0/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def source_lock(path):
    return lock_of(path).replace("==1.0.tar.gz", "==1.0").replace("source_only", "source-only")


def test_what_has_no_wheel_is_built(tmp_path, wheels):
    source = source_archive(tmp_path / "index", "py3-none-any")
    other = make_wheel(tmp_path / "index", "tiny", "1.0", {})
    entries = locked(tmp_path, text=source_lock(source) + lock_of(other))
    wheels.fetch(entries)
    assert wheels.path("source-only", entries["source-only"]).name.endswith("-none-any.whl")
    assert wheels.path("tiny", entries["tiny"]).is_file()


def test_what_would_be_built_for_this_machine_is_refused(tmp_path, wheels):
    source = source_archive(tmp_path / "index", "py3-none-linux_x86_64")
    with pytest.raises(InstallError, match="none that runs everywhere") as raised:
        wheels.fetch(locked(tmp_path, text=source_lock(source)))
    assert "params/bundles" in raised.value.remedy


def test_platforms_from_newest_to_oldest():
    names = platforms("2.28")
    assert names[0] == "manylinux_2_28_x86_64"
    assert "manylinux2014_x86_64" in names
    assert "manylinux_2_29_x86_64" not in names


def test_requirements_are_read(tmp_path):
    made = make_wheel(tmp_path, "tiny", "1.0", {}, requires=["numpy>=2", "x; extra == 'y'"])
    assert requires_dist(made) == ["numpy>=2", "x; extra == 'y'"]
    with zipfile.ZipFile(tmp_path / "empty.whl", "w"):
        pass
    with pytest.raises(InstallError, match="no METADATA"):
        requires_dist(tmp_path / "empty.whl")


def test_data_folders_go_where_an_installer_puts_them(tmp_path):
    files = {
        "tiny/a.py": b"1",
        "tiny-1.0.data/platlib/tiny/b.so": b"2",
        "tiny-1.0.data/purelib/c.py": b"3",
        "tiny-1.0.data/scripts/run": b"4",
        "tiny-1.0.data/data/share/tiny/page.html": b"5",
    }
    written = unpack_wheel(make_wheel(tmp_path, "tiny", "1.0", files), tmp_path / "site")
    assert {"tiny/a.py", "tiny/b.so", "c.py", "share/tiny/page.html"} < set(written)
    assert (tmp_path / "site" / "tiny" / "b.so").read_bytes() == b"2"
    assert not list((tmp_path / "site").rglob("run"))


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/evil", "tiny/../../evil.py", "tiny\\..\\evil.py",
             "tiny-1.0.data/purelib/../../../evil.py"],
)  # fmt: skip
def test_members_that_climb_are_refused(tmp_path, name):
    made = make_wheel(tmp_path / "w", "tiny", "1.0", {name: b"evil"})
    with pytest.raises(InstallError, match="no file below its folder"):
        unpack_wheel(made, tmp_path / "deep" / "site")
    assert not list(tmp_path.rglob("evil*"))


def test_links_are_refused(tmp_path):
    made = make_wheel(tmp_path / "w", "tiny", "1.0", {})
    link = zipfile.ZipInfo("tiny/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InstallError, match="no file below its folder"):
        unpack_wheel(made, tmp_path / "site")


def test_programs_stay_executable(tmp_path):
    made = make_wheel(tmp_path / "w", "tiny", "1.0", {})
    program = zipfile.ZipInfo("tiny/bin/run")
    program.external_attr = (stat.S_IFREG | 0o755) << 16
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(program, "#!/bin/sh\n")
    unpack_wheel(made, tmp_path / "site")
    assert (tmp_path / "site" / "tiny" / "bin" / "run").stat().st_mode & 0o777 == 0o755
