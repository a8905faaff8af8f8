"""HLO modules from bytes that are written by hand, and from traces that hold them."""

import re
import struct
from functools import cache

import pytest
from helpers.xspace import event, field, line, plane, space, varint
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import HloInstruction, Shape
from pytest_tfperf.trace.hlo_modules import modules_of
from pytest_tfperf.trace.xspace import decode_trace


def message(*fields):
    """Encode an embedded message of (number, value) pairs; a list is a packed field."""
    return b"".join(
        field(n, b"".join(map(varint, value)) if isinstance(value, list) else value)
        for n, value in fields
    )


F32_8_4 = message(
    (2, 11),
    (3, [8, 4]),
    (6, [0, 1]),
    (5, message((1, [1, 0]), (6, message((1, [8, 128]))), (8, 5))),
)


def instruction(id, name, opcode, *fields, shape=F32_8_4, operands=(), called=()):
    return message(
        (1, name),
        (2, opcode),
        (3, shape),
        (35, id),
        (36, list(operands)),
        (38, list(called)),
        *fields,
    )


def computation(id, *instructions, root):
    return message(
        (1, f"computation {id}"), (5, id), (6, root), *((2, part) for part in instructions)
    )


def module(*computations, entry, fields=()):
    return message((1, "jit_f"), (6, entry), *fields, *((3, part) for part in computations))


def one(*fields, **options):
    """Decode the instruction that these fields make."""
    found = decode_module(
        module(
            computation(1, instruction(7, "a", "parameter", *fields, **options), root=7), entry=1
        ),
        "m",
    )
    assert found.entry.root.name == "a"
    return found.entry.root


def test_a_shape_has_dtype_dimensions_and_layout():
    shape = one().shape
    assert shape == Shape("f32", (8, 4), (False, True), (1, 0), ((8, 128),), 5)
    assert (shape.elements, shape.bits, shape.bytes) == (32, 32, 128)


def test_a_tuple_has_nested_shapes():
    scalar = message((2, 16))
    shape = one(
        shape=message(
            (2, 13), (4, F32_8_4), (4, message((2, 13), (4, scalar), (4, message((2, 17)))))
        )
    )
    assert [part.dtype for part in shape.shape.parts] == ["f32", "tuple"]
    assert [array.dtype for array in shape.shape.arrays()] == ["f32", "bf16"]
    assert (shape.shape.elements, shape.shape.bytes) == (0, 128 + 2)


SIZES = [
    (1, 8, 3),
    (2, 8, 3),
    (10, 16, 6),
    (16, 16, 6),
    (11, 32, 12),
    (12, 64, 24),
    (15, 64, 24),
    (18, 128, 48),
    (19, 8, 3),
    (20, 8, 3),
    (21, 4, 3),
    (32, 4, 3),
    (13, 0, 0),
    (14, 0, 0),
    (17, 0, 0),
]


def test_bits_and_bytes_of_a_type():
    for number, bits, size in SIZES:
        shape = one(shape=message((2, number), (3, [3]))).shape
        assert (shape.bits, shape.bytes) == (bits, size), number


def test_a_layout_may_pack_narrow_types():
    assert one(shape=message((2, 21), (3, [5]), (5, message((7, 4))))).shape.bytes == 3


def test_a_layout_may_round_up_elements():
    assert one(shape=message((2, 6), (3, [5]), (5, message((1, [0]), (16, 16))))).shape == Shape(
        "u8", (5,), (), (0,), tail_alignment=16
    )
    assert one(shape=message((2, 6), (3, [5]))).shape.tail_alignment == 1


def test_an_unknown_type_has_its_number_and_no_size():
    assert one(shape=message((2, 99), (3, [3]))).shape == Shape("type 99", (3,))


def test_repeated_numbers_may_be_packed_or_not():
    packed, loose = message((2, 11), (3, [8, 4])), message((2, 11), (3, 8), (3, 4))
    assert one(shape=packed).shape == one(shape=loose).shape == Shape("f32", (8, 4))


def test_a_tile_may_combine_dimensions():
    shape = one(
        shape=message((2, 11), (3, [4, 4]), (5, message((6, message((1, [-(2**63), 2]))))))
    ).shape
    assert shape.tiles == ((-(2**63), 2),)


