"""Values of real TensorFlow steps against counts by hand."""

import itertools
import subprocess
import sys
import textwrap
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.tables import cells

DATA = [tf.ones((8, 8))] * 4


def weight():
    return tf.Variable(tf.ones((8, 8)))


def counts(profile, *names):
    return tuple(getattr(profile, name) for name in names)


ALL = ("xla_clusters", "xla_launches", "xla_compiles", "retraces", "eager_ops")


def test_a_plain_function_runs_no_executable_and_nothing_eagerly_and_has_a_throughput(
    profile,
):
    w = weight()
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, w)))
    result = profile(step, DATA)
    assert counts(result, *ALL) == (0, 0, 0, 0, 0)
    assert result.value("throughput").detail["examples_per_step"] == 8
    assert 0 < result.throughput <= 8 / min(result.blocks_s)  # gaps between epochs count too


def test_ops_outside_a_function_are_eager_ops(profile):
    step = lambda x: tf.reduce_sum(x * 2 + 1)  # noqa: E731
    result = profile(step, DATA)
    assert result.eager_ops == 3
    line = f"at test_counts.py:{step.__code__.co_firstlineno}"
    assert (
        result.value("eager_ops").detail["where"] == f"eager: Mul {line}, AddV2 {line}, Sum {line}"
    )


def test_a_jit_function_is_one_cluster_launched_once(profile):
    w = weight()
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, w)), jit_compile=True)
    assert counts(profile(step, DATA), *ALL) == (1, 1, 0, 0, 0)


def test_three_nested_jit_functions_are_three_clusters(profile):
    w = weight()
    inner = [tf.function(lambda x, n=n: tf.matmul(x, w) + n, jit_compile=True) for n in range(3)]
    step = tf.function(lambda x: inner[0](x) + inner[1](x) + inner[2](x))
    assert counts(profile(step, DATA), *ALL) == (3, 3, 0, 0, 0)


def test_the_same_jit_function_called_three_times_is_one_cluster_launched_three_times(profile):
    w = weight()
    inner = tf.function(lambda x: tf.matmul(x, w), jit_compile=True)
    step = tf.function(lambda x: inner(x) + inner(x + 1) + inner(x * 2))
    assert counts(profile(step, DATA), *ALL) == (1, 3, 0, 0, 0)


@pytest.mark.full
def test_auto_clustering_makes_one_cluster(processes):
    script = """
        import sys
        import tensorflow as tf
        from pytest_tfperf.plugin.fixture import TfProfile
        from pytest_tfperf.plugin.options import Options
        from pytest_tfperf.plugin.profiled_item import ProfiledItem
        from pytest_tfperf.plugin.registry import Registry

        w = tf.Variable(tf.ones((64, 64)))

        @tf.function
        def step(x):
            return tf.reduce_sum(tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, w) + 1), w)) * 2)

        profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
        profile = profiler(step, [tf.ones((64, 64))], warmup=3, steps=12, trace_steps=6)
        profiler.close()
        print(profile.xla_clusters, profile.xla_launches, profile.xla_compiles)
    """
    environment = {
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit",
        "PATH": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "1", "0"]


@pytest.mark.full
@pytest.mark.parametrize(("jit", "clusters"), [(False, 0), (True, 1)])
def test_keras_fit_launches_one_executable_a_batch_with_jit_and_none_without(
    profile, jit, clusters
):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=jit)
    result = profile.fit(
        model, np.ones((64, 3)), np.ones((64, 1)), batch_size=8, epochs=9, verbose=0
    )
    assert counts(result, *ALL) == (clusters, clusters, 0, 0, 0)
    assert len(result.steps) == 6


def test_custom_loop_has_the_values_of_a_call(profile):
    w = weight()
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, w)), jit_compile=True)
    n_turns = 0
    for batch in profile.steps(DATA):
        step(batch)
        n_turns += 1
    result = profile.profile
    assert counts(result, *ALL) == (1, 1, 0, 0, 0)
    assert n_turns == 1 + 3 + 12 + 6 + 1 + 3  # the last are the probe, and steps that are counted
    assert result.value("retraces").detail["n_steps"] == n_turns - 1


