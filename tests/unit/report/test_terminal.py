"""A run as text: exact output at two widths, what each verbosity shows, and what is given up in a narrow terminal."""

from textwrap import dedent

import pytest
from helpers.builders import check, profile, record_of, value
from helpers.golden import assert_golden
from helpers.sample_run import a_run as shown_run

from pytest_tfperf.report.terminal import count_line, render
from pytest_tfperf.results import Verdict
from pytest_tfperf.runs import Run

LONG = "TestModels::test_train_step[resnet50-batch_size_256-mixed_bfloat16]"
TRAIN = profile(
    step_time=0.0125,
    input_bound=0.19,
    xla_compiles=0,
    retraces=0,
    eager_ops=3,
    host_overhead=0.05,
    first_step_time=2.5,
    xla_launches=value("xla_launches", 2, low=2, high=3),
    peak_memory=1.5 * 2**30,
    throughput=2560,
    epoch_gap=0.004,
)
EVAL = profile(
    "eval", notes=("timed window: 12 of 50 steps, cut",), input_bound=0.01, xla_compiles=0
)
FAILED = check(
    "FAIL",
    sentence="input_bound was 19 %, wanted at most 5 % (max_input_bound='5%')",
    details=(("where", "90 % in Map"),),
    advice=(("try", "prefetch"),),
)
PASSED = check("PASS", "retraces", "retraces 0, wanted at most 0")
UNKNOWN = check(
    "UNKNOWN", "epoch_gap", "epoch_gap is unknown, wanted at most 1 s: no epoch ended", name="eval"
)
COLLECTING = check(
    "INCONCLUSIVE", "step_time", "step_time: 10 ms stored last, 12 ms now; collecting 1 of 5 runs"
)


def a_run():
    return Run(
        created="now",
        tests=(
            record_of(TRAIN, EVAL, checks=[FAILED, PASSED, UNKNOWN]),
            record_of(profile(step_time=0.2, input_bound=0), key=LONG, checks=[COLLECTING]),
        ),
    )


def shown(run, width, verbosity):
    return "\n".join(line.text for line in render(run, width, verbosity)) + "\n"


def table(lines):
    """The lines up to the first check or the count."""
    texts = [line.text for line in lines]
    end = next(
        i
        for i, text in enumerate(texts)
        if text.startswith("tfperf: ") or text.split()[0] in Verdict.__members__
    )
    return texts[:end]


TABLE_80 = dedent("""\
    test                         step    input    compiles    retraces    eager ops
    ------------------------  -------  -------  ----------  ----------  -----------
    test_step                 12.5 ms     19 %           0           0            3
    test_step/eval                  ?      1 %           0           ?            ?
    TestMod…-mixed_bfloat16]   200 ms      0 %           ?           ?            ?
    """)
TABLE_160 = dedent("""\
    test                                                 step    input    compiles    retraces    eager ops    overhead    first step    launches    memory
    ------------------------------------------------  -------  -------  ----------  ----------  -----------  ----------  ------------  ----------  --------
    test_step                                         12.5 ms     19 %           0           0            3         5 %         2.5 s         2…3   1.5 GiB
    test_step/eval                                          ?      1 %           0           ?            ?           ?             ?           ?         ?
    TestModels::tes…0-batch_size_256-mixed_bfloat16]   200 ms      0 %           ?           ?            ?           ?             ?           ?         ?
    """)
COUNT = (
    "tfperf: 2 checks decided (1 pass, 1 fail), 2 not decided: epoch_gap UNKNOWN in test_step, "
    "step_time INCONCLUSIVE in TestModels::tes…0-batch_size_256-mixed_bfloat16]\n"
)
NOT_PASSED = dedent(f"""\
    FAIL         test_model.py::test_step: input_bound was 19 %, wanted at most 5 % (max_input_bound='5%')
    UNKNOWN      test_model.py::test_step [eval]: epoch_gap is unknown, wanted at most 1 s: no epoch ended
    INCONCLUSIVE test_model.py::{LONG}: step_time: 10 ms stored last, 12 ms now; collecting 1 of 5 runs
    """)
