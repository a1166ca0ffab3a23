"""Memory that processes really hold: proportional set size, so that shared pages count once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

import psutil

PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


def pss_bytes(pids: Iterable[int]) -> tuple[int, str] | None:
    """Return the bytes of memory held by processes together, and how it was read.

    Linux tells the proportional set size (shared pages divided by their users); elsewhere the sum
    of resident sizes is returned, which counts shared pages several times. None when no process
    could be read.
    """
    wanted = list(pids)
    pss = [size for size in map(_pss, wanted) if size is not None]
    if pss:
        return sum(pss), f"Pss of {len(pss)} processes (/proc/PID/smaps_rollup)"
    rss = [size for size in map(_rss, wanted) if size is not None]
    return (sum(rss), f"resident size of {len(rss)} processes") if rss else None


def _pss(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        found = PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii"))
        return int(found[1]) * 1024 if found else None
    return None


def _rss(pid: int) -> int | None:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return None
