"""What is said of executables that were compiled again."""

from helpers.xspace import at, field, line, plane, space

from pytest_tfperf.facts.executions import full_names, program_id
from pytest_tfperf.metrics.counts import compiles, recompilations
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

TYPES = {"f32": 11, "s64": 5, "pred": 1}


def shape(text):
    """ShapeProto: element_type = 2, dimensions = 3, tuple_shapes = 4."""
    if text.startswith("("):
        return field(2, 13) + b"".join(field(4, shape(part)) for part in text[1:-1].split(";"))
    dtype, _, sizes = text[:-1].partition("[")
    return field(2, TYPES[dtype]) + b"".join(
        field(3, int(size)) for size in sizes.split(",") if size
    )


def program(*arguments):
    """An HloProto of a module with these arguments."""
    return field(
        1, field(1, "name") + field(4, b"".join(field(1, shape(text)) for text in arguments))
    )


def trace_of(executables, *events):
    metadata = {
        name: {"Hlo Proto": field(1, b"") if given is None else program(*given)}
        for name, given in executables.items()
    }
    return decode_trace(
        space(
            plane("/host:CPU", line("python", *events)), plane("/host:metadata", metadata=metadata)
        )
    )


def changes(executables, *compiled):
    return [change.text for change in recompilations(trace_of(executables), compiled).values()]


STEP = "a_inference_step_7__.2"


def test_a_new_batch_size_is_named_by_argument_and_shapes():
    executables = {
        f"{STEP}(3)": ("f32[8,32]", "s64[8]", "f32[32]"),
        f"{STEP}(9)": ("f32[5,32]", "s64[5]", "f32[32]"),
    }
    assert changes(executables, f"{STEP}(9)") == [
        "step: argument 0 f32[8,32] → f32[5,32], argument 1 s64[8] → s64[5]"
    ]


def test_each_is_compared_with_the_one_before():
    executables = {f"{STEP}({n})": (f"f32[{size}]",) for n, size in ((3, 8), (20, 5), (100, 3))}
    assert changes(executables, f"{STEP}(100)", f"{STEP}(20)") == [
        "step: argument 0 f32[8] → f32[5]",
        "step: argument 0 f32[5] → f32[3]",
    ]


def test_on_a_tpu_numbers_are_fingerprints_and_what_was_there_before_is_older():
    executables = {"jit_f(9000000000000000009)": ("f32[8]",), "jit_f(17)": ("f32[5]",)}
    assert changes(executables, "jit_f(17)") == ["jit_f: argument 0 f32[8] → f32[5]"]


def test_what_changed():
    cases = [
        (("f32[]",), ("pred[]",), "step: argument 0 f32[] → pred[]"),
        (
            ("(f32[8];s64[])",),
            ("(f32[5];s64[])",),
            "step: argument 0 (f32[8], s64[]) → (f32[5], s64[])",
        ),
        (("f32[8]",), ("f32[8]", "f32[]"), "step: 1 → 2 arguments"),
        (
            ("f32[8]",),
            ("f32[8]",),
            "step: with arguments of the same shapes; what else changed is not known",
        ),
        (
            ("f32[8]",) * 5,
            ("f32[5]",) * 5,
            "step: argument 0 f32[8] → f32[5], argument 1 f32[8] → f32[5], argument 2 f32[8] → f32[5], and 2 more",
        ),
        (None, ("f32[5]",), "step"),
        (("f32[5]",), None, "step"),
    ]
    for old, new, text in cases:
        assert changes({f"{STEP}(3)": old, f"{STEP}(9)": new}, f"{STEP}(9)") == [text], (
            old,
            new,
            text,
        )


def test_a_function_that_was_traced_anew_says_so():
    executables = {
        "a_inference_step_7__.2(3)": ("f32[8]",),
        "a_inference_step_30__.2(9)": ("f32[8]",),
    }
    assert changes(executables, "a_inference_step_30__.2(9)") == ["step: traced anew"]


def test_the_very_same_function_comes_before_others_of_its_name():
    executables = {
        "a_inference_step_7__.2(3)": ("f32[8]",),
        "a_inference_step_50__.2(5)": ("f32[8]", "f32[]"),  # another one called step
        "a_inference_step_7__.9(9)": ("f32[5]",),
    }
    assert changes(executables, "a_inference_step_7__.9(9)") == ["step: argument 0 f32[8] → f32[5]"]


