"""Changes that caused the retraces of a bare trace: the last that was watched is the last traced."""

from pytest_tfperf.analysis.completion import with_changes

FOUND = (("f", 1, ""), ("g", 1, ""), ("f", 2, ""))


def watched(**changes):
    return tuple((name, 0, change) for name, of_it in changes.items() for change in of_it)


def test_changes():
    cases = [
        ({"f": ["", "a", "b"], "g": ["", "c"]}, ["a", "c", "b"]),
        ({"f": ["a", "b"], "g": ["c"]}, ["a", "c", "b"]),  # traced before the test
        ({"f": ["", "x", "a", "b"], "g": ["c"]}, ["", "c", ""]),  # one more, as between the steps
        ({"f": ["a"]}, ["", "", ""]),  # one was not watched
        ({"h": ["a", "b"]}, ["", "", ""]),
        ({}, ["", "", ""]),
    ]
    for changes, expected in cases:
        found = with_changes(FOUND, watched(**changes))
        assert found == tuple(
            (name, step, change) for (name, step, _), change in zip(FOUND, expected, strict=True)
        ), changes


def test_no_retraces_have_no_changes():
    assert with_changes((), watched(f=["a"])) == ()
