"""Quantities: how limits are written, and how numbers are shown."""

import ast
import re
from pathlib import Path

import pytest
from helpers.sources import tree
from hypothesis import given
from hypothesis import strategies as st

import pytest_tfperf
from pytest_tfperf.quantities import (
    format_alike,
    format_change,
    format_factor,
    format_quantity,
    parse_quantity,
    told_apart,
)


def refusal(written, unit, bare=False):
    """What is said of a quantity that is refused."""
    try:
        number = parse_quantity(written, unit, bare=bare)
    except ValueError as error:
        return str(error)
    return f"it is read as {number}"


UNITS = ("s", "1/s", "0..1", "ratio", "count", "bytes", "FLOP")


def test_a_quantity_is_read_in_base_units():
    for written, unit, number in [
        (5, "count", 5.0),
        (0.05, "0..1", 0.05),
        ("0.05", "0..1", 0.05),
        ("5%", "0..1", 0.05),
        (" 5 % ", "0..1", 0.05),
        ("+5%", "ratio", 0.05),
        ("-5%", "ratio", -0.05),
        ("150%", "ratio", 1.5),
        (7, "s", 7.0),
        (1024, "bytes", 1024.0),
        (".5", "count", 0.5),
        ("5.", "count", 5.0),
        ("1e-3", "FLOP", 0.001),
        ("7", "1/s", 7.0),
        (".5 s", "s", 0.5),
        ("1.5E2 ms", "s", 0.15),
        ("7 s", "s", 7.0),
        ("20 ms", "s", 0.020),
        ("20ms", "s", 0.020),
        ("20 us", "s", 20e-6),
        ("20 µs", "s", 20e-6),  # micro sign
        ("20 μs", "s", 20e-6),  # Greek mu
        ("20 ns", "s", 20e-9),
        ("2 min", "s", 120.0),
        ("100/s", "1/s", 100.0),
        ("12 B", "bytes", 12.0),
        ("1.5 kB", "bytes", 1500.0),
        ("1.5 KB", "bytes", 1500.0),
        ("1.5 KiB", "bytes", 1536.0),
        ("1.5 GiB", "bytes", 1.5 * 1024**3),
        ("2 GB", "bytes", 2e9),
        ("3 GFLOP", "FLOP", 3e9),
        ("0", "count", 0.0),
        (10**300, "FLOP", 1e300),
    ]:
        assert parse_quantity(written, unit) == number, written


def test_a_percentage_is_the_share_that_division_gives():
    for percent in range(101):
        assert parse_quantity(f"{percent}%", "0..1") == percent / 100, (
            percent
        )  # 35 * 0.01 is not 0.35


def test_what_is_no_quantity_is_refused_with_what_would_be_one():
    for written, unit in [
        ("5 ms", "0..1"),
        ("5%", "s"),
        ("5%", "count"),
        ("5%", "bytes"),
        ("5 s", "1/s"),
        ("100 1/s", "1/s"),
        ("5 gib", "bytes"),
        ("5 MS", "s"),
        ("5 KFLOP", "FLOP"),
        ("5 5", "count"),
        ("1,000", "count"),
        ("1_000", "count"),
        ("0x10", "count"),
        ("1e", "count"),
        ("--5", "count"),
        ("%", "0..1"),
        ("abc", "s"),
        ("", "s"),
        (" ", "s"),
    ]:
        with pytest.raises(ValueError, match="is not a quantity; give a number") as refusal:
            parse_quantity(written, unit)
        assert repr(written) in str(refusal.value), written


@pytest.mark.parametrize(
    ("written", "unit", "right"),
    [
        ("20", "s", "write '20 ms' or '20 s'"),
        (" 0.5 ", "s", "write '0.5 ms' or '0.5 s'"),
        ("0", "s", "write '0 ms' or '0 s'"),
        ("512", "bytes", "write '512 MiB' or '512 GiB'"),
    ],
)
def test_text_without_a_unit_is_refused_with_the_right_form(written, unit, right):
    with pytest.raises(ValueError, match="has no unit; ") as refusal:
        parse_quantity(written, unit)
    assert str(refusal.value) == f"{written!r} has no unit; {right}"
    assert parse_quantity(written, unit, bare=True) == float(written)


