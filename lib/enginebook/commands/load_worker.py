"""``enginebook load-worker``: let this host take part in a load that another one coordinates."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

HELP = "take part in a load that `enginebook load` on another host coordinates"
USUAL_PLACE = "127.0.0.1:7471"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--listen", metavar="HOST:PORT", default=None,
        help=f"wait there for coordinators (default: {USUAL_PLACE}, this host only)",
    )  # fmt: skip
    way.add_argument("--connect", metavar="HOST:PORT", help="go to a coordinator that waits there")
    parser.add_argument("--once", action="store_true", help="serve one load, then end")
    parser.add_argument(
        "--wait", type=float, default=300.0, metavar="S", help="for a coordinator to --connect to"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="load processes of this host")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was said, as a list")


def run(args: argparse.Namespace) -> int:
    """Serve until the end; 0 when all went well."""
    from enginebook.errors import DONE, InputError
    from enginebook.load.remote_wire import parse_place, secret_of
    from enginebook.load.remote_worker import dial, listen
    from enginebook.store import write_json

    if args.processes is not None and args.processes < 1:
        raise InputError(f"--processes {args.processes}", "give 1 or more")
    secret = secret_of()
    # An exception, not an end: a load under way must be stopped and its folder removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        sys.stderr.write(f"load-worker: {text}\n")
        sys.stderr.flush()
        if args.json is not None:
            write_json(args.json, {"said": said})

    common: dict[str, Any] = {"processes": args.processes}
    if args.connect is not None:
        dial(parse_place(args.connect), secret, say, wait_s=args.wait, **common)
    else:
        listen(parse_place(args.listen or USUAL_PLACE), secret, say, once=args.once, **common)
    return DONE
