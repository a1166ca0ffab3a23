"""What all tests share."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell that starts a program with `&` makes it ignore SIGINT, and its children with it;
    # tests of Ctrl-C would then wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
