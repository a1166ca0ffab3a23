"""``enginebook engines``: the recipes, what is installed, and what can run here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginebook.engines.recipes import Recipe

HELP = "list the engine recipes: versions, what is installed, what can run here and why not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recipe", nargs="*", help="only these recipes (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the list as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the recipes; a recipe that cannot be read is an error of the input."""
    from enginebook.engines.recipes import load_recipe, recipe_names
    from enginebook.errors import DONE
    from enginebook.store import write_json

    listed = [describe(load_recipe(name)) for name in args.recipe or recipe_names()]
    _print(listed)
    if args.json:
        write_json(args.json, {"engines": listed})
    return DONE


def describe(recipe: Recipe) -> dict[str, Any]:
    """Return what the list says of one recipe, as JSON values.

    ``installed`` is null where nothing is installed by us (an external server or program);
    ``obstacles`` holds pairs of what is missing and what to do.
    """
    from enginebook.engines.registry import adapter

    reasons = _obstacles(recipe)
    there, directory = _installed(recipe, reasons)
    return {
        "recipe": recipe.name,
        "engine": recipe.engine,
        "title": recipe.title,
        "version": recipe.version,
        "arm": recipe.arm,
        "labels": list(recipe.labels),
        "environment": recipe.environment.kind,
        "model_format": recipe.model_format,
        "features": dict(adapter(recipe.engine).features),
        "installed": there,
        "directory": directory,
        "runs_here": not reasons,
        "obstacles": [list(pair) for pair in reasons],
    }


def _obstacles(recipe: Recipe) -> list[tuple[str, str]]:
    from enginebook.lifecycle import requirements

    made = recipe.environment.kind in {"venv", "index"}
    python = getattr(recipe.environment, "python", None) if made else None
    found = requirements.obstacles(recipe.environment.requires, python=python)
    return [(o.what, o.remedy) for o in found]


def _installed(recipe: Recipe, reasons: list[tuple[str, str]]) -> tuple[bool | None, str | None]:
    """Return whether it is installed and where; a failure is added to the reasons."""
    from enginebook.errors import EnginebookError
    from enginebook.lifecycle.environments import installed

    if recipe.environment.kind == "external":
        return None, None
    if reasons and recipe.environment.kind in {"venv", "index"}:
        return False, None  # nothing is ever made where a requirement is not met
    try:
        found = installed(recipe)
    except EnginebookError as error:
        reasons.append((error.message, error.remedy))
        return False, None
    return found is not None, str(found.directory) if found else None


def _print(listed: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True, highlight=False)
    width = max((len(e["recipe"]) for e in listed), default=0) + 2
    states = {True: "installed", False: "not installed", None: "run by somebody else"}
    for e in listed:
        runs = "[green]runs here[/]" if e["runs_here"] else "[red]cannot run here[/]"
        version = "" if e["version"] == "any" else f" {e['version']}"
        title = escape(e["title"] + version)
        console.print(f"[bold]{e['recipe']:<{width}}[/]{title}: {states[e['installed']]}, {runs}")
        console.print(" " * width + f"[dim]{', '.join([e['environment'], *e['labels']])}[/]")
        for what, remedy in e["obstacles"]:
            console.print(" " * width + escape(f"{what}; remedy: {remedy}"))
