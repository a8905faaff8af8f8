"""Events in the usual order of fields, which are decoded at once, and others among them."""

import random

import numpy as np
import pytest
from helpers.xspace import field, plane, space, varint
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.protobuf import Message
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.intervals import distinct_values
from pytest_tfperf.trace.xspace import decode_trace

KEYS = {"wanted": 1, "other": 2}
NAMES = {1: "a", 300: "b", 1 << 20: "c"}


def drawn(chance):
    """Draw the numbers of an event, and encode it; one of five has other fields, or another order."""
    numbers = {
        1: chance.choice(list(NAMES)),
        2: chance.choice([0, 1, 127, 128, chance.randrange(1 << 49), chance.randrange(1 << 60)]),
        3: chance.choice([0, 1, 127, 128, chance.randrange(1 << 34), chance.randrange(1 << 60)]),
    }
    stats = [("other", chance.choice([0, 5, 1 << 40])) for _ in range(chance.choice([0, 1, 1, 3]))]
    wanted = chance.choice([None, 0, 1, 127, 128, (1 << 64) - 7])
    stats += [] if wanted is None else [("wanted", wanted)]
    if chance.random() < 0.1:
        stats.append(("other", "long" * 40))
    chance.shuffle(stats)
    body = [field(number, value) for number, value in numbers.items() if value]
    body += [
        field(4, field(1, KEYS[name]) + field(5 if isinstance(value, str) else 4, value))
        for name, value in stats
    ]
    if chance.random() < 0.2:
        body.append(chance.choice([field(9, 1 << 30), field(10, "text"), field(11, 0.5)]))
        chance.shuffle(body)
    signed = None if wanted is None else wanted - (1 << 64 if wanted >> 63 else 0)
    return (NAMES[numbers[1]], numbers[2], numbers[3], signed), field(4, b"".join(body))


def test_the_columns_are_the_numbers_that_were_encoded():
    for n_events in [1, 63, 64, 65, 700]:
        for seed in range(4):
            chance = random.Random(seed)
            expected, encoded = zip(*(drawn(chance) for _ in range(n_events)), strict=True)
            texts = b"".join(
                field(number, field(1, key) + field(2, field(1, key) + field(2, name)))
                for number, named in ((4, NAMES), (5, {key: name for name, key in KEYS.items()}))
                for key, name in named.items()
            )
            one_line = field(3, field(2, "x") + b"".join(encoded))
            host = Events.of(decode_trace(space(plane("p") + one_line + texts)).planes[0])
            names, starts, durations, stats = zip(*expected, strict=True)
            assert host.names == list(names), (n_events, seed)
            assert host.start.tolist() == list(starts), (n_events, seed)
            assert host.duration.tolist() == list(durations), (n_events, seed)
            assert host.integers("wanted", -1).tolist() == [
                -1 if value is None else value for value in stats
            ], (n_events, seed)
            carriers = np.flatnonzero([value is not None for value in stats]).tolist()
            assert host.having("wanted").rows.tolist() == carriers, (n_events, seed)


@pytest.mark.parametrize("n_events", [1, 100])
def test_numbers_in_another_order_may_look_like_a_sized_field(n_events):
    """Behind offset_ps come a tag 0x08, a 6, and six bytes: metadata_id and duration_ps."""
    one = field(4, field(2, 7) + field(1, 6) + field(3, 500_000_000))
    named = field(4, field(1, 6) + field(2, field(1, 6) + field(2, "late")))
    decoded = decode_trace(space(plane("p") + field(3, one * n_events) + named)).planes[0]
    events = Events.of(decoded)
    assert set(events.names) == {"late"}
    assert set(zip(events.start.tolist(), events.duration.tolist(), strict=True)) == {
        (7, 500_000_000)
    }


@given(st.lists(st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))))
def test_distinct_values_are_those_of_a_set(values):
    found = distinct_values(np.array(values, np.int64))
    assert found.tolist() == sorted(set(values))


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
