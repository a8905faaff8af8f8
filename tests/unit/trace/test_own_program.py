"""The program with which tf_profile waits for JAX is part of no count; all else is."""

import pytest
from helpers.xspace import Ref, at, line, plane, space

from pytest_tfperf.facts.executions import find_xla_use
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.devices import stream_events
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.host_events import compilations, thunks, xla_executions
from pytest_tfperf.trace.xspace import HOST, decode_trace

STEPS = [at("step", n * 10, n * 10 + 10, step_num=n, _r=1, tfperf=1) for n in range(2)]


def op(begin, module, program, **stats):
    return at(
        "add.1",
        begin,
        begin + 0.5,
        hlo_module=Ref(module),
        program_id=program,
        hlo_op="add.1",
        **stats,
    )


OPS = [
    one
    for begin in (1, 11)
    for one in (op(begin, "jit_f", 3), op(begin + 2, "jit_tfperf_synchronise", 4))
]


def names(events):
    return events.texts("hlo_module")


def test_ops_of_the_host():
    trace = decode_trace(space(plane(HOST, line("python", *STEPS, *OPS))))
    assert names(thunks(Events.of(trace.plane(HOST)))) == ["jit_f", "jit_f"]
    use = find_xla_use(trace, find_steps(trace))
    assert (use.clusters.tolist(), use.modules) == ([1, 1], {"jit_f(3)": 1})


def test_ops_of_a_gpu():
    gpu = plane("/device:GPU:0", line("Stream #1", *OPS))
    trace = decode_trace(space(plane(HOST, line("python", *STEPS)), gpu))
    assert names(stream_events(trace.planes[1])) == ["jit_f", "jit_f"]


def test_executions_on_the_host():
    runs = [at("[0] GpuExecutable::ExecuteThunks", 1, 1.4)]
    runs += [at("GpuExecutable::ExecuteThunks", 3, 3.4)]
    wait = at("PjitFunction(tfperf_synchronise)", 2.9, 3.5)
    host = Events.of(decode_trace(space(plane(HOST, line("python", *runs, wait)))).planes[0])
    assert len(xla_executions(host)) == 1


@pytest.mark.parametrize(
    "compiled",
    [
        [at("CpuCompiler::RunBackend", n, n + 0.5, name=f"jit_{n}") for n in (1, 2)]
        + [at("CpuCompiler::RunBackend", 3, 3.5, name="jit_tfperf_synchronise")],
        [at(f"HLO Transforms:jit_{n}", n, n + 0.5) for n in (1, 2)]
        + [at("HLO Transforms:jit_tfperf_synchronise", 3, 3.5)],
    ],
    ids=["CPU", "GPU"],
)
def test_compilations(compiled):
    host = Events.of(decode_trace(space(plane(HOST, line("python", *compiled)))).planes[0])
    assert len(compilations(host)) == 2


def test_executions_of_a_tpu():
    modules = [at(f"jit_f({n})", n, n + 0.5) for n in (3,)] + [
        at("jit_tfperf_synchronise(4)", 5, 6)
    ]
    tpu = plane("/device:TPU:0", line("XLA Modules", *modules))
    trace = decode_trace(space(plane(HOST, line("python", *STEPS)), tpu))
    assert find_xla_use(trace, find_steps(trace)).modules == {"jit_f(3)": 0.5}
