"""Damaged traces give a TraceError or a sound profile, never anything else."""

import functools

import pytest
from helpers.fuzz import FIELDWISE, SPACE, decoded, encoded, found, mutant, pick
from helpers.made_traces import HOST, MADE
from helpers.traces import SYNTHETIC
from helpers.xspace import at, event, field, line, plane, space, varint

from pytest_tfperf.trace.xspace import decode_trace


@functools.cache
def stored():
    return {path.name: path.read_bytes() for path in sorted(SYNTHETIC.glob("*.pb"))}


def is_readable(raw, name):
    """Whether damaged bytes give a profile; what they give besides is told with their name."""
    try:
        return found(raw) is not None
    except Exception as error:
        pytest.fail(f"{name}: {type(error).__name__}: {error}")


def outcomes(name, raw, seeds):
    return {is_readable(mutant(raw, seed), f"mutant {seed} of {name}") for seed in seeds}


def test_mutants_of_a_made_trace():
    for name, raw in MADE.items():
        assert found(raw).steps, name
        both = outcomes(name, raw, range(30))
        assert both == {True, False}, f"some mutants of {name} are readable, some are not"


def test_mutants_of_the_stored_traces():
    for name, raw in stored().items():
        outcomes(name, raw, range(2))


@pytest.mark.nightly
def test_many_mutants():
    for name, raw in MADE.items():
        outcomes(name, raw, range(30, 120))
    for name, raw in stored().items():
        outcomes(name, raw, range(2, 15))


def test_every_prefix_of_a_trace():
    for name, raw in MADE.items():
        for size in range(0, len(raw), 1 + len(raw) // 150):
            is_readable(raw[:size], f"{size} bytes of {name}")


def test_the_damage_is_what_it_says():
    import random

    raw = MADE["pipeline"]
    assert encoded(decoded(raw, SPACE)) == raw
    assert mutant(raw, 3) == mutant(raw, 3)
    assert len({mutant(raw, seed) for seed in range(50)}) > 45
    for damage in FIELDWISE:
        changed = set()
        for seed in range(6):
            tree = decoded(raw, SPACE)
            damage(random.Random(seed), tree)
            changed.add(encoded(tree))
        assert changed - {raw}, damage.__name__
    assert pick(random.Random(0), decoded(raw, SPACE))


STEPS = [at("train", n * 10, n * 10 + 8, step_num=n, _r=1) for n in range(3)]
STEP = event("0", 5, 9)
HUGE = 1 << 61


def test_odd_traces():
    cases = [
        b"",
        b"\x00" * 100,
        b"\xff" * 100,
        b"PK\x03\x04" + bytes(40),
        b"\x0a" + varint(1 << 30) + b"short",
        b"\x0a" + varint((1 << 64) - 1) + b"short",
        field(1, b"\x12" + varint(1 << 30) + b"name"),
        field(1, field(3, b"\x22" + varint(1 << 31) + b"event")),
        field(1, field(3, field(4, b"\x22" + varint(1 << 31) + b"stat"))),
        space(),
        space(plane("")),
        space(plane(HOST), plane(HOST)),
        space(plane(HOST, line("a", *STEPS)), plane(HOST, line("b", *STEPS))),
        space(plane(HOST, line("a", event("train", 0, 0, step_num=0)))),
        space(
            plane(
                HOST,
                line(
                    "a",
                    event("train", HUGE, HUGE, step_num=0),
                    event("train", -HUGE, HUGE, step_num=1),
                ),
            )
        ),
        space(
            plane(
                HOST,
                line(
                    "a",
                    event("train", -1, 5, step_num=-(1 << 63)),
                    event("train", 2, 9, step_num=(1 << 63) - 1),
                ),
            )
        ),
        space(plane(HOST, line("a", *STEPS, timestamp_ns=(1 << 63) - 1), line("b", *STEPS))),
        space(plane(HOST, line("a", *STEPS, timestamp_ns=-1))),
        space(plane(HOST, line("a", *STEPS[::-1], *STEPS))),
        space(plane("/device:TPU:0", line("Steps", event("0", 5, 0), event("1", 9, 0)))),
        space(
            plane(
                "/device:TPU:0",
                line("Steps", event("0", 5, 9), event("1", 0, 20), event("0", 1, 0)),
            )
        ),
        space(plane("/device:GPU:0", line("Stream #1", event("k", 5, 9, correlation_id="seven")))),
        MADE["pipeline"]
        + field(
            1,
            plane("/device:GPU:1", line("Stream #1", event("k", 5, 9)))
            + field(6, field(1, 1) + field(2, "short")),
        ),
        space(
            plane(
                "/device:TPU:0",
                line("Steps", STEP),
                line("XLA Ops", STEP),
                metadata={"0": {"flops": "many", "bytes_accessed": "nan"}},
            )
        ),
    ]
    for number, raw in enumerate(cases):
        is_readable(raw, f"odd trace {number}, {raw[:40]}")


@pytest.mark.parametrize("missing", [4, 5], ids=["event metadata", "stat metadata"])
def test_metadata_that_is_not_there(missing):
    tree = decoded(MADE["pipeline"], SPACE)
    for _, _, content in tree:
        if isinstance(content, list):
            content[:] = [part for part in content if part[0] != missing]
    decode_trace(encoded(tree))
    found(encoded(tree))


def test_ids_that_are_all_the_same():
    tree = decoded(MADE["pipeline"], SPACE)
    for _, _, content in tree:
        for number, _, entry in content if isinstance(content, list) else ():
            if number in (4, 5):
                entry[0][2] = 1
    assert decode_trace(encoded(tree)).plane(HOST).names
    found(encoded(tree))
