"""Clients that keep asking whatever happens to the server: how long they get no answer."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import orjson

from enginebook.lifecycle.readiness import Address

TIMEOUT_S = 30.0
PAUSE_S = 0.01
# Clients without a pause after a refusal would take the CPU that the engine needs to start; this
# is how finely an outage is seen.
RETRY_S = 0.1


@dataclass
class Clients:
    """N clients in a closed loop of one-token requests.

    Attributes
    ----------
    model_id
        Changed by the owner when the server's model changes.
    good, failed
        Moments of the monotonic clock at which an answer came, or a request failed.
    """

    address: Address
    model_id: str
    count: int
    good: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Ask while the block runs."""
        threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(TIMEOUT_S)

    def _ask_on(self) -> None:
        while not self._over.is_set():
            answered = one_token(self.address, self.model_id)
            (self.good if answered else self.failed).append(time.monotonic())
            self._over.wait(PAUSE_S if answered else RETRY_S)

    def answered_since(self, moment: float, timeout_s: float) -> bool:
        """Wait until a good answer came after a moment; return whether one did in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if any(t > moment for t in list(self.good)):
                return True
            time.sleep(0.02)
        return False


def outage_s(good: Sequence[float], since: float, until: float) -> float | None:
    """Return the longest time without a good answer that touches [since, until].

    A server that is asked to stop still answers what it has begun, so that the last good answer
    comes after the moment of asking. None when nothing was answered before or after.
    """
    times = sorted(good)
    if not times or times[0] > since or times[-1] < until:
        return None
    gaps = [b - a for a, b in pairwise(times) if b >= since and a <= until]
    return max(gaps, default=None)


def one_token(address: Address, model_id: str) -> bool:
    """Return whether the server answers a request for one token with a choice."""
    asked = {"model": model_id, "prompt": "a", "max_tokens": 1, "temperature": 0}
    try:
        status, body = address.post("/v1/completions", asked, TIMEOUT_S)
        answer = orjson.loads(body)
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return status == http.client.OK and isinstance(answer, dict) and bool(answer.get("choices"))
