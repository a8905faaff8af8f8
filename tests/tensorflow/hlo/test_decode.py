import re
import struct
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from helpers.traces import real
from helpers.xspace import event, field, line, plane, space, varint
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import DTYPES, Buffers, HloInstruction, Shape
from pytest_tfperf.trace.hlo_modules import argument_shapes, buffer_bytes, buffer_sizes, modules_of
from pytest_tfperf.trace.xspace import decode_trace


def metadata_plane(protos):
    return plane(
        "/host:metadata", metadata={name: {"Hlo Proto": proto} for name, proto in protos.items()}
    )


def hlo_proto(*sizes):
    from tensorflow.compiler.xla.service import hlo_pb2

    message = hlo_pb2.HloProto()
    message.hlo_module.name = "jit_f"
    message.buffer_assignment.logical_buffers.add(id=1, size=999)
    for index, size in enumerate(sizes):
        message.buffer_assignment.buffer_allocations.add(
            index=index, size=size, maybe_live_out=True, color=1
        ).assigned.add(size=77)
    return message.SerializeToString()


@pytest.mark.parametrize("sizes", [(), (0,), (4096,), (1, 2, 3), (2**40, 2**33, 127, 128)])
def test_an_executable_needs_the_sum_of_its_allocations(sizes):
    assert buffer_bytes(
        decode_trace(space(plane("/host:CPU"), metadata_plane({"jit_f(1)": hlo_proto(*sizes)})))
    ) == {"jit_f(1)": sum(sizes)}


def test_allocations_in_host_memory_do_not_count():
    from tensorflow.compiler.xla.service import hlo_pb2

    message = hlo_pb2.HloProto()
    for size, space_number in ((100, 0), (7, 1), (1 << 40, 5)):
        message.buffer_assignment.buffer_allocations.add(size=size, color=space_number)
    assert buffer_bytes(
        decode_trace(space(metadata_plane({"a": message.SerializeToString()})))
    ) == {"a": 107}


def test_each_executable_is_counted_separately():
    assert buffer_bytes(
        decode_trace(space(metadata_plane({"a": hlo_proto(1, 2), "b": hlo_proto(10)})))
    ) == {"a": 3, "b": 10}


@pytest.mark.parametrize(
    "planes", [[plane("/host:CPU", line("a", event("x", 0, 1)))], [plane("/host:metadata")]]
)
def test_a_trace_without_executables_has_none(planes):
    assert buffer_bytes(decode_trace(space(*planes))) == {}


@pytest.mark.parametrize("value", [5, "text", 1.5, b""])
def test_a_stat_without_a_proto_counts_nothing(value):
    assert buffer_bytes(decode_trace(space(metadata_plane({"a": value})))) == {"a": 0}


def test_stats_of_other_planes_are_ignored():
    other = plane(
        "/device:GPU:0", line("a", event("x", 0, 1)), metadata={"x": {"Hlo Proto": hlo_proto(5)}}
    )
    assert buffer_bytes(decode_trace(space(other, metadata_plane({"a": hlo_proto(7)})))) == {"a": 7}


def test_a_damaged_proto_is_an_error():
    damaged = field(3, b"\x1a\x09\x10")
    with pytest.raises(
        TraceError,
        match=r"^some\.pb is not an XSpace trace .* \(\w+ at byte \d+ of \d+: "
        r"field 3 needs 9 bytes, 1 are left\)$",
    ):
        buffer_bytes(decode_trace(space(metadata_plane({"a": damaged})), "some.pb"))


def test_buffers_are_classified_as_in_xla():
    from tensorflow.compiler.xla.service import hlo_pb2

    message = hlo_pb2.HloProto()
    add = message.buffer_assignment.buffer_allocations.add
    add(size=1, is_entry_computation_parameter=True)
    add(
        size=20, is_entry_computation_parameter=True, maybe_live_out=True
    )  # a variable that is updated in place
    add(size=300, maybe_live_out=True)
    add(size=4000, is_constant=True)
    add(size=50000, is_thread_local=True)
    add(size=600000)
    add(size=7000000, color=5)
    trace = decode_trace(
        space(metadata_plane({"a": message.SerializeToString(), "b": hlo_proto(), "c": b""}))
    )
    assert buffer_sizes(trace) == {"a": Buffers(arguments=21, outputs=320, temporaries=600000)}
    assert buffer_bytes(trace) == {"a": 654321, "b": 0, "c": 0}
    assert buffer_sizes(decode_trace(space(plane("/host:CPU")))) == {}


