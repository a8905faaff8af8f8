"""Calls of a step, and the user's own loops."""

import time
import weakref
from types import SimpleNamespace

import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler
from tensorflow.python.distribute.values import PerReplica, PerReplicaSpec

from pytest_tfperf.capture.loop import workload_of
from pytest_tfperf.capture.sessions import Session
from pytest_tfperf.errors import CaptureError, TraceError, UnknownMetric

DATA = [tf.ones((8, 8))] * 4
PAIRS = [(tf.ones(3), tf.zeros(3))] * 4
step = tf.function(lambda x: tf.reduce_sum(x))


def test_elements_are_passed_by_the_signature_of_the_step(profile):
    seen, few = [], {"warmup": 1, "steps": 2, "trace_steps": 2}
    rows = [
        (lambda x: seen.append(1), PAIRS, "auto", 1),
        (lambda x, y: seen.append(2), PAIRS, "auto", 2),
        (lambda x, y, training=True: seen.append(2), PAIRS, "auto", 2),
        (lambda x, y=None: seen.append(1 if isinstance(x, tuple) else 2), PAIRS, "auto", 1),
        (lambda x, y=None: seen.append(1 if isinstance(x, tuple) else 2), PAIRS, True, 2),
        (lambda *batch: seen.append(len(batch)), PAIRS, True, 2),
        (lambda *batch: seen.append(len(batch)), PAIRS, False, 1),
        (lambda batch: seen.append(1), DATA, "auto", 1),
    ]
    for n, (function, data, unpack, taken) in enumerate(rows):
        seen.clear()
        profile(function, data, unpack=unpack, name=f"row {n}", **few)
        assert set(seen) == {taken}, rows[n]


def test_signature_of_a_tf_function_is_read(profile):
    profile(tf.function(lambda x, y: x + y), PAIRS)
    assert profile.profile.workload["inputs"] == ["float32[3]", "float32[3]"]


def test_error_for_an_unfitting_signature_names_both_ways(profile):
    both = "with the whole element it would need 1, with the unpacked element 2"
    for name, function in {"three": lambda x, y, z: 0, "any": lambda *batch: 0}.items():
        with pytest.raises(TypeError, match=both):
            profile(function, PAIRS, name=name)


def test_a_step_without_a_parameter_is_told_to_take_one_or_no_data(profile):
    with pytest.raises(TypeError, match="takes no parameter, and the data give elements"):
        profile(lambda: 0, PAIRS)


def test_unpacking_an_element_that_is_not_a_tuple_is_refused(profile):
    with pytest.raises(TypeError, match="unpack=True, but the data give"):
        profile(step, DATA, unpack=True)


async def coroutine(x):
    return x


def test_a_step_that_cannot_be_called_is_refused(profile):
    with pytest.raises(TypeError, match="a callable, but got int"):
        profile(3, DATA, name="number")
    with pytest.raises(TypeError, match="coroutine is a coroutine function"):
        profile(coroutine, DATA, name="coroutine")


def test_empty_data_are_an_error(profile):
    dataset = tf.data.Dataset.from_tensor_slices(tf.zeros((0, 2)))
    for name, data in {"list": [], "dataset": dataset, "iterator": iter(())}.items():
        with pytest.raises(CaptureError, match="the data are empty"):
            profile(step, data, name=name)


def test_error_for_a_short_generator_counts_its_steps(profile):
    with pytest.raises(
        CaptureError,
        match="the data ended after 7 steps and cannot be iterated again; the windows need 22",
    ):
        profile(step, (DATA[0] for _ in range(7)))
    with pytest.raises(CaptureError, match="the data ended after 7 steps"):
        for batch in profile.steps((DATA[0] for _ in range(7)), name="loop"):
            step(batch)


def test_a_short_step_needs_more_steps_than_it_is_told_at_least():
    """Its blocks of 20 ms hold hundreds."""
    profiler = new_profiler()
    wanted = r"ended after 300 steps .* need 81 .*Ten blocks of 20 ms hold more steps; steps=50 "
    with pytest.raises(CaptureError, match=wanted):
        profiler(lambda x: x, iter([1] * 300))
    profiler.close()


def test_long_one_shot_generator_is_accepted(profile):
    assert profile(step, (DATA[0] for _ in range(22))).value("retraces").detail["n_epoch_ends"] == 0


