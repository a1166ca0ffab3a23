"""papermill's engine, made truthful: a dead kernel, a time-out or a stop is never "completed"."""

from __future__ import annotations

from typing import Any

from papermill.engines import NBClientEngine

FAILURE_LENGTH = 500


class TruthfulEngine(NBClientEngine):  # type: ignore[misc]  # papermill has no types
    """Marks the notebook and the cell that was running as failed, whatever ended the run.

    papermill writes status "completed" and exception None after a time-out, a killed kernel or
    Ctrl-C; only its exit status tells. A reader of the saved notebook must see it too.
    """

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
        """Run the notebook; on any exception write what happened into it, then raise it again."""
        try:
            return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)
        except BaseException as error:
            _mark_failed(nb_man, error)
            nb_man.save()
            raise


def _mark_failed(nb_man: Any, error: BaseException) -> None:
    text = f"{type(error).__name__}: {error}"[:FAILURE_LENGTH]
    nb_man.nb.metadata.papermill.update(exception=True, failure=text)
    started = [c for c in nb_man.nb.cells if c.metadata.papermill.get("start_time")]
    if started:
        started[-1].metadata.papermill.update(status=nb_man.FAILED, exception=True)
