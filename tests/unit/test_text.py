"""Text for people: cut strings, counted nouns, shortened lists, aligned columns."""

import pytest

from pytest_tfperf.text import aligned, and_more, elide, plural


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("test_step", 9, "test_step"),
        ("test_step", 8, "te…_step"),
        ("test_step", 4, "t…ep"),
        ("test_step", 1, "…"),
        ("", 3, ""),
    ],
)
def test_elide_keeps_both_ends_of_a_long_text(text, width, shown):
    assert elide(text, width) == shown


@pytest.mark.parametrize("width", range(1, 30))
def test_an_elided_text_has_exactly_the_width(width):
    assert len(elide("abc" * 20, width)) == width


def test_a_noun_is_singular_for_one_alone():
    assert [plural(n, "test") for n in (0, 1, 2)] == ["0 tests", "1 test", "2 tests"]
    assert [plural(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]


@pytest.mark.parametrize(
    ("n", "separator", "shown"),
    [
        (0, ", ", ""),
        (2, ", ", "a0, a1"),
        (3, ", ", "a0, a1, a2"),
        (5, ", ", "a0, a1, a2, and 2 more"),
        (4, "; ", "a0; a1; a2; and 1 more"),
    ],
)
def test_a_long_list_is_counted_beyond_the_limit(n, separator, shown):
    assert and_more([f"a{i}" for i in range(n)], 3, separator) == shown


def test_columns_are_aligned_to_their_sides():
    rows = [("step", "1 ms"), ("gap", "12.5 ms")]
    assert aligned(rows) == ["step  1 ms", "gap   12.5 ms"]
    assert aligned(rows, ("left", "right")) == ["step     1 ms", "gap   12.5 ms"]
    assert aligned([]) == []


def test_a_rule_stands_below_titles():
    assert aligned([("part", "time"), ("input", "1 ms")], n_titles=1) == [
        "part   time",
        "-----  ----",
        "input  1 ms",
    ]
