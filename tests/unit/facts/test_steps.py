import numpy as np
import pytest
from helpers.traces import real_trace
from helpers.xspace import MS, at, event, line, plane, space

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.host_events import DATA_RUNS
from pytest_tfperf.trace.xspace import decode_trace, read_trace


def steps_of(*events):
    return find_steps(decode_trace(space(plane("/host:CPU", line("python", *events)))))


def train(number, begin, end, **stats):
    return event("train", int(begin * MS), int((end - begin) * MS), step_num=number, _r=1, **stats)


def ms(column):
    return (column / MS).tolist()


def test_a_period_lasts_to_the_start_of_the_next_step_and_of_the_last_to_its_end():
    steps = steps_of(train(0, 1, 4), train(1, 5, 8), train(2, 9, 11))
    assert (ms(steps.start_ps), ms(steps.period_ps)) == ([1, 5, 9], [4, 4, 2])
    assert steps.names == ("train 0", "train 1", "train 2")
    assert (steps.source, steps.n_dropped, steps.n_epochs) == ("step_num", 0, 1)


def test_a_period_does_not_reach_over_the_turn_of_an_epoch():
    steps = steps_of(train(0, 1, 4, tfperf=1, epoch=0), train(1, 20, 23, tfperf=1, epoch=1))
    assert ms(steps.period_ps) == [3, 3]
    assert (steps.source, steps.n_epochs) == ("tfperf", 2)


def test_an_aborted_step_is_dropped_and_counted():
    steps = steps_of(
        train(0, 1, 4, tfperf=1), train(1, 4, 5, tfperf=1, aborted=1), train(2, 6, 9, tfperf=1)
    )
    assert (steps.names, steps.n_dropped) == (("train 0", "train 2"), 1)
    with pytest.raises(TraceError, match="no step found"):
        steps_of(train(0, 1, 4, tfperf=1, aborted=1))


def test_marks_of_the_user_s_inside_ours_are_not_steps():
    steps = steps_of(train(0, 1, 10, tfperf=1), train(7, 2, 4), train(8, 5, 9))
    assert steps.names == ("train 0",)


def test_nested_marks_count_once_as_the_outer_one():
    assert steps_of(train(0, 1, 10), train(7, 2, 4)).names == ("train 0",)


def test_without_marks_the_function_called_most_often_from_outside_is_the_step():
    def call(name, begin, end):
        return event(
            name, int(begin * MS), int((end - begin) * MS), tf_function_call="notTraced-nonXla"
        )

    steps = steps_of(
        call("init", 0, 1),
        call("step", 2, 5),
        call("inner", 3, 4),
        call("step", 6, 8),
        call("inner", 6.5, 7),
    )
    assert (steps.names, steps.source, steps.n_dropped) == (("step 0", "step 1"), "function", 1)
    assert ms(steps.period_ps) == [4, 2]


def test_runs_of_a_session_are_steps_and_not_the_functions_in_them():
    """As a server of saved models runs its requests."""
    runs = [
        call
        for begin in (0, 10, 20)
        for call in (at("SessionRun", begin, begin + 4), at("FunctionRun", begin + 1, begin + 2))
    ]
    steps = steps_of(*runs)
    assert steps.names == ("SessionRun 0", "SessionRun 1", "SessionRun 2")
    assert (steps.source, steps.n_dropped) == ("session", 0)
    assert ms(steps.period_ps) == [10, 10, 4]


@pytest.mark.parametrize("content", [(), (event("Sum:Sum", 0, 5),)])
def test_a_trace_without_steps_says_how_to_mark_them(content):
    with pytest.raises(TraceError, match=r"no step found\. Mark the steps"):
        steps_of(*content)


def test_a_trace_without_a_host_has_no_step():
    with pytest.raises(TraceError, match="no step found"):
        find_steps(decode_trace(space(plane("/device:TPU:0"))))


def test_a_step_is_half_open():
    for time, step in [(0.999, -1), (1, 0), (4.999, 0), (5, 1), (7.999, 1), (8, -1)]:
        steps = steps_of(train(0, 1, 4), train(1, 5, 8))
        assert steps.of(np.array([int(time * MS)])).tolist() == [step], time


def test_calls_of_a_jax_function_are_steps_where_there_is_nothing_else():
    calls = [
        at("PjitFunction(f)", n * 10 + inner, n * 10 + 5 - inner)
        for n in range(3)
        for inner in (0, 1)
    ]  # each shows twice, nested
    steps = find_steps(
        decode_trace(
            space(plane("/host:CPU", line("python", *calls, at("PjitFunction(g)", 40, 41))))
        )
    )
    assert (steps.names, steps.source, steps.n_dropped) == (
        ("f 0", "f 1", "f 2"),
        "function",
        1,
    )
    assert steps.others == ("g",)


def test_calls_of_functions_of_jax_itself_are_no_steps():
    calls = [at(f"PjitFunction({name})", n, n + 0.5) for n, name in enumerate("afaaf")]
    trace = decode_trace(space(plane("/host:CPU", line("python", *calls))))
    assert find_steps(trace).names == ("a 0", "a 1", "a 2")
    assert find_steps(trace, {"a"}).names == ("f 0", "f 1")
    with pytest.raises(TraceError, match="no step found"):
        find_steps(trace, {"a", "f"})


