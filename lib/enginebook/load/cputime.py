"""Who used the processors: an engine's processes, our own, and everybody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import psutil

Pids = Callable[[], Iterable[int]] | Iterable[int]


class TreeTime:
    """CPU seconds of a changing set of processes; time of those that ended is kept.

    Parameters
    ----------
    pids
        The processes, or a function that returns those of the moment.
    """

    def __init__(self, pids: Pids) -> None:
        self._pids = pids
        self._known: dict[int, tuple[psutil.Process, float, float]] = {}
        self.rss_bytes = 0

    def refresh(self) -> None:
        """Look for processes that were not there before."""
        pids = self._pids() if callable(self._pids) else self._pids
        for pid in pids:
            if pid not in self._known:
                try:
                    process = psutil.Process(pid)
                    start_s = _cpu_s(process)
                except psutil.Error:
                    continue
                self._known[pid] = (process, start_s, start_s)

    def seconds(self) -> float:
        """Return the CPU seconds used since each process was first seen."""
        self.rss_bytes = 0
        for pid, (process, start_s, last_s) in list(self._known.items()):
            try:
                now_s = _cpu_s(process)
                self.rss_bytes += process.memory_info().rss
            except psutil.Error:
                now_s = last_s
            self._known[pid] = (process, start_s, now_s)
        return sum(last - start for _, start, last in self._known.values())


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def own_tree() -> list[int]:
    """Return this process and all that it started, the load generator's workers among them."""
    me = psutil.Process()
    return [me.pid, *(p.pid for p in me.children(recursive=True))]


def machine_seconds() -> tuple[float, float]:
    """Return (busy, total) CPU seconds of the machine since it started.

    Time stolen by a hypervisor counts as busy: it was not there for us.
    """
    t = psutil.cpu_times()
    idle = t.idle + getattr(t, "iowait", 0.0)
    # guest time is already inside user time
    total = sum(t) - getattr(t, "guest", 0.0) - getattr(t, "guest_nice", 0.0)
    return float(total - idle), float(total)