def period_of(profile):
    """Return the mean period of the traced steps in seconds, to compute shares of time by hand."""
    return sum(step.period_s for step in profile.steps) / len(profile.steps)


def busy(seconds):
    """Return a Python function that occupies its thread, and leaves the interpreter to others."""

    def produce(x):
        time.sleep(seconds)
        return x

    return produce


def test_waits_of_a_loop_inside_the_graph_are_counted(profile):
    data = tf.data.Dataset.range(10**6).map(
        lambda x: tf.ensure_shape(tf.numpy_function(busy(0.004), [x], tf.int64), ())
    )
    options = tf.data.Options()  # a prefetch would make elements before the first traced step
    options.experimental_optimization.inject_prefetch = False
    iterator = iter(data.with_options(options))

    @tf.function
    def step():
        total = tf.constant(0, tf.int64)
        for _ in tf.range(3):
            total += next(iterator)
        return total

    result = profile(step, steps_per_call=3)
    assert result.input_bound >= 0.95 * 3 * 0.004 / period_of(result)  # three waits of 4 ms or more
    assert result.step_time > 0.95 * 0.004
    assert result.eager_ops == 0


def test_a_generator_of_20_ms_a_batch_is_waited_for(profile):
    w = weight()
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, w)))

    class Batches:
        def __iter__(self):
            for _ in range(50):
                time.sleep(0.02)
                yield DATA[0]

    result = profile(step, Batches())
    # The share is that of all timed steps together, so their slowest block bounds the period.
    assert result.input_bound >= 0.95 * 0.020 / max(result.blocks_s)
    assert result.step_time >= 0.020
    n_dropped = result.value("step_time").detail["n_dropped"]
    mean = np.mean(result.blocks_s[n_dropped:])  # they are of as many steps
    assert result.input_wait == pytest.approx(result.input_bound * mean)
    assert "Python code" in result.value("input_bound").detail["where"]


def test_python_in_the_step_is_host_overhead(profile):
    w = tf.Variable(tf.ones((400, 400)))
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, w)))
    result = profile(lambda x: (time.sleep(0.02), step(x)), [tf.ones((400, 400))])
    assert result.host_overhead >= 0.95 * 0.020 / period_of(result)
    # The 20 ms of a step are no wait for input, however busy the machine is.
    assert result.input_bound <= 1 - 0.95 * 0.020 / max(result.blocks_s)


def test_variables_created_in_the_first_call_do_not_count_as_a_retrace(profile):
    made = []

    @tf.function
    def step(x):
        if not made:
            made.append(tf.Variable(tf.ones((8, 8))))
        return tf.reduce_sum(tf.matmul(x, made[0]))

    assert profile(step, DATA).retraces == 0


