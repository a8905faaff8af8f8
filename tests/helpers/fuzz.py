"""
Damaged files, and what must hold of whatever the analysis makes of a damaged trace.

    mutant(raw, seed)                   # of a trace; the same bytes and seed give the same mutant
    mutant(raw, seed, "json")           # of a run file or a baseline
    mutant(raw, seed, "hlo")            # of HLO text
    found(mutant(raw, seed))            # raises if it is neither a TraceError nor a sound profile

A file becomes a tree of lists and dicts: JSON as it is, a message of protobuf a list of fields, HLO text lines of tokens.
Parts of the tree are replaced, dropped, repeated, swapped and cut. Some mutants have damaged bytes instead.
"""

import copy
import json
import math
import random
import re
import struct

from helpers.xspace import varint

from pytest_tfperf.errors import TraceError
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
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
    *(0, 1, 2, 7, -1, 1 << 20, 1 << 31, -(1 << 31), 10**15, 1 << 61, (1 << 63) - 1, -(1 << 63)),
    *((1 << 64) - 1, 10**18, 0.5, -0.001, 5e-324, 1e-100, 1e99, 1e101, 1e300, math.nan, -math.inf),
]
TEXTS = [
    *("", "\n", "0", "1e999", "9" * 40, "x" * 3000, "🚀", "\ud800", "\u202e", "\x00", "\x1b[31m"),
    *("=1+1", "| x |", "```", "</script>", "{0}", "%s", "../x", "/", "javascript:x", "\n::error::x", "\r\n"),
    *("train", "/host:CPU", "/device:GPU:0", "/device:TPU:0", "/host:metadata", "Steps", "XLA Modules", "XLA Ops"),
    *("Stream #1", "step_num", "_r", "id", "iter_num", "parent_id", "group_id", "correlation_id", "run_id", "_p", "_ct"),
    *("IteratorGetNextOp::DoCompute", "Iterator::Root::Prefetch", "PrefetchProduce", "FunctionRun", "EagerExecute"),
    *("MemoryAllocation", "allocator_name", "bytes_allocated", "MemcpyH2D", "ncclKernel", "hlo_op", "program_id", "flops"),
    *("step_time", "input_bound", "peak_memory", "test_step", "test_model.py", "s", "bytes", "0..1", "count", "ratio"),
    *("PASS", "FAIL", "limit", "baseline", "machine", "platform", "step", "2026-13-45", "9999-12-31T23:59:59+00:00"),
    *("{", "}", "(", ")", "[", "->", '"', "/*", "*/", "%", "ROOT", "ENTRY", "f32[?,3]", "bf16[8,4]{1,0}", "(f32[2], s32[])"),
    *("parameter(99)", "dot", "fusion", "while", "tuple", "all-reduce", "calls=%f", "window={size=3x3 pad=1_1x1_1}"),
]  # fmt: skip
OTHERS = [None, True, [], {}, [[]], {"": ""}, {"a": {"b": 1}}, [1, "x"]]


class Field(list):
    """A field of protobuf: number, wire type and value, of which only the value is replaced by itself."""


def decoded(raw, schema):
    """The fields of a message; values are integers, bytes, or fields where the schema knows the message."""
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
            fields.append(Field([tag >> 3, 0, number()]))
            continue
        size = number() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
        content = raw[at : at + size]
        at += size
        inner = schema.get(tag >> 3) if tag & 7 == 2 else None
        value = content if inner is None else decoded(content, inner)
        fields.append(Field([tag >> 3, tag & 7, value]))
    return fields


def encoded(fields):
    """The bytes of fields. The wire type is that of the value, whatever took the place of the old one."""
    parts = []
    for number, wire, value in (field for field in fields if isinstance(field, Field)):
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        elif isinstance(value, float):
            parts.append(varint(number << 3 | 1) + struct.pack("<d", value))
        elif wire in (1, 5) and isinstance(value, bytes):
            parts.append(varint(number << 3 | wire) + value)
        else:
            content = encoded(value) if isinstance(value, list) else value
            if not isinstance(content, bytes):
                content = str(content).encode("utf-8", "surrogatepass")
            parts.append(varint(number << 3 | 2) + varint(len(content)) + content)
    return b"".join(parts)


def tokens(raw):
    """Lines of tokens of HLO text."""
    lines = raw.decode().splitlines(keepends=True)
    return [re.findall(r"\w+|\s+|[^\w\s]", line) for line in lines]


