"""The environment of an engine's process, and how it is shown without secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from enginebook.masking import HIDDEN, is_secret_name

# What belongs to the workbook's own interpreter, notebook or installer.
OURS = (
    *("PYTHON", "VIRTUAL_ENV", "CONDA_", "JPY_", "MPLBACKEND", "UV_", "PIP_"),
    *("ENGINEBOOK_API_KEY", "ENGINEBOOK_LOAD_SECRET"),  # no engine needs to know them
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def inherited() -> dict[str, str]:
    """Return this process's environment without what is the workbook's alone.

    Proxies are kept for hub access, but never apply to the loopback.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    past = [p for p in (kept.get("no_proxy") or kept.get("NO_PROXY") or "").split(",") if p]
    direct = ",".join(dict.fromkeys([*past, *LOOPBACK]))
    return {**kept, "no_proxy": direct, "NO_PROXY": direct}


def additions(*layers: Mapping[str, str], offline: bool) -> dict[str, str]:
    """Return what is set on top of the inherited environment; later layers win."""
    merged = {**QUIET, **(OFFLINE if offline else {})}
    for layer in layers:
        merged.update(layer)
    return merged


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the values of secret ones hidden."""
    return {k: HIDDEN if is_secret_name(k) else v for k, v in env.items()}


def masked_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with the values of secret options hidden."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        option = word.startswith("-") and is_secret_name(name.replace("-", "_"))
        if hide_next and not word.startswith("--"):
            shown.append(HIDDEN)
        elif option and equals:
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(word)
        hide_next = option and not equals
    return tuple(shown)
