"""Sections of ELF files (64-bit, little-endian), as far as trimming needs them.

The layout is that of the System V ABI, chapter 4 ("Object files"): the file header holds the
offset of the section table (at 0x28), the size and number of its rows (0x3A, 0x3C) and the row of
the section that holds the names (0x3E). A cubin, the machine code of one GPU architecture, is an
ELF file too; each of its kernels has a section of its own, ``.text.<mangled name>``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_HEADER_BYTES = 64
_TABLE = struct.Struct("<Q")  # at 0x28
_TABLE_SHAPE = struct.Struct("<HHH")  # at 0x3A
_ROW = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info ...
_NO_BITS = 8  # a section type that takes no room in the file
KERNEL = ".text."


@dataclass(frozen=True)
class Section:
    """One section: its name, and where its bytes lie in the file."""

    name: str
    offset: int
    size: int


def is_elf(image: bytes | bytearray | memoryview) -> bool:
    """Return whether these are the bytes of a 64-bit little-endian ELF file."""
    head = bytes(image[:6])
    return len(image) >= _HEADER_BYTES and head == MAGIC + bytes((_CLASS_64, _LITTLE_ENDIAN))


def sections(image: bytes | bytearray) -> list[Section]:
    """Return the sections that hold bytes; empty for what is no (whole) ELF file."""
    if not is_elf(image):
        return []
    try:
        return _sections(image)
    except (struct.error, ValueError):  # a table beyond the end of the file
        return []


def _sections(image: bytes | bytearray) -> list[Section]:
    (table,) = _TABLE.unpack_from(image, 0x28)
    row_bytes, rows, names_row = _TABLE_SHAPE.unpack_from(image, 0x3A)
    read = [_ROW.unpack_from(image, table + i * row_bytes) for i in range(rows)]
    if not read:
        return []
    names_at = read[names_row][4]
    return [
        Section(_text(image, names_at + row[0]), row[4], row[5])
        for row in read
        if row[1] != _NO_BITS
    ]


def _text(image: bytes | bytearray, start: int) -> str:
    return bytes(image[start : image.index(b"\0", start)]).decode("utf-8", "replace")


def kernel_names(cubin: bytes) -> list[str]:
    """Return the mangled names of a cubin's kernels and device functions."""
    return [s.name.removeprefix(KERNEL) for s in sections(cubin) if s.name.startswith(KERNEL)]