def test_what_is_neither_number_nor_text_is_refused_for_every_unit():
    for unit in UNITS:
        for written in [True, False, None, "abc", "", [5], b"5", 5j]:
            assert "is not a quantity" in refusal(written, unit), (written, unit)


def test_what_is_not_finite_is_refused_for_every_unit():
    for unit in UNITS:
        for written in [float("nan"), float("inf"), float("-inf"), "1e400"]:
            said = refusal(written, unit, bare=True)
            assert "is not a finite number" in said, (written, unit)


@pytest.mark.parametrize("written", ["nan", "inf", "-inf", "infinity"])
def test_not_even_the_words_for_it_are_taken(written):
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(written, "s")


def test_a_refusal_names_the_suffixes_of_the_unit():
    with pytest.raises(ValueError, match=r"suffix of ns, us, µs, μs, ms, s, min$"):
        parse_quantity("5 hours", "s")
    with pytest.raises(ValueError, match=r"give a number$"):
        parse_quantity("5 pieces", "count")


def test_a_number_is_written_as_a_person_writes_it():
    for number, unit, text in [
        (0, "s", "0 ns"),
        (0.5e-9, "s", "0.5 ns"),
        (1e-9, "s", "1 ns"),
        (12.4e-6, "s", "12.4 µs"),
        (1e-3, "s", "1 ms"),
        (0.0124, "s", "12.4 ms"),
        (0.999, "s", "999 ms"),
        (0.9994, "s", "999 ms"),
        (0.9995, "s", "1,000 ms"),  # not 1e+03
        (1, "s", "1 s"),
        (-0.002, "s", "-2 ms"),
        (86_400, "s", "86,400 s"),
        (0, "0..1", "0 %"),
        (0.05, "0..1", "5 %"),
        (0.1674, "0..1", "16.7 %"),
        (0.009999, "0..1", "1 %"),
        (0.00012, "0..1", "0.012 %"),
        (0.9994, "0..1", "99.9 %"),
        (0.9995, "0..1", "99.95 %"),  # 100 % are all
        (0.9999, "0..1", "99.99 %"),
        (1 - 1e-12, "0..1", "99.99 %"),
        (0.004, "count", "0.004"),  # 0 is none
        (1e-5, "count", "<0.0001"),
        (4.21e-9, "0..1", "<0.0001 %"),
        (-4.21e-9, "ratio", ">-0.0001 %"),
        (4e-5, "0..1", "0.004 %"),
        (1.0004, "ratio", "100.04 %"),
        (15.84, "ratio", "1,584 %"),
        (1e-16, "s", "<0.0001 ns"),
        (1e-7, "1/s", "<0.0001/s"),
        (56.4965517, "", "56.5"),
        (12345.6, "", "12,346"),
        (-1e-9, "", ">-0.0001"),
        (2.5, "of a newer version", "2.5 of a newer version"),
        (0.05, "count", "0.05"),
        (-0.004, "count", "-0.004"),
        (1, "0..1", "100 %"),
        (-0.05, "0..1", "-5 %"),
        (12.5, "ratio", "1,250 %"),
        (0, "count", "0"),
        (2.5, "count", "2.50"),
        (1234567, "count", "1,234,567"),
        (-3, "count", "-3"),
        (0, "bytes", "0 B"),
        (1023, "bytes", "1,023 B"),
        (1024, "bytes", "1 KiB"),
        (1.5 * 2**30, "bytes", "1.5 GiB"),
        (1024 * 2**40, "bytes", "1,024 TiB"),
        (0, "1/s", "0/s"),
        (12.34, "1/s", "12.3/s"),
        (999.4, "1/s", "999/s"),
        (999.5, "1/s", "1,000/s"),  # not 1e+03
        (1000, "1/s", "1,000/s"),
        (999_999, "FLOP", "999,999 FLOP"),
        (1e6, "FLOP", "1 MFLOP"),
        (3.4e13, "FLOP", "34 TFLOP"),
        (1e18, "FLOP", "1,000,000 TFLOP"),
    ]:
        assert format_quantity(number, unit) == text, (number, unit)


