"""``enginebook load``: load-test any OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enginebook.commands import load_hosts
from enginebook.errors import DONE, MEASURED_FAILURE, InputError
from enginebook.plain import neutral

if TYPE_CHECKING:
    from enginebook.load import LoadProgress, Target, Workload

HELP = "load-test an OpenAI-compatible endpoint and write JSON"
KEY_VARIABLE = "ENGINEBOOK_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    _add_target(parser.add_argument_group("endpoint"))
    arrival = parser.add_argument_group("arrival of requests")
    model = arrival.add_mutually_exclusive_group(required=True)
    model.add_argument("--concurrency", type=int, metavar="N", help="closed loop: N streams")
    model.add_argument("--rate", type=float, metavar="R", help="open loop: requests per second")
    model.add_argument(
        "--trace", metavar="FILE", help="replay arrivals and lengths: a file, or builtin:NAME"
    )
    arrival.add_argument("--arrival", default="poisson", help="poisson, constant or gamma:CV")
    arrival.add_argument("--ramp-to", type=float, metavar="R", help="end at this rate")
    arrival.add_argument("--max-concurrency", type=int, metavar="N")
    arrival.add_argument("--trace-speed", type=float, default=1.0, metavar="X")
    arrival.add_argument(
        "--length-divisor", type=float, default=1.0, metavar="X", help="of a trace"
    )
    arrival.add_argument("--max-input-tokens", type=int, metavar="N", help="cut a trace's prompts")
    arrival.add_argument("--max-output-tokens", type=int, metavar="N", help="cut its answers")
    _add_work(parser.add_argument_group("work"))
    _add_answers(parser.add_argument_group("answers"))
    _add_precision(parser.add_argument_group("ending early"))
    load_hosts.add_arguments(parser.add_argument_group("client hosts"))
    output = parser.add_argument_group("output")
    output.add_argument("--raw", type=Path, metavar="DIR", help="keep the wire records there")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    output.add_argument("--quiet", action="store_true", help="no progress line")


def _add_target(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--base-url", required=True, metavar="URL")
    group.add_argument("--model", required=True, metavar="NAME")
    group.add_argument("--api", choices=["completions", "chat"], default="completions")
    group.add_argument("--tokenizer", type=Path, metavar="DIR", help="folder of tokenizer.json")
    group.add_argument(
        "--extra-body", type=_json_object, default={}, metavar="JSON",
        help='fields for each request, e.g. {"min_tokens": 1} (filled with the asked length)',
    )  # fmt: skip
    group.add_argument("--insecure", action="store_true", help="accept any TLS certificate")


def _add_work(group: argparse._ArgumentGroup) -> None:
    count = group.add_mutually_exclusive_group()
    count.add_argument("--requests", type=int, metavar="N")
    count.add_argument("--duration", type=float, metavar="S", help="seconds")
    group.add_argument("--input-tokens", default="128", metavar="N", help="N or a distribution")
    group.add_argument("--output-tokens", default="64", metavar="N", help="N or a distribution")
    group.add_argument("--warmup", type=int, default=0, metavar="N", help="requests before")
    group.add_argument("--seed", type=int, default=1, metavar="N")
    group.add_argument(
        "--prompts", default="text",
        choices=["text", "random", "few-shot", "json", "file", "sharegpt"],
    )  # fmt: skip
    group.add_argument("--prompt-file", type=Path, metavar="FILE")
    group.add_argument("--prompt-as", choices=["ids", "text"])
    group.add_argument("--shared-prefix", type=int, default=0, metavar="TOKENS")
    group.add_argument("--shared-prefix-share", type=float, default=1.0, metavar="0..1")
    group.add_argument("--turns", type=int, default=1, metavar="N", help="turns of a session")
    group.add_argument("--think-time", type=float, default=0.0, metavar="S")
    group.add_argument("--max-seconds", type=float, default=3600.0, metavar="S")
    group.add_argument("--timeout", type=float, default=600.0, metavar="S", help="of a request")
    group.add_argument("--processes", type=int, metavar="N", help="of the client")


def _add_answers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--answer-format", default="text",
        choices=["text", "json_object", "json_schema", "json_schema_each"],
        help="constrain answers; --output-tokens is then the longest they may be",
    )  # fmt: skip
    group.add_argument("--schema", metavar="NAME", help="flat, nested, enum200, array, recursive")
    group.add_argument(
        "--constraint-field", default="response_format", choices=["response_format", "json_schema"],
        help="where the constraint goes; json_schema for completions of llama.cpp",
    )  # fmt: skip


def _add_precision(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--half-width", type=float, metavar="0..1",
        help="end when throughput and mean TTFT are known so well within the run (0.03: to 3 %%)",
    )  # fmt: skip
    group.add_argument("--min-requests", type=int, default=32, metavar="N")
    group.add_argument("--min-seconds", type=float, default=5.0, metavar="S")


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def target_of(args: argparse.Namespace) -> Target:
    """Return the endpoint that the options name."""
    from enginebook.load import Target

    return Target(
        base_url=args.base_url,
        model=args.model,
        api=args.api,
        tokenizer=args.tokenizer,
        api_key=os.environ.get(KEY_VARIABLE) or None,
        extra_body=args.extra_body,
        verify_tls=not args.insecure,
        constraint_field=args.constraint_field,
    )


def workload_of(args: argparse.Namespace) -> Workload:
    """Return the load that the options name."""
    from enginebook.load import Precision, Workload

    rule = None
    if args.half_width is not None:
        rule = Precision(args.half_width, args.min_requests, args.min_seconds)
    return Workload(
        concurrency=args.concurrency,
        rate=args.rate,
        trace=args.trace,
        arrival=args.arrival,
        ramp_to=args.ramp_to,
        max_concurrency=args.max_concurrency,
        trace_speed=args.trace_speed,
        requests=args.requests,
        duration_s=args.duration,
        input_tokens=args.input_tokens,
        output_tokens=args.output_tokens,
        warmup_requests=args.warmup,
        seed=args.seed,
        prompts=args.prompts,
        prompt_file=args.prompt_file,
        prompt_as=args.prompt_as,
        shared_prefix_tokens=args.shared_prefix,
        shared_prefix_share=args.shared_prefix_share,
        turns=args.turns,
        think_time_s=args.think_time,
        max_seconds=args.max_seconds,
        request_timeout_s=args.timeout,
        processes=load_hosts.processes_of(args),
        answer_format=args.answer_format,
        schema_name=args.schema,
        precision=rule,
        length_divisor=args.length_divisor,
        max_input_tokens=args.max_input_tokens,
        max_output_tokens=args.max_output_tokens,
    )


def run(args: argparse.Namespace) -> int:
    """Run the load; 0 when every request was answered, 1 when any failed."""
    target, workload = target_of(args), workload_of(args)
    if args.raw is not None and args.raw.exists() and any(args.raw.iterdir()):
        raise InputError(
            f"{args.raw} is not empty", "raw records are never overwritten: name another"
        )
    from enginebook.metrics import summarise
    from enginebook.metrics.validity import validity
    from enginebook.store import write_json

    show = None if args.quiet or not sys.stderr.isatty() else _show
    records = load_hosts.make_load(args, target, workload, show)
    if show is not None:
        sys.stderr.write("\n")
    summary = summarise(records) | {"answers": validity(records, workload.to_dict())}
    if "hosts" in records.instrument:
        summary["hosts"] = records.instrument["hosts"]
    if args.json is not None:
        write_json(args.json, summary)
    sys.stdout.write(neutral(load_hosts.hosts_text(records) + text_of(summary)) + "\n")
    requests = summary["requests"]
    good = requests["completed"] > 0 and requests["failed"] == 0
    return DONE if good else MEASURED_FAILURE


def _show(progress: LoadProgress) -> None:
    planned = f"/{progress.total}" if progress.total else ""
    first = f"{progress.first_byte_ms:.1f} ms" if progress.first_byte_ms is not None else "-"
    sys.stderr.write(
        f"\r{progress.elapsed_s:6.1f} s  {progress.done}{planned} requests, "
        f"{progress.failed} failed, {progress.in_flight} in flight, "
        f"{progress.chunks_per_s:.0f} chunks/s, first byte {first}   "
    )
    sys.stderr.flush()


def text_of(summary: dict[str, Any]) -> str:
    """Return a summary as a short table."""
    counts = summary["requests"]
    rates = [
        f"{_number(summary[key])} {unit}"
        for key, unit in (
            ("output_tokens_per_s", "output tokens/s"),
            ("input_tokens_per_s", "input tokens/s"),
            ("requests_per_s", "requests/s"),
        )
    ]
    counted = ", ".join(f"{n} {name}" for name, n in counts.items())
    lines = [
        f"requests   {counted} in {_number(summary['duration_s'])} s",
        f"throughput {', '.join(rates)}",
        f"{'ms':10} {'mean':>9} {'p50':>9} {'p90':>9} {'p99':>9} {'max':>9} {'n':>9}",
    ]
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "icl_ms", "e2e_ms"):
        row = summary[name]
        cells = " ".join(f"{_number(row[p]):>9}" for p in ("mean", "p50", "p90", "p99", "max"))
        lines.append(f"{name.removesuffix('_ms').upper():10} {cells} {row['n']:>9}")
    if summary.get("answers"):
        valid = summary["answers"]
        lines.append(
            f"JSON       {valid['valid']} of {valid['sent']} answers valid, "
            f"{_number(valid['time_per_valid_ms'])} ms for each"
        )
    ending = summary["instrument"]
    if ending["precision"]:
        width = ending["precision"]["achieved_half_width"]
        known = "not known" if width is None else f"known to {width:.1%}"
        lines.append(f"ended by   {ending['stopped_by']}; throughput and TTFT {known}")
    cost = summary["instrument"]["cpu_us_per_token"]
    lines.append(f"client     {_number(cost)} us of CPU per token")
    for error in summary["errors"]:
        code = f" {error['code']}" if "code" in error else ""
        lines.append(f"error      {error['count']} x {error['kind']}{code}: {error['example']}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.2f}"
