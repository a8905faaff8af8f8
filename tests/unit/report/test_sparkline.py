"""A step in one line of text, counted by hand."""

from dataclasses import replace

from helpers.builders import profile
from helpers.sample_run import steps

from pytest_tfperf.report.run_text import share_bar, sparkline, step_line
from pytest_tfperf.text import in_ascii, shows_pictures


def test_a_bar_has_the_shares_of_its_parts():
    assert share_bar([0.5, 0.25, 0.25], "abc") == "a" * 12 + "b" * 6 + "c" * 6
    assert share_bar([0.98, 0.02], "ab") == "a" * 24
    assert len(share_bar([1 / 7] * 7, "ab")) == 24


def test_a_sparkline_goes_from_the_lowest_to_the_highest_level():
    assert sparkline([1.0, 2.0, 3.0, 1.5], "0123") == "0231"


def test_blocks_that_differ_by_less_than_two_per_cent_are_flat():
    assert sparkline([1.0, 1.019, 1.01], "0123") == "000"
    assert sparkline([1.0, 1.021, 1.0], "0123") == "030"
    assert sparkline([-0.02], "0123") == "0"


def test_many_blocks_are_drawn_by_medians_of_neighbours():
    values = [1.0] * 999 + [2.0] * 999 + [50.0, 1.0]
    line = sparkline(values, "0123")
    assert line == "0" * 12 + "3" * 12


def test_one_line_shows_parts_and_blocks():
    shown = replace(profile(steps=steps(0.01, 0.01)), blocks_s=(0.010, 0.012, 0.0112))
    assert step_line(shown) == (
        "████████████▓▓▓▓▓▓▒▒▒▒▒▒ host compute 50 %, input 25 %, not explained 25 %; "
        "▁█▅ blocks, 10 ms to 12 ms"
    )
    assert in_ascii(step_line(shown)).isascii()
    assert step_line(profile()) == ""


def test_only_encodings_with_these_characters_show_them():
    for encoding, expected in [
        ("utf-8", True),
        ("cp1252", False),
        ("ascii", False),
        (None, False),
        ("no-such", False),
    ]:
        assert shows_pictures(encoding) is expected, encoding
