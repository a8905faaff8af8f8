"""The pipelines of a step that another framework ran are in TensorFlow's trace of the same steps."""

from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

MAPS = [
    at("Iterator::Root::Map", n * 10 + 1, n * 10 + 7, id=1, parent_id=9, name="decode")
    for n in range(3)
]


def trace_of(n_steps, *events, marked=True):
    mark = {"tfperf": 1} if marked else {}
    steps = [at("step", n * 10, n * 10 + 10, step_num=n, _r=1, **mark) for n in range(n_steps)]
    return decode_trace(space(plane("/host:CPU", line("python", *steps, *events))))


def stages(input_trace):
    recording = Recording(name="", trace=None, workload={}, framework="JAX")
    evidence = Evidence(recording, trace_of(3), input_trace=input_trace)
    return [stage.name for stage in evidence.stages]


def test_stages_of_the_other_trace_are_found():
    assert stages(trace_of(3, *MAPS)) == ["Map"]


def test_another_trace_of_other_steps_is_not_taken():
    cases = {
        "none": None,
        "other steps": trace_of(2, *MAPS),
        "not marked": trace_of(3, *MAPS, marked=False),
    }
    for name, input_trace in cases.items():
        assert stages(input_trace) == [], name
