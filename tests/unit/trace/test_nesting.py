import random
from itertools import pairwise

import numpy as np
from helpers.xspace import event, line, plane, space
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.trace.events import Events, enclosing, parents
from pytest_tfperf.trace.xspace import decode_trace


def events_of(*lines):
    """Make events from the (start, end) of each line."""
    encoded = (
        line(f"line {row}", *(event("x", start, end - start) for start, end in spans))
        for row, spans in enumerate(lines)
    )
    return Events.of(decode_trace(space(plane("p", *encoded))).planes[0])


def places(events):
    """Return a row of sort keys for each event; the first of equal events encloses the others."""
    return list(
        zip(
            events.line.tolist(),
            events.start.tolist(),
            (-events.end).tolist(),
            range(len(events)),
            strict=True,
        )
    )


def innermost(candidates, one):
    """Return the index of the last candidate, by start, end and place, that encloses one, or -1."""
    including = [
        other
        for other in candidates
        if other[0] == one[0] and other[1] <= one[1] and other[2] <= one[2]
    ]
    return max(including, default=(-1,))[-1]


def parents_by_search(events):
    return [
        innermost([other for other in places(events) if other < one], one) for one in places(events)
    ]


def enclosing_by_search(outer, inner):
    return [innermost(places(outer), one) for one in places(inner)]


def nested(chance, begin, end, depth):
    """
    Draw spans in begin:end that enclose each other or do not overlap.

    They come in any order and may touch, be equal or empty.
    """
    if depth == 0:
        return []
    cuts = sorted(chance.randint(begin, end) for _ in range(chance.randrange(7)))
    found = [(start, stop) for start, stop in pairwise(cuts) if chance.random() < 0.7]
    found += [span for start, stop in found for span in nested(chance, start, stop, depth - 1)]
    chance.shuffle(found)
    return found


SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), max_size=7)
LINES = st.lists(SPANS, max_size=3)


# against a search through all pairs


def test_parents_of_nested_events_equal_those_of_a_search():
    for seed in range(40):
        chance = random.Random(seed)
        events = events_of(*(nested(chance, 0, 30, 5)[:80] for _ in range(chance.randrange(1, 4))))
        assert parents(events).tolist() == parents_by_search(events), seed


def test_enclosing_events_equal_those_of_a_search():
    for seed in range(40):
        chance = random.Random(seed)
        events = events_of(*(nested(chance, 0, 30, 5)[:80] for _ in range(chance.randrange(1, 4))))
        outer, inner = (
            events.where(np.array([chance.random() < 0.6 for _ in range(len(events))], bool))
            for _ in range(2)
        )
        assert enclosing(outer, inner).tolist() == enclosing_by_search(outer, inner), seed


@given(LINES)
def test_parents_of_overlapping_events_equal_those_of_a_search(lines):
    events = events_of(*lines)
    assert parents(events).tolist() == parents_by_search(events)


@given(LINES, st.lists(st.booleans(), min_size=21, max_size=21))
def test_enclosing_overlapping_events_equal_those_of_a_search(lines, chosen):
    events = events_of(*lines)
    mask = np.array(chosen[: len(events)], bool)
    assert enclosing(events.where(mask), events.where(~mask)).tolist() == enclosing_by_search(
        events.where(mask), events.where(~mask)
    )


# boundaries


NESTED = [
    ([], []),
    ([(0, 1)], [-1]),
    ([(0, 5), (5, 9)], [-1, -1]),
    ([(0, 9), (0, 4)], [-1, 0]),
    ([(0, 4), (0, 9)], [1, -1]),
    ([(0, 9), (5, 9)], [-1, 0]),
    ([(0, 9), (0, 9), (0, 9)], [-1, 0, 1]),
    ([(0, 9), (1, 3), (3, 5), (5, 8)], [-1, 0, 0, 0]),
    ([(0, 9), (1, 5), (2, 3), (6, 7)], [-1, 0, 1, 0]),
    ([(6, 7), (2, 3), (1, 5), (0, 9)], [3, 2, 3, -1]),
    ([(0, 9), (4, 4)], [-1, 0]),
    ([(0, 9), (9, 9)], [-1, 0]),
    ([(5, 9), (5, 5), (0, 9)], [2, 0, -1]),
    ([(0, 5), (3, 9), (4, 5)], [-1, -1, 1]),
]


def test_the_parent_is_the_innermost_enclosing_event():
    for spans, expected in NESTED:
        assert parents(events_of(spans)).tolist() == expected, spans


def test_an_event_of_another_line_is_not_a_parent():
    assert parents(events_of([(0, 9)], [(1, 2), (1, 1)], [], [(0, 20), (0, 9)])).tolist() == [
        -1,
        -1,
        1,
        -1,
        3,
    ]


def test_an_event_in_both_sets_encloses_itself():
    events = events_of([(0, 9), (1, 2)])
    assert enclosing(events, events).tolist() == [0, 1]


def test_empty_sets_have_no_enclosing_events():
    events = events_of([(0, 9), (1, 2)])
    none = events.where(np.zeros(2, bool))
    for outer, inner in [(none, none), (none, events), (events, none)]:
        assert enclosing(outer, inner).tolist() == [-1] * len(inner)


def test_thousands_of_siblings_have_one_parent():
    siblings = [(10 * place, 10 * place + 9) for place in range(5000)]
    events = events_of([(0, 50_000), *siblings, *((start + 1, end - 1) for start, end in siblings)])
    assert parents(events).tolist() == [-1, *[0] * 5000, *range(1, 5001)]
    assert enclosing(events.where(np.arange(len(events)) < 1), events).tolist() == [0] * len(events)


def test_an_event_behind_a_deep_stack_has_the_outer_parent():
    depth = 3000
    stack = [(place, 20_000 - place) for place in range(depth)]
    events = events_of([*stack, (19_999, 20_000), (17_500, 17_501)])
    assert parents(events).tolist() == [-1, *range(depth - 1), 0, 2499]
    assert enclosing(events.where(np.arange(len(events)) < depth), events).tolist() == [
        *range(depth),
        0,
        2499,
    ]
