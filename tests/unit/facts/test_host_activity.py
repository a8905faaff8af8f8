from helpers.xspace import at, line, plane, space
from hypothesis import given
from hypothesis import strategies as st

from pytest_tfperf.facts.host_activity import eager_ops, op_type
from pytest_tfperf.facts.late import traced_late
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.host_events import DATA_RUNS, is_for_data
from pytest_tfperf.trace.xspace import decode_trace


def two_steps(*events, thread="python"):
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    trace = decode_trace(space(plane("/host:CPU", line("marks", *marks), line(thread, *events))))
    return trace, find_steps(trace)


def eager(op, begin, **stats):
    return at("EagerExecute", begin, begin + 1, eager_op=op, is_func=0, **stats)


def test_eager_ops_are_counted_in_their_step():
    counts, types = eager_ops(*two_steps(eager("Mul", 1), eager("Mul", 3), eager("Sum", 11)))
    assert (counts.tolist(), dict(types)) == ([2, 1], {"Mul": 2, "Sum": 1})


def test_functions_constants_and_fetching_are_no_eager_ops():
    function = at("EagerExecute", 5, 6, eager_op="__inference_step_1", is_func=1)
    fetching = [
        eager(op, n)
        for n, op in enumerate(
            ["IteratorGetNext", "OptionalHasValue", "OptionalGetValue", "_EagerConst"]
        )
    ]
    assert eager_ops(*two_steps(*fetching, function))[0].tolist() == [0, 0]


def test_eager_ops_that_events_name_are_counted():
    """As TensorFlow wrote them from 2020 to 2023; each holds an event of the same op that starts later."""
    calls = [
        event
        for begin, name in [(1, "Conv2D"), (3, "__inference_step_1"), (5, "IteratorGetNext")]
        for event in (
            at(f"EagerExecute: {name}", begin, begin + 1),
            at(f"EagerLocalExecute: {name}", begin + 0.1, begin + 0.9),
            at("EagerKernelExecute", begin + 0.2, begin + 0.8),
        )
    ]
    counts, types = eager_ops(*two_steps(*calls, at("EagerExecute: Mul", 11, 12)))
    assert (counts.tolist(), dict(types)) == ([1, 1], {"Conv2D": 1, "Mul": 1})


def test_eager_ops_of_a_python_function_in_the_pipeline_are_not_the_step_s():
    assert eager_ops(*two_steps(eager("DecodeJpeg", 1), thread="tf_data_private_threadpool/7"))[
        0
    ].tolist() == [0, 0]


def test_eager_ops_outside_of_steps_are_nobody_s():
    assert eager_ops(*two_steps(eager("Mul", 30)))[0].tolist() == [0, 0]


def test_a_trace_of_a_function_after_the_first_step_is_named_with_its_step():
    call = at("scale", 11, 14, tf_function_call="traced-nonXla")
    found = traced_late(
        *two_steps(
            at("tf.function-graph_building", 1, 2), call, at("tf.function-graph_building", 12, 13)
        )
    )
    assert found == [FunctionTrace("scale", 1)]


def test_op_types_are_read_from_event_names():
    assert op_type("model/dense/MatMul:_MklMatMul") == "_MklMatMul"
    assert op_type("Iterator::Root::Map") is None
    assert op_type("EagerExecute") is None
    assert op_type("EagerLocalExecute: Mul") is None


SPAN = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)
EVENTS = st.lists(st.tuples(SPAN, st.sampled_from(["run 1", "run 2", "other"])), max_size=8)


@given(st.lists(EVENTS, max_size=2), st.lists(EVENTS, max_size=1), st.sets(st.sampled_from([1, 2])))
def test_events_of_an_input_pipeline_are_those_of_its_threads_and_in_its_runs(
    others, own, for_data
):
    """A run of the pipeline has the id of one of its functions, or is on one of its threads."""

    def events(found):
        for (begin, end), kind in found:
            is_run, number = kind.startswith("run"), int(kind[-1]) if kind[-1].isdigit() else 0
            name, stats = ("ExecutorState::Process", {"id": number}) if is_run else ("x", {})
            yield at(name, begin, end, **stats)

    functions = line("functions", *(at(DATA_RUNS, 0, 1, id=number) for number in for_data))
    lines = [line(f"tf_Compute/{n}", *events(found)) for n, found in enumerate(others)]
    lines += [line(f"tf_data_pool/{n}", *events(found)) for n, found in enumerate(own)]
    host = Events.of(decode_trace(space(plane("/host:CPU", functions, *lines))).planes[0])
    process = host.called("ExecutorState::Process")
    runs = [
        number in for_data or host.plane.lines[index].name.startswith("tf_data_")
        for number, index in zip(
            process.integers("id").tolist(), process.line.tolist(), strict=True
        )
    ]
    around = enclosing(process, host).tolist()
    assert is_for_data(host.plane).tolist() == [
        host.plane.lines[index].name.startswith("tf_data_") or (place >= 0 and runs[place])
        for index, place in zip(host.line.tolist(), around, strict=True)
    ]