def text_of(part):
    return "".join(map(text_of, part)) if isinstance(part, (list, dict)) else str(part)


FORMATS = {
    "trace": (lambda raw: decoded(raw, SPACE), encoded),
    "json": (json.loads, lambda tree: json.dumps(tree).encode("ascii")),
    "hlo": (tokens, lambda tree: text_of(tree).encode("utf-8", "replace")),
}
"""Functions that read and write each format."""


def mutant(raw, seed, format="trace"):
    """A damaged copy of a file."""
    rng = random.Random(seed)
    if rng.random() < 0.15:
        return rng.choice(BYTEWISE)(rng, raw)
    read, write = FORMATS[format]
    tree = read(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        rng.choice(FIELDWISE)(rng, tree)
    return write(tree)


def truncated(rng, raw):
    return raw[: rng.randint(0, len(raw))]


def flipped(rng, raw):
    content = bytearray(raw)
    for _ in range(rng.choice([1, 2, 8]) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def spliced(rng, raw):
    """Bytes from elsewhere in the file in the place of others, or a field that claims a gigabyte."""
    begin, source = rng.randint(0, len(raw)), rng.randint(0, len(raw))
    middle = [raw[source : source + 20], b"\x12" + varint(1 << 30), b"\xff" * 11, b"\xef\xbb\xbf"]
    return raw[:begin] + rng.choice(middle) + raw[begin + rng.choice([0, 1, 9, 100]) :]


BYTEWISE = (truncated, flipped, spliced)


def pick(rng, tree, whole=False):
    """
    The holder and the key of a part, found on a way down from the root: parts near it are few, and as likely as cells of tables.

    With `whole`, no value of a field, which cannot go without the field.
    """
    holder = key = None
    while isinstance(tree, (list, dict)) and tree:
        if isinstance(tree, Field):
            if whole and not (isinstance(tree[2], list) and tree[2]):
                break
            place = 2
        else:
            place = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        if not (whole and isinstance(tree, Field)):
            holder, key = tree, place
        tree = tree[place]
        if holder is not None and rng.random() < 0.15:
            break
    return ([None], 0) if holder is None else (holder, key)


def replaced(rng, tree):
    """Another value: mostly one of the same type, which a schema may let pass."""
    holder, key = pick(rng, tree)
    if isinstance(holder[key], Field):
        holder, key = holder[key], 2
    old, (source, name) = holder[key], pick(rng, tree)
    number, text = rng.choice(NUMBERS), rng.choice(TEXTS)
    if rng.random() < 0.2:
        new = [*OTHERS, number, text, source[name]]
    elif isinstance(old, bool):
        new = [not old]
    elif isinstance(old, (int, float)):
        new = [number, number, -old, old + 1, old / 3 if abs(old) < 1e300 else 0]
    elif isinstance(old, bytes):
        new = [text.encode("utf-8", "surrogatepass"), rng.randbytes(5)]
    elif isinstance(old, str):
        new = [str(number) if old.isdigit() else text, text + old, old + text]
    else:
        new = [source[name], {} if isinstance(old, dict) else []]
    holder[key] = copy.deepcopy(rng.choice(new))


def dropped(rng, tree):
    holder, key = pick(rng, tree, whole=True)
    del holder[key]


def repeated(rng, tree):
    """A part once more, or many times; in a dict with other keys."""
    holder, key = pick(rng, tree, whole=True)
    n = rng.choice([1, 1, 3, 40])
    if isinstance(holder, dict):
        holder |= {f"{key}{text}": copy.deepcopy(holder[key]) for text in rng.sample(TEXTS, n)}
    else:
        holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(n)]


def swapped(rng, tree):
    """Two parts, each in the place of the other."""
    (one, key), (other, name) = pick(rng, tree), pick(rng, tree)
    if isinstance(one[key], Field) == isinstance(other[name], Field):
        one[key], other[name] = copy.deepcopy(other[name]), copy.deepcopy(one[key])


def cut(rng, tree):
    """The beginning of a text or a list."""
    holder, key = pick(rng, tree)
    part = holder[key]
    if isinstance(part, (str, bytes)) or (isinstance(part, list) and not isinstance(part, Field)):
        holder[key] = part[: rng.randint(0, len(part))]


FIELDWISE = (replaced, replaced, replaced, replaced, dropped, repeated, swapped, cut)


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
