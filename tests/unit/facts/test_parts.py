"""Hand-made traces; times in ms, counted by hand."""

import pytest
from helpers.xspace import MS, at, line, plane, space

from pytest_tfperf.facts.parts import break_down
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON, PARTS


def parts_of(*lines, period=10):
    marks = line("python", at("train", 0, period, step_num=0, _r=1))
    trace = decode_trace(space(plane("/host:CPU", marks, *lines)))
    breakdown = break_down(trace, find_steps(trace))
    parts = {part: column[0] / MS for part, column in breakdown.parts_ps.items()}
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == pytest.approx(period)
    return {part: time for part, time in parts.items() if time}


def test_a_wait_with_nothing_else_running_is_input():
    fetch = line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 1, 4))
    assert parts_of(fetch) == {"input": 3, "other": 7}


def test_a_wait_behind_a_model_op_of_another_thread_is_no_input():
    fetch = line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 1, 6))
    model = line(
        "tf_Compute/2", at("ExecutorState::Process", 3, 9, id=7), at("dense/MatMul:MatMul", 3, 9)
    )
    assert parts_of(fetch, model) == {"input": 2, "host_compute": 6, "other": 2}


def test_an_op_that_only_runs_others_hides_no_wait():
    cases = [
        "PartitionedCall:PartitionedCall",
        "StatefulPartitionedCall:StatefulPartitionedCall",
        "while:While",
    ]
    for name in cases:
        fetch = line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 1, 6))
        shell = line("tf_Compute/2", at(name, 0, 10))
        assert parts_of(fetch, shell)["input"] == 5, name


@pytest.mark.parametrize("thread", ["tf_data_private_threadpool/1", "tf_Compute/2"])
def test_a_function_that_tf_data_runs_is_no_model_op(thread):
    fetch = line(
        "tf_Compute/1",
        at("IteratorGetNextOp::DoCompute", 1, 6),
        at("InstantiatedCapturedFunction::Run", 1, 6, id=7),
    )
    map_function = line(
        thread, at("ExecutorState::Process", 1, 6, id=7), at("decode:DecodeJpeg", 2, 5)
    )
    assert parts_of(fetch, map_function) == {"input": 5, "other": 5}


def test_an_xla_execution_hides_a_wait():
    fetch = line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 1, 6))
    run = line("tf_Compute/2", at("CpuExecutable::ExecuteAsyncOnStream", 4, 8))
    assert parts_of(fetch, run) == {"input": 3, "host_compute": 4, "other": 3}


def test_the_way_to_an_iterator_is_no_wait_where_the_element_was_there():
    thread = line(
        "loop",
        at(FETCH, 1, 6),
        at("EagerExecute", 2, 6, eager_op="IteratorGetNext"),
        at("IteratorGetNextOp::DoCompute", 5, 5.5),
    )
    assert parts_of(thread)["input"] == 0.5


def test_a_python_iterator_is_waited_for_as_long_as_its_next_takes():
    assert parts_of(line("loop", at(FETCH_PYTHON, 1, 6))) == {"input": 5, "other": 5}


def test_compilation_counts_before_compute():
    thread = line(
        "loop",
        at("EagerExecute", 1, 9, is_func=1),
        at("CpuCompiler::RunBackend", 2, 5),
        at("tf.function-graph_building", 6, 7),
    )
    assert parts_of(thread) == {"compile": 4, "host_compute": 4, "other": 2}


def test_python_is_what_is_left():
    thread = line("loop", at("FunctionRun", 1, 3), at("EagerKernelExecute", 5, 6))
    assert parts_of(thread) == {"host_compute": 3, "other": 7}


def test_what_reaches_beyond_the_step_is_cut_at_its_end():
    assert parts_of(line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 8, 15))) == {
        "input": 2,
        "other": 8,
    }


def test_the_op_event_of_the_same_wait_counts_once():
    fetch = line(
        "tf_Compute/1",
        at("IteratorGetNext:IteratorGetNext", 0.5, 4.5),
        at("IteratorGetNextOp::DoCompute", 1, 4),
    )
    assert parts_of(fetch)["input"] == 4


def test_input_that_the_host_gives_is_input():
    cases = [
        at("infeed:InfeedEnqueueTuple", 1, 4),
        at("MEMCPYHtoD", 1, 4),
        at("memcpyHtoD(123)", 1, 4),
        at("Grain next", 1, 4, _ipl_stage_name="Batch"),
        at("Grain next", 1, 4, _ipl_stage_name="Batch", _ct=1, _c=5),
    ]
    for event in cases:
        assert parts_of(line("loader", event)) == {"input": 3, "other": 7}, event


def test_of_nested_stages_the_outermost_is_input():
    stages = [
        at("batch", 1, 4, _ipl_stage_name="Batch"),
        at("map", 2, 3, _ipl_stage_name="Map"),
    ]
    assert parts_of(line("loader", *stages)) == {"input": 3, "other": 7}


def test_a_stage_that_another_stage_caused_is_no_root():
    cause = at("batch", 1, 2, _pt=1, _p=5)
    stage = at("worker", 3, 6, _ipl_stage_name="Map", _ct=1, _c=5)
    assert parts_of(line("loader", cause), line("worker", stage)) == {"other": 10}


def two_gpus(*collectives):
    """Two GPUs that wait for input in turn, [0, 3] and [3, 6], each while the other computes."""
    marks = line("python", at("train", 0, 10, step_num=0, _r=1))
    waits = line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 0, 6))
    work = ([at("k", 3, 6)], [at("k", 0, 3)])
    gpus = [
        plane(f"/device:GPU:{n}", line("Stream #1", *events, *collectives[n:][:1]))
        for n, events in enumerate(work)
    ]
    trace = decode_trace(space(plane("/host:CPU", marks, waits), *gpus))
    parts = break_down(trace, find_steps(trace)).parts_ps
    return {part: column[0] / MS for part, column in parts.items() if column[0]}


def test_gpus_that_a_collective_joins_do_not_hide_each_other_s_wait():
    joined = [at("ncclDevKernel_AllReduce", 6, 7)] * 2
    assert two_gpus(*joined) == {"input": 3, "device_compute": 3, "collective": 1, "other": 3}


def test_gpus_without_a_collective_work_for_the_step_together():
    assert two_gpus() == {"device_compute": 6, "other": 4}
    assert two_gpus(at("ncclDevKernel_AllReduce", 6, 7)) == {
        "device_compute": 6,
        "collective": 1,
        "other": 3,
    }
