"""The miniature checkout of the pipeline's tests, which the executors' tests run too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FILE = Path(__file__).parents[1] / "unit" / "pipeline" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("pipeline_checkout", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules["pipeline_checkout"] = _MODULE
_SPEC.loader.exec_module(_MODULE)
checkout = _MODULE.checkout
