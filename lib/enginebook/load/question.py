"""One question to a target beside the load: JSON there, JSON back, within limits."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any

import orjson

from enginebook.inquiry import asking, whole_of
from enginebook.load.target import Target

_SAID_BYTES = 300


class NoAnswerError(Exception):
    """The server gave no answer of JSON; the text says what it did instead, without the key."""


def post_json(target: Target, path: str, fields: Mapping[str, Any], timeout_s: float) -> Any:
    """Return the JSON value that a server answers.

    Raises
    ------
    NoAnswerError
        When it cannot be reached, refuses, redirects, takes too long, or answers something else.
    """
    body, headers = orjson.dumps(fields), target.question_headers()
    try:
        with asking(
            target.place(), "POST", path, timeout_s, body=body, headers=headers
        ) as response:
            said = whole_of(response)
        if response.status != http.client.OK:
            text = said[:_SAID_BYTES].decode("utf-8", "replace").strip()
            raise NoAnswerError(target.mask().text(f"HTTP {response.status} {text}".strip()))
        return orjson.loads(said)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(target.mask().text(f"{error}" or type(error).__name__)) from error
