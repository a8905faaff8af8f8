"""Changes that caused the retraces of a bare trace: the last that was watched is the last traced."""

from pytest_tfperf.facts.late import with_changes
from pytest_tfperf.function_traces import VALUE, Change, FunctionTrace

FOUND = (FunctionTrace("f", 1), FunctionTrace("g", 1), FunctionTrace("f", 2))


def watched(**changes):
    return tuple(
        FunctionTrace(name, 0, changes_of(change), "t.py:3" if change else None)
        for name, of_it in changes.items()
        for change in of_it
    )


def changes_of(text):
    return (Change(VALUE, text),) if text else ()


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
            one._replace(changes=changes_of(change), line="t.py:3" if change else None)
            for one, change in zip(FOUND, expected, strict=True)
        ), changes


def test_no_retraces_have_no_changes():
    assert with_changes((), watched(f=["a"])) == ()
