"""Sizes that fill their tiles, counted by hand."""

from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.tpu.tiles import better_size, good_size

GOOD_SIZES = [
    (1, 8, 8),
    (8, 8, 8),
    (9, 8, 8),
    (10, 8, 16),
    (100, 8, 104),
    (20, 8, 24),
    (30522, 8, 30528),
    (50257, 64, 50304),
    (129, 128, 128),
    (144, 128, 128),
    (145, 128, 256),
    (10, 128, 128),
    (1000, 128, 1024),
    (0, 8, 8),
]


def test_the_good_size_is_the_next_multiple_or_a_close_lower_one():
    for size, step, good in GOOD_SIZES:
        assert good_size(size, step) == good, (size, step)


SAVINGS = [
    (
        "f32[100,1000]{1,0:T(8,128)}",
        "100 → 104: saves 15.6 KiB",
    ),  # 25,984 bytes of padding, then 9,984
    ("f32[1024,10]{1,0:T(8,128)}", "10 → 128: saves 472 KiB"),
    ("f32[1024,10]{0,1:T(8,128)}", "10 → 16: saves 24 KiB"),
    ("f32[30522,768]{1,0:T(8,128)}", "30,522 → 30,528: saves 18 KiB"),
    ("f32[1025,128]{1,0:T(8,128)}", "1,025 → 1,024: saves 3.5 KiB"),
    (
        "f32[9,16]{1,0:T(8,128)}",
        "9 → 8: saves 3.94 KiB",
    ),  # 7,616 bytes of padding, then 3,584; 16 → 128 leaves the same
    ("f32[16,9]{1,0:T(8,128)}", "9 → 128: saves 7.44 KiB"),
    ("f32[129,129]{1,0:T(8,128)}", "129 → 128: saves 67.5 KiB"),
    ("f32[1024,1024]{1,0:T(8,128)}", ""),
    ("f32[1000]{0:T(1024)}", "1,000 → 1,024: saves 96 B"),
    ("f32[4,3,7]{2,0,1:T(4,128)}", "7 → 128: saves 5.67 KiB"),
    ("f32[7,7]{1,0}", ""),
    ("f32[]{:T(128)}", ""),
]


def test_better_size_names_the_saving():
    for text, advice in SAVINGS:
        assert better_size(parse_shape(text)) == advice, text
