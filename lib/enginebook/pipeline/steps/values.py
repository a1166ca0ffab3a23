"""Nested data as JSON values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enginebook.store import canonical_json


def json_values(value: Any) -> Any:
    """Return nested data with paths as text, ready for JSON."""
    if isinstance(value, dict):
        return {str(k): json_values(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    canonical_json(value)  # refuses what JSON cannot hold
    return value
