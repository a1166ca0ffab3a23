"""Stage report: what all stages left, as one object for charts, tables and findings."""

from __future__ import annotations

from enginebook.pipeline.book import Book
from enginebook.report import findings as wording
from enginebook.report.data import StudyData
from enginebook.store import write_json


def study_data(book: Book) -> StudyData:
    """Return what this study has measured so far."""
    return StudyData.of(book)


def store_findings(book: Book, data: StudyData) -> list[str]:
    """Return the study's findings in three sentences, and store them for `enginebook run`."""
    sentences = list(wording.findings(data, data.language))
    write_json(book.folder / "findings.json", {"findings": sentences})
    return sentences
