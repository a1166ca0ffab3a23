"""Stage launch: start an engine cold, see it ready, ask what it holds in memory, stop it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from enginebook.lifecycle.memory_parts import checked, with_context
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.answers import answered, greedy_texts, has_real_weights
from enginebook.pipeline.steps.memory import context_of
from enginebook.pipeline.steps.probes import ask_running
from enginebook.pipeline.steps.service import measure_service
from enginebook.pipeline.steps.serving import server_facts, serving
from enginebook.pipeline.steps.values import json_values


def launch_engine(book: Book) -> dict[str, Any]:
    """Start and stop the notebook's engine once; return and store what was seen.

    Returns
    -------
    dict
        ``server`` (see `server_facts`), ``memory`` (bytes by component with source), ``greedy``
        texts, questions ``answered``, ``probes`` of the running server, ``stop`` (seconds, killed),
        ``starts`` and ``swaps`` where the study wants them.
    """
    return dict(book.once("launch.json", lambda: _measure(book)))


def _measure(book: Book) -> dict[str, Any]:
    progress = Progress(f"start {book.engine.name}")
    with serving(book, progress) as server:
        facts = server_facts(server)
        greedy = greedy_texts(server.base_url, server.model_id)
        real = has_real_weights(book, book.engine)
        questions = answered(server.base_url, server.model_id) if real else []
        memory = server.memory()
        probes = ask_running(book, server)
        stop = server.stop()
    memory = checked(with_context(memory, context_of(book, facts["env"])))
    service = measure_service(book)
    progress.update(label=f"{book.engine.name} was started and stopped")
    return {
        **service,
        "engine": book.engine.name,
        "server": facts,
        "memory": json_values([asdict(part) for part in memory]),
        "greedy": greedy,
        "answered": questions,
        "probes": probes,
        "stop": json_values(asdict(stop)),
    }
