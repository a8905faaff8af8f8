"""Calls of JAX, and when they launched executions: the answers are counted by hand."""

from helpers.xspace import MS, at, line, plane, space

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.host_events import (
    called_function,
    jax_calls,
    launched_ps,
    runs_functions,
    shows_jax_calls,
)
from pytest_tfperf.trace.xspace import HOST, decode_trace


def host(calls, thunks=()):
    """The host's plane: (function, begin) of calls of 1 ms, (module, run, begin) of thunks."""
    called = [at(f"PjitFunction({name})", begin, begin + 1) for name, begin in calls]
    ran = [
        at("dot.1", begin, begin + 1, hlo_module=module, run_id=run)
        for module, run, begin in thunks
    ]
    made = decode_trace(space(plane(HOST, line("python", *called), line("worker", *ran))))
    return made.plane(HOST)


def launched(calls, thunks):
    """Milliseconds at which each thunk was launched, in the order of the thunks' begins."""
    made = host(calls, thunks)
    thunks = Events.of(made).having("run_id").sorted()
    return [ps // MS for ps in launched_ps(made)[thunks.rows].tolist()]


def test_the_nth_execution_belongs_to_the_nth_call():
    calls, thunks = [("f", 0), ("f", 2)], [("jit_f", 7, 5), ("jit_f", 7, 6), ("jit_f", 8, 9)]
    assert launched(calls, thunks) == [0, 0, 2]


def test_two_interleaved_modules_are_told_apart():
    calls = [("f", 0), ("g", 2), ("f", 4), ("g", 6)]
    thunks = [("jit_f", 1, 10), ("jit_g", 2, 11), ("jit_f", 3, 12), ("jit_g", 4, 13)]
    assert launched(calls, thunks) == [0, 2, 4, 6]


def test_a_call_inside_another_one_launches_its_own_executions():
    """As under `jax.disable_jit`: the call of `f` runs Python, which calls `g` and `h`."""
    inside = [(name, begin) for begin in (0, 10) for name in ("g", "h")]
    calls = [at("PjitFunction(f)", begin, begin + 4) for begin in (0, 10)]
    ran = []
    for n, (name, begin) in enumerate(inside):
        begin += 2 * (name == "h")
        calls += [at(f"PjitFunction({name})", begin + 0.5, begin + 1.5)]
        calls += [at("PjRtLoadedExecutable::Execute", begin + 0.6, begin + 1)]
        late = {"hlo_module": f"jit_{name}", "run_id": n}
        ran.append(at("dot.1", 30 + n, 30.5 + n, **late))
    made = decode_trace(space(plane(HOST, line("python", *calls), line("worker", *ran))))
    thunks = Events.of(made.plane(HOST)).having("run_id").sorted()
    found = launched_ps(made.plane(HOST))[thunks.rows] / MS
    assert found.tolist() == [0.5, 2.5, 10.5, 12.5]


def test_executions_of_a_module_with_another_number_of_calls_keep_their_times():
    calls = [("f", 0), ("f", 2), ("g", 4)]
    assert launched(calls, [("jit_f", 1, 10), ("jit_g", 2, 11)]) == [10, 4]


def test_calls_that_wait_are_told_though_the_trace_cuts_some_off():
    calls = [("f", 10), ("f", 20), ("f", 30)]
    before, own = ("jit_f", 1, 5), [("jit_f", 2, 12), ("jit_f", 3, 22)]
    assert launched(calls, own) == [10, 20]  # the last call ran on
    assert launched([*calls, ("f", 40)], [before, *own]) == [5, 10, 20]
    # calls that run ahead take no turns
    assert launched(calls, [("jit_f", 2, 32), ("jit_f", 3, 33)]) == [32, 33]
    assert launched(calls, [("jit_f", 2, 12), ("jit_f", 3, 32)]) == [12, 32]


def test_executions_without_calls_keep_their_times():
    assert launched([], [("jit_f", 1, 10), ("jit_f", 2, 11)]) == [10, 11]


def test_a_lambda_is_the_function_of_its_module():
    assert launched([("<lambda>", 3)], [("jit__lambda_", 1, 10)]) == [3]


def test_an_execution_is_not_launched_after_it_ran():
    assert launched([("f", 20)], [("jit_f", 1, 10)]) == [10]


def test_calls_without_executions_change_no_time():
    made = host([("f", 3)])
    assert launched_ps(made).tolist() == made.start_ps.tolist()


def test_an_event_of_a_call_inside_another_one_is_the_same_call():
    nested = [at("PjitFunction(f)", 0, 4), at("PjitFunction(f)", 1, 3)]
    made = decode_trace(space(plane(HOST, line("python", *nested)))).plane(HOST)
    assert len(jax_calls(Events.of(made))) == 1


def test_the_call_that_waits_shows_that_calls_have_events():
    events = Events.of(host([("tfperf_synchronise", 0)]))
    assert (len(jax_calls(events)), shows_jax_calls(events)) == (0, True)
    assert not shows_jax_calls(Events.of(host([])))


def test_the_function_is_in_the_name_of_a_call():
    for event, name in [
        ("PjitFunction(step)", "step"),
        ("PjitFunction(jit(step))", "step"),
        ("PjitFunction(<lambda>)", "<lambda>"),
        ("PjitFunction(a(b))", "a(b)"),
    ]:
        assert called_function(event) == name, event


def test_calls_of_both_frameworks_are_functions():
    for event, runs in [
        (at("PjitFunction(f)", 0, 1), True),
        (at("EagerExecute", 0, 1, is_func=1), True),
        (at("EagerExecute", 0, 1, is_func=0), False),
    ]:
        assert runs_functions(decode_trace(space(plane(HOST, line("python", event))))) is runs, (
            event
        )
