"""HLO text that is printed and parsed, against the text and bytes of XLA."""

import re
from dataclasses import fields

import pytest
import tensorflow as tf

from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.printer import text_of
from pytest_tfperf.hlo.text_in import read_hlo


def dense(x, w, b):
    y = tf.nn.softmax(x @ w + b)
    return tf.reduce_sum(y, axis=1), tf.constant([[1.0, 2.0], [3.0, 1 / 3]]) + b[0]


def loop(x, w, b):
    _, x = tf.while_loop(
        lambda n, x: tf.reduce_max(x) < 5e9,
        lambda n, x: (n + 1, x + tf.tanh(tf.slice(x @ w, [0, 1], [8, 4]))[:, :4]),
        (0, x),
    )
    return tf.where(
        x > 1 / 3, x, tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: x @ w[:, 2:6])
    )


def image(x, w, b):
    y = tf.nn.conv2d(tf.reshape(x, [1, 4, 4, 2]), tf.reshape(w, [2, 2, 2, 8]), 2, "SAME")
    y = tf.pad(tf.nn.max_pool2d(y, 2, 1, "SAME"), [[0, 0], [1, 2], [0, 0], [0, 0]])
    top = tf.sort(tf.reshape(y, [-1]))
    return (
        tf.cast(tf.transpose(y[:, ::2]), tf.bfloat16),
        tf.gather(b, tf.argmax(x)),
        tf.signal.rfft(b),
        *tf.split(top, 8),
        tf.range(8.0),
    )


def compiled(*functions):
    """XLA's text of the modules of each function, and its bytes decoded, before and after compilation."""
    found = {}
    for function in functions:
        jit = tf.function(function, jit_compile=True)
        show = jit.experimental_get_compiler_ir(tf.ones([8, 4]), tf.ones([4, 16]), tf.ones([16]))
        for stage in ("hlo", "optimized_hlo"):
            decoded = decode_module(show(stage=f"{stage}_serialized"), "m")
            found[function.__name__, stage] = show(stage=stage), decoded
    return found


@pytest.fixture(scope="module")
def loops():
    """Modules of products within loops, and of branches."""
    return compiled(loop)


@pytest.fixture(scope="module")
def others():
    """Modules of reductions, a convolution, windows, a sort and a Fourier transform."""
    return compiled(dense, image)


def test_text_and_bytes_from_xla_give_equal_modules(loops):
    assert_read_alike(loops)


def test_printed_text_is_parsed_back(loops):
    assert_parsed_back(loops)


def test_printed_text_equals_that_of_xla(loops):
    assert_printed_alike(loops)


@pytest.mark.full
def test_text_of_other_ops_is_read_and_printed_as_by_xla(others):
    assert_read_alike(others)
    assert_parsed_back(others)
    assert_printed_alike(others)


@pytest.mark.full
def test_the_compared_modules_cover_the_main_opcodes(loops, others):
    every = "".join(text for text, _ in [*loops.values(), *others.values()])
    opcodes = (
        "dot fusion while convolution reduce reduce-window pad slice compare conditional constant"
    )
    assert [opcode for opcode in opcodes.split() if f" {opcode}(" not in every] == []


def assert_read_alike(modules):
    for which, (text, decoded) in modules.items():
        (read,) = read_hlo(text, "m")
        assert (read.name, read.scheduled, read.entry.name) == (
            decoded.name,
            decoded.scheduled,
            decoded.entry.name,
        ), which
        assert known(read) == known(decoded), which


def assert_parsed_back(modules):
    for which, (_, decoded) in modules.items():
        (read,) = read_hlo(text_of(decoded), "m")
        assert known(read) == known(decoded), which
        assert text_of(read) == text_of(decoded), which


def assert_printed_alike(modules):
    for (function, stage), (text, decoded) in modules.items():
        if stage == "optimized_hlo":
            assert computations(text_of(decoded)) == computations(text), function


def known(module):
    """Return the instructions by name, with names in place of ids."""
    return {
        (part.name, op.name): {
            **{one.name: getattr(op, one.name) for one in fields(op)},
            "id": op.id == part.root_id,
            "operands": [operand.name for operand in part.operands(op)],
            "called": [module.computations[key].name for key in op.called],
        }
        for part in module.computations.values()
        for op in part.instructions.values()
    }


_LEFT_OUT = re.compile(
    r", (parameter_replication|frontend_attributes|sharding|offset_dims|collapsed_slice_dims|start_index_map|slice_sizes)=\{[^{}]*\}"
    r"|, (is_stable|algorithm|fft_type|index_vector_dim|indices_are_sorted)=\w+|, alias_passthrough_params=true"
)


def computations(text):
    """Return the unordered lines of each computation by its head, without what is never printed."""
    text = re.sub(r"constant\(\{[^()]*\}\)", "constant({...})", _LEFT_OUT.sub("", text))
    return {
        head: sorted(lines)
        for head, *lines in (block.splitlines() for block in text.strip().split("\n\n"))
    }
