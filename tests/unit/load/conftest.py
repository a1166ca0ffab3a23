"""Fixtures of the load generator's tests; what they are made of stands in load_support."""

from load_support import drive, serve_script

__all__ = ["drive", "serve_script"]
