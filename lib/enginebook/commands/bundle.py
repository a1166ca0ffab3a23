"""``enginebook bundle ENGINE``: an engine's wheels for a host without internet, and their use."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginebook.engines.recipes import Recipe

HELP = "pack an engine for a host without internet, or install it there from the bundle"
MB = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("engine", help="recipe under params/engines, such as vllm-cpu")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where to make the bundle")
    parser.add_argument("--tar", action="store_true", help="pack it as one tar file")
    parser.add_argument("--split-mb", type=int, metavar="N", help="pack it in parts of N MB")
    parser.add_argument(
        "--install", type=Path, metavar="BUNDLE", help="install from a folder, .tar or .tar.000"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome as JSON")


def run(args: argparse.Namespace) -> int:
    """Make or install a bundle."""
    from enginebook.engines.recipes import load_recipe
    from enginebook.errors import DONE, InputError
    from enginebook.store import write_json

    if args.split_mb is not None and args.split_mb < 1:
        raise InputError(f"--split-mb {args.split_mb} is not a size", "give at least 1")
    recipe = load_recipe(args.engine)
    outcome = _install(recipe, args.install) if args.install else _make(recipe, args)
    if args.json:
        write_json(args.json, outcome)
    return DONE


def _make(recipe: Recipe, args: argparse.Namespace) -> dict[str, Any]:
    from enginebook.lifecycle import bundles

    output = args.output or Path(f"{recipe.name}-{recipe.version}")
    bundle = bundles.make(recipe, output.resolve(), on_progress=print)
    part_bytes = args.split_mb * MB if args.split_mb else None
    packed = bundles.pack(bundle.directory, part_bytes) if args.tar or part_bytes else []
    places = [str(p) for p in packed] or [str(bundle.directory)]
    print(f"made {', '.join(places)}")
    print(f"install it with: enginebook bundle {recipe.name} --install {places[0]}")
    return {"recipe": recipe.name, "version": recipe.version, "torch": bundle.torch, "at": places}


def _install(recipe: Recipe, place: Path) -> dict[str, Any]:
    from enginebook.lifecycle.environments import install

    installation = install(recipe, on_progress=print, bundle=place)
    print(f"{recipe.title} {installation.version} is at {installation.directory}")
    return installation.to_json()
