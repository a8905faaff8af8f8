"""Work of JAX on other threads than the steps', in traces made by hand."""

from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import PythonCalls, Recording
from pytest_tfperf.trace.xspace import HOST, decode_trace

STEPS = [at("step", n * 10, n * 10 + 9, step_num=n, _r=1, tfperf=1) for n in range(2)]
CALLS = [at("PjitFunction(f)", n * 10 + 1, n * 10 + 2) for n in range(2)]
EXECUTE = "PjRtExecutable::Execute"
EXECUTED = [at(EXECUTE, n * 10 + 1.1, n * 10 + 1.9) for n in range(2)]
RUNS = [
    at("dot.1", n * 10 + 3, n * 10 + 4, hlo_module="jit_f", hlo_op="dot.1", run_id=n, program_id=1)
    for n in range(2)
]
COUNTS = ("xla_launches", "xla_clusters", "eager_ops", "host_device_copies")
MADE = ("retraces", "xla_compiles")


def values(*events, bare=False, thread="python", **observed):
    own = line("python", *STEPS, *CALLS, *EXECUTED, id=1)
    host = plane(HOST, own, line(thread, *events, id=2), line("tf_XLA/1", *RUNS, id=3))
    recording = Recording(
        name="step",
        trace=None,
        workload={},
        framework="JAX",
        n_steps=30,
        compiled=(),
        traced=(),
        own_functions={"add": False},
        python_calls=PythonCalls(steps=((0, 1),), functions=()),
        bare=bare,
        **observed,
    )
    return profile_of(Evidence(recording, decode_trace(space(host)))).metrics


def test_calls_of_a_thread_of_before_make_counts_unknown():
    for when in (1, 9.5):  # also between two steps: XLA runs behind its calls
        found = values(at("PjitFunction(serve)", when, when + 0.3), other_threads=True)
        for metric in COUNTS:
            assert found[metric].number is None, (metric, when)
            assert "another thread called serve while the steps ran" in found[metric].why, metric
        assert [found[metric].number for metric in MADE] == [0, 0]


def test_a_thread_that_steps_start_works_for_them():
    alone = values()
    assert [alone[metric].number for metric in COUNTS] == [1, 1, 0, 0]
    found = values(at("PjitFunction(add)", 3, 4), at(EXECUTE, 3.1, 3.9))
    assert found["eager_ops"].high() == 1


def test_a_thread_of_xla_that_calls_python_back_works_for_the_step():
    call = at("PjitFunction(serve)", 1, 2)
    found = values(call, thread="tf_XLATfrtCpuClient/7", other_threads=True)
    assert found["xla_launches"].number == 1


def test_functions_of_tensorflow_are_told_by_thread_too():
    call = at("serve", 1, 2, tf_function_call="notTraced-nonXla")
    assert "called serve while" in values(call, other_threads=True)["xla_launches"].why


def test_a_saved_trace_does_not_tell_whose_thread_it_was():
    found = values(at("PjitFunction(serve)", 1, 2), bare=True)
    assert "called serve while" in found["xla_launches"].why


def unmarked(*threads):
    """The values of calls of one function on threads, under the marker alone."""
    calls = [call for thread in threads for call in thread]
    run = {"hlo_module": "jit_f", "hlo_op": "dot.1", "program_id": 1}
    runs = [at("dot.1", start + 1, start + 2, run_id=start, **run) for _, start, _ in calls]
    executed = [[(EXECUTE, start + 0.1, end - 0.1) for _, start, end in one] for one in threads]
    lines = [
        line("python", *(at(*event) for event in (*one, *inner)), id=n)
        for n, (one, inner) in enumerate(zip(threads, executed, strict=True))
    ]
    host = plane(HOST, *lines, line("tf_XLA/1", *runs, id=9))
    recording = Recording(
        name="step", trace=None, workload={}, framework="JAX", bare=True, own_functions={}
    )
    return profile_of(Evidence(recording, decode_trace(space(host)))).metrics


def calls_at(*starts, name="f"):
    return [(f"PjitFunction({name})", start, start + 3) for start in starts]


def test_threads_that_take_turns_in_calling_the_step_leave_its_counts_known():
    for threads in [(calls_at(0, 10, 20),), (calls_at(0, 20), calls_at(10, 30))]:
        assert unmarked(*threads)["xla_launches"].number == 1


def test_steps_at_once_and_work_beside_the_step_s_threads_make_counts_unknown():
    for threads, named in [
        ((calls_at(0, 10, 20), calls_at(2, 12)), "f"),
        ((calls_at(0, 10, 20), calls_at(5, name="serve")), "serve"),
        ((calls_at(0, 20), calls_at(10), calls_at(14, name="serve")), "serve"),
    ]:
        why = unmarked(*threads)["xla_launches"].why
        assert f"another thread called {named} while the steps ran" in why, named


def test_arrays_that_another_thread_moves_make_copies_unknown():
    for name in ("DevicePut", "np.asarray(jax.Array)"):
        found = values(at(name, 1, 2), other_threads=True)
        assert "another thread passed or read arrays" in found["host_device_copies"].why, name
        assert found["xla_launches"].number == 1, name


def test_what_another_thread_traces_or_compiles_is_no_step_s():
    found = values(made_elsewhere=("serve",))
    for metric in MADE:
        assert found[metric].number is None, metric
        assert "another thread traced or compiled serve" in found[metric].why, metric
    assert found["xla_launches"].number == 1
