"""Fixtures of the browser tests; what they are made of stands in browser_support."""

from browser_support import chinese_file, chromium, open_page, parts_root, report_file

__all__ = ["chinese_file", "chromium", "open_page", "parts_root", "report_file"]
