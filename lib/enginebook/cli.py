"""The enginebook program: one module a command, found by name, imported only when asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from enginebook.errors import BAD_INPUT, INTERRUPTED, EnginebookError
from enginebook.plain import neutral

COMMANDS = {
    "run": "run a whole study: host, install, launch, load, compare, claims, report",
    "load": "load-test any OpenAI-compatible endpoint",
    "load-worker": "take part in a load that another host coordinates",
    "compare": "compare two runs; exit 1 on a significant loss",
    "claims": "judge published claims by physics, and by a run",
    "report": "render a run's report again",
    "engines": "list the engines and whether they can run here",
    "doctor": "check this host and say what to mend",
    "servers": "list and stop servers that were kept warm",
    "calibrate": "measure the load generator itself on this host",
    "bundle": "pack an engine for hosts without internet",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_INPUT, f"{self.prog}: {neutral(message)}\n")


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = _Parser(prog="enginebook", description="Reproducible evaluation of LLM engines.")
    parser.add_argument("--debug", action="store_true", help="show tracebacks of expected errors")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        # Only the chosen command's module is imported: --help and bad arguments answer at once.
        if name == chosen:
            _module(name).add_arguments(command)
    return parser


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"enginebook.commands.{name.replace('-', '_')}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status (0 done, 1 measured failure, 2 bad input)."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((w for w in words if w in COMMANDS), None)
    args = _parser(chosen).parse_args(words)
    try:
        return int(_module(args.command).run(args))
    except EnginebookError as error:
        if args.debug:
            raise
        print(f"enginebook {args.command}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"enginebook {args.command}: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`| head`); do not let the interpreter complain too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
