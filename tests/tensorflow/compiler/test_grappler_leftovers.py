"""Superfluous ops in graphs optimised with a pass off, and similar ops that may stay."""

import inspect
from pathlib import Path

import pytest
import tensorflow as tf
from helpers.function_graphs import grappled

from pytest_tfperf.compiler.grappler_leftovers import computed_from_constants, leftovers
from pytest_tfperf.compiler.grappler_options import grappler_options

ONES = tf.ones((4, 4))


def survivors(function, *args, **options):
    """Types of the ops that are listed, in the order of their names, and all of them."""
    with grappler_options(**options):
        called, _, graph = grappled(function, *args or (ONES,))
        found = leftovers([(called, graph)])
    return sorted(op.op_type for op in found), found


def line_in(function, text):
    """`file.py:line` of the line of a function that holds this text."""
    source, first = inspect.getsourcelines(function.python_function)
    return f"{Path(__file__).name}:{first + next(index for index, line in enumerate(source) if text in line)}"


@tf.function
def debugging(x):
    tf.debugging.assert_less(x, 5.0)
    tf.print(x, output_stream="file:///dev/null")
    x = tf.compat.v1.Print(x, [], first_n=0)
    return tf.debugging.check_numerics(x, "not a number") * 2


def test_debug_ops_are_listed_with_the_pass_that_removes_them():
    types, found = survivors(debugging)
    assert types == ["Assert", "CheckNumerics", "Print", "PrintV2"]
    check = next(op for op in found if op.op_type == "CheckNumerics")
    assert check.line == line_in(debugging, "check_numerics")
    assert check.why == (
        "only helps debugging; debug_stripper is off: tf.config.optimizer.set_experimental_options({'debug_stripper': True})"
    )
    assert survivors(debugging, debug_stripper=True)[0] == []


def test_ops_left_by_the_debug_stripper_are_not_listed():
    @tf.function
    def checked(x):
        return tf.raw_ops.CheckNumericsV2(tensor=x, message="infinite")

    assert survivors(checked)[0] == survivors(checked, debug_stripper=True)[0] == []
    with grappler_options(debug_stripper=True):
        assert "CheckNumericsV2" in [node.op for node in grappled(checked, ONES)[2].node]


@tf.function
def chain(x):
    return tf.identity(tf.identity(tf.identity(x * 2))) + 1


def test_identity_of_an_identity_is_listed_if_its_pass_is_off():
    types, (first, second) = survivors(chain, disable_meta_optimizer=True)
    assert types == ["Identity", "Identity"]
    assert (first.line, second.line) == (line_in(chain, "return"),) * 2
    assert first.why == (
        "is an identity of the identity Identity; Grappler is off by disable_meta_optimizer: "
        "tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': False})"
    )
    assert survivors(chain)[0] == []


@tf.function
def one_identity(x):
    return tf.identity(x * 2) + 1


@tf.function
def result(x):
    return tf.identity(tf.identity(x * 2))


@tf.function
def ordered(x):
    first = tf.identity(x * 2)
    with tf.control_dependencies([tf.exp(x)]):
        return tf.identity(first) + 1


@tf.function
def orders(x):
    last = tf.identity(tf.identity(x * 2))
    with tf.control_dependencies([last]):
        return last + tf.exp(x)


def test_an_identity_that_gives_a_result_may_stay():
    assert survivors(result, disable_meta_optimizer=True)[0] == [
        "Identity"
    ]  # the second; the function's own result is a third


@tf.function
def always(x):
    return tf.cond(tf.constant(True), lambda: x + 1, lambda: x * 2)


@tf.function
def sometimes(x):
    return tf.cond(tf.reduce_sum(x) > 3, lambda: x + 1, lambda: x * 2)


@tf.function
def loop(x):
    for _ in tf.range(3):
        x = tf.exp(x)
    return x


def test_a_branch_that_is_always_taken_is_listed():
    types, found = survivors(always, loop_optimization=False)
    assert types == ["Switch", "Switch"]  # of the predicate and of x
    assert {op.line for op in found} == {line_in(always, "tf.cond")}
    assert all(
        op.why.startswith("chooses a branch by a constant, True; loop_optimization is off")
        for op in found
    )
    assert survivors(always)[0] == []


@tf.function
def constants(x):
    constant = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(5):
        constant = tf.matmul(constant, constant)
    return x + constant


def test_ops_computed_from_constants_are_listed_transitively():
    types, found = survivors(constants, tf.ones((2, 2)), constant_folding=False)
    assert types == ["MatMul"] * 5
    assert {op.line for op in found} == {line_in(constants, "matmul")}
    assert found[0].why.startswith("is computed from constants alone; constant_folding is off")
    assert survivors(constants, tf.ones((2, 2)))[0] == []