EVERYTHING = dedent(f"""\
    FAIL         test_model.py::test_step: input_bound was 19 %, wanted at most 5 % (max_input_bound='5%')
                   where: 90 % in Map
                   try: prefetch
    PASS         test_model.py::test_step: retraces 0, wanted at most 0
    UNKNOWN      test_model.py::test_step [eval]: epoch_gap is unknown, wanted at most 1 s: no epoch ended
    test_step/eval: timed window: 12 of 50 steps, cut
    INCONCLUSIVE test_model.py::{LONG}: step_time: 10 ms stored last, 12 ms now; collecting 1 of 5 runs
    """)


@pytest.mark.parametrize(("width", "measured"), [(80, TABLE_80), (160, TABLE_160)])
def test_a_run_is_a_table_the_checks_that_did_not_pass_and_the_count(width, measured):
    assert shown(a_run(), width, 0) == measured + NOT_PASSED + COUNT


@pytest.mark.parametrize(("width", "measured"), [(80, TABLE_80), (160, TABLE_160)])
def test_verbose_adds_causes_notes_and_what_passed(width, measured):
    assert shown(a_run(), width, 1) == measured + EVERYTHING + COUNT


REMARK = "other processes used 83% of the 2 cores in the timed window: stop what else runs there"
NOISY = profile(
    step_time=value("step_time", 0.0125, interference=[REMARK]), notes=(REMARK, "another note")
)


@pytest.mark.parametrize(
    ("verbosity", "said"), [(0, [REMARK.partition(":")[0]]), (1, [REMARK]), (-1, [])]
)
def test_interference_is_said_once_with_the_time_that_it_concerns(verbosity, said):
    text = shown(Run(created="", tests=(record_of(NOISY),)), 200, verbosity)
    found = [line for line in text.splitlines() if "other processes" in line]
    assert found == [f"test_step: step_time 12.5 ms: {one}" for one in said]


def test_a_quiet_time_is_shown_without_remarks():
    quiet = record_of(profile(step_time=0.1), profile("eval", notes=(REMARK,)))
    assert "other processes" not in shown(Run(created="", tests=(quiet,)), 200, 0)


@pytest.mark.parametrize("verbosity", [-1, -2])
def test_quiet_shows_only_the_count(verbosity):
    assert shown(a_run(), 80, verbosity) == COUNT


@pytest.mark.parametrize("width", [*range(50, 200, 7), 79, 80, 81, 159, 160, 161])
def test_no_line_of_the_table_is_wider_than_the_terminal(width):
    lines = table(render(a_run(), width, 0))
    assert max(map(len, lines)) <= width
    assert len(lines) == 5


@pytest.mark.parametrize("width", [40, 60, 80, 120, 160, 400])
def test_a_long_name_keeps_both_ends(width):
    last = table(render(a_run(), width, 0))[-1]
    assert last.startswith("TestMod")
    assert "_bfloat16] " in last


def test_a_name_is_whole_where_it_fits_whatever_the_number_of_columns():
    key = "test_" + "x" * 43
    lines = table(
        render(Run(created="", tests=(record_of(profile(step_time=0.1), key=key),)), 80, 0)
    )
    assert lines[-1] == f"{key}  100 ms"


def test_columns_that_no_profile_measured_are_left_out():
    head = table(
        render(Run(created="", tests=(record_of(profile(step_time=0.1, retraces=0)),)), 80, 0)
    )[0]
    assert head.split() == ["test", "step", "retraces"]


def test_a_profile_of_another_version_with_fewer_metrics_is_shown():
    older = type(TRAIN)(name="", metrics={"step_time": TRAIN.metrics["step_time"]})
    lines = table(render(Run(created="", tests=(record_of(TRAIN), record_of(older))), 80, 0))
    assert lines[-1].split()[:4] == ["test_step", "12.5", "ms", "?"]


def test_a_run_without_profiles_has_no_table():
    assert (
        shown(Run(created="", tests=(record_of(),)), 80, 0)
        == "tfperf: 0 checks decided (0 pass, 0 fail)\n"
    )


