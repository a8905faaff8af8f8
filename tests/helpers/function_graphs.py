"""What the tests look at in graphs: one function as the runtime was given it and as Grappler left it."""

from collections import Counter

import tensorflow as tf

from pytest_tfperf.compiler.runtime_graphs import instantiated
from pytest_tfperf.compiler.step_calls import probed

SIDES = ("_Arg", "_Retval", "NoOp")


def plus_products(x):
    """8 × 8 elements plus the last of five products of constants, which Grappler folds into one constant."""
    constant = tf.eye(8) * 2
    for _ in range(5):
        constant = tf.matmul(constant, constant)
    return x + constant


def grappled(function, *args, name=None):
    """The function that was called, and its graph before and after; of several functions the one of this name."""
    function(*args)  # traced before, so that what is seen does not depend on it
    with probed() as probe:
        function(*args)
    called = next(
        one for one in probe.calls.functions.values() if name is None or one.title == name
    )
    graphs = instantiated(called)
    return called, graphs.pre_optimization_graph, graphs.post_optimization_graph


def types(graph):
    """How many ops of each type a graph has, without arguments, results and what computes nothing."""
    return dict(Counter(node.op for node in graph.node if node.op not in SIDES))


def after(function, *args):
    """The op types of a function as Grappler leaves it."""
    return types(grappled(function, *args)[2])
