"""Charts and tables that belong together, with what a study lacks said once."""

from __future__ import annotations

from typing import Any

from IPython.display import display

from enginebook.report.fragment import NoData


def together(*shown: Any) -> tuple[Any, ...]:
    """Return charts and tables in their order, and then one note for each reason that some lack.

    Without this a study of two scenarios would list a dozen charts of others, one box each.

    Parameters
    ----------
    shown
        What a cell displays: charts, tables, and `NoData` in place of those that cannot be drawn.
    """
    there = [item for item in shown if not isinstance(item, NoData)]
    lacking: dict[str, list[str]] = {}
    for item in shown:
        if isinstance(item, NoData):
            names = lacking.setdefault(item.reason, [])
            if item.what not in names:
                names.append(item.what)
    return (*there, *(NoData("; ".join(names), reason) for reason, names in lacking.items()))


def show(*shown: Any) -> None:
    """Display charts and tables in a notebook as `together` orders them."""
    display(*together(*shown))
