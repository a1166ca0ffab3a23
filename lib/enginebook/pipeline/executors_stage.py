"""What a stage does about the machine it finds itself on, before and while its notebook runs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from enginebook.errors import EnginebookError
from enginebook.pipeline.executors_claims import own_part
from enginebook.pipeline.executors_node import SHARE_VARIABLE, require_class
from enginebook.pipeline.executors_topology import bus_ids, read_host
from enginebook.pipeline.plan import Plan, Stage
from enginebook.store import read_json
from enginebook.study import Study

SIGN_EVERY_S = 15.0


@contextlib.contextmanager
def own_machine(plan: Plan, stage: Stage, outputs: Path) -> Iterator[None]:
    """Check that this is the right kind of machine, and keep to an own part where it is shared.

    Raises
    ------
    EnginebookError
        When the node is of another class than the study's, or no GPU becomes free.
    """
    if stage.exclusive:
        require_class()
    sharing = SHARE_VARIABLE in os.environ and "engine" in stage.parameters
    if not sharing:
        yield
        return
    from enginebook.pipeline.executors_resources import gpus_of  # noqa: PLC0415 - takes a second

    engine = Study.model_validate(plan.study).engine(str(stage.parameters["engine"]))
    host = read_host(bus_ids(), sorted(os.sched_getaffinity(0)))
    with own_part(outputs, host, gpus_of(engine)):
        yield


def refuse_known_failure(stage: Stage, outputs: Path) -> None:
    """Refuse to take a stage again that failed by itself; one that was killed left no failure.

    A retry is for nodes that die. An engine that cannot start fails as well on the next node, and
    costs its time there.

    Raises
    ------
    EnginebookError
        Repeating the failure of the attempt before.
    """
    path = outputs / stage.folder / "failure.json"
    if path.is_file():
        raise EnginebookError(
            f"{stage.name} failed in the attempt before and is not taken again: "
            f"{str(read_json(path).get('error', ''))[:500]}",
            f"look into {path.parent}, then start the run again",
        )


@contextlib.contextmanager
def signs_of_life(file: Path, every_s: float = SIGN_EVERY_S) -> Iterator[None]:
    """Touch a file now and then, so that other machines see that this process lives."""
    over = threading.Event()

    def stir() -> None:
        while not over.wait(every_s):
            with contextlib.suppress(OSError):
                os.utime(file)

    thread = threading.Thread(target=stir, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
