"""One run of a study at a time on one outputs folder; the kernel drops the lock with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from enginebook.errors import InputError


@contextlib.contextmanager
def only_run(outputs: Path) -> Iterator[None]:
    """Hold the outputs folder for this process.

    Raises
    ------
    InputError
        When another run holds it; names its process.
    """
    path = outputs / ".run.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"another run (process {holder}) works in {outputs}",
                "wait for it, stop it with Ctrl-C, or give this one another folder with --output",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