@given(st.floats(-1e300, 1e300), st.sampled_from([*UNITS, "", "bytes/s", "FLOP/s"]))
def test_only_zero_is_written_as_zero_and_nothing_in_powers(number, unit):
    written = format_quantity(number, unit)
    assert not re.search(r"\de[+-]?\d", written)
    digits = float(re.search(r"-?[\d.,]+", written)[0].replace(",", ""))
    assert (digits == 0) == (number == 0)
    assert digits * number >= 0


@given(st.floats(0, 2), st.sampled_from(["0..1", "ratio"]))
def test_only_all_is_100_percent(share, unit):
    assert (format_quantity(share, unit) == "100 %") == (share == 1)


def test_no_output_rounds_a_share_by_itself():
    """Python writes 0.4 % as `0%` and 99.6 % as `100%`; `format_quantity` does not."""
    form = re.compile(r"\A\.\d%\Z|\{[^{}]*:\.\d%\}")
    found = [
        path.name
        for path in sorted(Path(pytest_tfperf.__file__).parent.rglob("*.py"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and form.search(str(node.value))
    ]
    assert found == []


def test_what_is_written_is_read_as_the_same_number():
    for unit in UNITS:
        for number in [0.0, 0.05, 0.25, 1.0, 12.0, 999.0, -0.25]:
            written = format_quantity(number, unit).replace(",", "")
            assert parse_quantity(written, unit) == pytest.approx(number, rel=0.005), (unit, number)


def test_different_numbers_that_are_written_alike_are_told_apart():
    assert told_apart(0.05, 0.06, "0..1") == ""
    assert told_apart(0.05, 0.05, "0..1") == ""
    assert told_apart(0.05001, 0.05, "0..1") == " (exactly 0.05001 and 0.05)"


def test_rates_of_tables_are_written_with_their_prefix():
    for number, unit, text in [
        (1.64e12, "bytes/s", "1.64 TB/s"),
        (12.5e6, "bytes/s", "12.5 MB/s"),
        (3.0, "bytes/s", "3 B/s"),
        (918e12, "FLOP/s", "918 TFLOP/s"),
        (167.4e9, "FLOP/s", "167 GFLOP/s"),
        (0.0, "FLOP/s", "0 FLOP/s"),
    ]:
        assert format_quantity(number, unit) == text, number


def test_both_numbers_of_a_change_have_one_unit():
    for before, after, unit, text in [
        (164_515, 631e6, "FLOP", "0.165 to 631 MFLOP"),
        (631e6, 164_515, "FLOP", "631 to 0.165 MFLOP"),
        (2 * 2**30, 1.5 * 2**30, "bytes", "2 to 1.5 GiB"),
        (0, 512, "bytes", "0 to 512 B"),
        (0, 0, "bytes", "0 to 0 B"),
        (1, 631e6, "FLOP", "1 FLOP to 631 MFLOP"),
        (49_542, 49_544, "FLOP", "49,542 to 49,544 FLOP"),
        (21, 46, "count", "21 to 46"),
        (679e-6, 11.9e-3, "s", "679 µs to 11.9 ms"),
        (1.15, 0.0091, "ratio", "115 % to 0.91 %"),
    ]:
        assert format_change(before, after, unit) == text, (before, after)


def test_two_numbers_side_by_side_have_one_prefix():
    for first, second, unit, texts in [
        (164_515, 631e6, "FLOP", ("0.165 MFLOP", "631 MFLOP")),
        (679e-6, 11.9e-3, "s", ("679 µs", "11.9 ms")),
        (0.0, 2.0**20, "bytes", ("0 B", "1 MiB")),
        (0.0, 0.0, "s", ("0 ns", "0 ns")),
        (3, 4, "count", ("3", "4")),
    ]:
        assert format_alike(first, second, unit) == texts, (first, second)


def test_a_ratio_is_a_factor():
    for ratio, text in [
        (3835.4, "× 3,835"),
        (1.0, "× 1"),
        (1.0714, "× 1.07"),
        (0.0, "× 0"),
        (0.012, "× 0.012"),
        (1 / 3835, "÷ 3,835"),
        (-0.5, "× -0.5"),
    ]:
        assert format_factor(ratio) == text, ratio
