"""The notebook's engine as a running server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from enginebook.lifecycle.server import Server, serve
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.values import json_values
from enginebook.pipeline.steps.warm import warm_for

READY_TIMEOUT_S = 1800.0


@contextlib.contextmanager
def serving(book: Book, progress: Progress, *, keep_warm: float | str = 0) -> Iterator[Server]:
    """Start the notebook's engine, yield it when it answers, and end it with the block.

    With ``keep_warm`` it stays for so long, and the same notebook's next call takes it over.
    """
    seconds, mark = warm_for(book, keep_warm)
    with serve(
        book.engine,
        book.model,
        directory=book.folder,
        port=book.study.port,
        timeout_s=READY_TIMEOUT_S,
        keep_warm_s=seconds,
        env=mark,
        on_event=lambda text: progress.update(label=f"{book.engine.name}: {text}"),
    ) as server:
        yield server


def server_facts(server: Server) -> dict[str, Any]:
    """Return what identifies a running server and how it came up, as JSON values."""
    return {
        "version": server.version,
        "model_id": server.model_id,
        "argv": list(server.command.argv),
        "env": dict(server.command.env),
        "options": json_values(dict(server.options)),
        "settled": json_values(server.settled()),
        "ready_s": server.ready_s,
        "first_token_s": server.first_token_s,
        "phases": json_values([asdict(phase) for phase in server.phases]),
        "log": server.log.name,
    }
