"""Errors that carry their exit status, and say what was wrong, where, and what to do next."""

from __future__ import annotations

from enginebook.masking import masked
from enginebook.plain import neutral

DONE = 0
MEASURED_FAILURE = 1
BAD_INPUT = 2
INTERRUPTED = 130


class EnginebookError(Exception):
    """Anything that Enginebook reports to its user without a traceback.

    Messages quote logs, answers and file names: escapes of terminals and secrets are taken out.

    Parameters
    ----------
    message
        What was wrong and where.
    remedy
        What the user can do next; printed on a line of its own.
    """

    exit_status = MEASURED_FAILURE

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = masked(neutral(message))
        self.remedy = masked(neutral(remedy))
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class InputError(EnginebookError):
    """Wrong arguments, parameters or environment; nothing was started."""

    exit_status = BAD_INPUT


class InstallError(EnginebookError):
    """An engine's environment or a model could not be made."""


class EngineError(EnginebookError):
    """An engine did not start, did not answer, or died."""


class LoadError(EnginebookError):
    """The load generator itself could not do its work (not: a request failed)."""
