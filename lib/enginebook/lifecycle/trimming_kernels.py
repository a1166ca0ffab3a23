"""Which kernels a cubin holds: for leaving out those of shapes that a study never runs."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from types import ModuleType

from enginebook.errors import InputError
from enginebook.lifecycle.trimming_elf import is_elf, kernel_names
from enginebook.lifecycle.trimming_fatbin import ZSTD, Entry

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
DEMANGLER = "c++filt"


def matching(image: bytes | bytearray, entries: Iterable[Entry], pattern: str) -> list[Entry]:
    """Return the cubins all of whose kernels have a name that matches.

    Names are demangled first, since mangled ones abbreviate repeated types. A cubin that cannot
    be read (compressed with LZ4) matches nothing.

    Parameters
    ----------
    pattern
        Regular expression, searched in names such as ``void flash::kernel<128>(...)``.

    Raises
    ------
    InputError
        For a broken expression, or without c++filt, or without zstandard where it is needed.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise InputError(f"{pattern!r} is no regular expression: {error}", "correct it") from error
    named = [(e, kernel_names(code)) for e in entries if (code := payload(image, e)) is not None]
    shown = iter(demangled([n for _, names in named for n in names]))
    found = []
    for entry, names in named:
        texts = [next(shown) for _ in names]
        if texts and all(wanted.search(text) for text in texts):
            found.append(entry)
    return found


def payload(image: bytes | bytearray, entry: Entry) -> bytes | None:
    """Return a cubin without compression, or None where this cannot be had."""
    if entry.kind != "cubin":
        return None
    held = bytes(image[entry.start : entry.end])
    if is_elf(held):
        return held
    if entry.flags & ZSTD and held.startswith(_ZSTD_MAGIC):
        return _unzstd(held, entry.unpacked)
    return None


def _unzstd(held: bytes, size: int) -> bytes:
    made = _zstandard().ZstdDecompressor().decompressobj().decompress(held)
    return bytes(made[:size] if size else made)


def _zstandard() -> ModuleType:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise InputError(
            "this library's GPU code is compressed with Zstandard, which Python cannot read alone",
            "pip install zstandard (needed for leaving out kernels by name only)",
        ) from None


def demangled(names: Sequence[str]) -> list[str]:
    """Return C++ names as they stand in the source."""
    program = shutil.which(DEMANGLER)
    if program is None:
        raise InputError(f"{DEMANGLER} is not on the PATH", "install binutils")
    done = subprocess.run(
        [program], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")[: len(names)]
