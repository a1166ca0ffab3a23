"""``enginebook calibrate``: how exact is the load generator on this host, and when does it end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from enginebook.errors import DONE, MEASURED_FAILURE, InputError

if TYPE_CHECKING:
    from enginebook.load.calibration import Level

HELP = "measure the load generator's own error on this host"
_DEFAULT_STREAMS = "1,64,256,1024"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="time of load")
    parser.add_argument("--streams", default=_DEFAULT_STREAMS, metavar="N,N...")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")


def run(args: argparse.Namespace) -> int:
    """Calibrate; 0 when the client is exact at every number of streams, 1 when it is not."""
    streams = _streams(args.streams)
    if not args.seconds > 0:
        raise InputError(f"--seconds is {args.seconds}", "give a time above 0")
    from enginebook.load.calibration import calibrate
    from enginebook.store import write_json

    sys.stdout.write(
        f"{'streams':>8} {'events/s':>9} {'TTFT error p50':>15} {'p99':>7} {'ITL error p99':>14} "
        f"{'stamp p50':>10} {'us/token':>9} {'lost':>5}\n"
    )
    result = calibrate(args.seconds, streams, on_level=_show)
    sys.stdout.write(
        f"{result['verdict']}\none client process reaches 80 % of a core at about "
        f"{result['capacity_events_per_s']:,.0f} events/s\n"
    )
    if args.json is not None:
        write_json(args.json, result)
    return DONE if result["ok"] else MEASURED_FAILURE


def _streams(text: str) -> list[int]:
    try:
        streams = [int(part) for part in text.split(",")]
    except ValueError:
        streams = []
    if not streams or min(streams) < 1:
        raise InputError(f"--streams {text!r} is no list of numbers", "give it as 1,64,256")
    return streams


def _show(level: Level) -> None:
    sys.stdout.write(
        f"{level.streams:>8} {level.events_per_s:>9,.0f} {level.ttft_error_p50_ms:>12.3f} ms "
        f"{level.ttft_error_p99_ms:>7.2f} {level.itl_error_p99_ms:>11.3f} ms "
        f"{level.stamp_delay_p50_ms:>7.3f} ms {level.cpu_us_per_token:>9.1f} {level.lost:>5}\n"
    )
    sys.stdout.flush()
