"""Trimming a folder of unpacked packages: what a target never loads is left out of a bundle.

Three ways, each recorded for every file that it changed: files left out by name; GPU code of other
architectures (and, where asked, of named kernels) overwritten with zeros; debug symbols removed.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from enginebook import store
from enginebook.errors import InputError
from enginebook.lifecycle import trimming_fatbin as fatbin
from enginebook.lifecycle import trimming_kernels
from enginebook.lifecycle.trimming_elf import MAGIC

_ARCH = re.compile(r"^sm_([0-9]{2,3})[af]?$")


@dataclass(frozen=True)
class Change:
    """What became of one file.

    Attributes
    ----------
    path
        Relative to the folder.
    how
        ``left out``, ``trimmed`` (GPU code zeroed) or ``stripped`` (debug symbols removed).
    bytes
        Bytes left out, zeroed or removed.
    sha256_before, sha256_after
        Of the whole file; None after it was left out.
    """

    path: str
    how: str
    bytes: int
    sha256_before: str
    sha256_after: str | None


def architecture(text: str) -> int:
    """Return the number of an architecture such as ``sm_90`` or ``sm_90a``.

    Raises
    ------
    InputError
        For any other text.
    """
    found = _ARCH.match(text)
    if found is None:
        raise InputError(
            f"{text!r} is no GPU architecture",
            "give it as sm_90 (H100, H200), sm_89 (L4, RTX 40), sm_80 (A100), sm_100 (B200) ...",
        )
    return int(found[1])


def leave_out(folder: Path, patterns: Sequence[str]) -> list[Change]:
    """Remove the files whose path in the folder matches one of the globs (``*`` crosses ``/``)."""
    changes = []
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            size, digest = path.stat().st_size, store.sha256_of_file(path)
            path.unlink()
            changes.append(Change(name, "left out", size, digest, None))
    return changes


def trim_gpu_code(
    folder: Path, arch: int, kernels: Mapping[str, str] | None = None
) -> list[Change]:
    """Zero the code of other architectures in every library of the folder.

    Parameters
    ----------
    arch
        The one architecture that is kept, such as 90.
    kernels
        Glob of files -> regular expression: cubins whose kernels all match are zeroed, too.
    """
    changes = []
    for path in _libraries(folder):
        name = path.relative_to(folder).as_posix()
        wanted = [p for glob, p in (kernels or {}).items() if fnmatch.fnmatchcase(name, glob)]
        change = _trim(path, name, arch, wanted)
        if change is not None:
            changes.append(change)
    return changes


def _trim(path: Path, name: str, arch: int, patterns: Sequence[str]) -> Change | None:
    image = bytearray(path.read_bytes())
    entries = fatbin.read_entries(image)
    gone = set(fatbin.unused(entries, arch))
    for pattern in patterns:
        left = [e for e in entries if e not in gone]
        gone.update(trimming_kernels.matching(image, left, pattern))
    if not gone:
        return None
    before = store.sha256_of_file(path)
    zeroed = fatbin.zero(image, gone)
    _replace(path, image)
    return Change(name, "trimmed", zeroed, before, store.sha256_of_file(path))


def _replace(path: Path, image: bytearray) -> None:
    mode = path.stat().st_mode
    path.unlink()  # it may be a hard link into a cache
    path.write_bytes(image)
    path.chmod(mode)


def strip_symbols(folder: Path) -> list[Change]:
    """Remove debug symbols from every library; nothing where there is no ``strip``.

    A library that ``strip`` refuses stays as it is.
    """
    program = shutil.which("strip")
    if program is None:
        return []
    changes = []
    for path in _libraries(folder):
        before, size = store.sha256_of_file(path), path.stat().st_size
        argv = [program, "--strip-debug", "--preserve-dates", str(path)]
        subprocess.run(argv, capture_output=True, check=False)
        after, less = store.sha256_of_file(path), size - path.stat().st_size
        if after != before:
            name = path.relative_to(folder).as_posix()
            changes.append(Change(name, "stripped", less, before, after))
    return changes


def _libraries(folder: Path) -> Iterator[Path]:
    """Yield the ELF files that are named as shared libraries."""
    for path in _files(folder):
        if ".so" in path.suffixes or path.suffix == ".so":
            with path.open("rb") as file:
                if file.read(4) == MAGIC:
                    yield path


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
