"""Asks an engine's own Python what its packages are and offer; run by file path, stands alone.

``python probe_code.py DISTRIBUTION < PROBES`` reads a JSON list of ``{"probe", "ask", ...}`` and
prints one JSON object a line. Every probe runs by itself: what is missing is an answer, too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from importlib import metadata
from typing import Any


def attribute(path: str) -> Any:
    """Return ``package.module:name.name``."""
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def parser_of(kind: str) -> argparse.ArgumentParser:
    """Return the argument parser that the engine's server command uses."""
    if kind == "sglang":
        parser = argparse.ArgumentParser(allow_abbrev=False)
        importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
        return parser
    for place in ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"):
        try:
            make = importlib.import_module(place).make_arg_parser
        except ImportError:
            continue
        return make(attribute("vllm.utils.argparse_utils:FlexibleArgumentParser")())  # type: ignore[no-any-return]
    raise ImportError("no argument parser of vLLM was found where its versions have it")


def flag(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether exactly this flag exists; argparse alone would accept any unique beginning."""
    actions = {s: a for a in parser_of(ask["parser"])._actions for s in a.option_strings}
    wanted = [ask["flag"]] if isinstance(ask["flag"], str) else ask["flag"]
    missing = [name for name in wanted if name not in actions]
    if missing:
        near = sorted({n for m in missing for n in actions if n.startswith(m)})
        return False, f"no {', '.join(missing)}" + (f"; there is {', '.join(near)}" if near else "")
    return True, ", ".join(f"{name} (default {actions[name].default!r})" for name in wanted)


def names(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether all these names can be imported."""
    for name in ask["names"]:
        attribute(name)
    return True, ", ".join(ask["names"])


def fields(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a class takes these arguments, by its annotations."""
    known: dict[str, Any] = {}
    for kind in reversed(attribute(ask["of"]).__mro__):
        known |= getattr(kind, "__annotations__", {})
    missing = [name for name in ask["fields"] if name not in known]
    return not missing, f"no {', '.join(missing)}" if missing else ", ".join(ask["fields"])


def package(distribution: str) -> dict[str, Any]:
    """Return the facts of an installed distribution."""
    about = metadata.metadata(distribution)
    needs = metadata.requires(distribution) or []
    return {
        "version": about["Version"],
        "licence": about["License-Expression"] or (about["License"] or "").splitlines()[:1],
        "requires_python": about["Requires-Python"],
        "requirements": sum("extra ==" not in need for need in needs),
        "home": about["Home-page"] or (about.get_all("Project-URL") or [None])[0],
    }


KINDS = {"flag": flag, "names": names, "fields": fields}


def main() -> None:
    """Answer the package's facts first, then every probe."""
    print(json.dumps({"package": package(sys.argv[1])}), flush=True)
    for ask in json.load(sys.stdin):
        try:
            ok, value = KINDS[ask["ask"]](ask)
        except Exception as error:  # noqa: BLE001 - an engine's import may fail in any way
            ok, value = False, f"{type(error).__name__}: {error}"[:300]
        print("\n" + json.dumps({"probe": ask["probe"], "ok": ok, "value": value}), flush=True)


if __name__ == "__main__":
    main()
