"""What is reached in a graph, by hand."""

import pytest

from pytest_tfperf.graphs import reached

BEYOND = {"a": ["b", "c"], "b": ["d"], "c": ["d", "a"], "d": [], "e": ["a"], "f": ["f"]}


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("", ""),
        ("d", "d"),
        ("a", "acdb"),
        ("b", "bd"),
        ("e", "eacdb"),
        ("f", "f"),
        ("bd", "db"),
        ("ff", "f"),
        ("fa", "acdbf"),
    ],
)
def test_what_is_reached_is_found_once_the_last_first(start, found):
    assert "".join(reached(start, BEYOND.__getitem__)) == found


def test_what_lies_beyond_is_asked_once():
    asked = []
    reached("ea", lambda key: asked.append(key) or BEYOND[key])
    assert asked == ["a", "c", "d", "b", "e"]
