"""Stage launch: start an engine cold, see it ready, ask what it holds in memory, stop it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from enginebook.lifecycle.server import Server, serve
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.greedy import greedy_texts
from enginebook.pipeline.steps.install import json_values

READY_TIMEOUT_S = 1800.0


def launch_engine(book: Book) -> dict[str, Any]:
    """Start and stop the notebook's engine once; return and store what was seen.

    Returns
    -------
    dict
        ``server`` (see `server_facts`), ``memory`` (bytes by component with source), ``greedy``
        texts, ``stop`` (seconds, killed).
    """
    return dict(book.once("launch.json", lambda: _measure(book)))


def _measure(book: Book) -> dict[str, Any]:
    progress = Progress(f"start {book.engine.name}")
    with serve(
        book.engine,
        book.study.model,
        directory=book.folder,
        port=book.study.port,
        timeout_s=READY_TIMEOUT_S,
        on_event=lambda text: progress.update(label=f"{book.engine.name}: {text}"),
    ) as server:
        facts = server_facts(server)
        greedy = greedy_texts(server.base_url, server.model_id)
        memory = [asdict(part) for part in server.memory()]
        stop = server.stop()
    progress.update(label=f"{book.engine.name} was started and stopped")
    return {
        "engine": book.engine.name,
        "server": facts,
        "memory": json_values(memory),
        "greedy": greedy,
        "stop": json_values(asdict(stop)),
    }


def server_facts(server: Server) -> dict[str, Any]:
    """Return what identifies a running server and how it came up, as JSON values."""
    return {
        "version": server.version,
        "model_id": server.model_id,
        "argv": list(server.command.argv),
        "env": dict(server.command.env),
        "options": json_values(dict(server.options)),
        "ready_s": server.ready_s,
        "first_token_s": server.first_token_s,
        "phases": json_values([asdict(phase) for phase in server.phases]),
        "log": server.log.name,
    }
