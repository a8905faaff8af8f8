"""Stats of events, against the protobuf library on random messages."""

import random

import pytest
from helpers.xspace import space
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import decode_trace


def random_value(chance):
    kind = chance.choice(
        (
            "double_value",
            "uint64_value",
            "int64_value",
            "str_value",
            "bytes_value",
            "ref_value",
            None,
        )
    )
    number = chance.randrange(1 << chance.randrange(1, 64))
    values = {
        "double_value": chance.uniform(-1e9, 1e9),
        "uint64_value": 2 * number,
        "int64_value": chance.choice((-1, 1)) * number,
        "str_value": chance.choice((str(number), "ä" * chance.randrange(200))),
        "bytes_value": chance.randbytes(chance.randrange(200)),
        "ref_value": chance.randrange(9),
    }
    return {kind: values[kind]} if kind else {}


def text_of(stat, names):
    kind = stat.WhichOneof("value") or "int64_value"
    value = getattr(stat, kind)
    if kind == "bytes_value":
        return value.decode(errors="replace")
    if kind == "ref_value":
        return names[value].name if value in names else ""
    return str(value)


@pytest.mark.parametrize("seeds", [(0, 2), pytest.param((2, 40), marks=pytest.mark.nightly)])
def test_stats_equal_those_of_the_protobuf_library(seeds):
    for seed in range(*seeds):
        assert_equal_stats(random.Random(seed))


def assert_equal_stats(chance):
    message = xplane_pb2.XPlane(name="p")
    for key in range(6):
        message.stat_metadata[key].name = f"stat {key}"
    for _ in range(200):
        added = message.lines.add().events.add(
            duration_ps=chance.randrange(3), offset_ps=chance.randrange(3)
        )
        for key in chance.sample(range(6), chance.randrange(6)):
            added.stats.add(metadata_id=key, **random_value(chance))
    events = Events.of(decode_trace(space(message.SerializeToString())).planes[0])
    for key in range(6):
        found = [
            [stat for stat in part.stats if stat.metadata_id == key]
            for row in message.lines
            for part in row.events
        ]
        assert events.stats.present(f"stat {key}").tolist() == [bool(stats) for stats in found]
        assert events.texts(f"stat {key}") == [
            text_of(stats[0], message.stat_metadata) if stats else "" for stats in found
        ]
        numbers = events.integers(f"stat {key}", 5).tolist()
        for number, stats in zip(numbers, found, strict=True):
            if stats and (kind := stats[0].WhichOneof("value")) in (
                "int64_value",
                "uint64_value",
                None,
            ):
                assert number % 2**64 == (getattr(stats[0], kind) if kind else 0) % 2**64
            elif not stats or kind == "double_value":
                assert number == 5
