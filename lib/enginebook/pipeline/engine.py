"""papermill's engine, made truthful: a dead kernel, a time-out or a stop is never "completed"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from papermill.engines import NBClientEngine

from enginebook.masking import Mask, environment_mask, masked

FAILURE_LENGTH = 500


class TruthfulEngine(NBClientEngine):  # type: ignore[misc]  # papermill has no types
    """Marks the notebook and the cell that was running as failed, whatever ended the run.

    papermill writes status "completed" and exception None after a time-out, a killed kernel or
    Ctrl-C; only its exit status tells. A reader of the saved notebook must see it too. What a
    reader must not see are secrets of the environment that a cell printed.
    """

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
        """Run the notebook; on any exception write what happened into it, then raise it again."""
        nb_man.save = _saving_masked(nb_man, nb_man.save)
        try:
            return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)
        except BaseException as error:
            _mark_failed(nb_man, error)
            nb_man.save()
            raise


def _saving_masked(nb_man: Any, save: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that hides secrets in the cells' outputs and saves the notebook."""
    mask = environment_mask()

    def saved(**kwargs: Any) -> Any:
        if mask:
            for cell in nb_man.nb.cells:
                cell.source = mask.text(cell.source)
                if "outputs" in cell:
                    cell.outputs = _masked(cell.outputs, mask)
        return save(**kwargs)

    return saved


def _masked(value: Any, mask: Mask) -> Any:
    """Return notebook JSON with secrets hidden in all its texts; types are kept."""
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, list):
        value[:] = [_masked(v, mask) for v in value]
    elif isinstance(value, dict):
        for key in value:
            value[key] = _masked(value[key], mask)
    return value


def _mark_failed(nb_man: Any, error: BaseException) -> None:
    text = masked(f"{type(error).__name__}: {error}")[:FAILURE_LENGTH]
    nb_man.nb.metadata.papermill.update(exception=True, failure=text)
    started = [c for c in nb_man.nb.cells if c.metadata.papermill.get("start_time")]
    if started:
        started[-1].metadata.papermill.update(status=nb_man.FAILED, exception=True)
