"""Stage report: what all stages left, as one object for charts, tables and findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.frames import arms_frame, lifecycle_frames
from enginebook.report import StudyData, findings, schema
from enginebook.store import write_json


def study_data(book: Book) -> StudyData:
    """Return what this study has measured so far; before the comparison only what was launched."""
    found = {**lifecycle_frames(book), "arms": arms_frame(book.study)}
    frames: dict[str, Any] = {n: schema.conform(n, f, n) for n, f in found.items()}
    return replace(StudyData.of(book), **frames)


def store_findings(book: Book, data: StudyData) -> list[str]:
    """Return the study's findings in three sentences, and store them for `enginebook run`."""
    sentences = list(findings(data, data.language))
    write_json(book.folder / "findings.json", {"findings": sentences})
    return sentences
