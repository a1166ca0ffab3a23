"""Stage install: an engine into its own environment, and the model in the form it reads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from enginebook.lifecycle.environments import install
from enginebook.lifecycle.models import prepare_model
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.probes import ask_installed
from enginebook.pipeline.steps.values import json_values


def install_engine(book: Book) -> dict[str, Any]:
    """Install the notebook's engine and prepare its model; return and store the facts.

    Returns
    -------
    dict
        ``installation`` (seconds, bytes, packages, torch source, versions), ``model`` (format,
        path, sha256) and ``engine``.
    """
    return dict(book.once("install.json", lambda: _measure(book)))


def _measure(book: Book) -> dict[str, Any]:
    progress = Progress(f"install {book.engine.name}")
    recipe = book.recipe
    installation = install(recipe, on_progress=lambda text: progress.update(label=text))
    model = prepare_model(
        book.model, recipe.model_format, on_progress=lambda text: progress.update(label=text)
    )
    facts = json_values(asdict(installation))
    progress.update(label=f"{book.engine.name} is installed; asking it what it offers")
    probes = ask_installed(book, facts)
    progress.update(label=f"{book.engine.name} is installed")
    return {
        "engine": book.engine.name,
        "title": recipe.title,
        "installation": facts,
        "probes": probes,
        "model": json_values(asdict(model)),
    }
