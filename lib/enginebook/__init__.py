"""Reproducible evaluation of LLM inference engines."""
