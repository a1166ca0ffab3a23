"""Finds out before a run what a server adds to a text prompt (chat template, opening token)."""

from __future__ import annotations

from typing import Any

import orjson

from enginebook.errors import InputError
from enginebook.load.answers import whole
from enginebook.load.prompts import PromptSource, exact_text
from enginebook.load.question import NoAnswerError, post_json
from enginebook.load.target import Target, body_of
from enginebook.load.tokens import Tokens
from enginebook.load.workload import Workload

_PROBE_INDEX = -1_000_003  # a prompt that no run sends
_PROBE_TOKENS = 32
_TIMEOUT_S = 120.0


def prompt_overhead(
    target: Target, workload: Workload, source: PromptSource, tokens: Tokens
) -> int:
    """Return how many tokens the server counts beyond those of a text, 0 for prompts of ids.

    Asks for one token of an answer and reads ``usage.prompt_tokens``; a server without usage is
    taken to add none, and the equal-work gate will say that lengths are unproved.
    """
    as_text = target.api == "chat" or workload.prompt_as == "text"
    if not as_text:
        return 0
    text = exact_text(tokens, source.ids(_PROBE_INDEX, _PROBE_TOKENS), _PROBE_TOKENS)
    prompt: Any = [{"role": "user", "content": text}] if target.api == "chat" else text
    usage = ask(target, prompt, output_tokens=1).get("usage") or {}
    counted = whole(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return max(0, counted - _PROBE_TOKENS) if counted is not None else 0


def ask(target: Target, prompt: Any, output_tokens: int) -> dict[str, Any]:
    """Send one request that is not streamed and return its JSON.

    Raises
    ------
    InputError
        When the server does not answer it.
    """
    fields = orjson.loads(body_of(target, prompt, output_tokens))
    fields.pop("stream", None)
    fields.pop("stream_options", None)
    try:
        value = post_json(target, target.path, fields, _TIMEOUT_S)
    except NoAnswerError as error:
        raise InputError(
            f"{target.address.authority}{target.path} did not answer a first request: {error}",
            "check the address, the model name and the api (completions or chat)",
        ) from error
    return value if isinstance(value, dict) else {}
