"""What a study lacks is said once for each reason."""

from enginebook.report import Fragment, NoData, together


def test_notes_of_one_reason_become_one_and_stand_last() -> None:
    chart, table = Fragment("<p>a</p>", "a"), Fragment("<p>b</p>", "b")
    shown = together(
        NoData("Prefixes", "no such scenario"),
        chart,
        NoData("Prefixes", "no such scenario"),
        NoData("JSON", "no such scenario"),
        NoData("Energy", "no meter"),
        table,
    )
    assert shown == (
        chart,
        table,
        NoData("Prefixes; JSON", "no such scenario"),
        NoData("Energy", "no meter"),
    )
    assert together() == ()
