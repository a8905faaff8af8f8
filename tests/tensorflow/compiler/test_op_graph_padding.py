"""The op graph of a step predicts the padding of its HLO."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

from pytest_tfperf.compiler.lowering.lower import without_unused
from pytest_tfperf.compiler.op_graph import graph_of
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.padding.graph_to_hlo import module_of
from pytest_tfperf.padding.matrix_unit import matrix_work
from pytest_tfperf.padding.predict import predict
from pytest_tfperf.padding.tpu import generation

V5E = generation("v5e")


def training(loss_of, *shapes):
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x, *variables)
        for one, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            one.assign_sub(0.1 * gradient)
        return loss

    return step


def convolutions(x, k, d, j):
    x = tf.nn.relu(tf.nn.conv2d(x, k, 2, "SAME"))
    x = tf.nn.max_pool2d(tf.nn.depthwise_conv2d(x, d, [1, 1, 1, 1], "SAME"), 2, 2, "SAME")
    return tf.reduce_sum(tf.nn.conv2d(x, j, 1, "VALID") ** 2)


def attention(x, w, v):
    x = x @ w
    scores = tf.nn.softmax(tf.einsum("bid,bjd->bij", x, x))
    return tf.reduce_sum(tf.matmul(tf.einsum("bij,bjd->bid", scores, x), v, transpose_b=True) ** 2)


STEPS = {
    "convolutions": lambda: (
        training(convolutions, (3, 3, 3, 20), (3, 3, 20, 1), (3, 3, 20, 20)),
        tf.ones((100, 32, 32, 3)),
    ),
    "attention": lambda: (training(attention, (96, 60), (70, 60)), tf.ones((10, 50, 96))),
}


@pytest.mark.parametrize(
    "name", ["attention", pytest.param("convolutions", marks=pytest.mark.full)]
)
def test_op_graph_predicts_the_padding_of_its_hlo(name):
    step, x = STEPS[name]()
    hlo = decode_module(
        without_unused(step.experimental_get_compiler_ir(x)(stage="hlo_serialized")), "step"
    )
    graph = module_of(graph_of([step.get_concrete_function(x).graph]), None)
    assert matrix_work([(graph, 1.0)]).overhead(V5E) == pytest.approx(
        matrix_work([(hlo, 1.0)]).overhead(V5E)
    )
    by_hlo, by_graph = predict([hlo], V5E), predict([graph], V5E)
    assert by_graph.overhead == pytest.approx(by_hlo.overhead, rel=0.05)
    assert {one.padded_shape for one in by_graph.worst(3)} == {
        one.padded_shape for one in by_hlo.worst(3)
    }