def test_argument_shapes_are_those_of_the_program():
    from tensorflow.compiler.xla.service import hlo_pb2

    message = hlo_pb2.HloProto()
    program = message.hlo_module.host_program_shape
    program.parameters.add(element_type=11, dimensions=[8, 4])
    program.parameters.add(element_type=13).tuple_shapes.add(element_type=5)
    program.result.element_type = 11
    whole, bare = message.SerializeToString(), hlo_proto(1)
    trace = decode_trace(
        space(metadata_plane({"a(1)": whole, "b(2)": bare, "c(3)": field(1, b"\x22\x05")}))
    )
    assert argument_shapes(trace, ["a(1)", "b(2)", "d(4)"]) == {
        "a(1)": (Shape("f32", (8, 4)), Shape("tuple", parts=(Shape("s64"),)))
    }
    assert argument_shapes(decode_trace(space(plane("/host:CPU"))), ["a(1)"]) == {}
    with pytest.raises(TraceError, match="field 4 needs 5 bytes, 0 are left"):
        argument_shapes(trace, ["c(3)"])


# modules


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


@pytest.mark.parametrize(
    ("number", "bits", "size"),
    [
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
    ],
)
def test_bits_and_bytes_of_a_type(number, bits, size):
    shape = one(shape=message((2, number), (3, [3]))).shape
    assert (shape.bits, shape.bytes) == (bits, size)


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


@pytest.mark.parametrize(
    ("config", "trips"),
    [
        ('{"known_trip_count":{"n":"7"}}', 7),
        ('{"known_trip_count":{"n":7}}', 7),
        ("", None),
        ("{}", None),
        ("[1]", None),
        ("{", None),
        ('{"known_trip_count":{"n":"-7"}}', None),
        ('{"known_trip_count":"7"}', None),
        ("[" * 100_000, None),
    ],
    ids=range(9),
)
def test_the_trip_count_of_a_loop_is_read_from_its_configuration(config, trips):
    assert one((43, config)).trip_count == trips


def test_a_compiled_module_has_a_schedule():
    part = computation(1, instruction(7, "a", "parameter"), root=7)
    assert decode_module(module(part, entry=1, fields=[(7, b"")]), "m").scheduled
    assert not decode_module(module(part, entry=1), "m").scheduled


@pytest.mark.parametrize(
    ("dtype", "literal", "value"),
    [
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
    ],
    ids=range(17),
)
def test_the_value_of_a_scalar_constant(dtype, literal, value):
    found = one((8, message(literal)), shape=message((2, dtype)))
    assert (found.constant, type(found.constant)) == (value, type(value))


def test_values_of_arrays_are_left_out():
    assert (
        one((8, message((8, struct.pack("<f", 1.0)))), shape=message((2, 11), (3, [1]))).constant
        is None
    )


PARAMETER = instruction(1, "a", "parameter")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
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
                computation(
                    3, instruction(2, "b", "copy", shape=message((2, 11), (3, [-1]))), root=2
                ),
                entry=3,
            ),
            "a dimension has the size -1",
        ),
    ],
    ids=range(10),
)
def test_an_inconsistent_module_is_an_error(raw, words):
    with pytest.raises(
        TraceError,
        match=r"trace m\.hlo: Hlo\w+Proto at byte \d+ of \d+: .*"
        + re.escape(words)
        + "|"
        + re.escape(words),
    ):
        decode_module(raw, "m.hlo")


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


@given(at=st.integers(0, len(small_module()) - 1), bits=st.integers(1, 255), cut=st.booleans())
@example(at=0, bits=255, cut=True)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_bytes_are_decoded_or_raise_a_trace_error(at, bits, cut):
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
        space(metadata_plane({"a": field(1, small_module()), "b": damaged})), "some.pb"
    )
    assert list(modules_of(trace, {"a"})) == ["a"]
    with pytest.raises(TraceError, match=r"^some\.pb is not an XSpace trace"):
        modules_of(trace)


