"""Starts the reference server as a process and asks it for the truth."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from enginebook.errors import LoadError

_STOP_TIMEOUT_S = 5.0
_TRUTH_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class RunningReference:
    """A reference server that answers at ``base_url``."""

    base_url: str
    pid: int

    def truth(self) -> dict[str, Any]:
        """Return ``{"cpu_s", "requests": {id: {"received", "sent": [ns, ...]}}}`` and forget it.

        Ids are the client's X-Request-Id headers; times are of the clock the client reads too.
        """
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.base_url}/truth", timeout=_TRUTH_TIMEOUT_S) as reply:
            value: dict[str, Any] = json.loads(reply.read())
        return value


@contextmanager
def reference_server(
    ttft_ms: float = 20.0, itl_ms: float = 5.0, port: int = 0
) -> Iterator[RunningReference]:
    """Serve tokens on an exact schedule from a process of its own; it ends with the block.

    Raises
    ------
    LoadError
        When the process does not come up.
    """
    argv = [sys.executable, "-m", "enginebook.load.server", "--port", str(port)]
    argv += ["--ttft-ms", str(ttft_ms), "--itl-ms", str(itl_ms)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None  # noqa: S101 - opened as pipes
    assert process.stdout is not None  # noqa: S101
    try:
        line = process.stdout.readline().strip()
        if not line:
            raise LoadError("the reference server did not start", "read its message above")
        yield RunningReference(f"http://127.0.0.1:{line}", process.pid)
    finally:
        process.stdin.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
