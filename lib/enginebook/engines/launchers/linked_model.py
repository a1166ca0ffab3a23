"""Run a server in a folder where the model lies under the name it is to be served as.

Some servers name a model after its folder. This makes a temporary folder with a link of the wanted
name and the files that are given, changes into it and becomes the server. Standard library only.
Usage: linked_model.py NAME=PATH [FILE:=CONTENT ...] -- PROGRAM [ARGUMENTS ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def prepare(folder: Path, parts: list[str]) -> None:
    """Make the links (``NAME=PATH``) and files (``NAME:=CONTENT``) in a folder."""
    for part in parts:
        name, _, value = part.partition("=")
        if name.endswith(":"):
            (folder / name.removesuffix(":")).write_text(value + "\n", encoding="utf-8")
        else:
            (folder / name).symlink_to(value)


def main() -> None:
    """Prepare the folder and replace this process by the server."""
    split = sys.argv.index("--")
    folder = Path(tempfile.mkdtemp(prefix="enginebook-model-"))
    prepare(folder, sys.argv[1:split])
    os.chdir(folder)
    program, *arguments = sys.argv[split + 1 :]
    os.execvp(program, [program, *arguments])  # noqa: S606 - an argument list, no shell


if __name__ == "__main__":
    main()
