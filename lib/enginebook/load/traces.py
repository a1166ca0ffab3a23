"""Traces of real traffic: arrival times and lengths, from four file formats.

Known by their columns, not by their names:

- Azure LLM inference 2023 and 2024 (csv: TIMESTAMP, ContextTokens, GeneratedTokens),
- Mooncake (jsonl: timestamp in ms, input_length, output_length, hash_ids of 512-token blocks),
- BurstGPT (csv: Timestamp in s, Request tokens, Response tokens),
- our own (jsonl: at_s, input_tokens, output_tokens, and optionally block_keys).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from enginebook.errors import InputError

MOONCAKE_BLOCK_TOKENS = 512


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival; the first arrives at 0.

    Attributes
    ----------
    offsets_s, input_tokens, output_tokens
        Arrays of shape (n,): seconds, tokens, tokens.
    block_keys
        For each request the keys of its prompt's blocks (equal keys are equal tokens), or empty.
    """

    offsets_s: npt.NDArray[np.float64]
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    block_keys: tuple[tuple[int, ...], ...] = ()
    block_tokens: int = MOONCAKE_BLOCK_TOKENS

    def __len__(self) -> int:
        return len(self.offsets_s)

    def first(self, count: int | None, seconds: float | None) -> Trace:
        """Return the first so many requests, or those that arrive within so many seconds."""
        inside = len(self) if seconds is None else int(np.sum(self.offsets_s < seconds))
        n = inside if count is None else min(count, inside)
        return replace(
            self,
            offsets_s=self.offsets_s[:n],
            input_tokens=self.input_tokens[:n],
            output_tokens=self.output_tokens[:n],
            block_keys=self.block_keys[:n],
        )

    def fitted(
        self, divisor: float, most_input: int | None, most_output: int | None
    ) -> tuple[Trace, dict[str, int]]:
        """Return the trace with lengths divided and then cut, and how many lengths were cut.

        Blocks shrink by the same divisor, so that prompts go on sharing what they shared.
        """
        inputs, cut_inputs = _fit(self.input_tokens, divisor, most_input)
        outputs, cut_outputs = _fit(self.output_tokens, divisor, most_output)
        block = max(1, round(self.block_tokens / divisor))
        trace = replace(self, input_tokens=inputs, output_tokens=outputs, block_tokens=block)
        cut = {"input_tokens": cut_inputs, "output_tokens": cut_outputs}
        return trace, {"requests": len(self), **cut}


def _fit(
    lengths: npt.NDArray[np.int64], divisor: float, most: int | None
) -> tuple[npt.NDArray[np.int64], int]:
    """Return lengths divided and cut, and how many were cut."""
    divided = np.maximum(np.round(lengths / divisor), 1).astype(np.int64)
    if most is None:
        return divided, 0
    return np.minimum(divided, most), int(np.sum(divided > most))


def read_trace(path: Path) -> Trace:
    """Read a trace file of any known format.

    Raises
    ------
    InputError
        When the file is of no known format, empty, or holds impossible values.
    """
    frame = _read_frame(path)
    reader = _READERS.get(_format_of(frame.columns))
    if reader is None:
        raise InputError(
            f"{path} is no known trace (columns: {', '.join(frame.columns)})",
            "give an Azure LLM, Mooncake or BurstGPT file, or jsonl with at_s, input_tokens, "
            "output_tokens",
        )
    try:
        return _checked(reader(frame), path)
    except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
        raise InputError(f"{path}: {error}", "repair or drop the offending lines") from error


def _read_frame(path: Path) -> pl.DataFrame:
    try:
        if path.suffix.lower() in {".jsonl", ".ndjson", ".json"}:
            return pl.read_ndjson(path, infer_schema_length=1000)
        return pl.read_csv(path, infer_schema_length=10_000)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"cannot read the trace {path}: {error}", "give a csv or jsonl") from error


def _format_of(columns: list[str]) -> str:
    known = {
        "azure": {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
        "mooncake": {"timestamp", "input_length", "output_length"},
        "burstgpt": {"Timestamp", "Request tokens", "Response tokens"},
        "own": {"at_s", "input_tokens", "output_tokens"},
    }
    return next((name for name, need in known.items() if need <= set(columns)), "")


def _azure(frame: pl.DataFrame) -> Trace:
    stamp = pl.col("TIMESTAMP").str.replace("T", " ").str.replace(r"(\+00:00|Z)$", "")
    # seven decimals in the 2023 files: more than a datetime of microseconds holds
    whole = stamp.str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s")
    fraction = ("0" + stamp.str.slice(19)).replace("0", "0.0").cast(pl.Float64)
    times = frame.select(whole=whole - whole.first(), fraction=fraction)
    seconds = (times["whole"] + times["fraction"]).to_numpy()
    return Trace(seconds, _ints(frame["ContextTokens"]), _ints(frame["GeneratedTokens"]))


def _mooncake(frame: pl.DataFrame) -> Trace:
    keys: tuple[tuple[int, ...], ...] = ()
    if "hash_ids" in frame.columns:
        keys = tuple(tuple(row or ()) for row in frame["hash_ids"].to_list())
    seconds = frame["timestamp"].cast(pl.Float64).to_numpy() / 1000.0
    return Trace(seconds, _ints(frame["input_length"]), _ints(frame["output_length"]), keys)


def _burstgpt(frame: pl.DataFrame) -> Trace:
    # failed requests stand in the file with no response tokens
    frame = frame.filter(pl.col("Response tokens") > 0)
    seconds = frame["Timestamp"].cast(pl.Float64).to_numpy()
    return Trace(seconds, _ints(frame["Request tokens"]), _ints(frame["Response tokens"]))


def _own(frame: pl.DataFrame) -> Trace:
    keys: tuple[tuple[int, ...], ...] = ()
    if "block_keys" in frame.columns:
        keys = tuple(tuple(row or ()) for row in frame["block_keys"].to_list())
    seconds = frame["at_s"].cast(pl.Float64).to_numpy()
    return Trace(seconds, _ints(frame["input_tokens"]), _ints(frame["output_tokens"]), keys)


_READERS: dict[str, Callable[[pl.DataFrame], Trace]] = {
    "azure": _azure,
    "mooncake": _mooncake,
    "burstgpt": _burstgpt,
    "own": _own,
}


def _ints(column: pl.Series) -> npt.NDArray[np.int64]:
    return column.cast(pl.Int64).to_numpy()


def _checked(trace: Trace, path: Path) -> Trace:
    """Return the trace sorted by time from 0 on; zero-length prompts become one token."""
    if len(trace) == 0:
        raise InputError(f"{path} holds no requests", "give a trace with at least one line")
    if not np.isfinite(trace.offsets_s).all():
        raise InputError(f"{path} holds a time that is no number", "repair the line")
    if trace.input_tokens.min() < 0 or trace.output_tokens.min() < 0:
        raise InputError(f"{path} holds a negative length", "repair the line")
    order = np.argsort(trace.offsets_s, kind="stable")
    return Trace(
        offsets_s=trace.offsets_s[order] - trace.offsets_s[order[0]],
        input_tokens=np.maximum(trace.input_tokens[order], 1),
        output_tokens=np.maximum(trace.output_tokens[order], 1),
        block_keys=tuple(trace.block_keys[i] for i in order) if trace.block_keys else (),
        block_tokens=trace.block_tokens,
    )
