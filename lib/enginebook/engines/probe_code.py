"""Asks an engine's own Python what its packages are and offer; run by file path, stands alone.

``python probe_code.py DISTRIBUTION [PRELUDE] < PROBES`` reads a JSON list of ``{"probe", "ask",
...}`` and prints one JSON object a line. Every probe runs by itself: what is missing is an answer,
too. Where the package itself cannot be imported, or the probe fails in another way, the answer is
null: a broken instrument has seen nothing. PRELUDE is a file that is run first, for packages that
need it to be imported.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.util
import io
import json
import re
import runpy
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


class MissingError(Exception):
    """What was asked for is not there, while the package around it is."""


def attribute(path: str) -> Any:
    """Return ``package.module:name.name``.

    Raises
    ------
    MissingError
        When the package can be imported and holds no such module or name.
    """
    module, _, names = path.partition(":")
    found: Any = module_of(module)
    for name in filter(None, names.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise MissingError(str(error)) from error
    return found


def module_of(path: str) -> Any:
    """Return a module of a package that can be imported."""
    importlib.import_module(path.partition(".")[0])
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if f"{path}.".startswith(f"{error.name}."):
            raise MissingError(str(error)) from error
        raise  # another package is missing: nothing is known of this one


@functools.cache
def parser_of(kind: str) -> argparse.ArgumentParser:
    """Return the argument parser that the engine's server command uses."""
    if kind == "sglang":
        parser = argparse.ArgumentParser()
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


def parse(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the parser takes this command line, every flag by its whole name."""
    parser, words = parser_of(ask["parser"]), ask["argv"]
    exact = {name for action in parser._actions for name in action.option_strings}
    cut = [w for w in words if w.startswith("--") and w.split("=")[0] not in exact]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit:
        return False, (said.getvalue().strip().splitlines() or ["refused"])[-1][:200]
    return not cut, f"taken for a longer flag: {', '.join(cut)}" if cut else "taken"


def value(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether an attribute, such as a default, has this value."""
    found = attribute(ask["of"])
    return found == ask["is"], repr(found)


def script(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a distribution installs this command."""
    commands = {e.name for e in metadata.entry_points(group="console_scripts")}
    return ask["name"] in commands, ask["name"] if ask["name"] in commands else "no such command"


def file(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a distribution holds a file of this name."""
    held = metadata.files(ask["distribution"]) or []
    found = [str(f) for f in held if f.name == ask["name"]]
    return bool(found), ", ".join(found[:3]) or "no such file"


def imports(ask: dict[str, Any]) -> tuple[bool, str]:
    """Return whether a package imports or requires another one, and how often."""
    spec = importlib.util.find_spec(ask["package"])
    if spec is None:
        raise ModuleNotFoundError(f"No module named {ask['package']!r}")
    pattern = re.compile(rf"^\s*(?:from|import)\s+{ask['of']}\b", re.MULTILINE)
    sources = [
        p for place in spec.submodule_search_locations or () for p in Path(place).rglob("*.py")
    ]
    counts = [len(pattern.findall(p.read_text("utf-8", "replace"))) for p in sources]
    needs = [r for r in metadata.requires(ask["distribution"]) or [] if re.match(ask["of"], r)]
    files = sum(c > 0 for c in counts)
    text = f"{sum(counts)} imports in {files} of {len(counts)} files"
    return bool(needs), f"{text}; required: {', '.join(needs) or 'no'}"


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
        "licence": about["License-Expression"] or (about["License"] or "").split("\n")[0] or None,
        "requires_python": about["Requires-Python"],
        "requirements": sum("extra ==" not in need for need in needs),
        "home": about["Home-page"] or _home(about.get_all("Project-URL") or []),
    }


def _home(urls: list[str]) -> str | None:
    """Return the address of a project's page or repository from ``label, address`` lines."""
    by_label = {u.split(",")[0].strip().lower(): u.split(",", 1)[-1].strip() for u in urls}
    labels = ("homepage", "repository", "source", "github", *by_label)
    return next((by_label[label] for label in labels if label in by_label), None)


KINDS = {kind.__name__: kind for kind in (flag, names, fields, parse, value, script, file, imports)}


WITHOUT_IMPORT = frozenset({"script", "file", "imports"})


def prepared(preludes: list[str]) -> str:
    """Run what importing the package needs; return why that failed, or nothing."""
    try:
        for prelude in preludes:
            runpy.run_path(prelude, run_name="prelude")
    except Exception as error:  # noqa: BLE001 - another version's prelude may fail in any way
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def answer(ask: dict[str, Any], broken: str) -> tuple[bool | None, str]:
    """Return whether a probe holds, None where that could not be seen, and what it saw."""
    if broken and ask["ask"] not in WITHOUT_IMPORT:
        return None, broken
    try:
        return KINDS[ask["ask"]](ask)
    except MissingError as error:
        return False, str(error)[:300]
    except Exception as error:  # noqa: BLE001 - an engine's import may fail in any way
        return None, f"{type(error).__name__}: {error}"[:300]


def main() -> None:
    """Answer the package's facts first, then every probe."""
    broken = prepared(sys.argv[2:])
    print(json.dumps({"package": package(sys.argv[1])}), flush=True)
    for ask in json.load(sys.stdin):
        ok, told = answer(ask, broken)
        print("\n" + json.dumps({"probe": ask["probe"], "ok": ok, "value": told}), flush=True)


if __name__ == "__main__":
    main()