@pytest.mark.parametrize(
    "planes", [[plane("/host:CPU", line("a", event("x", 0, 1)))], [plane("/host:metadata")]]
)
def test_a_trace_without_metadata_has_no_modules(planes):
    assert modules_of(decode_trace(space(*planes))) == {}


# against protobuf's own decoder


def shape_of(proto):
    layout = proto.layout
    return Shape(
        DTYPES[proto.element_type],
        tuple(proto.dimensions),
        tuple(proto.is_dynamic_dimension),
        tuple(layout.minor_to_major),
        tuple(tuple(tile.dimensions) for tile in layout.tiles),
        layout.memory_space,
        layout.element_size_in_bits,
        tuple(map(shape_of, proto.tuple_shapes)),
        max(1, layout.tail_padding_alignment_in_elements),
    )


def as_protobuf_reads_it(op):
    """Return the fields of a protobuf instruction in the order of HloInstruction."""
    dot, conv = op.dot_dimension_numbers, op.convolution_dimension_numbers
    return (
        op.id,
        op.name,
        op.opcode,
        shape_of(op.shape),
        tuple(op.operand_ids),
        tuple(op.called_computation_ids),
        op.metadata.op_type,
        op.metadata.op_name,
        op.metadata.source_file,
        op.metadata.source_line,
        op.parameter_number,
        op.tuple_index,
        tuple(op.dimensions),
        tuple(op.fft_length),
        tuple(
            (
                w.size,
                max(1, w.stride),
                w.padding_low,
                w.padding_high,
                max(1, w.window_dilation),
                max(1, w.base_dilation),
                w.window_reversal,
            )
            for w in op.window.dimensions
        ),
        (
            tuple(dot.lhs_contracting_dimensions),
            tuple(dot.rhs_contracting_dimensions),
            tuple(dot.lhs_batch_dimensions),
            tuple(dot.rhs_batch_dimensions),
        )
        if op.HasField("dot_dimension_numbers")
        else None,
        precision_of(op),
        (
            conv.input_batch_dimension,
            conv.input_feature_dimension,
            tuple(conv.input_spatial_dimensions),
            conv.kernel_input_feature_dimension,
            conv.kernel_output_feature_dimension,
            tuple(conv.kernel_spatial_dimensions),
            conv.output_batch_dimension,
            conv.output_feature_dimension,
            tuple(conv.output_spatial_dimensions),
        )
        if op.HasField("convolution_dimension_numbers")
        else None,
        max(1, op.feature_group_count),
        max(1, op.batch_group_count),
        op.fusion_kind,
        op.custom_call_target,
        op.backend_config.decode(),
        op.comparison_direction,
        scalar_of(op),
        tuple((part.start, part.limit, part.stride) for part in op.slice_dimensions),
        tuple(
            (part.edge_padding_low, part.edge_padding_high, part.interior_padding)
            for part in op.padding_config.dimensions
        ),
    )


def precision_of(op):
    """Return the highest precision of a protobuf instruction's operands, and its algorithm."""
    config = op.precision_config
    return max(config.operand_precision, default=0), config.algorithm


def scalar_of(op):
    """Return the only number in a scalar constant's literal."""
    dtype = DTYPES[op.shape.element_type]
    if op.opcode != "constant" or op.shape.dimensions or dtype == "tuple":
        return None
    values = getattr(op.literal, f"{dtype}s")
    if isinstance(values, bytes):
        kind = (
            ml_dtypes.bfloat16
            if dtype == "bf16"
            else {"f": "float", "s": "int", "u": "uint"}[dtype[0]] + dtype[1:]
        )
        return np.frombuffer(values, kind)[0].item()
    return values[0]


def plain(value):
    """Convert a dataclass to the tuple of its fields, except shapes."""
    slots = () if isinstance(value, Shape) else getattr(value, "__slots__", ())
    if slots:
        return tuple(plain(getattr(value, name)) for name in slots)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def assert_read_alike(ours, raw):
    from tensorflow.compiler.xla.service import hlo_pb2

    proto = hlo_pb2.HloModuleProto.FromString(raw)
    assert (ours.name, ours.entry_id, ours.scheduled) == (
        proto.name,
        proto.entry_computation_id,
        proto.HasField("schedule"),
    )
    assert list(ours.computations) == [part.id for part in proto.computations]
    for part in proto.computations:
        mine = ours.computations[part.id]
        assert (mine.name, mine.root_id) == (part.name, part.root_id)
        assert [plain(op) for op in mine.instructions.values()] == [
            as_protobuf_reads_it(op) for op in part.instructions
        ]


