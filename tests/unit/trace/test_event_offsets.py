"""Offsets of events: parallel walks against one walk."""

import random

import numpy as np
from helpers.refusals import refusal
from helpers.xspace import event, field, varint
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import Message
from pytest_tfperf.trace.event_offsets import event_tags


def one_by_one(raw, begin, end):
    """Return the tags and the offset behind the last, from the definition of the format."""
    tags, at = [], begin
    while at < end and raw[at] == 0x22:
        tags.append(at)
        size = shift = 0
        at += 1
        while True:
            size |= (raw[at] & 0x7F) << shift
            shift += 7
            at += 1
            if raw[at - 1] < 0x80:
                break
        at += size
    return tags, at


def framed(raw, begin, end, stretch):
    tags, at = event_tags(Message(raw, "x"), begin, end, stretch)
    assert tags.dtype == np.int64
    return tags.tolist(), at


def events_of(seed, n_events, longest):
    """Encode events whose content is full of bytes that look like tags."""
    chance = random.Random(seed)
    return b"".join(
        field(
            4,
            bytes(
                chance.choice((0x22, 0x22, 0x02, 0x00, 0x7F, 0xFF))
                for _ in range(chance.randint(0, longest))
            ),
        )
        for _ in range(n_events)
    )


def test_parallel_walks_find_the_offsets_of_one_walk():
    for stretch in [1, 2, 7, 64, 1 << 13]:
        for longest in [0, 1, 5, 40, 700]:
            for seed in range(2):
                raw = field(1, 7) + events_of(seed, 120, longest) + field(9, 3)
                expected = one_by_one(raw, 2, len(raw))
                assert framed(raw, 2, len(raw), stretch) == expected, (stretch, longest, seed)


def test_walks_that_begin_in_a_number_without_end_are_not_errors():
    for stretch in [1, 7, 40]:
        raw = field(4, b"\x22" + b"\xff" * 12) * 200
        assert framed(raw, 0, len(raw), stretch) == one_by_one(raw, 0, len(raw)), stretch


def test_events_end_at_another_field_whatever_comes_behind():
    for stretch in [1, 7, 40]:
        behind = field(11, "\x22\x02\x22" * 200) + events_of(5, 100, 9)
        raw = events_of(4, 120, 9) + behind
        assert framed(raw, 0, len(raw), stretch) == one_by_one(raw, 0, len(raw)), stretch


def test_real_events_with_stats_in_them():
    for stretch in [1, 5, 1 << 13]:
        plain = [
            event("a", n, n * 977, {"x": n, "y": "\x22\x02\x22\x00" * (n % 5)}) for n in range(200)
        ]
        raw = b"".join(item.encode({"a": 34}, {"x": 1, "y": 2}) for item in plain)
        assert framed(raw, 0, len(raw), stretch) == one_by_one(raw, 0, len(raw)), stretch
        assert len(framed(raw, 0, len(raw), stretch)[0]) == 200, stretch


def test_an_event_longer_than_the_rest_is_an_error():
    for stretch in [1, 3, 1 << 13]:
        raw = events_of(0, 50, 20) + b"\x22" + varint(9) + b"short"
        said = refusal(TraceError, event_tags, Message(raw, "x"), 0, len(raw), stretch)
        assert "an event needs 9 bytes, 5 are left" in said, stretch


def test_bytes_without_events_have_no_offsets():
    assert framed(b"\x08\x01", 0, 2, 4) == ([], 0)
    assert framed(b"", 0, 0, 4) == ([], 0)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_both_walks_agree_or_both_fail_on_any_bytes(raw, stretch):
    message = Message(raw, "x")

    def outcome(stretch):
        try:
            tags, at = event_tags(message, 0, len(raw), stretch)
        except TraceError:
            return None
        return tags.tolist(), at

    assert outcome(stretch) == outcome(1 << 20)


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)), min_size=1))
def test_varints_at_many_offsets_are_those_that_were_encoded(numbers):
    encoded = [varint(number) for number in numbers]
    starts = np.cumsum([0, *map(len, encoded)])[:-1]
    values, lengths = Message(b"".join(encoded), "x").varints(starts)
    assert values.tolist() == numbers
    assert lengths.tolist() == list(map(len, encoded))


NUMBERS = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**64 - 1),
    st.integers(0, 9).map(lambda n: (1 << 7 * n) - 1),
)


@given(st.lists(st.tuples(st.sampled_from([1, 2]), NUMBERS), min_size=1))
def test_fields_with_a_tag_are_those_that_were_encoded_and_others_have_no_length(fields):
    encoded = [varint(number << 3) + varint(value) for number, value in fields]
    starts = np.cumsum([0, *map(len, encoded)])[:-1]
    values, lengths = Message(b"".join(encoded), "x").varint_fields(starts, 1 << 3)
    expected = [
        (value, len(raw)) if number == 1 else (0, 0)
        for (number, value), raw in zip(fields, encoded, strict=True)
    ]
    assert list(zip(values.tolist(), lengths.tolist(), strict=True)) == expected