def test_short_data_start_over_and_epochs_are_counted(profile):
    result = profile(step, DATA)
    assert result.value("retraces").detail == {"n_steps": 25, "n_epoch_ends": 6}
    assert result.epoch_gap > 0
    # steps 4 to 15 are timed, and epochs begin with steps 4, 8 and 12 there
    assert result.value("epoch_gap").detail["n_gaps"] == 3


def test_error_of_a_step_is_unchanged_and_the_next_profile_works(profile):
    mine = KeyError("mine")
    for at, window in {1: "first", 3: "warm-up", 10: "timed", 20: "traced", 22: "last"}.items():
        calls = iter(range(1, 100))

        def failing(x, at=at, calls=calls):
            if next(calls) == at:
                raise mine
            return step(x)

        with pytest.raises(KeyError) as caught:
            profile(lambda x, failing=failing: failing(x), DATA, name=window)
        assert caught.value is mine, window
        assert profile(step, DATA, name=f"after {window}").retraces == 0


def test_an_exception_in_the_user_s_own_loop_leaves_the_profiler_free(profile):
    with pytest.raises(KeyError):
        for number, batch in enumerate(profile.steps(DATA)):
            step(batch)
            if number == 18:
                raise KeyError("mine")
    assert profile(step, DATA, name="next").retraces == 0


def test_break_out_of_the_loop_leaves_unknown_metrics(profile):
    fresh = tf.function(lambda x: x * 5)
    for number, batch in enumerate(profile.steps(DATA)):
        if number == 5:
            break
        fresh(batch)
    result = profile.profile
    assert result.first_step_time > 0
    with pytest.raises(
        UnknownMetric, match=r"the loop over tf_profile\.steps was left after 5 steps"
    ):
        result.input_bound  # noqa: B018


def test_profiles_without_a_name_are_numbered_and_names_are_unique(profile):
    profile(step, DATA)
    profile(step, DATA, name="a")
    assert profile(step, DATA).name == "2"
    for _ in profile.steps(DATA):
        pass
    with pytest.raises(CaptureError, match="a profile named 'a' already"):
        profile(step, DATA, name="a")
    assert list(profile.profiles) == ["", "a", "2", "3"]


def test_access_before_any_profile_is_an_error(profile):
    with pytest.raises(CaptureError, match="nothing has been profiled yet"):
        profile.profile  # noqa: B018


def test_the_result_is_what_the_last_call_returned(profile):
    assert profile(step, DATA).result.numpy() == 64


def test_latency_times_every_call(profile):
    result = profile(step, DATA, latency=True)
    assert result.value("step_time").detail["n_blocks"] == 12
    assert result.step_time_p90 >= result.step_time


def test_a_function_that_was_traced_before_has_no_first_step(profile):
    warm = tf.function(lambda x: x * 3)
    warm(DATA[0])
    assert "had been traced before" in profile(warm, DATA).value("first_step_time").why
    assert profile(tf.function(lambda x: x * 3), DATA, name="fresh").first_step_time > 0


def test_variables_are_restored(profile):
    variable = tf.Variable(1.0)
    profile(lambda: variable.assign_add(1.0), restore=variable)
    assert variable.numpy() == 1.0


def test_a_bracketed_trace_counts_and_has_no_times(profile):
    with profile.trace() as trace:
        for _ in range(3):
            with trace.step():
                step(DATA[0]) + 1
    result = profile.profile
    assert (len(result.steps), result.eager_ops, result.retraces) == (3, 1, 0)
    with pytest.raises(UnknownMetric, match="nothing was timed"):
        result.step_time  # noqa: B018


def test_a_bracketed_trace_counts_late_traces_by_name(profile):
    scaled = tf.function(lambda x, n: x * n)
    with profile.trace() as trace:
        for number in range(3):
            with trace.step():
                scaled(DATA[0], number)
    assert profile.profile.retraces == 2


def test_profiles_cannot_be_nested(profile):
    with pytest.raises(CaptureError, match="profiles cannot be nested"):
        profile(lambda x: profile(step, DATA, name="inner"), DATA)
    with (
        pytest.raises(CaptureError, match="profiles cannot be nested"),
        profile.trace(name="outer"),
    ):
        profile(step, DATA, name="inside")
    assert profile(step, DATA, name="next").retraces == 0


def test_trace_without_a_bracketed_step_explains_how_to_mark_one(profile):
    with pytest.raises(CaptureError, match=r"bracket each in `with t.step\(\):`"), profile.trace():
        pass