def test_a_function_compiled_for_the_first_time_has_nothing_to_be_compared_with():
    assert changes(
        {"a_inference_step_7__.2(3)": ("f32[8]",), "cluster_0__.1(4)": ("f32[8]",)},
        "cluster_0__.1(4)",
    ) == ["cluster_0__.1: for the first time"]


def test_events_name_modules_without_the_program_s_number():
    executables = {f"{STEP}(3)": ("f32[8]",), f"{STEP}(9)": ("f32[5]",)}
    assert changes(executables, STEP) == ["step: argument 0 f32[8] → f32[5]"]


def test_what_the_trace_does_not_hold_is_not_described():
    for compiled in [("executable",), (f"{STEP}(99)",), ("no such module", "step")]:
        assert changes({f"{STEP}(3)": ("f32[8]",)}, *compiled) == [], compiled
        assert recompilations(decode_trace(space(plane("/host:CPU"))), compiled) == {}, compiled


def compiled_late(executables, *names):
    recording = Recording(name="", trace=None, workload={}, compiled=names, n_steps=9)
    return compiles(Evidence(recording, trace_of(executables, at("train", 0, 9, step_num=0, _r=1))))


def test_at_most_three_are_described_and_the_others_counted():
    sizes = range(8, 1, -1)
    executables = {f"{STEP}({10 - size})": (f"f32[{size}]",) for size in sizes}
    value = compiled_late(executables, *sorted(executables)[1:])
    assert value.number == 6
    assert value.detail["where"] == (
        "compiled: step: argument 0 f32[8] → f32[7]; step: argument 0 f32[7] → f32[6]; step: argument 0 f32[6] → f32[5]; and 3 more"
    )


def test_without_their_hlo_they_are_named():
    assert (
        compiled_late({}, f"{STEP}(3)", f"{STEP}(4)", "other(5)").detail["where"]
        == "compiled: step ×2; other"
    )
    recording = Recording(name="", trace=None, workload={}, compiled=(f"{STEP}(3)",), n_steps=9)
    assert compiles(Evidence(recording)).detail["where"] == "compiled: step"


def test_what_is_gone_again_is_named_beside_what_is_described():
    alive = {"jit_b(3)": ("f32[8]",), "jit_b(7)": ("f32[5]",)}
    for compiled in (("jit_a(5)", "jit_b(7)"), ("jit_b(7)", "jit_a(5)")):
        assert compiled_late(alive, *compiled).detail["where"] == (
            "compiled: jit_b: argument 0 f32[8] → f32[5]; jit_a"
        ), compiled


def test_a_trace_alone_tells_it_too():
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    compilation = at("CpuCompiler::RunBackend", 12, 13, name=STEP)
    trace = trace_of({f"{STEP}(3)": ("f32[8]",), f"{STEP}(9)": ("f32[5]",)}, *marks, compilation)
    value = profile_of(
        Evidence(Recording(name="", trace=None, workload={}, bare=True), trace)
    ).value("xla_compiles")
    assert (value.number, value.detail["where"]) == (
        1,
        "compiled: step: argument 0 f32[8] → f32[5]",
    )


def test_what_is_compiled_between_epochs_is_no_cause():
    marks = [at("train", n * 10, n * 10 + 9, step_num=n, _r=1) for n in range(2)]
    compiled = [at("CpuCompiler::RunBackend", 12, 13, name=STEP)]
    compiled += [at("CpuCompiler::RunBackend", 30, 31, name="evaluate")]
    trace = trace_of({f"{STEP}(3)": ("f32[8]",), "evaluate(9)": ("f32[8]",)}, *marks, *compiled)
    names = (f"{STEP}(3)", "evaluate(9)")
    recording = Recording(name="", trace=None, workload={}, compiled=names, n_steps=3)
    value = compiles(Evidence(recording, trace))
    assert (value.number, value.detail["counted_by"]) == (1, {"step": 1})
    assert "evaluate" not in value.detail["where"]


def test_a_program_s_number_stands_at_the_end():
    cases = [
        ("f(12)", 12),
        ("f(g)(3)", 3),
        ("f(-5)", -5),
        ("f", 0),
        ("f()", 0),
        ("f(x)", 0),
        ("", 0),
    ]
    for name, number in cases:
        assert program_id(name) == number, name


def test_the_latest_programs_of_a_name_are_taken_in_the_order_of_time():
    alive = ["f(2)", "f(10)", "f(9)", "g(1)"]
    assert full_names(["f", "g", "f"], alive) == ["f(9)", "g(1)", "f(10)"]
    assert full_names(["g", "g", "h"], alive) == [None, "g(1)", None]
    assert full_names([], alive) == []