@pytest.mark.parametrize(
    ("verdict", "colour"),
    [
        ("PASS", "green"),
        ("IMPROVED", "green"),
        ("FAIL", "red"),
        ("REGRESSION", "red"),
        ("UNKNOWN", "red"),
        ("MISSING", "red"),
        ("INCONCLUSIVE", "yellow"),
        ("INCOMPARABLE", "yellow"),
        ("NEW", "yellow"),
    ],
)
def test_colours_follow_the_verdict(verdict, colour):
    line, count = render(Run(created="", tests=(record_of(checks=[check(verdict)]),)), 80, 1)
    assert (line.colour, count.colour) == (colour, colour)


def test_an_improvement_is_shown_without_verbose():
    run = Run(
        created="",
        tests=(record_of(checks=[check("IMPROVED", sentence="retraces changed from 2 to 1")]),),
    )
    assert shown(run, 80, 0).startswith(
        "IMPROVED     test_model.py::test_step: retraces changed from 2 to 1\n"
    )


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        ([], "0 checks decided (0 pass, 0 fail)"),
        (["PASS"], "1 check decided (1 pass, 0 fail)"),
        (["PASS", "IMPROVED", "FAIL", "REGRESSION"], "4 checks decided (2 pass, 2 fail)"),
        (
            ["PASS", "UNKNOWN"],
            "1 check decided (1 pass, 0 fail), 1 not decided: input_bound UNKNOWN in test_step",
        ),
        (
            ["NEW", "MISSING", "INCOMPARABLE"],
            "0 checks decided (0 pass, 0 fail), 3 not decided: "
            "input_bound NEW in test_step, input_bound MISSING in test_step, input_bound INCOMPARABLE in test_step",
        ),
        (
            ["PASS"] * 41 + ["INCONCLUSIVE"] * 5,
            "41 checks decided (41 pass, 0 fail), 5 not decided: "
            + "input_bound INCONCLUSIVE in test_step, " * 3
            + "and 2 more",
        ),
    ],
)
def test_the_count_names_undecided_checks(verdicts, text):
    assert (
        count_line([record_of(checks=[check(verdict) for verdict in verdicts])]).text
        == f"tfperf: {text}"
    )


def test_undecided_checks_with_one_reason_are_one_line_without_verbose():
    alike = [
        record_of(
            checks=[
                check(
                    "INCONCLUSIVE",
                    "step_time",
                    "nothing to compare with",
                    advice=(("try", "a ref"),),
                )
            ],
            key=f"test_{n}",
        )
        for n in range(3)
    ]
    run = Run(
        created="",
        tests=(*alike, record_of(checks=[check("NEW", "step_time", "nothing to compare with")])),
    )
    *brief, _ = shown(run, 80, 0).splitlines()
    assert brief == [
        "INCONCLUSIVE test_model.py::test_0 and 2 more: nothing to compare with",
        "NEW          test_model.py::test_step: nothing to compare with",
    ]
    assert shown(run, 80, 1).count("INCONCLUSIVE test_model.py::test_") == 3


def test_failed_checks_with_one_reason_are_a_line_each():
    run = Run(
        created="",
        tests=tuple(
            record_of(checks=[check("UNKNOWN", sentence="no device")], key=f"test_{n}")
            for n in range(3)
        ),
    )
    assert shown(run, 80, 0).count("UNKNOWN      test_model.py::test_") == 3


def test_the_count_is_over_all_tests():
    tests = [
        record_of(checks=[check("PASS")]),
        record_of(checks=[check("FAIL")], key="test_other"),
        record_of(),
    ]
    assert count_line(tests).text == "tfperf: 2 checks decided (1 pass, 1 fail)"


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(("name", "verbosity"), [("q", -1), ("plain", 0), ("v", 1)])
def test_the_whole_terminal_output(width, name, verbosity):
    assert_golden(f"terminal_{width}_{name}.txt", shown(shown_run(), width, verbosity))
