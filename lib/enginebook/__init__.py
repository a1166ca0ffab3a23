"""Reproducible evaluation of LLM inference engines."""

import sys

# jsonschema (under nbformat and altair) imports rfc3987_syntax where it is installed, which builds
# a grammar for 1.3 s at import, for a format check that nothing here uses. A study starts some
# twenty processes that would each pay for it; jsonschema does without when the import fails.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
