"""Small ELF files and fat binaries, written from the tables of the formats, not by our reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

PTX, CUBIN = 1, 2
LZ4, ZSTD = 0x2000, 0x8000


def elf(sections: Mapping[str, bytes]) -> bytes:
    """Return a 64-bit little-endian ELF file of these sections."""
    names = b"\0" + b"".join(n.encode() + b"\0" for n in (*sections, ".shstrtab"))
    body, rows, at = b"", [struct.pack("<IIQQQQIIQQ", *([0] * 10))], 64
    for name, data in {**sections, ".shstrtab": names}.items():
        pad = -len(body) % 8
        body += bytes(pad)
        offset = at + len(body)
        index = names.index(b"\0" + name.encode() + b"\0") + 1
        kind = 3 if name == ".shstrtab" else 1  # a table of strings, or bytes of a program
        rows.append(struct.pack("<IIQQQQIIQQ", index, kind, 0, 0, offset, len(data), 0, 0, 8, 0))
        body += data
    table = 64 + len(body)
    head = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head += struct.pack("<HHIQQQI", 3, 62, 1, 0, 0, table, 0)
    head += struct.pack("<HHHHHH", 64, 0, 0, 64, len(rows), len(rows) - 1)
    return head + body + b"".join(rows)


def entry(kind: int, arch: int, data: bytes, flags: int = 0, unpacked: int = 0) -> bytes:
    """Return one entry of a fat binary, its payload padded to eight bytes."""
    padded = data + bytes(-len(data) % 8)
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(padded))
    head += struct.pack("<IIHHI", len(data) if flags else 0, 0, 7, 8, arch)
    head += struct.pack("<IIQQQ", 0, 0, flags, 0, unpacked)
    assert len(head) == 64
    return head + padded


def fatbin(*entries: bytes) -> bytes:
    """Return one fat binary."""
    whole = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(whole)) + whole


def library(*fatbins: bytes, gap: int = 0) -> bytes:
    """Return a shared library that holds these fat binaries, with zeros between them."""
    return elf({".text": b"\x90" * 40, ".nv_fatbin": bytes(gap).join(fatbins), ".data": b"keep"})


def cubin(*kernels: str) -> bytes:
    """Return machine code with these (mangled) kernels."""
    return elf({f".text.{name}": name.encode() * 3 for name in kernels})


def write(path: Path, data: bytes) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def payloads(image: bytes, wanted: Sequence[bytes]) -> list[bool]:
    """Return for each text whether it is still there."""
    return [text in image for text in wanted]
