"""What is load-tested: an OpenAI-compatible address, its dialect, and the bytes of a request."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from enginebook.errors import InputError
from enginebook.inquiry import Place
from enginebook.masking import Mask, is_secret_name, secrets_in

Api = Literal["completions", "chat"]
ConstraintField = Literal["response_format", "json_schema"]
Message = Mapping[str, Any]
_PATHS = {"completions": "/completions", "chat": "/chat/completions"}
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "x-auth"})
_LEAST_FIELDS = ("min_tokens", "min_new_tokens")
_LENGTH_FIELDS = (*_LEAST_FIELDS, "n_predict")
# Engines differ in their defaults (some sample at 0.8, some read the model's own
# generation_config), so every field that steers sampling is sent, always.
SAMPLING: Mapping[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "n": 1,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}


@dataclass(frozen=True)
class Address:
    """A base URL, taken apart."""

    tls: bool
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(base_url: str) -> Address:
    """Take a base URL apart.

    Raises
    ------
    InputError
        When it is no http or https URL with a host.
    """
    if "@" in base_url:
        raise InputError(
            "the base URL holds a user name or a password, which would stand in every record",
            "give a key in the environment variable ENGINEBOOK_API_KEY instead",
        )
    try:
        parts = urlsplit(base_url if "://" in base_url else f"http://{base_url}")
        port, host = parts.port, (parts.hostname or "").encode("idna").decode()
    except ValueError:  # UnicodeError is one
        port, host = -1, ""
    plain = base_url.isascii() and base_url.isprintable() and " " not in base_url
    if not plain or not host or port in {-1, 0} or parts.scheme not in {"http", "https"}:
        raise InputError(
            f"base URL {base_url[:200]!r} is not an HTTP address",
            "give it as http://HOST:PORT, for example http://127.0.0.1:8000",
        )
    tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/")
    prefix = prefix if prefix.endswith("/v1") else f"{prefix}/v1"
    return Address(tls, host, port or (443 if tls else 80), prefix)


@dataclass(frozen=True)
class Target:
    """An endpoint under load.

    Attributes
    ----------
    base_url
        ``http://host:port``, with or without ``/v1``.
    model
        The name sent in each request.
    api
        ``completions`` (prompts as token ids, exact by construction) or ``chat`` (prompts as text).
    tokenizer
        A model folder with tokenizer.json; None asks the server's ``/tokenize``.
    api_key
        Sent as a bearer token; never written anywhere.
    extra_body
        Fields added to each request, over the defaults: ``min_tokens`` or ``min_new_tokens``,
        ``cache_prompt`` ... A value of None removes a default field.
    headers
        Further request headers.
    constraint_field
        Where a JSON constraint goes. ``response_format`` is OpenAI's and right for nearly every
        server; llama.cpp heeds it in chat only and wants ``json_schema`` in completions.
    """

    base_url: str
    model: str
    api: Api = "completions"
    tokenizer: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify_tls: bool = True
    constraint_field: ConstraintField = "response_format"

    def __post_init__(self) -> None:
        if self.api not in _PATHS:
            raise InputError(f"unknown api {self.api!r}", "use completions or chat")
        if self.constraint_field not in {"response_format", "json_schema"}:
            raise InputError(
                f"unknown constraint field {self.constraint_field!r}",
                "use response_format or json_schema",
            )
        parse_address(self.base_url)

    @property
    def address(self) -> Address:
        """Return the base URL, taken apart."""
        return parse_address(self.base_url)

    @property
    def path(self) -> str:
        """Return the path that requests are posted to."""
        return self.address.prefix + _PATHS[self.api]

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of a connection, or None for plain HTTP."""
        if not self.address.tls:
            return None
        context = ssl.create_default_context()
        if not self.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def place(self) -> Place:
        """Return where single questions are asked."""
        return Place(self.address.host, self.address.port, self.tls_context())

    def question_headers(self) -> dict[str, str]:
        """Return the headers of a single question that carries JSON."""
        headers = {"Content-Type": "application/json", **self.headers}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def mask(self) -> Mask:
        """Return what hides the key, secret headers and this environment's secrets in answers."""
        secret = [v for k, v in self.headers.items() if is_secret_name(k) or k.lower() in _SECRET]
        given = {f"API_KEY_{i}": v for i, v in enumerate([self.api_key or "", *secret])}
        return Mask([*secrets_in(given), *secrets_in(os.environ)])

    def public(self) -> dict[str, Any]:
        """Return what may be written down: everything but the key and the headers' values."""
        return {
            "base_url": self.base_url,
            "model": self.model,
            "api": self.api,
            "tokenizer": str(self.tokenizer) if self.tokenizer else None,
            "extra_body": dict(self.extra_body),
            "headers": sorted(self.headers),
            "constraint_field": self.constraint_field,
        }


def body_of(
    target: Target,
    prompt: str | Sequence[int] | Sequence[Message],
    output_tokens: int,
    constraint: Mapping[str, Any] | None = None,
    *,
    free_length: bool = False,
) -> bytes:
    """Return the JSON body of a request.

    Parameters
    ----------
    output_tokens
        The answer's exact length; with ``free_length`` the longest that it may be.
    constraint
        Fields that constrain the answer, see ``constraints.constraint_fields``.
    free_length
        Let the answer end by itself, whatever ``extra_body`` says of least lengths.
    """
    fields: dict[str, Any] = {"model": target.model}
    fields["messages" if target.api == "chat" else "prompt"] = prompt
    fields.update(SAMPLING)
    fields["max_tokens"] = output_tokens
    fields.update(target.extra_body)
    # engines' own names for limits come in as keys; their value is this request's length
    for name in _LENGTH_FIELDS:
        if fields.get(name) is not None:
            fields[name] = output_tokens
    if free_length:
        fields |= {"ignore_eos": False, **dict.fromkeys(_LEAST_FIELDS)}
    fields.update(constraint or {})
    return orjson.dumps(
        {k: v for k, v in fields.items() if v is not None}, option=orjson.OPT_SERIALIZE_NUMPY
    )


def head_template(target: Target) -> tuple[bytes, bytes]:
    """Return the request head before and after the values of request id and length."""
    headers = {
        "Host": target.address.authority,
        "User-Agent": "enginebook",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # inflating would stand between the socket and the stamp
        "Content-Type": "application/json",
        "Connection": "keep-alive",
        **target.headers,
    }
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    for name, value in headers.items():
        if any(c in f"{name}{value}" for c in "\r\n"):
            raise InputError(f"header {name!r} holds a line break", "give each header on its own")
    lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    return f"POST {target.path} HTTP/1.1\r\n{lines}X-Request-Id: ".encode(), b"\r\nContent-Length: "


def request_bytes(template: tuple[bytes, bytes], index: int, body: bytes) -> bytes:
    """Return one whole HTTP request."""
    return b"%b%d%b%d\r\n\r\n%b" % (template[0], index, template[1], len(body), body)