def test_a_loop_s_last_evaluation_of_its_condition_is_no_iteration():
    """Two calls of a loop of three: the executor works on a fourth iteration, which finds that the loop is over."""
    work = [
        at(
            "ExecutorState::Process",
            20 * call + 4 * n,
            20 * call + 4 * n + 3,
            id=call + 1,
            iter_num=n,
        )
        for call in range(2)
        for n in range(4)
    ]
    steps = find_steps(decode_trace(space(plane("/host:CPU", line("tf_Compute", *work)))))
    assert (steps.source, steps.names) == (
        "iterations",
        ("iteration 0", "iteration 1", "iteration 2") * 2,
    )
    assert (steps.start_ps // MS).tolist() == [0, 4, 8, 20, 24, 28]
    assert (steps.end_ps // MS).tolist() == [4, 8, 20, 24, 28, 35]


@pytest.mark.parametrize(("fetches", "source"), [(False, "function"), (True, "iterations")])
def test_a_loop_in_repeated_calls_is_one_of_steps_if_it_fetches(fetches, source):
    """As that of an RNN, or that over the batches of an epoch."""
    calls = [at("f", 20 * n, 20 * n + 18, tf_function_call="notTraced-xla") for n in range(2)]
    fetch = [at("IteratorGetNext:IteratorGetNext", 20 * n + 1, 20 * n + 2) for n in range(2)]
    work = [
        at("ExecutorState::Process", 20 * n + 4 * k, 20 * n + 4 * k + 3, id=n + 1, iter_num=k)
        for n in range(2)
        for k in range(4)
    ]
    lines = line("python", *calls), line("tf_Compute", *work, *(fetch if fetches else ()))
    assert find_steps(decode_trace(space(plane("/host:CPU", *lines)))).source == source


def test_the_program_with_most_of_a_device_s_time_is_the_step():
    runs = [at("jit_convert(1)", 100 * n + k, 100 * n + k + 0.5) for n in range(3) for k in (0, 1)]
    runs += [at("jit_train(2)", 100 * n + 2, 100 * n + 97) for n in range(3)]
    runs += [at("jit_init(3)", 400, 900)]
    core = plane("/device:TPU:0", line("XLA Modules", *runs))
    steps = find_steps(decode_trace(space(core)))
    assert (steps.names, steps.n_dropped) == (("jit_train 0", "jit_train 1", "jit_train 2"), 7)


def test_only_marks_of_tf_profile_tell_of_keras():
    assert steps_of(train(0, 1, 4, tfperf=1)).in_keras
    assert not steps_of(train(0, 1, 4)).in_keras


def test_steps_that_overlap_last_from_start_to_start():
    marks = [at("train", 10 * n, 10 * n + 25, step_num=n, _r=1) for n in range(4)]
    steps = find_steps(decode_trace(space(plane("/host:CPU", line("python", *marks)))))
    assert (steps.period_ps // MS).tolist() == [10, 10, 10, 25]


def test_devices_whose_steps_lie_apart_are_said_to_be_dropped():
    gpus = [
        plane(f"/device:GPU:{n}", line("Steps", at("0", 100 * n, 100 * n + 20 + n)))
        for n in range(2)
    ]
    steps = find_steps(decode_trace(space(plane("/host:CPU"), *gpus)))
    assert (len(steps), steps.n_dropped) == (1, 1)


def test_the_call_with_which_tf_profile_waits_is_no_step():
    calls = [at("PjitFunction(train)", begin, begin + 1) for begin in (0, 2)]
    waits = [at("PjitFunction(tfperf_synchronise)", begin, begin + 1) for begin in (4, 6, 8)]
    steps = steps_of(*calls, *waits)
    assert (len(steps), steps.n_dropped) == (2, 0)
    with pytest.raises(TraceError, match="no step found"):
        steps_of(*waits)


def test_what_tf_data_runs_is_no_step():
    """Calls on its threads, and loops in the runs of its functions, of which there are more than of the step's."""
    for kind in ("FunctionRun", "map_fn", "PjitFunction(load)", "loop"):
        stats = {"tf_function_call": "notTraced-nonXla"} if kind == "map_fn" else {}
        calls = [at(kind, n, n + 0.5, **stats) for n in range(40)]
        threads = [line("tf_data_private_threadpool/1", *calls)]
        if kind == "loop":
            runs = [at(DATA_RUNS, n, n + 0.1, id=n) for n in range(8)]
            work = [
                at("ExecutorState::Process", n + k / 10, n + k / 10 + 0.1, id=n, iter_num=k)
                for n in range(8)
                for k in range(5)
            ]
            threads = [line("runner", *runs), line("tf_Compute/1", *work)]
        with pytest.raises(TraceError, match="no step found"):
            find_steps(decode_trace(space(plane("/host:CPU", *threads))))
        own = [at("FunctionRun", 10 * n, 10 * n + 9) for n in range(3)]
        steps = find_steps(decode_trace(space(plane("/host:CPU", line("python", *own), *threads))))
        assert (len(steps), ms(steps.start_ps)) == (3, [0, 10, 20]), kind


def test_an_eager_loop_over_a_mapped_dataset_has_no_steps():
    path = real_trace("own_cpu_tf221_eager_loop_with_map")
    with pytest.raises(TraceError, match="no step found"):
        find_steps(read_trace(path))