def test_missing_fields_have_their_defaults():
    assert one() == HloInstruction(7, "a", "parameter", one().shape)


TRIPS = [
    ('{"known_trip_count":{"n":"7"}}', 7),
    ('{"known_trip_count":{"n":7}}', 7),
    ("", None),
    ("{}", None),
    ("[1]", None),
    ("{", None),
    ('{"known_trip_count":{"n":"-7"}}', None),
    ('{"known_trip_count":"7"}', None),
    ("[" * 100_000, None),
]


def test_the_trip_count_of_a_loop_is_read_from_its_configuration():
    for config, trips in TRIPS:
        assert one((43, config)).trip_count == trips, config[:80]


def test_a_compiled_module_has_a_schedule():
    part = computation(1, instruction(7, "a", "parameter"), root=7)
    assert decode_module(module(part, entry=1, fields=[(7, b"")]), "m").scheduled
    assert not decode_module(module(part, entry=1), "m").scheduled


SCALARS = [
    (1, (2, [1]), True),
    (1, (2, [0]), False),
    (4, (4, [-3]), -3),
    (5, (5, [2**62]), 2**62),
    (8, (6, [2**32 - 1]), 2**32 - 1),
    (9, (7, [2**64 - 1]), 2**64 - 1),
    (2, (15, b"\xff"), -1),
    (6, (3, b"\xff"), 255),
    (3, (17, b"\xfe\xff"), -2),
    (7, (16, b"\xfe\xff"), 65534),
    (10, (11, struct.pack("<e", 0.5)), 0.5),
    (16, (13, b"\xc0\x3f"), 1.5),
    (11, (8, struct.pack("<f", -2.25)), -2.25),
    (12, (9, struct.pack("<d", 0.1)), 0.1),
    (11, (8, b"short"), None),
    (15, (12, bytes(8)), None),
    (99, (8, bytes(4)), None),
]


def test_the_value_of_a_scalar_constant():
    for dtype, literal, value in SCALARS:
        found = one((8, message(literal)), shape=message((2, dtype))).constant
        assert (found, type(found)) == (value, type(value)), (dtype, literal)


def test_values_of_arrays_are_left_out():
    assert (
        one((8, message((8, struct.pack("<f", 1.0)))), shape=message((2, 11), (3, [1]))).constant
        is None
    )


PARAMETER = instruction(1, "a", "parameter")


INCONSISTENT = [
    (b"", "there is no computation 0 to enter"),
    (module(computation(3, PARAMETER, root=1), entry=4), "there is no computation 4 to enter"),
    (module(computation(3, PARAMETER, root=2), entry=3), "there is no instruction 2 to return"),
    (module(computation(3, root=2), entry=3), "there is no instruction 2 to return"),
    (
        module(computation(3, PARAMETER, PARAMETER, root=1), entry=3),
        "two instructions have the id 1",
    ),
    (
        module(computation(3, PARAMETER, root=1), computation(3, PARAMETER, root=1), entry=3),
        "two computations have the id 3",
    ),
    (
        module(
            computation(3, instruction(2, "b", "copy", operands=[1]), PARAMETER, root=1),
            entry=3,
        ),
        "'b' needs 1, which does not come before it",
    ),
    (
        module(computation(3, instruction(2, "b", "copy", operands=[2]), root=2), entry=3),
        "'b' needs 2, which does not come before it",
    ),
    (
        module(computation(3, instruction(2, "b", "call", called=[3]), root=2), entry=3),
        "'b' needs 3, which does not come before it",
    ),
    (
        module(
            computation(3, instruction(2, "b", "copy", shape=message((2, 11), (3, [-1]))), root=2),
            entry=3,
        ),
        "a dimension has the size -1",
    ),
]


def test_an_inconsistent_module_is_an_error():
    for raw, words in INCONSISTENT:
        with pytest.raises(TraceError) as caught:
            decode_module(raw, "m.hlo")
        expected = rf"^m\.hlo .*\w+Proto at byte \d+ of \d+: .*{re.escape(words)}"
        assert re.search(expected, str(caught.value)), words


