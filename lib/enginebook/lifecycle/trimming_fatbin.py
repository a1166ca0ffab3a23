"""Fat binaries: the GPU code inside a linked CUDA library.

A library that nvcc linked keeps its GPU code in the ELF section ``.nv_fatbin`` (or
``__nv_relfatbin``, when device code was linked separately): fat binaries one after another, each

======  =====  ==============================================================
offset  bytes  meaning
======  =====  ==============================================================
0       4      0xBA55ED50
4       2      version (1)
6       2      size of this header (16)
8       8      size of all entries that follow
======  =====  ==============================================================

followed by its entries, one for each architecture and form of the same source file:

======  =====  ==============================================================
offset  bytes  meaning
======  =====  ==============================================================
0       2      kind: 1 PTX (text), 2 cubin (machine code, an ELF file)
2       2      version (0x101)
4       4      size of this header (64 or more: options and a name may follow)
8       8      size of the payload that follows the header, padded
16      4      size of the payload when it is compressed, unpadded
28      4      architecture, such as 90
40      8      flags: 0x2000 compressed with LZ4, 0x8000 with Zstandard
56      8      size before compression
======  =====  ==============================================================

NVIDIA documents the container ("fatbin" in the CUDA Binary Utilities) but not its bytes; this
table follows what cuobjdump lists and what open-source readers of the format agree upon. The
driver takes one entry of each fat binary and never reads the others' payloads. Zeros in those
keep every offset of the library, so that it loads as before, and compress to almost nothing;
nvprune, which removes entries, works on object files and static libraries only.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from enginebook.lifecycle.trimming_elf import sections

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
ZSTD = 0x8000
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQI")
_ENTRY_BYTES = 64
_ALIGNMENT = 8  # containers start at multiples of it; between them there may be padding
_FAMILY = 10  # sm_86 runs the code of sm_80, and not that of sm_75


@dataclass(frozen=True)
class Entry:
    """One entry of a fat binary.

    Attributes
    ----------
    container
        Offset of its fat binary in the file; entries that share it are alternatives.
    arch
        Such as 90.
    start, size
        Where the payload lies in the file, in bytes.
    unpacked
        Bytes before compression; 0 when it is not compressed.
    """

    container: int
    kind: Literal["ptx", "cubin", "other"]
    arch: int
    start: int
    size: int
    flags: int
    unpacked: int

    @property
    def end(self) -> int:
        """Return the offset after the payload."""
        return self.start + self.size


def read_entries(image: bytes | bytearray) -> list[Entry]:
    """Return every entry of every fat binary in a library; none for other files."""
    found: list[Entry] = []
    for section in sections(image):
        if section.name in SECTIONS:
            end = min(section.offset + section.size, len(image))
            found += _containers(image, section.offset, end)
    return found


def _containers(image: bytes | bytearray, position: int, end: int) -> Iterator[Entry]:
    while position + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack_from(image, position)
        whole = position + header + size
        if magic != MAGIC or header < _CONTAINER.size or whole > end:
            position += _ALIGNMENT
            continue
        yield from _entries(image, position, position + header, whole)
        position = whole


def _entries(image: bytes | bytearray, container: int, position: int, end: int) -> Iterator[Entry]:
    while position + _ENTRY_BYTES <= end:
        kind, _, header, size, _ = _ENTRY.unpack_from(image, position)
        start = position + header
        if header < _ENTRY_BYTES or start + size > end:
            return  # padding, or a form that is not known: it stays as it is
        (arch,) = struct.unpack_from("<I", image, position + 28)
        (flags,) = struct.unpack_from("<Q", image, position + 40)
        (unpacked,) = struct.unpack_from("<Q", image, position + 56)
        yield Entry(container, _kind(kind), arch, start, size, flags, unpacked)
        position = start + size


def _kind(number: int) -> Literal["ptx", "cubin", "other"]:
    if number == 1:
        return "ptx"
    return "cubin" if number == 2 else "other"  # noqa: PLR2004 - see the table above


def unused(entries: Iterable[Entry], arch: int) -> list[Entry]:
    """Return the entries that a GPU of one architecture never loads.

    It loads the cubin of its own architecture. Where a fat binary has none, it takes the newest
    cubin of its own family (8.x, 9.x ...) that is not newer than itself; where there is none of
    these either, the driver compiles PTX. Entries of unknown kinds are kept.

    Parameters
    ----------
    arch
        Such as 90 for sm_90.
    """
    containers: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        containers[entry.container].append(entry)
    return [e for held in containers.values() for e in _unused_of(held, arch)]


def _unused_of(held: list[Entry], arch: int) -> list[Entry]:
    family = arch // _FAMILY
    fitting = [
        e.arch for e in held if e.kind == "cubin" and e.arch // _FAMILY == family and e.arch <= arch
    ]
    if not fitting:
        # PTX of an older architecture compiles for a newer one; several are rare, and all kept.
        return [e for e in held if e.kind == "cubin"]
    best = max(fitting)
    return [e for e in held if e.kind == "ptx" or (e.kind == "cubin" and e.arch != best)]


def zero(image: bytearray, entries: Iterable[Entry]) -> int:
    """Overwrite payloads with zeros; returns how many bytes."""
    total = 0
    for entry in entries:
        image[entry.start : entry.end] = bytes(entry.size)
        total += entry.size
    return total
