import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.trace.intervals import (
    EMPTY,
    clip,
    complement,
    covered,
    intersect,
    merge,
    subtract,
    within,
)

TIMES = st.integers(0, 20)
PAIRS = st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=8)
FIRST, LAST = -3, 24  # the axis is a little longer than the intervals


def spans(*pairs):
    return tuple(np.array(pairs, np.int64).reshape(-1, 2).T)


def pairs(intervals):
    return list(zip(*(column.tolist() for column in intervals), strict=True))


def axis(intervals):
    """Return whether each unit of time is in some interval."""
    time = np.arange(FIRST, LAST)[:, None]
    return ((intervals[0] <= time) & (time < intervals[1])).any(axis=1)


def check_merged(intervals):
    assert (intervals[0] < intervals[1]).all()
    assert (intervals[1][:-1] < intervals[0][1:]).all()
    assert intervals[0].dtype == intervals[1].dtype == np.int64


ANY = PAIRS.map(lambda found: spans(*found))
MERGED = ANY.map(merge)
WINDOW = st.tuples(st.integers(FIRST, LAST), st.integers(FIRST, LAST)).map(sorted)


# against a boolean time axis


@given(st.lists(ANY, max_size=3))
def test_merge_is_the_union(sets):
    union = merge(*sets)
    check_merged(union)
    assert (axis(union) == np.any([axis(part) for part in sets] or [axis(EMPTY)], axis=0)).all()


@given(ANY, WINDOW)
def test_clip_keeps_the_part_in_the_window(intervals, window):
    clipped = clip(intervals, *window)
    assert (axis(clipped) == axis(intervals) & axis(spans(window))).all()
    assert (clipped[0] < clipped[1]).all()


@given(MERGED, WINDOW)
def test_within_is_the_part_of_a_merged_set_in_the_window(intervals, window):
    check_merged(within(intervals, *window))
    assert (axis(within(intervals, *window)) == axis(intervals) & axis(spans(window))).all()


@given(MERGED, WINDOW)
def test_complement_is_the_rest_of_the_window(intervals, window):
    free = complement(intervals, *window)
    check_merged(free)
    assert (axis(free) == ~axis(intervals) & axis(spans(window))).all()


@given(MERGED, MERGED)
def test_intersect_is_the_intersection(one, other):
    both = intersect(one, other)
    check_merged(both)
    assert (axis(both) == axis(one) & axis(other)).all()


@given(MERGED, MERGED)
def test_subtract_is_the_difference(one, other):
    rest = subtract(one, other)
    check_merged(rest)
    assert (axis(rest) == axis(one) & ~axis(other)).all()


@given(MERGED, st.lists(WINDOW, max_size=6))
def test_covered_counts_the_units_of_each_window(intervals, windows):
    found = covered(intervals, *spans(*windows))
    assert found.dtype == np.int64
    assert found.tolist() == [
        int((axis(intervals) & axis(spans(window))).sum()) for window in windows
    ]


# boundaries


def test_merge_joins_touching_spans_and_drops_empty_ones():
    for given_pairs, union in [
        ([], []),
        ([(3, 3)], []),
        ([(0, 1), (1, 2)], [(0, 2)]),
        ([(0, 1), (2, 3)], [(0, 1), (2, 3)]),
        ([(2, 3), (0, 1)], [(0, 1), (2, 3)]),
        ([(0, 9), (2, 3), (4, 5), (8, 10)], [(0, 10)]),
        ([(0, 5), (0, 2), (0, 5)], [(0, 5)]),
        ([(0, 1), (1, 1), (2, 2)], [(0, 1)]),
        ([(-5, -3), (-3, 0)], [(-5, 0)]),
        (
            [(2**61, 2**61 + 1), (2**61 + 2, 2**61 + 3)],
            [(2**61, 2**61 + 1), (2**61 + 2, 2**61 + 3)],
        ),
    ]:
        assert pairs(merge(spans(*given_pairs))) == union, given_pairs
        assert pairs(merge(*(spans(pair) for pair in given_pairs))) == union, given_pairs


def test_complement_at_the_edges_of_its_window():
    for window, free in [
        ((0, 10), [(0, 2), (4, 6), (8, 10)]),
        ((2, 8), [(4, 6)]),
        ((3, 7), [(4, 6)]),
        ((4, 6), [(4, 6)]),
        ((2, 4), []),
        ((5, 5), []),
        ((7, 1), []),
        ((-9, -7), [(-9, -7)]),
        ((9, 12), [(9, 12)]),
    ]:
        assert pairs(complement(spans((2, 4), (6, 8)), *window)) == free, window


def test_complement_of_nothing_is_the_window():
    assert pairs(complement(EMPTY, 3, 5)) == [(3, 5)]


def test_touching_sets_have_an_empty_intersection():
    for one, other in [
        ([], []),
        ([], [(0, 1)]),
        ([(0, 1)], []),
        ([(0, 1)], [(1, 2)]),
        ([(0, 1)], [(5, 6)]),
    ]:
        assert pairs(intersect(spans(*one), spans(*other))) == [], (one, other)
        assert pairs(subtract(spans(*one), spans(*other))) == one, (one, other)


def test_a_set_minus_itself_is_empty():
    assert pairs(subtract(spans((0, 2), (4, 6)), spans((0, 2), (4, 6)))) == []


def test_covered_in_windows_before_across_and_behind():
    for window, length in [
        ((0, 2), 0),
        ((0, 3), 1),
        ((2, 4), 2),
        ((3, 3), 0),
        ((3, 7), 2),
        ((4, 6), 0),
        ((0, 100), 4),
        ((8, 100), 0),
        ((7, 100), 1),
        ((-100, -50), 0),
        ((-100, 3), 1),
    ]:
        assert covered(spans((2, 4), (6, 8)), *spans(window)).tolist() == [length], window


def test_covered_is_exact_beyond_double_precision():
    assert covered(
        spans((2**61, 2**61 + 3)), *spans((2**61 + 1, 2**61 + 2), (0, 2**62))
    ).tolist() == [1, 3]


def test_covered_without_spans_or_windows():
    assert covered(EMPTY, *spans((0, 5), (1, 2))).tolist() == [0, 0]
    assert covered(spans((0, 5)), *EMPTY).tolist() == []
