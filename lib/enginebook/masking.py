"""Secrets of the environment, and texts in which they are hidden wherever they may turn up.

Enginebook never writes a secret by itself. Engines, servers and libraries may: one that prints its
environment, one that repeats a request's headers in an error. What is written passes through here.

Standard library only: the guard of engines uses it, too.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

SECRET = re.compile(
    r"(TOKEN|SECRET|PASSW|API_?KEY|ACCESS_?KEY|CREDENTIAL|PRIVATE_?KEY)(?!.*_?IZER)", re.IGNORECASE
)
# Names that say "token" and mean the unit of text.
_COUNTS = re.compile(r"tokens|tokenizer|token[-_]?(limit|count)", re.IGNORECASE)
_OF_TOKENS = re.compile(r"token[-_](map|ids?)$", re.IGNORECASE)
_PASSWORD_OF_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
LEAST_LENGTH = 8
HIDDEN = "***"


def is_secret_name(name: str) -> bool:
    """Return whether a variable or option of this name holds a secret."""
    return bool(SECRET.search(name)) and not _COUNTS.search(name)


def is_secret_option(name: str) -> bool:
    """Return whether an option of an engine holds a secret; there, tokens have ids and maps."""
    return is_secret_name(name) and not _OF_TOKENS.search(name)


def holds_password(text: str) -> bool:
    """Return whether an address with a password stands in a text."""
    return bool(_PASSWORD_OF_URL.search(text))


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Return the secret values among variables: by their names, and passwords in addresses.

    Values that hide nothing (short ones, numbers, paths, plain words) do not count: hiding them
    would spoil texts that happen to hold the same word.
    """
    named = [v for k, v in environ.items() if is_secret_name(k)]
    quoted = [p for v in environ.values() for p in _PASSWORD_OF_URL.findall(v)]
    inside = [form for p in quoted for form in (p, unquote(p))]
    return [v.strip() for v in (*named, *inside) if _hides(v.strip())]


def _hides(value: str) -> bool:
    if len(value) < LEAST_LENGTH or value.isdigit() or not value.isprintable():
        return False
    plain_word = value.isalpha() and value.islower() and len(value) < 2 * LEAST_LENGTH
    return not plain_word and not (value.startswith(("/", "~")) and Path(value).exists())


class Mask:
    """Hides given secrets in texts, also as they look inside JSON, HTML and addresses."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        self._words = sorted(forms, key=len, reverse=True)
        self._bytes = [word.encode() for word in self._words]

    def __bool__(self) -> bool:
        return bool(self._words)

    def text(self, text: str) -> str:
        """Return a text with stars for secrets."""
        for word in self._words:
            text = text.replace(word, HIDDEN)
        return text

    def data(self, data: bytes) -> bytes:
        """Return bytes of the same length with a star for each byte of a secret."""
        for word in self._bytes:
            if word in data:
                data = data.replace(word, b"*" * len(word))
        return data


def _forms(secret: str) -> set[str]:
    quoted = json.dumps(secret)[1:-1]
    return {secret, quoted, quoted.replace("/", "\\/"), html.escape(secret), quote(secret, safe="")}


def environment_mask(environ: Mapping[str, str] | None = None) -> Mask:
    """Return the mask of this process's environment, or of a given one."""
    return Mask(secrets_in(os.environ if environ is None else environ))


def masked(text: str) -> str:
    """Return a text without the secrets of this process's environment."""
    return environment_mask().text(text)
