"""One way to write a table: caption, units in headers, figures aligned, every character escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from enginebook.report.fragment import Fragment, neutral, safe

PLAIN_ROWS = 40


@dataclass(frozen=True)
class Column:
    """A column's heading with its unit; figures stand at the right, words at the left."""

    title: str
    unit: str = ""
    numeric: bool = False
    filtered: bool = False  # the page offers a choice of this column's values

    @property
    def heading(self) -> str:
        """Return the heading as plain text."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Value:
    """A cell.

    Attributes
    ----------
    text
        What is shown.
    sort
        By what the page sorts, when the text will not do.
    best
        Marked as best; only where a comparison says so.
    note
        Smaller text after it: an interval, a source.
    tone
        ``good``, ``bad``, ``old`` or ``open`` for a verdict's colour.
    href
        Where it links to: a relative path.
    code
        Whether it is set in a fixed width.
    """

    text: str
    sort: float | None = None
    best: bool = False
    note: str = ""
    tone: str = ""
    href: str = ""
    code: bool = False


Row = Sequence[Value | str]


def table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    caption: str,
    best_word: str = "best",
    interactive: bool = False,
    folded: str = "",
) -> Fragment:
    """Return a table.

    Parameters
    ----------
    columns, rows
        Each row has one value a column.
    caption
        What the table shows; also its name for screen readers.
    best_word
        What screen readers hear after a value that is marked.
    interactive
        Let the page sort it and filter it by its `Column.filtered` columns.
    folded
        When given, the summary under which the table is folded away.
    """
    values = [[_value(v) for v in row] for row in rows]
    if any(len(row) != len(columns) for row in values):
        raise ValueError(f"a row of the table {caption!r} has not {len(columns)} values")
    kind = ' data-interactive=""' if interactive else ""
    head = "".join(_head(column) for column in columns)
    body = "".join(
        "<tr>"
        + "".join(_cell(c, v, best_word) for c, v in zip(columns, row, strict=True))
        + "</tr>"
        for row in values
    )
    html = (
        f'<div class="eb-table" role="region" tabindex="0" aria-label="{safe(caption)}">'
        f"<table{kind}><caption>{safe(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    if folded:
        html = f'<details class="eb-fold"><summary>{safe(folded)}</summary>{html}</details>'
    return Fragment(html, _plain(columns, values, caption))


def _value(value: Value | str) -> Value:
    return value if isinstance(value, Value) else Value(value)


def _head(column: Column) -> str:
    kind = ' class="eb-num"' if column.numeric else ""
    side = "right" if column.numeric else "left"
    choice = ' data-filter=""' if column.filtered else ""
    unit = f' <span class="eb-unit">({safe(column.unit)})</span>' if column.unit else ""
    return (
        f'<th scope="col"{kind}{choice} style="text-align:{side}">{safe(column.title)}{unit}</th>'
    )


def _cell(column: Column, value: Value, best_word: str) -> str:
    kind = ' class="eb-num"' if column.numeric else ""
    side = "right" if column.numeric else "left"
    sort = f' data-sort="{value.sort:.9g}"' if value.sort is not None else ""
    return f'<td{kind}{sort} style="text-align:{side}">{_content(value, best_word)}</td>'


def _content(value: Value, best_word: str) -> str:
    text = safe(value.text)
    if value.href:
        text = f'<a href="{safe(value.href)}">{text}</a>'
    if value.code:
        text = f"<code>{text}</code>"
    if value.tone:
        text = f'<span class="eb-tone" data-tone="{safe(value.tone)}">{text}</span>'
    if value.best:
        text = f'<b class="eb-best">{text}<span class="eb-hidden"> ({safe(best_word)})</span></b>'
    if value.note:
        text += f' <span class="eb-note">{safe(value.note)}</span>'
    return text


def _plain(columns: Sequence[Column], rows: Sequence[Sequence[Value]], caption: str) -> str:
    """Return the table for terminals; long tables are cut, and say so."""
    texts = [[neutral(c.heading) for c in columns]]
    texts += [[_plain_value(v) for v in row] for row in rows[:PLAIN_ROWS]]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    lines = [neutral(caption)]
    for row in texts:
        padded = [
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    if len(rows) > PLAIN_ROWS:
        lines.append(f"... {len(rows) - PLAIN_ROWS} more rows")
    return "\n".join(lines)


def _plain_value(value: Value) -> str:
    mark = "*" if value.best else ""
    return neutral(f"{value.text}{mark} {value.note}".strip()).replace("\n", " ")
