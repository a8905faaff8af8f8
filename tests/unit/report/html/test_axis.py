"""Ticks of axes: round numbers, and texts that tell them apart."""

import pytest

from pytest_tfperf.report.html.axis import tick_texts, ticks_between


def test_ticks_are_round_numbers_around_what_is_shown():
    for low, high, ticks, texts in [
        (0, 0.004, [0, 0.001, 0.002, 0.003, 0.004], ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (0, 0.0041, [0, 0.002, 0.004, 0.006], ["0 ms", "2 ms", "4 ms", "6 ms"]),
        (0.0123, 0.0124, [0.0123, 0.01235, 0.0124], ["12.30 ms", "12.35 ms", "12.40 ms"]),
        (3.0, 3.0, [3.0, 4.0], ["3 s", "4 s"]),
        (0.0, 0.0, [0.0, 0.5], ["0 ms", "500 ms"]),
        (2e-6, 9e-6, [2e-6, 4e-6, 6e-6, 8e-6, 10e-6], ["2 µs", "4 µs", "6 µs", "8 µs", "10 µs"]),
    ]:
        found = ticks_between(low, high)
        assert found == pytest.approx(ticks), (low, high)
        assert tick_texts(found) == texts, (low, high)
