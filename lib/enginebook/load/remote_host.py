"""A worker on another host, as the coordinator of a load sees it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from enginebook.errors import LoadError
from enginebook.load.clock import now_ns
from enginebook.load.clocks import Clock, Offset, Stamps, clock_of, offset_of
from enginebook.load.remote_wire import Channel, Message

EXCHANGES = 100
_SEND_TIMEOUT_S = 120.0


class RemoteHost:
    """One host: its connection, its clock, its part of the load, and whether it is lost.

    A host that does not answer within the connection's time limit counts as lost.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.name = channel.peer
        self.about: dict[str, Any] = {}
        self.size = 0
        self.numbers = range(0)
        self.state = "new"
        self.progress: list[int] = [0] * 6
        self.lost = ""
        self._before: Offset | None = None
        self._after: Offset | None = None
        self._between: list[Stamps] = []

    # -- its clock

    def measure_clock(self) -> None:
        """Measure the offset before a phase."""
        self._before, self._between = self._offset(), []

    def measure_clock_after(self) -> None:
        """Measure the offset after the measured phase."""
        self._after = self._offset()

    def _offset(self) -> Offset:
        found = [self._ask({"order": "ping"})[1] for _ in range(EXCHANGES)]
        return offset_of(found)

    @property
    def clock(self) -> Clock:
        """Return the host's clock over the run."""
        assert self._before is not None  # noqa: S101 - measured before any phase
        return clock_of(self._before, self._after, self._between)

    def _ask(
        self, values: Mapping[str, Any], blobs: tuple[bytes, ...] = ()
    ) -> tuple[Message, Stamps]:
        a0 = now_ns()
        answer = self._channel.ask(values, blobs)
        if "error" in answer.values:
            raise LoadError(f"{self.name}: {answer.values['error']}")
        stamps = Stamps(a0, answer.values["b1"], answer.values["b2"], answer.at_ns)
        return answer, stamps

    # -- its part

    def offer(self, streams: int) -> None:
        """Ask who it is and how many processes it gives to so many streams."""
        self.about = self._ask({"order": "offer", "streams": streams})[0].values
        self.size = int(self.about["processes"])

    def give(self, job: Mapping[str, Any], files: Mapping[str, bytes], sent: Any) -> None:
        """Give it its part and the files for it."""
        numbers = self.numbers
        order = {"order": "job", "job": job, "first": numbers.start, "size": len(numbers)}
        self._channel.sock.settimeout(_SEND_TIMEOUT_S)
        self._ask({**order, "files": list(files), "sent": sent}, tuple(files.values()))

    def go(self, phase: str, at_ns: int | None) -> None:
        """Begin a phase at a time of our clock, or decode."""
        at = self.clock.theirs(at_ns) if at_ns is not None else None
        self._ask({"order": "go", "phase": phase, "at_ns": at})
        self.state = "running"

    def look(self) -> None:
        """Learn how far it is; each look is an exchange that checks its clock, too."""
        answer, stamps = self._ask({"order": "look"})
        self._between.append(stamps)
        self.state = str(answer.values["state"])
        self.progress = list(answer.values["progress"])

    def finish(self) -> None:
        """Have it begin nothing new."""
        self._ask({"order": "finish"})

    def fetch(self) -> tuple[tuple[bytes, ...], list[dict[str, Any]]]:
        """Return the files and the reports of its processes."""
        answer = self._ask({"order": "fetch"})[0]
        return answer.blobs, list(answer.values["reports"])

    def lose(self, reason: str) -> None:
        """Give it up; its processes end when the connection closes."""
        self.lost = reason
        self._channel.close()

    def close(self) -> None:
        """Say goodbye."""
        if not self.lost:
            with suppress(OSError):
                self._channel.send({"order": "bye"})
            self._channel.close()

    def report(self) -> dict[str, Any]:
        """Return what is recorded of it."""
        known = {k: self.about.get(k) for k in ("pid", "machine", "cores")}
        return {
            "name": f"{self.about.get('name')} at {self.name}",
            **known,
            "processes": self.size,
            "first_worker": self.numbers.start,
            "clock": self.clock.report() if self._before is not None else None,
            "lost": self.lost or None,
        }
