"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings


def pytest_configure() -> None:
    # A shell that starts a program with `&` makes it ignore SIGINT, and its children with it;
    # tests of Ctrl-C would then wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A slow example on a busy machine is no failure: nothing here promises a time.
    settings.register_profile("enginebook", deadline=None)
    settings.load_profile("enginebook")
