"""What a report costs: time, peak memory and size of the page, for a run of any number of requests.

python benchmarks/report_scale.py [--requests N] [--chunks N] [--study FOLDER | --run RUN_FOLDER]

A finished study is copied; with --requests, the wire records of the cells that the report reads
are replaced by synthetic ones, so many requests in all. Then the report's stage (the notebook in a
kernel of its own) and the rendering of the page run as in a batch run, each as a process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA
from enginebook.pipeline.plan import Plan
from enginebook.report.raw import CHUNKS, REQUESTS, heaviest

STORED = Path(__file__).parents[1] / "tests" / "data" / "study"
MS = 1_000_000
RENDER = (
    "import sys; from pathlib import Path; from enginebook.report.exporter import render; "
    "render(Path(sys.argv[1]), Path(sys.argv[2]), title='What a report costs')"
)


@dataclass(frozen=True)
class Place:
    """A copy of a study: its plan, its checkout (None: this one) and its outputs folder."""

    plan: Path
    root: Path | None
    outputs: Path


@dataclass(frozen=True)
class Cost:
    """What one process took, with all that it started and waited for.

    On a busy machine only ``cpu_s`` can be compared; ``seconds`` holds the waiting for others.
    """

    seconds: float
    cpu_s: float
    peak_gib: float


def copied(arguments: argparse.Namespace, target: Path) -> Place:
    """Return a copy of the study; raw records are linked, for only the wanted ones change."""
    if arguments.run:
        run = arguments.run.resolve()
        outputs, plan, root = run.parent.parent, run / "plan.json", None
    else:
        outputs, plan, root = STORED / "outputs", STORED / "plan.json", STORED
    shutil.copytree(outputs / "stages", target / "stages")
    if (outputs / "model").is_dir():
        shutil.copytree(outputs / "model", target / "model")
    (target / "cells").mkdir()
    for cell in (outputs / "cells").iterdir():
        (target / "cells" / cell.name).symlink_to(cell.resolve())
    if arguments.run:
        shutil.copytree(run, target / "runs" / run.name, symlinks=True)
    return Place(plan, root, target)


def inflate(place: Place, requests: int, chunks: int) -> list[str]:
    """Replace the records of the heaviest cells; return the cells' names."""
    plan = Plan.read(place.plan)
    cells = pl.read_parquet(place.outputs / plan.stage("compare").folder / "data" / "cells.parquet")
    names = heaviest(cells)["cell"].unique(maintain_order=True).to_list()
    for number, name in enumerate(names):
        folder = place.outputs / "cells" / name
        real = folder.resolve()
        folder.unlink()
        shutil.copytree(real, folder)
        write_records(folder, requests // len(names), chunks, seed=number)
    return names


def write_records(folder: Path, count: int, chunks: int, seed: int) -> None:
    """Write ``count`` requests of ``chunks`` chunks each, one token a chunk, with their texts."""
    rng = np.random.default_rng(seed)
    starts = np.arange(count, dtype=np.int64) * MS
    gaps = rng.exponential(5 * MS, size=(count, chunks)).astype(np.int64)
    stamps = starts[:, None] + 20 * MS + np.cumsum(gaps, axis=1)
    rows = count * chunks
    kinds = pl.Series(["content"], dtype=CHUNK_SCHEMA["kind"]).gather(np.zeros(rows, np.uint32))
    begins = np.arange(rows, dtype=np.int64) * 180
    stream = {
        "request": np.repeat(np.arange(count, dtype=np.int32), chunks),
        "seq": np.tile(np.arange(chunks, dtype=np.int32), count),
        "recv_ns": stamps.ravel(),
        "kind": kinds,
        "tokens": np.ones(rows, np.int32),
        "byte_start": begins,
        "byte_end": begins + 180,
        "text": pl.Series([" word", " of", " text", "."]).gather(
            rng.integers(4, size=rows).astype(np.uint32)
        ),
    }
    pl.DataFrame(stream, schema=CHUNK_SCHEMA).write_parquet(folder / CHUNKS)
    times = {
        "request": np.arange(count, dtype=np.int32),
        **dict.fromkeys(("scheduled_ns", "connect_start_ns", "connected_ns", "sent_ns"), starts),
        **dict.fromkeys(("first_byte_ns", "first_token_ns", "first_output_ns"), stamps[:, 0]),
        **dict.fromkeys(("last_token_ns", "end_ns"), stamps[:, -1]),
    }
    fixed = {"phase": "measured", "status": "completed", "streamed": True, "chunks": chunks}
    counts = {"prompt_tokens": 64, "completion_tokens": chunks, "output_asked": chunks}
    frame = pl.DataFrame(times).with_columns(**{k: pl.lit(v) for k, v in (fixed | counts).items()})
    lacking = {n: pl.lit(None) for n in REQUEST_SCHEMA if n not in frame.columns}
    filled = frame.with_columns(**lacking)
    typed = filled.select(pl.col(n).cast(t) for n, t in REQUEST_SCHEMA.items())
    typed.write_parquet(folder / REQUESTS)


def cost(command: list[str], environment: dict[str, str]) -> Cost:
    """Run a command to its end and return what it took."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:3]} failed with status {process.returncode}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20)


def measure(place: Place) -> tuple[Cost, Cost, Path]:
    """Return the cost of the report's stage and of the page, and the page."""
    environment = dict(os.environ)
    environment["ENGINEBOOK_OUTPUTS"] = str(place.outputs)
    if place.root is not None:
        # the stored study keeps its recipes; the notebooks are this checkout's
        shutil.copytree(place.root / "params", place.outputs / "root" / "params")
        here = Path(__file__).parents[1]
        shutil.copytree(here / "notebooks", place.outputs / "root" / "notebooks")
        environment["ENGINEBOOK_ROOT"] = str(place.outputs / "root")
    stage = Plan.read(place.plan).stage("report")
    command = [sys.executable, "-m", "enginebook.pipeline.stage", str(place.plan)]
    notebook = cost([*command, str(place.outputs), stage.name], environment)
    html = place.outputs / "report.html"
    source = place.outputs / stage.folder / "notebook.ipynb"
    page = cost([sys.executable, "-c", RENDER, str(source), str(html)], environment)
    return notebook, page, html


def main() -> int:
    """Measure once and print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=0, help="0 leaves the study as it is")
    parser.add_argument("--chunks", type=int, default=20, help="chunks of a synthetic request")
    parser.add_argument("--run", type=Path, help="folder of a finished run (default: stored study)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="report-scale-") as folder:
        place = copied(arguments, Path(folder))
        names = inflate(place, arguments.requests, arguments.chunks) if arguments.requests else []
        notebook, page, html = measure(place)
        size = html.stat().st_size / 1e6
    print(
        f"{arguments.requests:,} synthetic requests in {len(names)} cells: "
        f"notebook {notebook.seconds:.1f} s ({notebook.cpu_s:.1f} s of CPU), "
        f"page {page.seconds:.1f} s ({page.cpu_s:.1f} s of CPU); "
        f"peak {max(notebook.peak_gib, page.peak_gib):.2f} GiB; {size:.2f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
