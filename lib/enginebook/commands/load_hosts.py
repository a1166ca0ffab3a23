"""The part of ``enginebook load`` that has several hosts make the load."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from enginebook.errors import InputError

if TYPE_CHECKING:
    from enginebook.load import Records, Target, Workload
    from enginebook.load.remote import Hosts
    from enginebook.load.run import OnProgress


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Declare the options."""
    group.add_argument(
        "--workers", type=int, metavar="N",
        help="load processes on this host; with --worker-listen: hosts to wait for",
    )  # fmt: skip
    way = group.add_mutually_exclusive_group()
    way.add_argument(
        "--hosts", metavar="HOST:PORT,...", help="hosts where enginebook load-worker listens"
    )
    way.add_argument(
        "--worker-listen", metavar="HOST:PORT", help="wait there for enginebook load-worker hosts"
    )
    group.add_argument(
        "--worker-wait", type=float, default=300.0, metavar="S", help="for hosts to come"
    )


def processes_of(args: argparse.Namespace) -> int | None:
    """Return how many load processes this host (or each host) starts; None leaves it to them."""
    if args.workers is not None and args.workers < 1:
        raise InputError(f"--workers {args.workers}", "give 1 or more")
    given: int | None = args.processes
    return given if given or args.worker_listen is not None else args.workers


def hosts_of(args: argparse.Namespace) -> Hosts | None:
    """Return which other hosts make the load; None for this host alone.

    Raises
    ------
    InputError
        When the options contradict each other.
    """
    from enginebook.load.remote import Hosts
    from enginebook.load.remote_wire import parse_place

    if args.hosts is not None:
        if args.workers is not None:
            raise InputError("--workers and --hosts are both given", "the hosts say how many")
        return Hosts(places=tuple(parse_place(p) for p in args.hosts.split(",")))
    if args.worker_listen is None:
        return None
    if args.workers is None:
        raise InputError("--worker-listen without --workers", "say how many hosts will come")
    return Hosts(
        listen=parse_place(args.worker_listen),
        count=args.workers,
        wait_s=args.worker_wait,
        on_listen=lambda here: print(f"waiting for load workers at {here}", file=sys.stderr),
    )


def make_load(
    args: argparse.Namespace, target: Target, workload: Workload, show: OnProgress | None
) -> Records:
    """Make the load from this host, or from others that it coordinates."""
    if args.hosts is None and args.worker_listen is None:
        from enginebook.load import run_load

        return run_load(target, workload, directory=args.raw, on_progress=show)
    from enginebook.load.remote import run_remote
    from enginebook.load.remote_wire import secret_of

    hosts = hosts_of(args)
    assert hosts is not None  # noqa: S101 - one of the two ways was given
    return run_remote(target, workload, hosts, secret_of(), directory=args.raw, on_progress=show)


def hosts_text(records: Records) -> str:
    """Return a line on each host that took part; empty for a load of this host alone."""
    if "hosts" not in records.instrument:
        return ""
    from enginebook.load.remote import describe

    return "".join(f"host       {line}\n" for line in describe(records.instrument["hosts"]))
