"""Graph reachability, by hand."""

from pytest_tfperf.graphs import reached

BEYOND = {"a": ["b", "c"], "b": ["d"], "c": ["d", "a"], "d": [], "e": ["a"], "f": ["f"]}


def test_reached_lists_each_node_once_the_last_successor_first():
    for start, found in [
        ("", ""),
        ("d", "d"),
        ("a", "acdb"),
        ("b", "bd"),
        ("e", "eacdb"),
        ("f", "f"),
        ("bd", "db"),
        ("ff", "f"),
        ("fa", "acdbf"),
    ]:
        assert "".join(reached(start, BEYOND.__getitem__)) == found, start


def test_successors_are_called_once_for_each_node():
    asked = []
    reached("ea", lambda key: asked.append(key) or BEYOND[key])
    assert asked == ["a", "c", "d", "b", "e"]
