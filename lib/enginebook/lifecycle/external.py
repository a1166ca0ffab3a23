"""A server that somebody else runs: which model it serves and which version it says it is."""

from __future__ import annotations

import http.client
from contextlib import suppress
from dataclasses import dataclass

import orjson

from enginebook.errors import EngineError
from enginebook.lifecycle.readiness import HTTP_OK, Address, model_ids

FIRST_TOKEN_TIMEOUT_S = 120.0
MOST_NAME = 100  # characters of a version


@dataclass(frozen=True)
class Seen:
    """What a foreign server told."""

    model_id: str
    version: str


def look(base_url: str, wanted: str) -> Seen:
    """Ask a foreign server for its models and version and for one token.

    Parameters
    ----------
    wanted
        The model's name; where the server does not know it but serves one model only, that one
        is taken.

    Raises
    ------
    EngineError
        When it does not answer, or serves several models and none of that name.
    """
    address = Address.of(base_url)
    try:
        status, body = address.get("/v1/models")
    except (OSError, http.client.HTTPException) as error:
        raise EngineError(
            f"no server answers at {base_url}: {error}", "start it, or correct base_url"
        ) from error
    names = model_ids(body) if status == HTTP_OK else []
    if wanted not in names and len(names) != 1:
        raise EngineError(
            f"{base_url} serves {', '.join(names) or 'no model that it tells'}, not {wanted}",
            "name one of its models in the study",
        )
    model_id = wanted if wanted in names else names[0]
    address.first_token(model_id, FIRST_TOKEN_TIMEOUT_S)
    return Seen(model_id, _version(address))


def _version(address: Address) -> str:
    with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
        status, body = address.get("/version")
        if status == HTTP_OK:
            return str(orjson.loads(body).get("version") or "unknown")[:MOST_NAME]
    return "unknown"
