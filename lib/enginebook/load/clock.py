"""One clock for everything, and an alarm that rings on it to within tens of microseconds.

All stamps of the package are nanoseconds of ``CLOCK_MONOTONIC``: one clock for every process of a
host, untouched by time synchronisation. uvloop's own timers have a resolution of a millisecond,
which is as long as some engines need for a token; a Linux timerfd has none of that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

now_ns = time.monotonic_ns

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_TIMER_SLACK_OPTION = 29  # PR_SET_TIMERSLACK
_TIMER_SLACK_NS = 5_000


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "timerfd_create") else None


def sharpen_timers() -> None:
    """Ask the kernel to wake this thread within 5 us of a deadline instead of the usual 50."""
    libc = _libc()
    if libc is not None:
        libc.prctl(_TIMER_SLACK_OPTION, ctypes.c_ulong(_TIMER_SLACK_NS), 0, 0, 0)


class Alarm:
    """Calls ``ring()`` on the event loop at an absolute time; one deadline at a time.

    Parameters
    ----------
    loop
        The running event loop.
    ring
        Called without arguments once the deadline has passed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], object]) -> None:
        self._loop = loop
        self.ring = ring
        self._libc = _libc()
        self._timer: asyncio.TimerHandle | None = None
        self._fd = -1
        if self._libc is not None:
            flags = os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, flags)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._expired)

    def set(self, deadline_ns: int) -> None:
        """Ring at ``deadline_ns``; a time in the past rings at once. Replaces an earlier call."""
        if self._fd >= 0:
            when = _Itimerspec(
                _Timespec(0, 0),
                _Timespec(*divmod(max(1, deadline_ns), NS_PER_S)),
            )
            assert self._libc is not None  # noqa: S101 - a descriptor exists only with libc
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(when), None)
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, deadline_ns - now_ns()) / NS_PER_S
        self._timer = self._loop.call_later(delay_s, self.ring)

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # replaced by a later deadline between the wake-up and this call
        self.ring()

    def close(self) -> None:
        """Give the timer back; it never rings again."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