@pytest.mark.parametrize("stage", ["hlo_serialized", "optimized_hlo_serialized"])
def test_modules_of_tensorflow_equal_those_of_the_protobuf_library(stage):
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def step(image, kernel, weights):
        with tf.GradientTape() as tape:
            tape.watch([kernel, weights])
            hidden = tf.nn.relu(
                tf.nn.conv2d(
                    tf.cast(image, tf.bfloat16),
                    tf.cast(kernel, tf.bfloat16),
                    2,
                    "SAME",
                    dilations=1,
                )
            )
            hidden = tf.reshape(tf.cast(hidden, tf.float32), [2, -1])
            _, hidden = tf.while_loop(
                lambda i, _: i < 5,
                lambda i, h: (i + 1, tf.matmul(h, weights)),
                (0, hidden),
                maximum_iterations=5,
            )
            loss = tf.cond(
                tf.reduce_sum(hidden) > 0,
                lambda: tf.reduce_sum(hidden),
                lambda: tf.reduce_max(hidden),
            )
        return tape.gradient(loss, [kernel, weights]), tf.signal.rfft(hidden)

    arguments = tf.zeros([2, 8, 8, 3]), tf.zeros([3, 3, 3, 2]), tf.zeros([32, 32])
    raw = step.experimental_get_compiler_ir(*arguments)(stage=stage)
    ours = decode_module(raw, "step")
    assert_read_alike(ours, raw)
    opcodes = {
        op.opcode for part in ours.computations.values() for op in part.instructions.values()
    }
    assert {"convolution", "while", "dot", "fft"} <= opcodes
    loops = [
        op.trip_count
        for part in ours.computations.values()
        for op in part.instructions.values()
        if op.opcode == "while"
    ]
    assert (5 in loops) == stage.startswith("optimized")


@pytest.mark.parametrize(
    ("name", "n_modules"),
    [("tpu_v6e_jax_inference", 4), ("gpu_mi300_jax_conv", 8), ("gpu_v100_tf_bert_multiworker", 0)],
)
def test_modules_of_real_traces_equal_those_of_the_protobuf_library(name, n_modules):
    trace, _ = real(name)
    assert len(modules_of(trace)) == n_modules
    for ours, proto in with_protos(trace):
        assert_read_alike(ours, proto.SerializeToString())


@pytest.mark.parametrize(
    ("operands", "algorithm", "expected"),
    [((), 0, (0, 0)), ((0, 2), 0, (2, 0)), ((1, 1), 9, (1, 9)), ((0, 0), 11, (0, 11))],
)
def test_the_precision_of_a_product_is_the_highest_of_its_operands(operands, algorithm, expected):
    from tensorflow.compiler.xla.service import hlo_pb2

    message = hlo_pb2.HloModuleProto(name="m", entry_computation_id=1)
    part = message.computations.add(id=1, name="main", root_id=1)
    product = part.instructions.add(id=1, name="d", opcode="dot")
    product.shape.element_type = 11
    product.precision_config.operand_precision.extend(operands)
    product.precision_config.algorithm = algorithm
    (read,) = decode_module(message.SerializeToString(), "m").entry.instructions.values()
    assert read.precision == precision_of(product) == expected


def with_protos(trace):
    """Return each module of a trace beside the protobuf library's reading of it."""
    from tensorflow.compiler.xla.service import hlo_pb2

    metadata = trace.plane("/host:metadata")
    for key, ours in modules_of(trace).items():
        stat = {
            n: (value, end)
            for n, _, value, end in metadata.message.fields(
                *metadata.metadata_stats[key][0], "XStat"
            )
        }
        proto = hlo_pb2.HloProto.FromString(metadata.message.slice(*stat[6]))
        yield ours, proto.hlo_module
