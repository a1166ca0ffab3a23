"""Fat binaries: what is read, what a GPU never loads, and what zeros leave as it was."""

from __future__ import annotations

import pytest
from fatbin_support import CUBIN, LZ4, PTX, ZSTD, cubin, elf, entry, fatbin, library
from hypothesis import given
from hypothesis import strategies as st

from enginebook.errors import InputError
from enginebook.lifecycle import trimming_kernels
from enginebook.lifecycle.trimming_elf import is_elf, kernel_names, sections
from enginebook.lifecycle.trimming_fatbin import Entry, read_entries, unused, zero


def arches(entries: list[Entry]) -> list[tuple[str, int]]:
    return sorted((e.kind, e.arch) for e in entries)


def test_sections_are_read():
    image = elf({".text": b"abcd", ".nv_fatbin": b"12345678"})
    found = {s.name: image[s.offset : s.offset + s.size] for s in sections(image)}
    assert found[".text"] == b"abcd"
    assert found[".nv_fatbin"] == b"12345678"
    assert is_elf(image)


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"MZ" + bytes(100), elf({".a": b"b"})[:-40]])
def test_what_is_no_whole_elf_has_no_sections(image):
    assert sections(image) == []
    assert read_entries(image) == []


def test_entries_of_every_fat_binary_are_read():
    first = fatbin(entry(CUBIN, 80, b"a" * 20), entry(PTX, 90, b"ptx text"))
    second = fatbin(entry(CUBIN, 90, b"b" * 9, flags=ZSTD, unpacked=900))
    image = library(first, second, gap=24)
    found = read_entries(image)
    assert [(e.kind, e.arch) for e in found] == [("cubin", 80), ("ptx", 90), ("cubin", 90)]
    assert image[found[0].start : found[0].start + 20] == b"a" * 20
    assert found[0].container == found[1].container != found[2].container
    assert (found[2].flags, found[2].unpacked) == (ZSTD, 900)


def test_relinked_device_code_is_read_too():
    image = elf({"__nv_relfatbin": fatbin(entry(CUBIN, 90, b"x"))})
    assert arches(read_entries(image)) == [("cubin", 90)]


def test_a_section_that_holds_something_else_has_none():
    assert read_entries(elf({".nv_fatbin": b"\x11" * 400})) == []


def test_an_entry_beyond_its_fat_binary_ends_it():
    broken = fatbin(entry(CUBIN, 90, b"x" * 16)[:-8])  # the payload says 16 bytes, 8 are there
    assert read_entries(library(broken)) == []


CASES = {
    "own cubin: all else goes": (
        90,
        [(CUBIN, 80), (CUBIN, 90), (CUBIN, 100), (PTX, 90)],
        [("cubin", 80), ("cubin", 100), ("ptx", 90)],
    ),
    "older of the family, the newest of them": (
        89,
        [(CUBIN, 80), (CUBIN, 86), (CUBIN, 90), (PTX, 90)],
        [("cubin", 80), ("cubin", 90), ("ptx", 90)],
    ),
    "a newer one of the family does not run": (
        80,
        [(CUBIN, 86), (PTX, 80)],
        [("cubin", 86)],
    ),
    "no cubin that runs: PTX is compiled": (
        90,
        [(CUBIN, 80), (PTX, 80)],
        [("cubin", 80)],
    ),
    "three digits": (
        103,
        [(CUBIN, 100), (CUBIN, 120), (PTX, 100)],
        [("cubin", 120), ("ptx", 100)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_unused_entries(name):
    arch, held, gone = CASES[name]
    image = library(fatbin(*(entry(kind, number, b"code" * 5) for kind, number in held)))
    assert arches(unused(read_entries(image), arch)) == gone


def test_each_fat_binary_is_judged_alone():
    image = library(
        fatbin(entry(CUBIN, 90, b"x")), fatbin(entry(CUBIN, 80, b"y"), entry(PTX, 80, b"z"))
    )
    assert arches(unused(read_entries(image), 90)) == [("cubin", 80)]


def test_unknown_kinds_stay():
    image = library(fatbin(entry(CUBIN, 90, b"x"), entry(64, 80, b"host IR")))
    assert unused(read_entries(image), 90) == []


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([PTX, CUBIN]), st.sampled_from([75, 80, 86, 90, 100])),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([80, 89, 90, 100]),
)
def test_zeros_change_payloads_alone(held, arch):
    """Size, headers and what is loaded stay; what remains is all that the GPU can use."""
    fatbins = [fatbin(*(entry(k, a, bytes([a]) * 24) for k, a in each)) for each in held]
    image = library(*fatbins)
    entries = read_entries(image)
    gone = unused(entries, arch)
    trimmed = bytearray(image)
    assert zero(trimmed, gone) == 24 * len(gone)
    assert read_entries(trimmed) == entries
    changed = {i for i in range(len(image)) if image[i] != trimmed[i]}
    assert changed == {i for e in gone for i in range(e.start, e.end)}
    for kept in set(entries) - set(gone):
        assert bytes(trimmed[kept.start : kept.end]) == bytes([kept.arch]) * 24


def test_kernels_are_named_by_the_machine_code():
    assert kernel_names(cubin("_Z3addPfS_", "_Z3mulPf")) == ["_Z3addPfS_", "_Z3mulPf"]
    assert kernel_names(b"no elf") == []


SMALL, LARGE = "_Z4attnILi64EEvPf", "_Z4attnILi256EEvPf"  # void attn<64>(float*), attn<256>


def test_cubins_of_matching_kernels_alone_are_found():
    image = library(
        fatbin(entry(CUBIN, 90, cubin(SMALL))),
        fatbin(entry(CUBIN, 90, cubin(LARGE))),
        fatbin(entry(CUBIN, 90, cubin(LARGE, SMALL))),
        fatbin(entry(PTX, 90, b"attn<256>")),
        fatbin(entry(CUBIN, 90, b"\xf0" * 40, flags=LZ4, unpacked=99)),
    )
    entries = read_entries(image)
    assert trimming_kernels.demangled([LARGE]) == ["void attn<256>(float*)"]
    assert trimming_kernels.matching(image, entries, "attn<256>") == [entries[1]]


def test_compressed_cubins_are_read_where_it_can_be_done():
    zstandard = pytest.importorskip("zstandard")
    code = cubin(LARGE)
    packed = zstandard.ZstdCompressor().compress(code)
    image = library(fatbin(entry(CUBIN, 90, packed, flags=ZSTD, unpacked=len(code))))
    (found,) = read_entries(image)
    assert trimming_kernels.payload(image, found) == code
    assert trimming_kernels.matching(image, [found], "attn<256>") == [found]


def test_without_zstandard_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    image = library(fatbin(entry(CUBIN, 90, b"\x28\xb5\x2f\xfd" + bytes(20), ZSTD, 99)))
    with pytest.raises(InputError, match="Zstandard") as raised:
        trimming_kernels.matching(image, read_entries(image), "x")
    assert "pip install zstandard" in raised.value.remedy


def test_a_broken_expression_is_told():
    with pytest.raises(InputError, match="no regular expression"):
        trimming_kernels.matching(b"", [], "(")
