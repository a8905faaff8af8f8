"""Damaged traces give a TraceError or a sound profile, never anything else."""

import pytest
from helpers.fuzz import SPACE, decoded, encoded, found, mutant
from helpers.made_traces import HOST, MADE
from helpers.traces import SYNTHETIC
from helpers.xspace import at, event, field, line, plane, space, varint

from pytest_tfperf.trace.xspace import decode_trace


def read(raw, name):
    """Read damaged bytes; what they give besides a profile or a refusal is told with their name."""
    try:
        found(raw)
    except Exception as error:
        pytest.fail(f"{name}: {type(error).__name__}: {error}")


@pytest.mark.parametrize("seeds", [(0, 2), pytest.param((2, 15), marks=pytest.mark.nightly)])
def test_mutants_of_the_stored_traces(seeds):
    for path in sorted(SYNTHETIC.glob("*.pb")):
        for seed in range(*seeds):
            read(mutant(path.read_bytes(), seed), f"mutant {seed} of {path.name}")


def test_every_prefix_of_a_trace():
    for name, raw in MADE.items():
        for size in range(0, len(raw), 1 + len(raw) // 150):
            read(raw[:size], f"{size} bytes of {name}")


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
        read(raw, f"odd trace {number}, {raw[:40]}")


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
