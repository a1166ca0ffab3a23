"""The load generator: prompts, arrivals, client, wire records."""

from enginebook.load.lengths import Lengths
from enginebook.load.records import Records, read_records, write_records
from enginebook.load.run import LoadProgress, run_load, run_load_async
from enginebook.load.target import Target
from enginebook.load.workload import Workload

__all__ = [
    "Lengths",
    "LoadProgress",
    "Records",
    "Target",
    "Workload",
    "read_records",
    "run_load",
    "run_load_async",
    "write_records",
]
