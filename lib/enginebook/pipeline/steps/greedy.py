"""The same greedy prompts through every engine, to see that each computes the same model.

An engine that answers nonsense can be fast. In float32 all engines give the same text for these
short prompts; a difference is shown with the place where it begins, and never hidden.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from enginebook.errors import EngineError

PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village,",
    "def add(a, b):\n    return",
)
OUTPUT_TOKENS = 16
TIMEOUT_S = 120.0


def greedy_texts(base_url: str, model: str) -> list[dict[str, str]]:
    """Return prompt and greedy continuation for each of `PROMPTS`, from a running server.

    Raises
    ------
    EngineError
        When the server refuses or does not answer a completion.
    """
    return [{"prompt": p, "text": _complete(base_url, model, p)} for p in PROMPTS]


def _complete(base_url: str, model: str, prompt: str) -> str:
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 0,
        "top_p": 1,
        "seed": 0,
        "stream": False,
    }
    request = urllib.request.Request(  # noqa: S310 (our own server's http URL)
        f"{base_url.rstrip('/')}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            return str(json.load(response)["choices"][0]["text"])
    except (OSError, ValueError, LookupError) as error:
        raise EngineError(
            f"no greedy completion from {base_url}: {error}", "look at the engine's log"
        ) from error


def agreement(texts: Mapping[str, Sequence[Mapping[str, str]]]) -> list[dict[str, Any]]:
    """Compare every engine's texts with the first engine's.

    Parameters
    ----------
    texts
        Engine name to what `greedy_texts` returned.

    Returns
    -------
    list of dict
        ``engine``, ``reference``, ``prompt``, ``equal``, and ``first_difference`` (characters from
        the start, None when equal).
    """
    names = list(texts)
    rows = []
    for name in names[1:]:
        for ours, theirs in zip(texts[name], texts[names[0]], strict=True):
            place = first_difference(ours["text"], theirs["text"])
            rows.append(
                {
                    "engine": name,
                    "reference": names[0],
                    "prompt": ours["prompt"],
                    "equal": place is None,
                    "first_difference": place,
                }
            )
    return rows


def first_difference(left: str, right: str) -> int | None:
    """Return the index of the first differing character, or None when the texts are equal."""
    pairs = enumerate(zip_longest(left, right))
    return next((place for place, (a, b) in pairs if a != b), None)
