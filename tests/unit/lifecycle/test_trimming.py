"""Trimming a folder: files left out, libraries trimmed and stripped, each change on record."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys

import pytest
from fatbin_support import CUBIN, PTX, cubin, entry, fatbin, library, write

from enginebook.errors import InputError
from enginebook.lifecycle import trimming


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("text", "number"), [("sm_90", 90), ("sm_90a", 90), ("sm_120", 120)])
def test_architectures(text, number):
    assert trimming.architecture(text) == number


@pytest.mark.parametrize("text", ["90", "sm_9", "sm90", "hopper", "sm_90x", ""])
def test_what_is_no_architecture_is_told(text):
    with pytest.raises(InputError, match="no GPU architecture") as raised:
        trimming.architecture(text)
    assert "sm_90" in raised.value.remedy


def test_files_are_left_out_by_glob(tmp_path):
    for name in ("pkg/a.py", "pkg/tests/b.py", "pkg/deep/tests/c.py", "other/big.bin"):
        write(tmp_path / name, b"12345")
    changes = trimming.leave_out(tmp_path, ["*/tests/*", "other/*.bin"])
    assert [c.path for c in changes] == ["other/big.bin", "pkg/deep/tests/c.py", "pkg/tests/b.py"]
    assert {(c.how, c.bytes, c.sha256_before, c.sha256_after) for c in changes} == {
        ("left out", 5, sha256(b"12345"), None)
    }
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a.py"]


def test_gpu_code_of_others_is_zeroed(tmp_path):
    image = library(
        fatbin(
            entry(CUBIN, 80, b"old" * 8), entry(CUBIN, 90, b"own" * 8), entry(PTX, 90, b"ptx" * 8)
        )
    )
    fat = write(tmp_path / "pkg" / "ops.abi3.so", image)
    plain = write(tmp_path / "pkg" / "plain.so", library())
    write(tmp_path / "pkg" / "notes.so.txt", image[:0] + b"no library")
    (change,) = trimming.trim_gpu_code(tmp_path, 90)
    trimmed = fat.read_bytes()
    assert (change.path, change.how, change.bytes) == ("pkg/ops.abi3.so", "trimmed", 48)
    assert (change.sha256_before, change.sha256_after) == (sha256(image), sha256(trimmed))
    assert len(trimmed) == len(image)
    assert b"own" * 8 in trimmed
    assert b"old" not in trimmed
    assert b"ptx" not in trimmed
    assert plain.read_bytes() == library()
    assert trimming.trim_gpu_code(tmp_path, 80) != []  # the fat binary still names sm_80 ...
    assert b"own" not in fat.read_bytes()


def test_named_kernels_are_zeroed_in_named_files_alone(tmp_path):
    wanted, other = cubin("_Z4attnILi64EEvPf"), cubin("_Z4attnILi256EEvPf")
    image = library(fatbin(entry(CUBIN, 90, wanted)), fatbin(entry(CUBIN, 90, other)))
    fat, same = (write(tmp_path / name, image) for name in ("a/ops.so", "b/ops.so"))
    (change,) = trimming.trim_gpu_code(tmp_path, 90, {"a/*.so": "attn<256>"})
    assert (change.path, change.bytes) == ("a/ops.so", len(other) + -len(other) % 8)
    assert wanted in fat.read_bytes()
    assert other not in fat.read_bytes()
    assert same.read_bytes() == image


def test_a_hard_link_elsewhere_is_not_changed(tmp_path):
    image = library(fatbin(entry(CUBIN, 80, b"old" * 8), entry(CUBIN, 90, b"own" * 8)))
    cached = write(tmp_path / "cache" / "ops.so", image)
    (tmp_path / "site").mkdir()
    os.link(cached, tmp_path / "site" / "ops.so")
    assert trimming.trim_gpu_code(tmp_path / "site", 90)
    assert cached.read_bytes() == image


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("strip"), reason="needs gcc")
def test_debug_symbols_are_removed_and_the_library_still_loads(tmp_path):
    source = write(tmp_path / "f.c", b"int answer(void) { return 42; }\n")
    target = tmp_path / "site" / "f.so"
    target.parent.mkdir()
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", target, source], check=True)
    size = target.stat().st_size
    (change,) = trimming.strip_symbols(tmp_path / "site")
    assert change.how == "stripped"
    assert change.bytes == size - target.stat().st_size > 0
    # In a process of its own: `strip` writes in place, and what is mapped must not change.
    ask = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).answer())"
    assert subprocess.run([sys.executable, "-c", ask, target], check=False).returncode == 42
    assert trimming.strip_symbols(tmp_path / "site") == []


def test_a_library_that_strip_refuses_stays_as_it_is(tmp_path):
    odd = b"\x7fELF" + b"\xff" * 60
    path = write(tmp_path / "odd.so", odd)
    assert trimming.strip_symbols(tmp_path) == []
    assert path.read_bytes() == odd


def test_without_strip_nothing_is_stripped(tmp_path, monkeypatch):
    write(tmp_path / "a.so", library())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert trimming.strip_symbols(tmp_path) == []
