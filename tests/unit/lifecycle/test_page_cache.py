"""Pages of files that the kernel is asked to forget."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from enginebook.lifecycle import page_cache

PAGES = 64


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"x" * (PAGES * mmap.PAGESIZE - 1))
    path.read_bytes()
    return path


def resident(path: Path) -> int | None:
    with path.open("rb") as file:
        return page_cache.resident_pages(file.fileno(), PAGES)


def test_a_file_that_was_read_is_in_memory_until_it_is_dropped(written: Path) -> None:
    assert resident(written) == PAGES
    done = page_cache.drop([written])
    assert (done.files, done.pages, done.verified) == (1, PAGES, True)
    if done.kept == PAGES:
        pytest.skip("this file system lives in memory")
    assert resident(written) == done.kept < PAGES / 2
    assert f"{done.kept / PAGES:.1%} of the pages stayed" in str(done)


def test_pages_that_a_process_has_mapped_stay(written: Path) -> None:
    with written.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert sum(held[i] for i in range(0, len(held), mmap.PAGESIZE)) == PAGES * ord("x")
        assert page_cache.drop([written]).kept == PAGES


def test_what_the_kernel_does_not_tell_is_not_claimed(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "resident_pages", lambda *_: None)
    done = page_cache.drop([written])
    assert not done.verified
    assert done.kept == PAGES
    assert str(done).endswith("unverified")


def test_empty_files_and_no_files(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert page_cache.drop([tmp_path / "empty"]).pages == 0
    assert page_cache.drop([]) == page_cache.Dropped(0, 0, 0, verified=True)