@tf.function
def random(x):
    return x + tf.random.uniform((4, 4), seed=1)


@tf.function
def large(x):
    return x[0, 0] + tf.reduce_max(tf.range(40_000.0) * x[0, 0])


@tf.function
def half_constant(x):
    return x * tf.constant(2.0) + tf.constant(1.0)


def test_a_large_constant_is_not_folded_and_so_not_listed():
    assert "Range" not in survivors(large, constant_folding=False)[0]
    assert "Range" in [node.op for node in grappled(large, ONES)[2].node]


def test_a_constant_of_unknown_size_or_of_text_is_not_listed():
    with tf.Graph().as_default() as graph:
        tf.strings.join([tf.constant("a"), tf.constant("b")], name="text")
        tf.where(tf.constant([True, False]), name="indices")
        tf.add(tf.constant(1), tf.constant(2), name="sum")
    assert computed_from_constants(graph.as_graph_def()) == {"sum"}


def test_constants_of_runtime_only_ops_are_not_listed():
    with tf.Graph().as_default() as graph:
        tf.add(tf.constant(1), tf.constant(2), name="sum")
    proto = graph.as_graph_def()
    proto.node[-1].attr[
        "T"
    ].type = tf.variant.as_datatype_enum  # as it is refused in a graph of Python's
    assert computed_from_constants(proto) == frozenset()


@tf.function
def there_and_back(x):
    return tf.transpose(tf.transpose(x, (1, 0, 2)), (1, 0, 2)) + 1


@tf.function
def turned(x):
    return tf.transpose(tf.transpose(x, (1, 2, 0)), (1, 2, 0)) + 1


def test_transposes_that_cancel_are_listed():
    types, (found,) = survivors(there_and_back, tf.ones((2, 3, 4)), arithmetic_optimization=False)
    assert types == ["Transpose"]
    assert found.why.startswith("reverses the transpose transpose; arithmetic_optimization is off")
    assert survivors(there_and_back, tf.ones((2, 3, 4)))[0] == []


@tf.function
def widened(x):
    return tf.cast(tf.cast(x, tf.float64), tf.float32) + 1


@tf.function
def rounded(x):
    return tf.cast(tf.cast(x, tf.float16), tf.float32) + 1


@tf.function
def whole(x):
    return tf.cast(tf.cast(x, tf.int32), tf.float32) + 1


@tf.function
def to_its_own(x):
    return tf.raw_ops.Cast(x=x, DstT=tf.float32) + 1


def test_cast_back_from_a_wider_type_is_listed_without_a_pass():
    types, (found,) = survivors(widened)
    assert types == ["Cast"]
    assert found.line == line_in(widened, "tf.cast")
    assert (
        found.why
        == "reverses the cast Cast, which lost nothing; no Grappler pass removes it: do so in the code"
    )


def test_cast_to_the_same_type_is_listed():
    assert survivors(to_its_own, arithmetic_optimization=False)[0] == ["Cast"]
    assert survivors(to_its_own)[0] == []


def test_similar_ops_may_stay():
    """An identity alone, a branch or loop by values, ops of arguments, other transposes, a cast that rounds."""
    assert survivors(one_identity, disable_meta_optimizer=True)[0] == []
    assert survivors(ordered, disable_meta_optimizer=True)[0] == []
    assert survivors(sometimes, loop_optimization=False)[0] == []
    assert survivors(half_constant, constant_folding=False)[0] == []
    assert survivors(turned, tf.ones((2, 3, 4)), arithmetic_optimization=False)[0] == []
    assert survivors(rounded)[0] == []


@pytest.mark.full
def test_more_similar_ops_may_stay():
    """An identity that orders others, a loop, random numbers, a cast to whole numbers."""
    assert survivors(orders, disable_meta_optimizer=True)[0] == []
    assert survivors(loop, loop_optimization=False)[0] == []
    assert survivors(random, constant_folding=False)[0] == []
    assert survivors(whole)[0] == []


@tf.function
def called(x):
    return tf.debugging.check_numerics(x, "not a number") * 2


@tf.function
def calling(x):
    for _ in tf.range(2):
        x = called(x)
    return x


def test_op_of_a_function_called_in_a_loop_has_its_line():
    _, (found,) = survivors(calling)
    assert (found.op_type, found.line) == ("CheckNumerics", line_in(called, "check_numerics"))


def test_function_without_a_graph_has_no_lines():
    called_function, _, graph = grappled(debugging, ONES)
    lost = type(called_function)(name=called_function.name, args=called_function.args)
    assert {op.line for op in leftovers([(lost, graph)])} == {None}


def test_no_graphs_have_no_leftovers():
    assert leftovers([]) == ()
