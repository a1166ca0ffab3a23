"""Who can reach an engine, and who can read its command line: this host's user, unless told so.

Engines are bound to the loopback by their adapters. A study's ``extra_args`` could undo that, or
put a key where every user of the host sees it; both are refused before anything starts.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence

from enginebook.masking import is_secret_option

EXPOSE = "ENGINEBOOK_EXPOSE"
"""Set to ``yes`` where an engine shall listen beyond the loopback all the same."""

_ADDRESS_OPTIONS = frozenset({"host", "hostname", "server_name", "bind", "listen", "address"})
_LEAST_PREFIX = 2  # characters after the dashes
_NAME = re.compile(r"-{0,2}[A-Za-z][\w.-]*")


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of ``--name value``, ``--name=value`` and ``name=value``.

    Other words that hold a ``=``, such as JSON, are values.
    """
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            if not word.startswith("-"):
                continue
            name, value = word, words[place + 1] if place + 1 < len(words) else ""
        yield name.replace("-", "_").lower(), value.strip("\"'")


def exposed_address(words: Sequence[str]) -> str | None:
    """Return the address beyond this host's loopback that arguments let a server listen on."""
    found = [v for name, v in _options(words) if _says_address(name) and not is_loopback(v)]
    return found[-1] if found else None


def _says_address(name: str) -> bool:
    """Return whether a name with its dashes is an option of addresses, or is completed to one."""
    bare = name.lstrip("_")
    if bare == name or len(bare) < _LEAST_PREFIX:
        return bare in _ADDRESS_OPTIONS
    return any(option.startswith(bare) for option in _ADDRESS_OPTIONS)


def is_loopback(address: str) -> bool:
    """Return whether only this host reaches what listens there."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def is_exposure_wanted() -> bool:
    """Return whether the explicit word was given."""
    return os.environ.get(EXPOSE, "").lower() == "yes"


def refuse_exposure(words: Sequence[str]) -> None:
    """Raise ValueError for an address that others reach, unless that was asked for by name."""
    address = exposed_address(words)
    if address is not None and not is_exposure_wanted():
        raise ValueError(
            f"{address} is reached by other hosts, and engines ask nobody for a password; leave "
            f"it out, or set {EXPOSE}=yes where that is wanted"
        )


def refuse_secret_words(words: Sequence[str]) -> None:
    """Raise ValueError for a key on a command line, which every user of the host can read."""
    for name, value in _options(words):
        if is_secret_option(name) and value and not value.startswith("-"):
            option = name.strip("_").replace("_", "-")
            raise ValueError(
                f"--{option} would show a secret in the list of processes and in every record; "
                "give it in the environment variable that the engine reads"
            )
