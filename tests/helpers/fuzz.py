"""
Damaged traces, and what must hold of whatever the analysis makes of them.

    found(mutant(raw, seed))            # raises if it is neither a TraceError nor a sound profile

`mutant` damages bytes at random, or the messages in them: fields dropped, doubled, shuffled, moved to other messages, with
extreme numbers, other names, other types. The same bytes and seed give the same mutant.
"""

import json
import math
import random

from helpers.xspace import varint

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.profile import profile_of
from pytest_tfperf.errors import TraceError
from pytest_tfperf.metrics import METRICS
from pytest_tfperf.quantities import SHARE
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import PARTS

# which fields of which messages are messages: xplane.proto
STAT = {}
EVENT = {4: STAT}
LINE = {4: EVENT}
ENTRY = {2: {5: STAT}}
PLANE = {3: LINE, 4: ENTRY, 5: ENTRY, 6: STAT}
SPACE = {1: PLANE}

NUMBERS = [
    0,
    1,
    2,
    7,
    -1,
    -2,
    1 << 20,
    1 << 31,
    -(1 << 31),
    1 << 40,
    10**15,
    1 << 60,
    (1 << 61) - 1,
    1 << 61,
    (1 << 61) + 1,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
    (1 << 64) - 1,
]
TEXTS = [
    *(
        "",
        "train",
        "/host:CPU",
        "/device:GPU:0",
        "/device:TPU:0",
        "/device:TPU:0 SparseCore 0",
        "/host:metadata",
        "Steps",
        "XLA Modules",
        "XLA Ops",
    ),
    *(
        "Stream #1",
        "step_num",
        "_r",
        "id",
        "iter_num",
        "parent_id",
        "group_id",
        "correlation_id",
        "hlo_category",
        "tfperf",
        "epoch",
        "batches",
    ),
    *(
        "aborted",
        "buffer_limit",
        "batch_size",
        "bytes_allocated",
        "allocator_name",
        "tf_function_call",
        "graph_type",
        "_p",
        "_pt",
        "_c",
        "_ct",
        "run_id",
    ),
    *(
        "IteratorGetNextOp::DoCompute",
        "tfperf::next",
        "Iterator::Root::Prefetch",
        "PrefetchProduce",
        "PrefetchConsume",
        "FunctionRun",
    ),
    *(
        "ExecutorState::Process",
        "EagerExecute",
        "MemoryAllocation",
        "TraceContext",
        "MemcpyH2D",
        "ncclKernel",
        "DoEnqueueProgram",
    ),
    *(
        "flops",
        "bytes_accessed",
        "hlo_op",
        "hlo_module",
        "program_id",
        "kernel_details",
        "memcpy_details",
        "tf_op",
        "nan",
        "\x00",
        "🚀",
        "9" * 40,
        "x" * 3000,
    ),
]


def decoded(raw, schema):
    """The fields of a message: [number, wire type, value]; values are integers, bytes, or fields where the schema knows the message."""
    fields, at = [], 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(raw):
        tag = number()
        if tag & 7 == 0:
            fields.append([tag >> 3, 0, number()])
            continue
        size = number() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
        content = raw[at : at + size]
        at += size
        inner = schema.get(tag >> 3) if tag & 7 == 2 else None
        fields.append([tag >> 3, tag & 7, content if inner is None else decoded(content, inner)])
    return fields


def encoded(fields):
    parts = []
    for number, wire, value in fields:
        content = encoded(value) if isinstance(value, list) else value
        parts.append(varint(number << 3 | wire))
        if wire == 0:
            parts.append(varint(content))
        else:
            parts.append((varint(len(content)) if wire == 2 else b"") + content)
    return b"".join(parts)


def messages(fields):
    """All messages in a message, itself too."""
    yield fields
    for _, _, value in fields:
        if isinstance(value, list):
            yield from messages(value)


def mutant(raw, seed):
    rng = random.Random(seed)
    if rng.random() < 0.25:
        for _ in range(rng.randint(1, 3)):
            raw = rng.choice(BYTEWISE)(rng, raw)
        return raw
    tree = decoded(raw, SPACE)
    for _ in range(rng.choice([1, 1, 2, 3, 5, 20])):
        rng.choice(FIELDWISE)(rng, tree)
    return encoded(tree)