def test_a_python_argument_that_changes_is_a_retrace_each_time(profile):
    step = tf.function(lambda x, n: x * n)
    numbers = iter(range(1000))
    result = profile(lambda x: step(x, next(numbers) // 5), DATA)
    # the probe looks for a step like the traced ones, in up to ten
    assert result.retraces == result.value("retraces").detail["n_steps"] // 5 >= 5
    assert "in step 5, 10, 15, 20, 25" in result.value("retraces").detail["where"]


def test_a_new_shape_compiles_again_and_is_named(profile):
    @tf.function(jit_compile=True, reduce_retracing=True)
    def shaped(x):
        return tf.reduce_sum(x)

    batches = [tf.ones((8, 8))] * 10 + [tf.ones((5, 8))]
    result = profile(shaped, batches)
    assert result.xla_compiles == 1
    assert (
        result.value("xla_compiles").detail["where"]
        == "compiled: shaped: argument 0 f32[8,8] → f32[5,8]"
    )


def test_peak_memory_of_a_jit_step_is_exact(profile):
    step = tf.function(lambda x: tf.tanh(x) * 2, jit_compile=True)
    value = profile(step, [tf.ones((256, 256))]).value("peak_memory")
    assert value.source == "hlo"
    assert value.number == 2 * 256 * 256 * 4  # the argument and the result


def test_peak_memory_of_several_jit_functions_has_bounds(profile):
    double, tanh = (tf.function(made, jit_compile=True) for made in (lambda x: x * 2, tf.tanh))
    size = 2 * 256 * 256 * 4  # an argument and a result
    for step, n in (
        (lambda x: (double(x), tanh(x)), 2),
        (lambda x: (double(x), tanh(x), tanh(x)), 3),
        (lambda x: tanh(x), 1),
    ):
        value = profile(step, [tf.ones((256, 256))], name=str(n)).value("peak_memory")
        assert (value.number, value.low(), value.high()) == (size, size, n * size)


def test_peak_memory_of_a_plain_step_is_measured(profile):
    step = tf.function(lambda x: tf.reduce_sum(tf.matmul(tf.matmul(x, x), x)))
    value = profile(step, [tf.ones((512, 512))]).value("peak_memory")
    assert value.source == "trace"
    # One product or two of 1 MiB at a time; another thread may hold something small meanwhile.
    assert 1 << 20 <= value.number < 3 << 20


@pytest.mark.parametrize(
    "offset", [0, *(pytest.param(offset, marks=pytest.mark.full) for offset in (1, 2))]
)
def test_graphs_are_those_of_the_most_common_step(profile, offset):
    small, large = (
        tf.function(lambda x: tf.tanh(x) * 2),
        tf.function(lambda x: tf.tanh(tf.tanh(x) * 2) * 2),
    )
    calls = itertools.count(offset)

    def step(x):
        return large(x) if next(calls) % 3 == 0 else small(x)

    result = profile(step, DATA)
    assert result.graph_ops == 3  # Tanh, Mul, Const
    assert (
        "2 of 6 traced steps call other functions than the step whose graphs were analysed; graph_ops, graph_reduction and "
        "xla_coverage describe that step" in result.notes
    )


def test_one_function_has_one_graph_for_all_shapes(profile):
    step = tf.function(lambda x: x * 2, input_signature=[tf.TensorSpec((None, 8))])
    traced_for_each = tf.function(lambda x: x * 2)
    data = [tf.ones((n, 8)) for n in (5, 6, 7)]
    for name, function, noted in (("one", step, False), ("each", traced_for_each, True)):
        result = profile(function, data, name=name)
        assert result.graph_ops == 2
        assert any("whose graphs were" in note for note in result.notes) == noted, name


def test_loop_that_ends_during_another_probe_keeps_the_first_graphs(profile):
    small, large = (
        tf.function(lambda x: tf.tanh(x) * 2),
        tf.function(lambda x: tf.tanh(tf.tanh(x) * 2) * 2),
    )
    calls = itertools.count()
    n_steps = 1 + 3 + 12 + 6 + 1  # the probe's is the last

    result = profile(
        lambda x: (large if next(calls) == n_steps - 1 else small)(x), iter((DATA * 6)[:n_steps])
    )
    assert result.graph_ops == 5
    assert any(note.startswith("6 of 6 traced steps") for note in result.notes)


@pytest.mark.imports("keras")
def test_eager_ops_on_the_slow_path_are_named_like_others(profile):
    weight = keras.Variable(np.ones((8, 8), "float32"))
    result = profile(lambda x: tf.reduce_sum(weight) + tf.reduce_sum(x), DATA)
    assert cells(result.tables["outside_xla"], "type") == ["Sum", "AddV2"]


def test_eager_ops_of_an_iterator_are_not_outside_xla(profile):
    class Batches:
        def __iter__(self):
            return (tf.tanh(element) for element in DATA)

    result = profile(tf.function(lambda x: x * 2, jit_compile=True), Batches())
    assert (result.eager_ops, result.xla_coverage) == (0, 1)


@pytest.mark.nightly
def test_values_of_large_steps_are_computed_when_they_are_read(profile):
    def step(x):
        for _ in range(2000):
            x = tf.tanh(x) * 0.5
        return x

    result = profile(tf.function(step), [tf.ones(3)], limits={"max_retraces": 0})
    assert result.flops > 0
    assert result.graph_ops > 4000
