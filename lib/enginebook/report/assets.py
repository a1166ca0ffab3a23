"""What the page carries inside itself: styles, scripts, the chart library, and its own lock.

The content security policy lets exactly these scripts run and nothing load, so a report opened
from a mail can neither call home nor run what an engine's log or a model's name smuggled in.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import jinja2
import vl_convert

from enginebook.report import theme
from enginebook.report.renderer import vegalite_version

FOLDER = Path(__file__).parent / "template"


@cache
def environment() -> jinja2.Environment:
    """Return the templates, which escape whatever is not declared to be HTML."""
    loader = jinja2.FileSystemLoader(FOLDER)
    return jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )


def script(name: str) -> str:
    """Return one of our scripts."""
    return (FOLDER / name).read_text(encoding="utf-8").strip()


@cache
def chart_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script (about 0.9 MB)."""
    # the stub file asks for a snippet, the function does not
    bundle = vl_convert.javascript_bundle(vl_version=vegalite_version())  # type: ignore[call-arg]
    return str(bundle).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def styles() -> str:
    """Return the page's styles, with the dark partner of every chart colour.

    Charts are drawn once, in light colours; a rule a colour turns them dark on screen. Paper
    always gets the light ones.
    """
    base = (FOLDER / "report.css").read_text(encoding="utf-8")
    rules = "".join(
        f':root[data-dark] .eb-mount [{attribute}="{light}"]{{{attribute}:{dark}}}'
        for light, dark in theme.swaps().items()
        for attribute in ("fill", "stroke")
    )
    return f"{base}\n@media screen{{{rules}}}\n"


def policy(scripts: list[str]) -> str:
    """Return the content security policy that allows these inline scripts alone."""
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in scripts) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
