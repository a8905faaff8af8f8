"""Sentences that differ in numbers alone: one with ranges, and the names that it is about."""

import pytest

from pytest_tfperf.alike import alike, named


def joined(*sentences):
    return [text for _, text in alike((f"test_{n}", one) for n, one in enumerate(sentences))]


@pytest.mark.parametrize(
    ("sentences", "text"),
    [
        (["used 28% of the 2 cores", "used 64% of the 2 cores"], "used 28 to 64% of the 2 cores"),
        (["fell to 9.5 %", "fell to 10 %", "fell to -3 %"], "fell to -3 to 10 %"),
        (["takes 843 µs", "takes 1.12 ms", "takes 1 s"], "takes 843 µs to 1 s"),
        (["1,200 calls of 5", "900 calls of 5"], "900 to 1,200 calls of 5"),
        (["1 of 5 runs; 3 s", "2 of 5 runs; 1 s"], "1 to 2 of 5 runs; 1 to 3 s"),
        (["261/s", "27/s"], "27 to 261/s"),
        (["the data ended", "the data ended"], "the data ended"),
    ],
)
def test_sentences_that_differ_in_numbers_are_one_with_ranges(sentences, text):
    assert joined(*sentences) == [text]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("it is 5 % slower", "it is 5 % faster"),
        ("it is 5 ms", "it is 5 MiB"),
        ("it is 5 ms", "it is 5"),
        ("in train.py:12", "in train.py:13"),
        ("f32[8,5] changed", "f32[8,6] changed"),
        ("float32 changed", "float16 changed"),
        ("TensorFlow 2.21.0", "TensorFlow 2.20.0"),
        ("since 2026-01-31", "since 2026-01-30"),
        ("commit 4ae70d7d", "commit 5ae70d7d"),
        ("test_1 ended", "test_2 ended"),
        ("3/4 of them", "1/4 of them"),
    ],
)
def test_sentences_that_differ_in_words_names_or_units_stay_apart(first, second):
    assert joined(first, second) == [first, second]


def test_names_are_told_once_in_their_order_and_counted_if_they_are_many():
    said = [("b", "waits 3 ms"), ("a", "is alone"), ("b", "waits 5 ms"), ("c", "waits 1 ms")]
    assert alike(said) == [(["b", "c"], "waits 1 to 5 ms"), (["a"], "is alone")]
    assert named(["b", "c"]) == "b, c"
    assert named(list("abcd"), tests=list("abcde")) == "4 tests"
    assert named(["a", "b", "c", "d/eval"], tests=list("abcd")) == "4 profiles"
    assert named(list("abcd"), whole=True) == "a, b, c, d"