def test_too_deeply_nested_shapes_are_an_error():
    shape = message((2, 11))
    for _ in range(101):
        shape = message((2, 13), (4, shape))
    with pytest.raises(TraceError, match="more than 100 nested shapes"):
        one(shape=shape)


@cache
def small_module():
    """Encode a module with every kind of message that is decoded."""
    window = message((1, message((1, 3), (2, 2), (3, 1), (4, -1), (5, 2), (6, 2), (7, 1))))
    inner = computation(
        1,
        PARAMETER,
        instruction(
            9,
            "c",
            "constant",
            (8, message((8, struct.pack("<f", 1.5)))),
            (63, "LT"),
            shape=message((2, 11)),
        ),
        instruction(
            8,
            "s",
            "slice",
            (17, message((1, 1), (2, 3), (3, 1))),
            (21, message((1, message((1, -1), (2, 1))))),
            operands=[1],
        ),
        instruction(
            2,
            "b",
            "convolution",
            (15, window),
            (16, message((7, 1), (8, 2), (11, [0]))),
            (50, 2),
            operands=[1, 1],
        ),
        root=2,
    )
    outer = computation(
        2,
        instruction(
            3, "p", "parameter", (7, message((1, "MatMul"), (2, "x/MatMul"), (3, "a.py"), (4, 12)))
        ),
        instruction(4, "f", "fusion", (11, "kLoop"), operands=[3], called=[1]),
        instruction(
            5,
            "d",
            "dot",
            (30, message((1, [1]), (2, [0]))),
            (43, '{"a": 1}'),
            operands=[4, 3],
            shape=message((2, 13), (4, F32_8_4)),
        ),
        root=5,
    )
    return module(inner, outer, entry=2, fields=[(7, b"")])


DAMAGE = {
    "at": st.integers(0, len(small_module()) - 1),
    "bits": st.integers(1, 255),
    "cut": st.booleans(),
}


@given(**DAMAGE)
@example(at=0, bits=255, cut=True)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_bytes_are_decoded_or_raise_a_trace_error(at, bits, cut):
    decode_damaged(at, bits, cut)


@pytest.mark.nightly
@given(**DAMAGE)
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bytes_with_any_damage_are_decoded_or_raise_a_trace_error(at, bits, cut):
    decode_damaged(at, bits, cut)


def decode_damaged(at, bits, cut):
    raw = bytearray(small_module())
    raw[at] ^= bits
    try:
        found = decode_module(bytes(raw[:at] if cut else raw), "m")
    except TraceError:
        return
    for part in found.computations.values():
        for op in part.instructions.values():
            op.shape.bytes, op.trip_count, part.operands(op), part.root, part.parameters


# the executables of a trace


def test_executables_are_found_by_name_among_other_metadata():
    proto = field(1, small_module())
    metadata = {
        "jit_f(1)": {"Hlo Proto": proto},
        "SYMBOL_MAP": {"symbol_id": 5},
        "jit_g(2)": {"Other": proto},
        "empty": {"Hlo Proto": b""},
    }
    trace = decode_trace(space(plane("/host:CPU"), plane("/host:metadata", metadata=metadata)))
    assert {name: found.name for name, found in modules_of(trace).items()} == {"jit_f(1)": "jit_f"}
    assert modules_of(trace, ["SYMBOL_MAP", "no such module"]) == {}


def test_only_the_wanted_executables_are_decoded():
    damaged = field(1, small_module()[:-5])
    trace = decode_trace(
        space(
            plane(
                "/host:metadata",
                metadata={
                    "a": {"Hlo Proto": field(1, small_module())},
                    "b": {"Hlo Proto": damaged},
                },
            )
        ),
        "some.pb",
    )
    assert list(modules_of(trace, {"a"})) == ["a"]
    with pytest.raises(TraceError, match=r"^some\.pb is not an XSpace trace"):
        modules_of(trace)


def test_a_trace_without_metadata_has_no_modules():
    host = plane("/host:CPU", line("a", event("x", 0, 1)))
    for only in (host, plane("/host:metadata")):
        assert modules_of(decode_trace(space(only))) == {}
