from helpers.xspace import Ref, Uint, at, line, plane, space

from pytest_tfperf.trace.events import Events, labels, plane_stats, self_times
from pytest_tfperf.trace.xspace import decode_trace


def only_plane(*events, stats=None):
    return decode_trace(space(plane("p", line("a", *events), stats=stats))).planes[0]


def test_each_distinct_text_has_one_label():
    for values, codes, texts in [
        (["x", "y", "x"], [1, 2, 1], ["", "x", "y"]),
        ([Ref("x"), "x", Ref("y")], [2, 2, 1], ["", "y", "x"]),
        ([None, "x", ""], [0, 1, 0], ["", "x"]),
        ([3, 4, 3], [1, 2, 1], ["", "3", "4"]),
        ([], [], [""]),
    ]:
        events = [
            at("e", n, n + 1, **({} if value is None else {"op": value}))
            for n, value in enumerate(values)
        ]
        found, names = labels(Events.of(only_plane(*events)), "op")
        assert [names[code] for code in found] == [texts[code] for code in codes], values
        assert sorted(names) == sorted(texts), values


def test_labels_of_an_absent_stat_are_empty():
    found, names = labels(Events.of(only_plane(at("e", 0, 1, other="x"))), "op")
    assert (found.tolist(), names) == ([0], [""])


def test_plane_stats_keep_their_types():
    stats = {
        "clock_rate": 1530000,
        "size": Uint(1 << 63),
        "peak": 918.5,
        "kind": "TPU v6 Lite",
        "details": b"\x28\x04",
        "vendor": Ref("AMD"),
    }
    assert plane_stats(only_plane(stats=stats)) == {
        "clock_rate": 1530000,
        "size": 1 << 63,
        "peak": 918.5,
        "kind": "TPU v6 Lite",
        "details": b"\x28\x04",
        "vendor": "AMD",
    }


def test_a_plane_without_stats_has_an_empty_mapping():
    assert plane_stats(only_plane()) == {}


def test_self_time_of_events_that_overlap_without_nesting_is_never_negative():
    """Both parts lie in the first event and share a millisecond: 4 + 4 of 6 ms."""
    events = Events.of(only_plane(at("whole", 0, 6), at("one", 0.5, 4.5), at("other", 2, 6)))
    assert (self_times(events) / 1e9).tolist() == [0, 4, 4]
