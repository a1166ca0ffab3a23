"""Which pages of files the kernel holds in memory, and how to have it forget them."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Dropped:
    """What became of files' pages: how many there are, and how many stayed in memory.

    ``verified`` is false where the kernel does not tell, which counts every page as kept.
    """

    files: int
    pages: int
    kept: int
    verified: bool

    def __str__(self) -> str:
        size = self.pages * mmap.PAGESIZE / 1e9
        text = f"{self.files} files, {size:.2f} GB, dropped from the page cache"
        if not self.verified:
            return f"{text}, unverified"
        return f"{text}; {self.kept / max(1, self.pages):.1%} of the pages stayed"


def drop(files: Iterable[Path]) -> Dropped:
    """Ask the kernel to forget files' pages, and look which of them it kept.

    This needs no root. Pages that a running process has mapped stay, and so does all of a file
    system that lives in memory.
    """
    count = pages = kept = 0
    verified = hasattr(os, "posix_fadvise")
    for path in files:
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total = -(-os.fstat(file.fileno()).st_size // mmap.PAGESIZE)
            resident = resident_pages(file.fileno(), total) if verified else None
        verified = verified and resident is not None
        count, pages = count + 1, pages + total
        kept += total if resident is None else resident
    return Dropped(count, pages, kept, verified)


def resident_pages(descriptor: int, pages: int) -> int | None:
    """Return how many of a file's pages are in memory (mincore); None where it is not told."""
    if pages == 0:
        return 0
    seen = (ctypes.c_ubyte * pages)()
    size = pages * mmap.PAGESIZE
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    failed = libc.mincore(address, size, seen)
    libc.munmap(address, size)
    return None if failed else sum(page & 1 for page in seen)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.mincore.argtypes = [pointer, size, pointer]
    return libc
