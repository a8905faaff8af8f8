"""HLO modules and buffers, against the protobuf library's own reading of them."""

import ml_dtypes
import numpy as np
import pytest
from helpers.traces import real
from helpers.xspace import event, field, line, plane, space

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import DTYPES, Buffers, Shape
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


def test_an_executable_needs_the_sum_of_its_allocations():
    for sizes in ((), (0,), (4096,), (1, 2, 3), (2**40, 2**33, 127, 128)):
        planes = plane("/host:CPU"), metadata_plane({"jit_f(1)": hlo_proto(*sizes)})
        assert buffer_bytes(decode_trace(space(*planes))) == {"jit_f(1)": sum(sizes)}


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


def test_a_trace_without_executables_has_none():
    host = plane("/host:CPU", line("a", event("x", 0, 1)))
    for only in (host, plane("/host:metadata")):
        assert buffer_bytes(decode_trace(space(only))) == {}


def test_a_stat_without_a_proto_counts_nothing():
    for value in (5, "text", 1.5, b""):
        trace = decode_trace(space(metadata_plane({"a": value})))
        assert buffer_bytes(trace) == {"a": 0}, value


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
        groups_of(op),
    )


def groups_of(op):
    """Return the replica groups of a protobuf instruction, or its pairs, as HLO text lists them."""
    iota = op.collective_device_list.iota_replica_group_list
    if iota.num_replica_groups:
        order = ",".join(map(str, iota.iota_transpose_perm))
        lengths = ",".join(map(str, iota.iota_reshape_dims))
        sizes = f"[{iota.num_replica_groups},{iota.num_devices_per_group}]<=[{lengths}]"
        return sizes + (f"T({order})" if order != "0" else "")
    listed = [*op.replica_groups, *op.collective_device_list.replica_groups]
    rows = [list(group.replica_ids) for group in listed]
    rows += [[pair.source, pair.target] for pair in op.source_target_pairs]
    return str(rows).translate(str.maketrans("[]", "{}", " ")) if rows else ""


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


@pytest.mark.parametrize(
    "stage",
    ["optimized_hlo_serialized", pytest.param("hlo_serialized", marks=pytest.mark.full)],
)
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
    ops = [op for part in ours.computations.values() for op in part.instructions.values()]
    assert {"convolution", "while", "dot", "fft"} <= {op.opcode for op in ops}
    loops = [op.trip_count for op in ops if op.opcode == "while"]
    assert (5 in loops) == stage.startswith("optimized")


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "n_modules"),
    [("tpu_v6e_jax_inference", 4), ("gpu_mi300_jax_conv", 8), ("gpu_v100_tf_bert_multiworker", 0)],
)
def test_modules_of_real_traces_equal_those_of_the_protobuf_library(name, n_modules):
    trace, _ = real(name)
    assert len(modules_of(trace)) == n_modules
    for ours, proto in with_protos(trace):
        assert_read_alike(ours, proto.SerializeToString())


def test_the_precision_of_a_product_is_the_highest_of_its_operands():
    from tensorflow.compiler.xla.service import hlo_pb2

    for operands, algorithm, expected in (
        ((), 0, (0, 0)),
        ((0, 2), 0, (2, 0)),
        ((1, 1), 9, (1, 9)),
        ((0, 0), 11, (0, 11)),
    ):
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
