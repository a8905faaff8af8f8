"""Numbers of tables: nothing that is not zero looks like zero, and no exponents."""

from pytest_tfperf.report.table_numbers import shown, shown_alike, shown_factor


def test_a_number_for_people():
    for number, unit, text in [
        (0.0, "0..1", "0 %"),
        (4.21e-9, "0..1", "<0.01 %"),
        (-4.21e-9, "ratio", ">-0.01 %"),
        (0.0001, "0..1", "0.01 %"),
        (0.428571, "0..1", "42.9 %"),
        (15.84, "ratio", "1,584 %"),
        (0, "count", "0"),
        (0.001, "count", "<0.01"),
        (3835, "count", "3,835"),
        (0.0277, "s", "27.7 ms"),
        (0.0, "1/s", "0/s"),
        (1e-7, "1/s", "<0.0001/s"),
        (123456.0, "1/s", "123,456/s"),
        (1.5 * 2**30, "bytes", "1.5 GiB"),
        (56.4965517, "", "56.5"),
        (12345.6, "", "12,346"),
        (1e-9, "", "<0.0001"),
        (-1e-9, "", ">-0.0001"),
    ]:
        assert shown(number, unit) == text, (number, unit)


def test_two_numbers_side_by_side_have_one_prefix():
    for first, second, unit, texts in [
        (164_515, 631e6, "FLOP", ("0.165 MFLOP", "631 MFLOP")),
        (679e-6, 11.9e-3, "s", ("679 µs", "11.9 ms")),
        (11.9e-3, 679e-6, "s", ("11.9 ms", "679 µs")),
        (1e-9, 1.0, "s", ("1 ns", "1 s")),
        (0.0, 2.0**20, "bytes", ("0 B", "1 MiB")),
        (0.0, 0.0, "s", ("0 ns", "0 ns")),
        (1.15, 0.00906, "ratio", ("115 %", "0.906 %")),
        (3, 4, "count", ("3", "4")),
    ]:
        assert shown_alike(first, second, unit) == texts, (first, second)


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
        assert shown_factor(ratio) == text, ratio
