"""Values that evidence as a whole makes unknown, also those of metrics that no list knows."""

from helpers.xspace import at, line, plane, space

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.evidence import UNTRACED, Evidence
from pytest_tfperf.metrics.validity import valid
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import HOST, decode_trace
from pytest_tfperf.values import Source, Value

MARK = at("step", 0, 9, step_num=1, _r=1, tfperf=1)
REMOTE = at("EagerExecute", 1, 2, eager_op="__inference_f_1", is_func=1)
VALUE = Value.of("xla_launches", 1, Source.TRACE)


def evidence(*events, other=(), errors=(), **recorded):
    host = plane(HOST, line("python", MARK, *events, id=1), line("python", *other, id=2))
    recording = Recording(name="", trace=None, workload={}, **recorded)
    return Evidence(recording, decode_trace(space(host, errors=errors)))


def test_a_metric_that_no_list_names_does_not_hold():
    rows = {
        "other processes ran": evidence(REMOTE),
        "another thread called g": evidence(
            other=[at("PjitFunction(g)", 1, 2)], other_threads=True, framework="JAX"
        ),
        "the step ran JAX beside": evidence(beside=("JAX",)),
        "the trace is not complete": evidence(errors=["a buffer was full"]),
    }
    assert "new" not in METRICS
    for why, found in rows.items():
        value = valid({"new": VALUE}, found)["new"]
        assert value.number is None, why
        assert why in value.why


def test_a_metric_that_no_list_names_has_pytorch_s_reason():
    of_torch = Evidence(Recording(name="", trace=None, workload={}, framework="PyTorch"))
    unknown = Value.unknown("xla_launches", "nothing was traced")
    assert valid({"new": unknown}, of_torch)["new"].why == UNTRACED


def test_times_hold_whatever_ran_elsewhere():
    timed = Value.of("step_time", 1.0, Source.TIMED)
    other = evidence(other=[at("PjitFunction(g)", 1, 2)], other_threads=True, framework="JAX")
    for found in (evidence(REMOTE), other):
        assert valid({"step_time": timed}, found)["step_time"].number == 1.0


def test_a_value_has_the_notes_on_the_window_that_it_is_of():
    found = evidence(window_notes={"warm-up": "a", "timed": "b", "lock": "c", "traced": "d"})
    for value, notes in [
        (Value.of("step_time", 1.0, Source.TIMED), ("a", "b")),
        (Value.of("input_bound", 0.5, Source.TRACE, notes=["e"]), ("e", "d")),
        (Value.of("flops", 1.0, Source.HLO), ()),
        (Value.unknown("step_time", "nothing ran"), ()),
    ]:
        assert valid({"a_metric": value}, found)["a_metric"].notes == notes, value
    waits = valid({"input_wait": Value.of("input_wait", 1.0, Source.TIMED)}, found)
    assert waits["input_wait"].notes == ("a", "b", "c")
    first = valid({"first_step_time": Value.of("first_step_time", 1.0, Source.TIMED)}, found)
    assert first["first_step_time"].notes == ()  # no window holds it
