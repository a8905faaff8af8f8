"""The self-check of a process: what a trace of a function that XLA compiled and ran must show."""

from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.capture.sessions import shown_in
from pytest_tfperf.recording import XlaShown
from pytest_tfperf.trace.xspace import decode_trace

COMPILED = at("CpuCompiler::RunBackend", 1, 2, name="f")
OLD_COMPILED = at("CpuCompiler::CompileLegacyCpuExecutable", 1, 2, name="f")
RAN = at("CpuExecutable::ExecuteAsyncOnStream", 3, 4)
THUNK = at("dot", 3, 4, hlo_op="dot", hlo_module="f", program_id=0)
HLO = plane("/host:metadata", metadata={"f(0)": {"Hlo Proto": field(1, b"")}})


def shown(*events, more=(HLO,)):
    return shown_in(
        decode_trace(space(plane("/host:CPU", line("python", *events)), *more)), "TensorFlow 9.9"
    )


def test_what_shows_has_no_reason():
    for events in [(COMPILED, RAN), (COMPILED, THUNK), (OLD_COMPILED, THUNK)]:
        assert shown(*events) == XlaShown(), events


def test_what_does_not_show_is_named_with_the_version():
    cases = [
        ((COMPILED,), (HLO,), "executions", "execution"),
        ((COMPILED, at("Renamed::Execute", 3, 4)), (HLO,), "executions", "execution"),
        ((RAN,), (HLO,), "compilations", "compilation"),
        ((COMPILED, RAN), (), "modules", "HLO"),
    ]
    for events, more, lacking, word in cases:
        found = shown(*events, more=more)
        why = getattr(found, lacking)
        assert "TensorFlow 9.9" in why, (events, more, lacking)
        assert f"its {word}," in why, (events, more, lacking)
        assert [
            name for name in ("executions", "compilations", "modules") if getattr(found, name)
        ] == [lacking], (events, more, lacking)
