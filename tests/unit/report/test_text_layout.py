"""What is done to text and tables that are wider than a terminal, step by step."""

from textwrap import dedent

import pytest

from pytest_tfperf.report.text_layout import fitted_table, wrapped

TITLES = ("stage", "self time a step", "blocks a step", "nothing", "kind")
ROWS = (
    ("Root", "1 ms", "2.5 ms", "", "Python"),
    ("  Map of something with a long name, and longer", "10.5 ms", "", "", "put in by TensorFlow"),
)
SIDES = ("left", "right", "right", "left", "left")


def text(width, rows=ROWS):
    return "\n".join(line.rstrip() for line in fitted_table(TITLES, rows, SIDES, width)) + "\n"


def test_a_wide_terminal_shows_the_whole_table():
    assert text(130) == text(1000)
    assert text(130).splitlines()[0].split() == [word for title in TITLES for word in title.split()]


def test_a_narrower_terminal_breaks_titles_and_drops_empty_columns():
    assert text(95) == dedent("""\
        stage                                               self  blocks  kind
                                                          time a  a step
                                                            step
        -----------------------------------------------  -------  ------  --------------------
        Root                                                1 ms  2.5 ms  Python
          Map of something with a long name, and longer  10.5 ms          put in by TensorFlow
        """)


def test_an_even_narrower_terminal_elides_long_cells():
    assert text(66) == dedent("""\
        stage                    self  blocks  kind
                               time a  a step
                                 step
        --------------------  -------  ------  --------------------
        Root                     1 ms  2.5 ms  Python
          Map …e, and longer  10.5 ms          put in by TensorFlow
        """)


def test_a_very_narrow_terminal_drops_the_last_columns():
    assert text(40) == dedent("""\
        stage                    self  blocks
                               time a  a step
                                 step
        --------------------  -------  ------
        Root                     1 ms  2.5 ms
          Map …e, and longer  10.5 ms
        no room for: kind
        """)


@pytest.mark.parametrize("width", range(40, 140, 3))
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, text(width).splitlines())) <= width


def test_a_table_without_rows_has_its_titles():
    assert "stage" in text(200, rows=())
    assert text(10, rows=())


@pytest.mark.parametrize(
    ("line", "deeper", "shown"),
    [
        ("short", 2, "short"),
        ("FAIL  test: as long as it is", 6, "FAIL  test: as long\n      as it is"),
        ("  try: something else or so", 2, "  try: something\n    else or so"),
        (
            "a/path/that/nobody/would/want/to/see/cut is",
            2,
            "a/path/that/nobody/would/want/to/see/cut\n  is",
        ),
        (
            "FAIL  test_that_has_a_long_name: why not",
            6,
            "FAIL  test_that_has_a_long_name:\n      why not",
        ),
        ("one\n\ntwo", 2, "one\n\ntwo"),
        ("", 2, ""),
    ],
    ids=["fits", "verdict", "indented", "long word", "long name", "lines", "empty"],
)
def test_wrapped_lines_are_indented(line, deeper, shown):
    assert wrapped(line, 20, deeper) == shown
