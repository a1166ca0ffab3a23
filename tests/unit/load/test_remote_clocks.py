"""Clock offsets: the truth lies within the stated bound whatever the way there and back took."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginebook.load.clocks import Clock, Offset, Stamps, clock_of, offset_of

S = 1_000_000_000
delays = st.integers(0, 50_000_000)


def exchange(
    a0: int, there: int, work: int, back: int, offset: int, *, drift: float = 0.0
) -> Stamps:
    """One exchange with a clock that is ``offset`` ahead at time 0 and runs faster by ``drift``."""

    def theirs(ours: int) -> int:
        return ours + offset + round(drift * ours)

    return Stamps(a0, theirs(a0 + there), theirs(a0 + there + work), a0 + there + work + back)


@given(
    offset=st.integers(-(10**15), 10**15),
    ways=st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=30),
)
def test_the_true_offset_is_within_the_bound(offset: int, ways: list[tuple[int, int, int]]) -> None:
    found = offset_of([exchange(i * S, *way, offset) for i, way in enumerate(ways)])
    assert abs(found.offset_ns - offset) <= found.bound_ns + 1
    assert found.round_trip_ns == min(a + b for a, _, b in ways)
    assert found.exchanges == len(ways)


def test_one_quick_exchange_is_worth_more_than_many_slow_ones() -> None:
    slow = [exchange(i * S, 9_000_000, 0, 1_000_000, 500) for i in range(20)]
    found = offset_of([*slow, exchange(30 * S, 10_000, 0, 30_000, 500)])
    assert found.bound_ns == 20_000
    assert found.offset_ns == 500 - 10_000


def test_no_exchange_tells_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        offset_of([])


@given(
    offset=st.integers(-(10**13), 10**13),
    ppm=st.floats(-200, 200),
    moments=st.lists(st.integers(0, 3600 * S), min_size=1, max_size=20),
)
def test_times_come_back_to_our_clock(offset: int, ppm: float, moments: list[int]) -> None:
    drift = ppm / 1e6
    before = offset_of([exchange(0, 20_000, 0, 20_000, offset, drift=drift)])
    after = offset_of([exchange(3600 * S, 20_000, 0, 20_000, offset, drift=drift)])
    clock = clock_of(before, after)
    theirs = pl.DataFrame({"t": [m + offset + round(drift * m) for m in moments]})
    ours = theirs.select(clock.ours(pl.col("t")))["t"].to_list()
    assert all(abs(a - b) <= clock.bound_ns + 10 for a, b in zip(ours, moments, strict=True))
    assert abs(clock.drift - drift) < 1e-7


def test_nulls_stay_nulls_and_there_and_back_is_the_same() -> None:
    clock = Clock(Offset(S, 5 * S, 10, 20, 1), Offset(11 * S, 5 * S + 1000, 10, 20, 1))
    column = pl.DataFrame({"t": [clock.theirs(7 * S), None]}, schema={"t": pl.Int64})
    assert column.select(clock.ours(pl.col("t")))["t"].to_list() == [7 * S, None]


def test_a_clock_that_was_stepped_widens_the_bound() -> None:
    quiet = [exchange(i * S, 10_000, 0, 10_000, 100) for i in range(1, 9)]
    before = offset_of([exchange(0, 10_000, 0, 10_000, 100)])
    after = offset_of([exchange(10 * S, 10_000, 0, 10_000, 100)])
    assert clock_of(before, after, quiet).bound_ns == 10_000
    stepped = exchange(5 * S, 10_000, 0, 10_000, 3_000_100)
    found = clock_of(before, after, [*quiet, stepped])
    assert found.bound_ns >= 2_980_000
    assert found.report()["beyond_line_us"] > 2_900


def test_without_a_second_measurement_the_offset_is_taken_to_stay() -> None:
    before = offset_of([exchange(0, 10_000, 0, 10_000, 100)])
    assert clock_of(before, None).drift == 0.0
