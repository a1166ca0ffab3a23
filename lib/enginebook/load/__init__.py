"""The load generator: prompts, arrivals, client, wire records.

Names are loaded when they are first used, so that the worker processes and the reference server
start without what only the caller needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginebook.load.calibration import calibrate
    from enginebook.load.lengths import Lengths
    from enginebook.load.precision import Precision
    from enginebook.load.records import Records, read_records, write_records
    from enginebook.load.reference import reference_server
    from enginebook.load.run import LoadProgress, run_load, run_load_async
    from enginebook.load.samples import Sampler
    from enginebook.load.saturation import Slo, find_capacity
    from enginebook.load.sweeping import sweep
    from enginebook.load.target import Target
    from enginebook.load.workload import Workload

_PLACES = {
    "Lengths": "lengths",
    "LoadProgress": "run",
    "Precision": "precision",
    "Records": "records",
    "Sampler": "samples",
    "Slo": "saturation",
    "Target": "target",
    "Workload": "workload",
    "calibrate": "calibration",
    "find_capacity": "saturation",
    "read_records": "records",
    "reference_server": "reference",
    "run_load": "run",
    "run_load_async": "run",
    "sweep": "sweeping",
    "write_records": "records",
}

__all__ = [
    "Lengths",
    "LoadProgress",
    "Precision",
    "Records",
    "Sampler",
    "Slo",
    "Target",
    "Workload",
    "calibrate",
    "find_capacity",
    "read_records",
    "reference_server",
    "run_load",
    "run_load_async",
    "sweep",
    "write_records",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
