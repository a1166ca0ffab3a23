"""Code of the package that nothing uses, by vulture.

Users are the package, the notebooks' cells, the Snakefiles and docs/api.md. Tests are none: what
only a test calls is dead. Names that a framework calls or a file receives stand in dead_code.toml.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import tomllib
from pathlib import Path

from locked import ROOT
from vulture import Vulture

RULES = ROOT / "tools" / "dead_code.toml"
PACKAGE = ROOT / "lib" / "enginebook"
WORD = re.compile(r"[A-Za-z_]\w*")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SNAKEFILES = "pipeline/Snakefile*"


def cells(notebook: Path) -> str:
    """Return the code of a notebook, without IPython's own commands."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    lines = [
        line.rstrip("\n")
        for cell in content["cells"]
        if cell["cell_type"] == "code"
        for line in [*cell["source"], "\n"]
    ]
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def examples(page: Path) -> str:
    """Return the Python code of a page."""
    return "\n".join(PYTHON.findall(page.read_text(encoding="utf-8")))


def attributes(snakefile: Path) -> str:
    """Return the words of a Snakefile as Python that uses them: its syntax is not Python's."""
    words = set(WORD.findall(snakefile.read_text(encoding="utf-8")))
    return "\n".join(f"_.{word}" for word in sorted(words) if not keyword.iskeyword(word))


def finder(root: Path = ROOT) -> Vulture:
    """Return a vulture that has read the package and its users."""
    rules = tomllib.loads(RULES.read_text(encoding="utf-8"))
    found = Vulture(ignore_names=rules["called_by_others"], ignore_decorators=rules["decorators"])
    allowed = [name for group in rules["fields"].values() for name in group]
    found.scan("\n".join(f"_.{name}" for name in allowed), Path("dead_code.toml"))
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        found.scan(cells(notebook), notebook)
    found.scan(examples(root / "docs" / "api.md"), root / "docs" / "api.py")
    for snakefile in sorted(PACKAGE.glob(SNAKEFILES)):
        found.scan(attributes(snakefile), Path(f"{snakefile}.py"))
    found.scavenge([str(PACKAGE)])
    return found


def unneeded(root: Path = ROOT) -> list[str]:
    """Return the allowed fields that the package no longer has."""
    rules = tomllib.loads(RULES.read_text(encoding="utf-8"))
    sources = (root / "lib" / "enginebook").rglob("*.py")
    words = {w for path in sources for w in WORD.findall(path.read_text(encoding="utf-8"))}
    return [n for group in rules["fields"].values() for n in group if n not in words]


def main() -> int:
    """Print dead code; exit 1 when there is some."""
    items = [i for i in finder().get_unused_code() if PACKAGE in Path(i.filename).parents]
    for item in items:
        place = Path(item.filename).relative_to(ROOT)
        print(f"{place}:{item.first_lineno}: unused {item.typ} {item.name}")
    for name in unneeded():
        print(f"tools/dead_code.toml: {name} is no longer in the package")
    return 1 if items or unneeded() else 0


if __name__ == "__main__":
    sys.exit(main())
