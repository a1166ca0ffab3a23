"""``enginebook servers``: the engines that run on this machine under Enginebook, and their end."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enginebook.plain import neutral

if TYPE_CHECKING:
    from enginebook.lifecycle.leases import Running

HELP = "list the servers that are running, end them, clean up what killed ones left"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stop", metavar="PORT", type=int, help="end the server on this port")
    what.add_argument("--stop-all", action="store_true", help="end all of them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the list as JSON")


def run(args: argparse.Namespace) -> int:
    """List or end servers; 1 when something would not end."""
    from enginebook.lifecycle import leases
    from enginebook.store import write_json

    leases.reap_leftovers(print)
    servers = leases.all_noted()
    rows = [_row(s) for s in servers]
    if args.stop is not None or args.stop_all:
        status = _end(servers, args.stop)
    else:
        status = 0
        print("\n".join(_line(r) for r in rows) or "no server runs")
    if args.json:
        write_json(args.json, rows)
    return status


def _end(servers: list[Running], port: int | None) -> int:
    from enginebook.errors import DONE, MEASURED_FAILURE, InputError
    from enginebook.lifecycle import leases

    chosen = [s for s in servers if port is None or s.facts.get("port") == port]
    if port is not None and not chosen:
        known = ", ".join(str(s.facts.get("port")) for s in servers) or "none"
        raise InputError(f"no server of ours on port {port}", f"ports with a server: {known}")
    status = DONE
    for server in chosen:
        left = leases.end(server)
        print(f"ended {server.label}" if not left else f"pids {left} of {server.label} stay")
        status = MEASURED_FAILURE if left else status
    return status


def _row(server: Running) -> dict[str, Any]:
    kept = ("engine", "model", "port", "directory", "engine_pid", "guard_pid", "owner")
    uptime_s = round(server.uptime_s(), 1)
    return {k: server.facts.get(k) for k in kept} | {"uptime_s": uptime_s}


def _line(row: dict[str, Any]) -> str:
    return neutral(
        f"port {row['port']}: {row['engine']} serving {row['model']}, pid {row['engine_pid']}, "
        f"up {row['uptime_s']:.0f} s, log in {row['directory']}"
    )