def test_a_damaged_trace_is_no_missing_step(profile, monkeypatch):
    stop = Session.stop

    def cut(session):
        traces = stop(session)
        for path in traces.values():
            path.write_bytes(path.read_bytes()[:-3])
        return traces

    monkeypatch.setattr(Session, "stop", cut)
    with (
        pytest.raises(TraceError, match="or it is damaged"),
        profile.trace() as trace,
        trace.step(),
    ):
        step(DATA[0])
    with pytest.raises(TraceError, match="or it is damaged"), profile.whole_body():
        step(DATA[0])


def test_data_that_cannot_be_iterated_over_are_named(profile):
    for name, data in {"function": lambda: DATA, "number": 3}.items():
        with pytest.raises(TypeError, match="the data must be iterable"):
            profile(step, data, name=name)


def test_single_elements_for_a_step_of_two_parameters_are_refused(profile):
    with pytest.raises(
        TypeError, match="has 2 required positional parameters, and the data give single elements"
    ):
        profile(lambda x, y: 0, DATA)


def test_eager_ops_of_the_loop_iterator_do_not_count(profile):
    class Batches:
        def __iter__(self):
            for _ in range(40):
                yield DATA[0] * 2 + 1

    assert profile(step, Batches()).eager_ops == 0


def test_an_element_of_several_replicas_has_the_batch_of_all():
    tokens = PerReplica((tf.ones((4, 7)), tf.ones((3, 7))))
    declared = PerReplicaSpec(*[tf.TensorSpec((None, None))] * 2)
    assert workload_of((tokens, tf.ones(7)), (declared, tf.TensorSpec(None))) == {
        "inputs": ["float32[4,?]", "float32[7]"],
        "batch": 7,
        "replicas": 2,
    }
    assert workload_of({"x": tokens})["inputs"] == ["float32[4,7]"]
    alone = PerReplica((tf.ones((4, 7)),))
    assert workload_of(alone) == {"inputs": ["float32[4,7]"], "batch": 4}


def test_the_signature_of_a_table_and_of_a_tensor_of_open_rank():
    table = SimpleNamespace(shape=(4, 2))  # as a DataFrame of pandas
    assert workload_of(table) == {"inputs": ["SimpleNamespace[4,2]"], "batch": 4}
    of_python = tf.TensorSpec(None, tf.float32)  # tf.py_function without set_shape
    for element in (of_python, (of_python, tf.TensorSpec([4], tf.float32))):
        signature = workload_of(element)
        assert (signature["inputs"][0], signature["batch"]) == ("float32[...]", None)


def test_every_epoch_but_the_first_has_the_time_of_its_iter(profile):
    class Slow(list):
        def __iter__(self):
            time.sleep(0.05)
            return super().__iter__()

    found = profile(tf.reduce_sum, Slow([tf.ones(3)] * 4))
    assert found.value("epoch_gap").detail["iter_s"] >= 0.05
    assert "iter() of the data take" in found.value("epoch_gap").detail["where"]
    assert any("iter() of the data take" in note for note in found.notes)


def test_an_iterator_is_freed_before_the_next_one_is_made(profile):
    living = []

    class Elements:
        def __init__(self):
            living.append(self)
            assert len(living) == 1

        def __iter__(self):
            yield from [tf.ones(3)] * 4

    class Data:
        def __iter__(self):
            made = iter(Elements())
            weakref.finalize(made, living.clear)
            return made

    profile(tf.reduce_sum, Data())


def test_open_sizes_of_the_data_are_open_in_the_workload(profile):
    data = tf.data.Dataset.range(1, 200).map(lambda n: tf.ones((n % 3 + 1,))).padded_batch(4)
    assert profile(tf.reduce_sum, data, name="padded").workload["inputs"] == ["float32[4,?]"]
    fixed = tf.data.Dataset.range(200).map(lambda n: tf.ones((3,))).batch(4)
    assert profile(tf.reduce_sum, fixed, name="fixed").workload["inputs"] == ["float32[4,3]"]


def test_throughput_has_the_mean_batch_where_the_last_of_an_epoch_is_smaller(profile):
    data = tf.data.Dataset.from_tensor_slices(tf.ones((18, 3))).batch(8)
    assert profile(step, data).value("throughput").detail["examples_per_step"] == 6
    even = profile(step, data.take(2), name="even")
    assert even.value("throughput").detail["examples_per_step"] == 8
