"""Folders as compressed archives, one after another in one stream that is cut into parts."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from enginebook import store
from enginebook.errors import InstallError
from enginebook.lifecycle.bundles_unpack import MEMBERS

_STEP = 1 << 20
_BLOCK = "96MiB"  # blocks are what several cores share, on either side


@dataclass(frozen=True)
class Archive:
    """A folder that becomes one .tar.xz."""

    name: str
    folder: Path


class _Parts:
    """Writes one stream as files of at most so many bytes."""

    def __init__(self, output: Path, limit: int | None) -> None:
        self.output, self.limit = output, limit
        self.parts: list[dict[str, Any]] = []
        self.total = 0
        self._file: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._room = 0

    def append(self, path: Path) -> None:
        """Append a file's bytes."""
        with path.open("rb") as file:
            while data := file.read(_STEP):
                self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._file is None or (self.limit is not None and self._room == 0):
                self._open()
            assert self._file is not None  # noqa: S101 - just opened
            piece = view if self.limit is None else view[: self._room]
            self._file.write(piece)
            self._digest.update(piece)
            self._room -= len(piece)
            self.total += len(piece)
            self.parts[-1]["bytes"] += len(piece)
            view = view[len(piece) :]

    def _open(self) -> None:
        self.close()
        name = f"part.{len(self.parts):03d}"
        self.parts.append({"name": name, "bytes": 0})
        self._file = (self.output / name).open("wb")
        self._digest, self._room = hashlib.sha256(), self.limit or 0

    def close(self) -> None:
        """Finish the part that is open."""
        if self._file is not None:
            self._file.close()
            self.parts[-1]["sha256"] = self._digest.hexdigest()
            self._file = None


def write_parts(
    archives: Sequence[Archive], output: Path, part_bytes: int | None
) -> dict[str, Any]:
    """Write ``part.000`` ... and return ``archives`` and ``parts`` as bundle.json holds them."""
    parts = _Parts(output, part_bytes)
    table: dict[str, Any] = {}
    for archive in archives:
        members_sha256, files, unpacked = _list_members(archive.folder)
        offset = parts.total
        packed = archive.folder.with_name(f"{archive.name}.tar.xz")
        _compress(archive.folder, packed)
        parts.append(packed)
        packed.unlink()
        table[archive.name] = {
            "offset": offset,
            "bytes": parts.total - offset,
            "files": files,
            "unpacked_bytes": unpacked,
            "members_sha256": members_sha256,
        }
    parts.close()
    return {"archives": table, "parts": parts.parts}


def _list_members(folder: Path) -> tuple[str, int, int]:
    """Write the list of members into the folder; returns its digest, their number and bytes."""
    files = [p for p in _ordered(folder) if p.name != MEMBERS]
    lines = [f"{store.sha256_of_file(p)}  {p.relative_to(folder).as_posix()}" for p in files]
    listing = folder / MEMBERS
    store.write_text(listing, "".join(f"{line}\n" for line in lines))
    return store.sha256_of_file(listing), len(files), sum(p.stat().st_size for p in files)


def _ordered(folder: Path) -> list[Path]:
    """Return files with similar ones side by side, which compresses better; libraries last."""
    found = [p for p in folder.rglob("*") if p.is_file()]
    return sorted(found, key=lambda p: (p.suffix == ".so", p.suffix, p.as_posix()))


def _write_tar(folder: Path, stream: IO[bytes]) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in _ordered(folder):
            tar.add(path, path.relative_to(folder).as_posix(), filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made it and when, so that equal contents give equal archives."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member


def _compress(folder: Path, target: Path) -> None:
    """Write a folder as .tar.xz; by ``xz`` where there is one, which uses every core."""
    program = shutil.which("xz")
    if program is None:
        with lzma.open(target, "wb", preset=6) as stream:
            _write_tar(folder, stream)
        return
    argv = [program, "--stdout", "--threads=0", "-6", f"--block-size={_BLOCK}"]
    with (
        target.open("wb") as file,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file) as process,
    ):
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        _write_tar(folder, process.stdin)
        process.stdin.close()
    if process.returncode:
        raise InstallError("xz failed", "look for free disk space and memory")
