"""Text for people: cut strings, counted nouns, shortened lists, aligned columns."""

from pytest_tfperf.text import (
    aligned,
    and_more,
    elide,
    for_terminal,
    format_slowdown,
    format_slowdowns,
    plural,
    wrapped,
)


def test_elide_keeps_both_ends_of_a_long_text():
    for text, width, shown in [
        ("test_step", 9, "test_step"),
        ("test_step", 8, "te…_step"),
        ("test_step", 4, "t…ep"),
        ("test_step", 1, "…"),
        ("", 3, ""),
    ]:
        assert elide(text, width) == shown, (text, width)


def test_an_elided_text_has_exactly_the_width():
    for width in range(1, 30):
        assert len(elide("abc" * 20, width)) == width, width


def test_a_noun_is_singular_for_one_alone():
    assert [plural(n, "test") for n in (0, 1, 2)] == ["0 tests", "1 test", "2 tests"]
    assert [plural(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]


def test_a_long_list_is_counted_beyond_the_limit():
    for n, separator, shown in [
        (0, ", ", ""),
        (2, ", ", "a0, a1"),
        (3, ", ", "a0, a1, a2"),
        (5, ", ", "a0, a1, a2, and 2 more"),
        (4, "; ", "a0; a1; a2; and 1 more"),
    ]:
        assert and_more([f"a{i}" for i in range(n)], 3, separator) == shown, n


def test_columns_are_aligned_to_their_sides():
    rows = [("step", "1 ms"), ("gap", "12.5 ms")]
    assert aligned(rows) == ["step  1 ms", "gap   12.5 ms"]
    assert aligned(rows, ("left", "right")) == ["step     1 ms", "gap   12.5 ms"]
    assert aligned([]) == []


def test_a_ratio_of_times_is_a_change():
    for ratio, text in [
        (1.0, "0 % slower"),
        (1 - 1e-9, "0 % slower"),
        (1.00001, "<0.01 % slower"),
        (0.99999, "<0.01 % faster"),
        (1.0004, "0.04 % slower"),
        (1.083, "8.3 % slower"),
        (0.935, "6.5 % faster"),
        (1.0994, "9.9 % slower"),
        (1.0996, "10 % slower"),
        (1.999, "100 % slower"),
        (2.0, "2 times slower"),
        (0.5, "2 times faster"),
        (17.53, "17.5 times slower"),
        (1234.5, "1,234 times slower"),
    ]:
        assert format_slowdown(ratio) == text, ratio


def test_an_interval_of_ratios_names_what_both_ends_share_once():
    for low, high, text in [
        (1.07, 1.096, "7 to 9.6 % slower"),
        (0.9, 0.95, "5 to 10 % faster"),
        (0.952, 1.147, "4.8 % faster to 15 % slower"),
        (4.27, 9.2, "4.27 to 9.2 times slower"),
        (1.5, 2.5, "50 % slower to 2.5 times slower"),
        (1.0, 1.0, "0 to 0 % slower"),
    ]:
        assert format_slowdowns(low, high) == text, low


def test_text_of_others_is_no_command_of_a_ci_system():
    """As GitHub's runner finds commands: TryParseV2 and TryParse of src/Runner.Common/ActionCommand.cs."""
    for text, shown in [
        ("::error::x", ": :error::x"),
        ("a\n \t\u3000::error file=y::x", "a\n \t\u3000: :error file=y::x"),
        ("a\r::error::x", "a\ufffd::error::x"),  # no runner splits lines there any more
        ("in a line ##[add-mask]y, ##vso[task.x]z", "in a line ## [add-mask]y, ## vso[task.x]z"),
        ("test_x.py::test_y, a ::b::", "test_x.py::test_y, a ::b::"),
        ("::test_y", "::test_y"),  # without a second pair of colons it is none
        ("# a\n## b [c]", "# a\n## b [c]"),
        ("a\x1b[31m\u202eb\tc\nd", "a\ufffd[31m\ufffdb\tc\nd"),
    ]:
        assert for_terminal(text) == shown, text
        assert for_terminal(shown) == shown, text


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
