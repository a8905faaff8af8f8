"""Elements of pictures: ticks are round numbers, text is escaped, names of boxes keep both ends."""

import pytest
from helpers.pictures import Picture

from pytest_tfperf.report.html.svg import box, element, tick_texts, ticks_between


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
    assert tick_texts([0.0, 2.0**29, 2.0**30], "bytes") == ["0.0 GiB", "0.5 GiB", "1.0 GiB"]
    assert tick_texts([0.95, 1.0], "") == ["0.95", "1"]


def test_text_of_others_is_escaped():
    nasty = "</svg><script>alert(1)</script>\"'&"
    drawn = element("text", nasty, aria_label=nasty)
    assert "<script" not in drawn
    (text,) = Picture(drawn).all("text")
    assert (text.text, text.get("aria-label")) == (nasty, nasty)


def test_a_box_keeps_both_ends_of_its_name_and_shows_all_of_it_at_the_pointer():
    name = "model/StatefulPartitionedCall_12"
    picture = Picture(box(10, 20, 0, "#fff", f"{name}: 1 ms", name))
    assert picture.texts("b") == ["model/StatefulPartit"]
    assert picture.texts("u") == ["ionedCall_12"]
    assert picture.boxes() == [(10, 20, f"{name}: 1 ms")]
    for head, tag, tail in [
        ("sequential/dense_1/", "i", "MatMul"),
        ("StatefulPartitionedCall/adam/", "i", "add"),
        ("FlatMap 'FlatMapDa", "u", "taset:12345'"),
    ]:
        picture = Picture(box(0, 20, 0, "#fff", "", head + tail))
        assert picture.texts("b") + picture.texts(tag) == [head, tail]
    assert Picture(box(0, 1, 0, "#fff", "a: 1 ms", "MatMul")).texts("p") == ["MatMul"]
