"""``enginebook bundle ENGINE``: engines for a host without internet, and their use there."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginebook.engines.recipes import Recipe
    from enginebook.lifecycle.bundles_site import Request, Source

HELP = "pack engines for a host without internet, or install one there from the bundle"
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "engine", nargs="+", help="recipes under params/engines, or 'workbook' for Enginebook's own"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="where to make the bundle")
    parser.add_argument("--part-size", metavar="SIZE", help="largest file of it, such as 56MiB")
    parser.add_argument(
        "--install", type=Path, metavar="BUNDLE", help="install from a folder, .tar or .tar.000"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome as JSON")
    wheels = parser.add_argument_group("a bundle of wheels (the default, for one engine)")
    wheels.add_argument("--tar", action="store_true", help="pack it as one tar file")
    site = parser.add_argument_group("a bundle of package folders, for a host that has PyTorch")
    site.add_argument(
        "--have", type=Path, metavar="FILE", help="pip list of that host: its packages stay out"
    )
    site.add_argument("--arch", metavar="SM", help="keep the code of one GPU only, such as sm_90")
    site.add_argument(
        "--without", action="append", default=[], metavar="GLOB", help="leave out such files, too"
    )
    site.add_argument("--python", metavar="X.Y", help="that host's Python (default: this one's)")
    site.add_argument("--glibc", default="2.34", metavar="X.Y", help="its glibc (default: 2.34)")
    site.add_argument("--no-strip", action="store_true", help="keep debug symbols")


def run(args: argparse.Namespace) -> int:
    """Make or install a bundle."""
    from enginebook.errors import DONE
    from enginebook.store import write_json

    if args.install:
        outcome = _install(args.engine, args.install)
    elif args.have or args.arch or args.without or len(args.engine) > 1:
        outcome = _make_site(args)
    else:
        outcome = _make_wheels(args)
    if args.json:
        write_json(args.json, outcome)
    return DONE


def bytes_of(text: str) -> int:
    """Return a size such as ``56MiB`` or ``2GB`` in bytes.

    Raises
    ------
    InputError
        For anything else.
    """
    from enginebook.errors import InputError

    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMG]i?B)?", text)
    size = round(float(found[1]) * UNITS[found[2] or ""]) if found else 0
    if size < UNITS["KiB"]:
        raise InputError(f"{text!r} is no size of a part", "give it as 56MiB or 2GB")
    return size


def _make_wheels(args: argparse.Namespace) -> dict[str, Any]:
    from enginebook.engines.recipes import load_recipe
    from enginebook.lifecycle import bundles

    recipe = load_recipe(args.engine[0])
    part_bytes = bytes_of(args.part_size) if args.part_size else None
    output = args.output or Path(f"{recipe.name}-{recipe.version}")
    bundle = bundles.make(recipe, output.resolve(), on_progress=print)
    packed = bundles.pack(bundle.directory, part_bytes) if args.tar or part_bytes else []
    places = [str(p) for p in packed] or [str(bundle.directory)]
    print(f"made {', '.join(places)}")
    print(f"install it with: enginebook bundle {recipe.name} --install {places[0]}")
    return {"recipe": recipe.name, "version": recipe.version, "torch": bundle.torch, "at": places}


def _make_site(args: argparse.Namespace) -> dict[str, Any]:
    from enginebook.lifecycle import bundles_site

    sources = [_source(name) for name in args.engine]
    output = args.output or Path("-".join(args.engine))
    facts = bundles_site.make(sources, _request(args), output.resolve(), on_progress=print)
    total = sum(part["bytes"] for part in facts["parts"])
    print(f"made {output}: {total / UNITS['MiB']:.1f} MiB in {len(facts['parts'])} parts")
    print(f"use it with: ENGINEBOOK_BUNDLES={output} (docs/offline.md)")
    return facts


def _source(name: str) -> Source:
    from enginebook.engines.recipes import load_recipe
    from enginebook.lifecycle import bundles_site
    from enginebook.lifecycle.bundles_unpack import WORKBOOK

    if name == WORKBOOK:
        return bundles_site.workbook_source()
    return bundles_site.recipe_source(load_recipe(name))


def _request(args: argparse.Namespace) -> Request:
    import sys

    from enginebook.errors import InputError
    from enginebook.lifecycle.bundles_pins import Target, read_freeze
    from enginebook.lifecycle.bundles_site import Request
    from enginebook.lifecycle.trimming import architecture

    python = args.python or f"{sys.version_info.major}.{sys.version_info.minor}"
    for text in (python, args.glibc):
        if not re.fullmatch(r"[0-9]+\.[0-9]+", text):
            raise InputError(f"{text!r} is no version of two numbers", "give it as 3.12 or 2.34")
    return Request(
        target=Target(python, args.glibc),
        arch=architecture(args.arch) if args.arch else None,
        host=read_freeze(args.have) if args.have else {},
        without=tuple(args.without),
        part_bytes=bytes_of(args.part_size) if args.part_size else None,
        strip=not args.no_strip,
    )


def _install(engines: list[str], place: Path) -> dict[str, Any]:
    from enginebook.engines.recipes import load_recipe, recipe_for
    from enginebook.errors import InputError
    from enginebook.lifecycle.bundles_unpack import FACTS, FORMAT
    from enginebook.lifecycle.environments import install
    from enginebook.store import read_json
    from enginebook.study import EngineSpec

    if len(engines) != 1:
        raise InputError("install one engine at a time", "name one recipe")
    recipe: Recipe = load_recipe(engines[0])
    facts = place / FACTS
    if facts.is_file() and read_json(facts).get("format") == FORMAT:
        environment: dict[str, Any] = {"kind": "bundle", "path": str(place.resolve())}
        spec = EngineSpec(name=recipe.name, recipe=recipe.name, environment=environment)
        installation = install(recipe_for(spec), on_progress=print)
    else:
        installation = install(recipe, on_progress=print, bundle=place)
    print(f"{recipe.title} {installation.version} is at {installation.directory}")
    return installation.to_json()
