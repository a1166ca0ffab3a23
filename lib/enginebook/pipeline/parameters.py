"""What a notebook declares as parameters, read from its source; unknown names are refused."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from enginebook.errors import InputError

TAG = "parameters"


def declared_parameters(notebook: Path) -> dict[str, str]:
    """Return each declared parameter with its annotation, in order.

    Raises
    ------
    InputError
        When the notebook does not have exactly one cell tagged ``parameters``.
    """
    cells = nbformat.read(notebook, as_version=4).cells
    tagged = [c for c in cells if TAG in c.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise InputError(
            f"{notebook}: {len(tagged)} cells are tagged {TAG!r}; exactly one is wanted"
        )
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in ast.parse(tagged[0].source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def check_parameters(notebook: Path, given: Mapping[str, Any]) -> None:
    """Refuse names that the notebook does not declare, and values that papermill would bend.

    papermill writes parameters as source text: tuples come out as strings, and numbers that are
    not finite make the notebook invalid JSON. Both are refused before any GPU time.
    """
    unknown = sorted(set(given) - set(declared_parameters(notebook)))
    if unknown:
        raise InputError(
            f"{notebook.name} does not declare the parameter {', '.join(unknown)}",
            f"declared: {', '.join(declared_parameters(notebook))}",
        )
    for name, value in given.items():
        check_json_value(value, f"{notebook.name}: parameter {name}")


def check_json_value(value: Any, where: str) -> None:
    """Raise InputError unless a value survives JSON unchanged."""
    try:
        same = json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: cannot be passed to a notebook ({error})") from None
    if not same:
        raise InputError(f"{where}: only JSON values pass to a notebook unchanged")
