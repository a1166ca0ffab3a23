"""Folders of the model cache: whole or not there, made by one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from enginebook import paths

Say = Callable[[str], None]


def silent(_text: str) -> None:
    """Say nothing."""


def models_dir() -> Path:
    """Return the cache's folder of models."""
    return paths.cache_dir() / "models"


@contextmanager
def alone(folder: Path, say: Say = silent) -> Iterator[None]:
    """Hold the lock of a folder (a file beside it); wait while another process holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that makes {folder.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_folder(folder: Path, build: Callable[[Path], None], say: Say = silent) -> Path:
    """Return a folder, made by ``build(temporary folder)`` unless it is there.

    The folder gets its name by one rename after all its files are on disk, so one that exists is
    whole. What an interrupted attempt left is removed and made again.
    """
    if folder.is_dir():
        return folder
    with alone(folder, say):
        if folder.is_dir():
            return folder
        temporary = folder.parent / f".{folder.name}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        build(temporary)
        for path in temporary.rglob("*"):
            if path.is_file():
                _sync(path)
        temporary.rename(folder)
        _sync(folder.parent)
    return folder


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
