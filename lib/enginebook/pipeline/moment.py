"""When something began: the wall clock says when, the monotonic clock how long since."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Moment:
    """Now, on two clocks. A host's wall clock may be set meanwhile; spans must not feel it.

    Attributes
    ----------
    unix_s
        Seconds since 1970, for people and records.
    """

    unix_s: float = field(default_factory=time.time)
    _monotonic_s: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Return the seconds that have passed since."""
        return time.monotonic() - self._monotonic_s