def truncated(rng, raw):
    return raw[: rng.randint(0, len(raw))]


def flipped(rng, raw):
    content = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 8]) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def cut(rng, raw):
    begin = rng.randint(0, len(raw))
    return raw[:begin] + raw[begin + rng.choice([1, 2, 9, 100]) :]


def spliced(rng, raw):
    """Bytes from elsewhere in the file, or a field that claims a gigabyte."""
    begin, source = rng.randint(0, len(raw)), rng.randint(0, len(raw))
    middle = rng.choice(
        [
            raw[source : source + 20],
            b"\x12" + varint(1 << 30),
            b"\x22" + varint((1 << 64) - 1),
            b"\xff" * 11,
        ]
    )
    return raw[:begin] + middle + raw[begin:]


BYTEWISE = (truncated, flipped, cut, spliced)


def pick(rng, tree):
    """A message of the tree that has fields."""
    found = [message for message in messages(tree) if message]
    return rng.choice(found) if found else [[1, 0, 0]]


def pick_field(rng, tree, kind):
    found = [field for message in messages(tree) for field in message if isinstance(field[2], kind)]
    return rng.choice(found) if found else [1, 0, 0]


def drop(rng, tree):
    message = pick(rng, tree)
    begin = rng.randrange(len(message))
    del message[begin : begin + rng.choice([1, 1, 3])]


def double(rng, tree):
    message = pick(rng, tree)
    message.insert(rng.randint(0, len(message)), rng.choice(message))


def shuffle(rng, tree):
    rng.shuffle(pick(rng, tree))


def move(rng, tree):
    """A field of one message in another."""
    target, field = pick(rng, tree), rng.choice(pick(rng, tree))
    if not (
        isinstance(field[2], list) and any(message is target for message in messages(field[2]))
    ):
        target.insert(rng.randint(0, len(target)), field)


def renumber(rng, tree):
    pick_field(rng, tree, (int, bytes))[0] = rng.choice([1, 2, 3, 4, 5, 6, 7, 11, 100])


def retype(rng, tree):
    field = pick_field(rng, tree, (int, bytes))
    wire = rng.choice([0, 1, 2, 5])
    field[1:] = [
        wire,
        {
            0: rng.choice(NUMBERS),
            1: rng.randbytes(8),
            2: rng.randbytes(rng.choice([0, 1, 9])),
            5: rng.randbytes(4),
        }[wire],
    ]


def number(rng, tree):
    field = pick_field(rng, tree, int)
    field[2] = rng.choice(
        [
            rng.choice(NUMBERS),
            field[2] + rng.choice([-1, 1]),
            rng.getrandbits(64),
            rng.getrandbits(20),
        ]
    )


def text(rng, tree):
    field = pick_field(rng, tree, bytes)
    if field[1] == 2:
        field[2] = rng.choice([*(text.encode() for text in TEXTS), b"\xff\xfe", rng.randbytes(5)])


FIELDWISE = (drop, double, shuffle, move, renumber, retype, number, number, number, text, text)


def found(raw):
    """The profile of a bare trace in these bytes, None where it is a TraceError; an AssertionError if the profile is not sound."""
    try:
        profile = profile_of(
            Evidence(
                Recording(name="damaged", trace=None, workload={}, bare=True), decode_trace(raw)
            )
        )
    except TraceError:
        return None
    json.dumps(profile.to_json(), allow_nan=False)
    for name, value in profile.metrics.items():
        sound(name, value)
    for step in profile.steps:
        parts = list(step.parts_s.values())
        assert set(step.parts_s) == set(PARTS)
        assert step.period_s >= 0, step
        assert min(parts) >= 0, step
        assert math.isclose(sum(parts), step.period_s, rel_tol=1e-9, abs_tol=1e-15), step
    return profile


def sound(name, value):
    if value.number is None:
        assert value.why, f"{name} is unknown for no reason"
        return
    assert math.isfinite(value.number), f"{name} is {value.number}"
    if name != "step_skew":
        assert value.number >= 0 or name.endswith("padding_overhead"), f"{name} is {value.number}"
    if METRICS[name].unit == SHARE:
        assert value.number <= 1 + 1e-9, f"{name} is {value.number}"
    assert value.low() <= value.high(), f"{name} from {value.low()} to {value.high()}"
