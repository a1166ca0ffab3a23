"""What a running server really offers, found out by a handful of short requests."""

from __future__ import annotations

import http.client
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from enginebook.engines.base import Adapter
from enginebook.lifecycle.readiness import HTTP_OK, Address
from enginebook.plain import neutral

TIMEOUT_S = 120.0
LENGTH = 5
CITY_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "old": {"type": "boolean"}},
    "required": ["city", "old"],
    "additionalProperties": False,
}
_ANSWERS = (
    *(OSError, http.client.HTTPException, ValueError, KeyError, TypeError),
    *(IndexError, AttributeError),  # JSON of another form
)
SPECULATED = re.compile(r"^[^#\n]*spec[a-z_]*(?:draft|accept)[^ ]* ([\d.e+]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Feature:
    """One feature of a running server.

    ``ok`` is None where the server gives no way to tell; ``table`` is what the adapter's static
    table says of the engine, None where it says nothing.
    """

    name: str
    ok: bool | None
    value: str
    table: bool | None = None

    @property
    def surprising(self) -> bool:
        """Return whether the table says otherwise."""
        return self.ok is not None and self.table is not None and self.ok != self.table


class Asker:
    """Sends short greedy requests to one server."""

    def __init__(self, base_url: str, model_id: str, engine: Adapter) -> None:
        self.address, self.model_id, self.engine = Address.of(base_url), model_id, engine

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        """Return status and body of an answer."""
        asked = {"model": self.model_id, "temperature": 0, **body}
        status, said = self.address.post(path, asked, TIMEOUT_S)
        return status, said.decode("utf-8", "replace")

    def complete(self, prompt: str | list[int], tokens: int = 1, **body: Any) -> dict[str, Any]:
        """Return a completion's JSON; ValueError when it is refused."""
        status, text = self.post(
            "/v1/completions", {"prompt": prompt, "max_tokens": tokens, **body}
        )
        if status != HTTP_OK:
            raise ValueError(f"HTTP {status}: {text[:120]}")
        return dict(orjson.loads(text))


Finding = tuple[bool | None, str]


def prefix_cache(ask: Asker) -> Finding:
    """Send one long prompt twice and look at the cached tokens of the second answer."""
    prompt = f"{secrets.token_hex(8)} " + "The lighthouse stands on the cliff above the sea. " * 60
    ask.complete(prompt)
    usage = ask.complete(prompt)["usage"]
    cached = _cached(usage)
    if cached is None:
        return None, "usage tells no cached tokens"
    return cached > 0, f"{cached} of {usage['prompt_tokens']} tokens on repetition"


def cached_tokens(ask: Asker) -> Finding:
    """Look whether usage tells cached tokens."""
    cached = _cached(ask.complete(f"{secrets.token_hex(8)} once")["usage"])
    return cached is not None, "in usage" if cached is not None else "not in usage"


def _cached(usage: dict[str, Any]) -> int | None:
    told = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return None if told is None else int(told)


def force_length(ask: Asker) -> Finding:
    """Ask for a length that has to be kept past the end of the text."""
    fields = ask.engine.sampling_fields(LENGTH)
    made = ask.complete("The end.", LENGTH, **fields)["usage"]["completion_tokens"]
    return made == LENGTH, f"{made} of {LENGTH} tokens"


def token_prompts(ask: Asker) -> Finding:
    """Send a prompt as token ids."""
    usage = ask.complete([11, 12, 13, 14])["usage"]
    return usage["prompt_tokens"] == 4, f"4 ids count as {usage['prompt_tokens']}"  # noqa: PLR2004


def stream_usage(ask: Asker) -> Finding:
    """Look whether a stream ends with its token counts."""
    body = {"prompt": "Hello", "max_tokens": 2, "stream": True}
    _, text = ask.post("/v1/completions", {**body, "stream_options": {"include_usage": True}})
    events = [orjson.loads(x[5:]) for x in text.splitlines() if x.startswith("data: {")]
    told = [e["usage"] for e in events if e.get("usage")]
    return bool(told), f"{len(events)} events"


def structured_output(ask: Asker) -> Finding:
    """Ask for JSON of a schema, which a small model would not write by itself."""
    wanted = {"name": "city", "schema": CITY_SCHEMA, "strict": True}
    body = {
        "messages": [{"role": "user", "content": "Name a city."}],
        "response_format": {"type": "json_schema", "json_schema": wanted},
        "max_tokens": 64,
    }
    status, text = ask.post("/v1/chat/completions", body)
    if status != HTTP_OK:
        return False, f"HTTP {status}: {text[:120]}"
    answer = str(orjson.loads(text)["choices"][0]["message"]["content"])
    with suppress(ValueError):
        return _is_city(orjson.loads(answer)), answer[:80]
    return False, answer[:80]


def _is_city(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"city", "old"}
        and isinstance(value["city"], str)
        and isinstance(value["old"], bool)
    )


def metrics(ask: Asker) -> Finding:
    """Look which of the figures that the adapter names are exported."""
    if not ask.engine.metrics:
        return False, "the engine exports none"
    status, body = ask.address.get(ask.engine.metrics_path)
    page = body.decode("utf-8", "replace") if status == HTTP_OK else ""
    missing = [n for n, theirs in ask.engine.metrics.items() if theirs not in page]
    found = len(ask.engine.metrics) - len(missing)
    what = f"{found} of {len(ask.engine.metrics)} figures"
    return found > 0, what + (f"; not: {', '.join(missing)}" if found and missing else "")


def speculative_decoding(ask: Asker) -> Finding:
    """Have a repetitive text continued and look whether tokens were proposed."""
    if not ask.engine.metrics:
        return None, "no metrics tell"
    ask.complete("one two three four five six seven eight nine ten " * 6, 24)
    _, body = ask.address.get(ask.engine.metrics_path)
    told = [float(v) for v in SPECULATED.findall(body.decode("utf-8", "replace"))]
    if not told:
        return None, "no metrics tell"
    return any(v > 0 for v in told), "tokens were proposed" if any(told) else "nothing was proposed"


PROBES: dict[str, Callable[[Asker], Finding]] = {
    "prefix_cache": prefix_cache,
    "cached_tokens": cached_tokens,
    "structured_output": structured_output,
    "speculative_decoding": speculative_decoding,
    "metrics": metrics,
    "force_length": force_length,
    "stream_usage": stream_usage,
    "token_prompts": token_prompts,
}


def look(base_url: str, model_id: str, engine: Adapter) -> list[Feature]:
    """Ask a running server for each feature; a request that fails is an answer, too.

    Speculative decoding is off unless it was asked for, so that the static table says nothing of
    what is found.
    """
    ask = Asker(base_url, model_id, engine)
    found = []
    for name, probe in PROBES.items():
        try:
            ok, value = probe(ask)
        except _ANSWERS as error:
            ok, value = False, neutral(f"{type(error).__name__}: {error}")[:160]
        table = None if name == "speculative_decoding" else engine.features.get(name)
        found.append(Feature(name, ok, value, table))
    return found
