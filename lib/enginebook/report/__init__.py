"""Charts, tables, theme, findings and the offline HTML exporter.

>>> from enginebook import report
>>> data = report.StudyData.of(book)            # in a notebook  # doctest: +SKIP
>>> report.charts.throughput(data)              # doctest: +SKIP
>>> report.tables.summary(data)                 # doctest: +SKIP
"""

from enginebook.report import charts, tables
from enginebook.report.answer import answer, caveats
from enginebook.report.data import StudyData
from enginebook.report.doubts import doubts
from enginebook.report.findings import findings, headline
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.guide_table import decision_guide
from enginebook.report.renderer import enable
from enginebook.report.together import show, together

__all__ = [
    "Fragment",
    "NoData",
    "StudyData",
    "answer",
    "caveats",
    "charts",
    "decision_guide",
    "doubts",
    "enable",
    "findings",
    "headline",
    "show",
    "tables",
    "together",
]
