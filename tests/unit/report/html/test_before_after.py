"""Bars of a step before and after, counted by hand."""

from helpers.sample_run import steps

from pytest_tfperf.report.html.before_after import before_after, parts_of_detail


def test_both_bars_have_the_scale_of_the_longer_one():
    # after: 0.02 s a step, of it 25 % input, 50 % host compute, 25 % other
    picture = before_after({"input": 0.002, "host_compute": 0.008}, steps(0.02, 0.02), [])
    before, after = picture.bars
    assert [(one.part, one.left, one.width) for one in before.segments] == [
        ("input", 0, 10),
        ("host_compute", 10, 40),
    ]
    assert [(one.part, one.left, one.width) for one in after.segments] == [
        ("input", 0, 25),
        ("host_compute", 25, 50),
        ("other", 75, 25),
    ]
    assert before.title == "before, mean 10 ms"
    assert after.title == "after, mean 20 ms"
    assert picture.label.startswith(
        "before, mean 10 ms: input 2 ms, host compute 8 ms; after, mean 20 ms"
    )


def test_changes_go_right_where_they_cost_time_and_left_where_they_save_it():
    found = before_after({}, (), [("+2 ms: a", 0.002), ("−1 ms: b", -0.001), ("c new", None)])
    assert found.bars == ()
    assert [(one.left, one.width, one.tone) for one in found.changes] == [
        (50, 50, "slower"),
        (25, 25, "faster"),
        (50, 0, "slower"),
    ]


def test_nothing_to_show_is_no_picture():
    assert before_after({}, steps(0.01), []) is None
    assert before_after({"input": 0.0}, (), []) is None


def test_parts_of_an_older_run_file_are_unknown():
    assert parts_of_detail({}) == {}
    assert parts_of_detail({"parts_before": {"input": 0.1, "new part": 1}}) == {"input": 0.1}
