"""The small study that tests of faults break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from study_support import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Give a study in a folder of its own, and end whatever a failed test left of it."""
    made = Scene(tmp_path)
    yield made
    made.end()
