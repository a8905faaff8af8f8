"""Lines that are wider than a terminal."""

from pytest_tfperf.report.text_layout import wrapped


def test_wrapped_lines_are_indented():
    for line, deeper, shown in [
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
    ]:
        assert wrapped(line, 20, deeper) == shown, line
