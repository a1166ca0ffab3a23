"""Small programs that run in an engine's own Python, not in the workbook's."""
