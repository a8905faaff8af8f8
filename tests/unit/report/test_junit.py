"""Properties of a JUnit report."""

from helpers.builders import profile

from pytest_tfperf.report.ci import properties


def test_each_metric_that_is_known_is_a_property():
    assert properties([profile(step_time=0.1, retraces=2), profile("eval", input_bound=0.25)]) == [
        ("tfperf.step_time", 0.1),
        ("tfperf.retraces", 2.0),
        ("tfperf.eval.input_bound", 0.25),
    ]


def test_names_that_xml_cannot_hold_are_written_without_what_it_cannot():
    assert properties([profile("a\x00b\x1b😀", retraces=0)]) == [("tfperf.a?b?😀.retraces", 0.0)]
