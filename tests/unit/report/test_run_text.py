"""A run as text: exact output at two widths, and what each verbosity shows."""

from dataclasses import replace
from textwrap import dedent

import pytest
from helpers.builders import check, profile, record_of, value
from helpers.golden import assert_golden
from helpers.sample_run import FAILED, PASSED
from helpers.sample_run import a_run as shown_run

from pytest_tfperf.report.results_table import results_table
from pytest_tfperf.report.run_text import count_line, render
from pytest_tfperf.runs import Run
from pytest_tfperf.text import BOUNDLESS
from pytest_tfperf.values import COMPARISON, Table, titled_columns

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
UNKNOWN = check(
    "UNKNOWN", "epoch_gap", "epoch_gap is unknown, limit 1 s: no epoch ended", name="eval"
)
COLLECTING = check(
    "INCONCLUSIVE",
    "step_time",
    "step_time: 10 ms stored last, 12 ms now; 1 of 5 needed runs recorded",
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


COUNT = "tfperf: 1 check passed, 1 failed, 2 not decided\n"
NOT_PASSED = dedent(f"""\
    FAIL         test_step: input_bound is 19 %, above the limit of 5 % (max_input_bound='5%')
    UNKNOWN      test_step/eval: epoch_gap is unknown, limit 1 s: no epoch ended
    INCONCLUSIVE {LONG}: step_time: 10 ms stored last, 12 ms now; 1 of 5 needed runs recorded
    """)
EVERYTHING = dedent(f"""\
    FAIL         test_step: input_bound is 19 %, above the limit of 5 % (max_input_bound='5%')
                   where: 90 % in Map
                   try: prefetch
    PASS         test_step: retraces is 0, limit 0
    UNKNOWN      test_step/eval: epoch_gap is unknown, limit 1 s: no epoch ended
    INCONCLUSIVE {LONG}: step_time: 10 ms stored last, 12 ms now; 1 of 5 needed runs recorded
    test_step/eval: timed window: 12 of 50 steps, cut
    """)


def measured(run, width):
    return "".join(f"{text}\n" for text, _ in results_table(run.tests, width))


def test_what_is_left_out_of_the_table_is_counted():
    limits = [replace(PASSED, metric=name) for name in ("retraces", "eager_ops", "xla_compiles")]
    change = check("PASS", "graph_ops", kind="baseline", detail={"gates": False})
    tests = tuple(
        record_of(
            profile(step_time=0.01, retraces=0, eager_ops=0, xla_compiles=0),
            checks=[*limits, change],
            key=f"test_{n}",
        )
        for n in range(9)
    )
    lines = shown(Run(created="", tests=tests), 80, 0).splitlines()
    assert lines[-2:] == [
        "-v shows 9 changes that do not gate and 27 more rows",
        "tfperf: 36 checks passed",
    ]
    assert len(lines) == 13
    assert "-v shows" not in shown(Run(created="", tests=tests), 80, 1)
    whole = shown(Run(created="", tests=tests), BOUNDLESS, 0).splitlines()  # a file or a pipe
    assert (len(whole), whole[-2]) == (40, "-v shows 9 changes that do not gate")


@pytest.mark.parametrize("width", [80, 160])
def test_a_run_is_a_table_the_checks_that_did_not_pass_and_the_count(width):
    assert shown(a_run(), width, 0) == measured(a_run(), width) + NOT_PASSED + COUNT


@pytest.mark.parametrize("width", [80, 160])
def test_verbose_adds_causes_notes_and_what_passed(width):
    assert shown(a_run(), width, 1) == measured(a_run(), width) + EVERYTHING + COUNT


def test_what_pytest_shows_with_the_failure_is_not_repeated():
    test = record_of(TRAIN, EVAL, checks=[FAILED, PASSED, UNKNOWN, COLLECTING], outcome="failed")
    lines = render(Run(created="", tests=(test,)), 80, 0, failures_shown=True)
    texts = [line.text for line in lines]
    assert not any(text.startswith(("FAIL ", "UNKNOWN ")) for text in texts)
    assert any(text.startswith("INCONCLUSIVE test_step: ") for text in texts)


def test_a_broken_check_of_a_test_whose_failure_pytest_does_not_show_has_its_line():
    for outcome in ("xfailed", "error", "passed"):
        test = record_of(TRAIN, EVAL, checks=[FAILED, UNKNOWN], outcome=outcome)
        lines = render(Run(created="", tests=(test,)), 80, 0, failures_shown=True)
        texts = [line.text for line in lines]
        for verdict in ("FAIL ", "UNKNOWN "):
            assert any(text.startswith(verdict) for text in texts), (outcome, verdict)


def test_a_comparison_has_a_line_for_each_variant_but_the_first():
    rows = [
        ("step_time in turns", "2 ms", "1 ms", "4 ms"),
        ("against plain", None, "2.000 times as fast (…)", "2.000 times slower (…)"),
    ]
    titles = titled_columns((title, "") for title in ("metric", "plain", "xla", "eager"))
    compared = replace(TRAIN, tables={COMPARISON: Table.of("comparison", titles, rows)})
    lines = render(Run(created="", tests=(record_of(compared),)), 80, 0)
    assert [line.text for line in lines if "times" in line.text] == [
        "test_step: xla is 2.000 times as fast (…), against plain",
        "test_step: eager is 2.000 times slower (…), against plain",
    ]


@pytest.mark.parametrize(
    ("titles", "row"),
    [
        (("variant", "plain", "xla"), ("against eager", None, "fast")),
        (("variant",), ("against ",)),
        ((), ()),
    ],
)
def test_a_comparison_that_another_program_wrote_has_no_line(titles, row):
    columns = titled_columns((title, "") for title in titles)
    compared = replace(TRAIN, tables={COMPARISON: Table.of("comparison", columns, [row])})
    lines = render(Run(created="", tests=(record_of(compared),)), 80, 0)
    assert not [line for line in lines if "against" in line.text]


REMARK = "other processes used 83% of the 2 cores in the timed window: stop what else runs there"
NOISY = profile(
    step_time=value("step_time", 0.0125, interference=[REMARK]), notes=(REMARK, "another note")
)


@pytest.mark.parametrize(
    ("verbosity", "said"), [(0, [REMARK.partition(":")[0]]), (1, [REMARK]), (-1, [])]
)
def test_interference_is_said_once(verbosity, said):
    text = shown(Run(created="", tests=(record_of(NOISY),)), 200, verbosity)
    found = [line for line in text.splitlines() if "other processes" in line]
    assert found == [f"test_step: {one}" for one in said]


def noisy(n_tests):
    """Tests that other processes disturbed, each by another share."""
    return tuple(
        record_of(
            profile(
                step_time=value(
                    "step_time", 0.01, interference=[REMARK.replace("83", f"{28 + 4 * n}")]
                )
            ),
            key=f"test_{n}",
        )
        for n in range(n_tests)
    )


@pytest.mark.parametrize(
    ("n_tests", "verbosity", "said"),
    [
        (2, 0, "test_0, test_1: other processes used 28 to 32% of the 2 cores in the timed window"),
        (9, 0, "9 tests: other processes used 28 to 60% of the 2 cores in the timed window"),
        (
            4,
            1,
            "test_0, test_1, test_2, test_3: other processes used 28 to 40% of the 2 cores in the timed window: stop what else runs there",
        ),
    ],
)
def test_remarks_that_differ_in_numbers_are_one_line(n_tests, verbosity, said):
    text = shown(Run(created="", tests=noisy(n_tests)), 200, verbosity)
    assert [line for line in text.splitlines() if "other processes" in line] == [said]


def test_a_quiet_time_is_shown_without_remarks():
    quiet = record_of(profile(step_time=0.1), profile("eval", notes=(REMARK,)))
    assert "other processes" not in shown(Run(created="", tests=(quiet,)), 200, 0)


def test_a_note_on_a_checked_value_is_said_once_at_each_verbosity():
    note = ("note", "the warm-up was cut")
    noted = [replace(one, details=(note,)) for one in (PASSED, FAILED)]
    tests = tuple(
        record_of(profile(notes=(note[1],)), checks=noted, key=f"test_{name}", outcome="failed")
        for name in "ab"
    )
    for verbosity, shown_by_pytest, n in [(0, False, 2), (0, True, 1), (1, True, 4)]:
        lines = render(Run(created="", tests=tests), 200, verbosity, failures_shown=shown_by_pytest)
        said = [line.text for line in lines if note[1] in line.text]
        assert len(said) == n, (verbosity, said)
        assert verbosity or "test_a, test_b: " in said[0]


@pytest.mark.parametrize("verbosity", [-1, -2])
def test_quiet_shows_why_checks_are_not_decided_and_the_count(verbosity):
    assert shown(a_run(), 80, verbosity) == NOT_PASSED.partition("\n")[2] + COUNT


def test_tests_of_one_name_in_two_files_have_their_files():
    tests = [record_of(checks=[COLLECTING], file=f"{name}/test_a.py") for name in "ab"]
    tests.append(record_of(checks=[COLLECTING], key="test_other"))
    text = shown(Run(created="", tests=tuple(tests)), 80, 0)
    names = "a/test_a.py::test_step, b/test_a.py::test_step, test_other"
    assert text.startswith(f"INCONCLUSIVE {names}: step_time")


def test_a_run_without_profiles_has_no_table():
    assert (
        shown(Run(created="", tests=(record_of(),)), 80, 0)
        == "tfperf: no limits, and nothing to compare with\n"
    )


def test_colours_follow_the_verdict():
    for verdict, colour in [
        ("PASS", "green"),
        ("IMPROVED", "green"),
        ("FAIL", "red"),
        ("REGRESSION", "red"),
        ("UNKNOWN", "red"),
        ("MISSING", "red"),
        ("INCONCLUSIVE", "yellow"),
        ("INCOMPARABLE", "yellow"),
        ("NEW", "yellow"),
    ]:
        line, count = render(Run(created="", tests=(record_of(checks=[check(verdict)]),)), 80, 1)
        assert (line.colour, count.colour) == (colour, colour), verdict


def test_the_count_is_of_verdicts():
    for verdicts, text in [
        ([], "no limits, and nothing to compare with"),
        (["PASS"], "1 check passed"),
        (["PASS", "IMPROVED", "FAIL", "REGRESSION"], "2 checks passed, 2 failed"),
        (["PASS", "UNKNOWN"], "1 check passed, 1 not decided"),
        (["NEW", "MISSING", "INCOMPARABLE"], "0 checks passed, 3 not decided"),
        (["PASS"] * 41 + ["INCONCLUSIVE"] * 5, "41 checks passed, 5 not decided"),
    ]:
        assert (
            count_line([record_of(checks=[check(verdict) for verdict in verdicts])]).text
            == f"tfperf: {text}"
        ), verdicts


def test_open_checks_that_differ_in_numbers_are_one_line_without_verbose():
    few = [
        check(
            "INCONCLUSIVE",
            "step_time",
            f"step_time is {10 + n} % slower than the baseline: {n + 1} ms to {n + 2} ms, limit 5 %; "
            f"{n} of 5 needed runs recorded",
            kind="baseline",
            advice=(("try", "a ref"),),
            detail={"why": f"{n} of 5 needed runs recorded"},
        )
        for n in range(4)
    ]
    alike = [record_of(checks=[one], key=f"test_{n}") for n, one in enumerate(few)]
    other = record_of(checks=[check("NEW", "fusions", "fusions is 3, and the baseline has none")])
    *brief, _ = shown(Run(created="", tests=(other, *alike)), 80, 0).splitlines()
    assert brief == [
        "INCONCLUSIVE 4 tests: step_time is not decided: 0 to 3 of 5 needed runs recorded",
        "NEW          test_step: fusions is 3, and the baseline has none",
    ]
    alone = shown(Run(created="", tests=(alike[2],)), 80, 0)
    assert "12 % slower than the baseline: 3 ms to 4 ms, limit 5 %; 2 of 5 needed" in alone
    verbose = shown(Run(created="", tests=tuple(alike)), 80, 1)
    assert verbose.count("INCONCLUSIVE test_") == 4


def test_values_of_a_test_that_are_unknown_for_one_reason_are_one_line():
    stopped = [
        check(
            "INCONCLUSIVE",
            metric,
            f"{metric} is unknown, {before} in the baseline: stopped after 6 steps",
            kind="baseline",
            detail={"why": "stopped after 6 steps"},
        )
        for metric, before in (("fusions", "5"), ("half_precision", "0 %"))
    ]
    other = check(
        "INCONCLUSIVE",
        "flops",
        "flops is unknown, 5 FLOP in the baseline: no graph",
        kind="baseline",
        detail={"why": "no graph"},
    )
    tests = [record_of(checks=[*stopped, other]), record_of(checks=stopped, key="test_b")]
    *brief, _ = shown(Run(created="", tests=tuple(tests)), 80, 0).splitlines()
    assert sorted(brief) == [
        "INCONCLUSIVE test_step, test_b: fusions, half_precision are unknown: stopped after 6 steps",
        "INCONCLUSIVE test_step: flops is unknown, 5 FLOP in the baseline: no graph",
    ]


def test_failed_checks_with_one_reason_are_one_line_too():
    run = Run(
        created="",
        tests=tuple(
            record_of(checks=[check("UNKNOWN", sentence="no device")], key=f"test_{n}")
            for n in range(5)
        ),
    )
    assert shown(run, 80, 0).startswith("UNKNOWN      5 tests: no device\n")


def test_the_count_is_over_all_tests():
    tests = [
        record_of(checks=[check("PASS")]),
        record_of(checks=[check("FAIL")], key="test_other"),
        record_of(),
    ]
    assert count_line(tests).text == "tfperf: 1 check passed, 1 failed"


def test_the_whole_terminal_output():
    assert_golden("terminal_80_plain.txt", shown(shown_run(), 80, 0))


def test_remedies_of_steps_that_pytest_does_not_show_have_a_line_and_all_of_them_with_verbosity():
    run = Run(created="now", tests=(record_of(shown_run().tests[0].profiles[0], key="test_step"),))
    line = "test_step: 3.2x (3–3.4) as fast; write: model.py:3  num_parallel_calls=tf.data.AUTOTUNE"
    assert line in [one.text for one in render(run, 100, 0)]
    text = "\n".join(one.text for one in render(run, 100, 1))
    assert "test_step: remedies that were tried\n    faster " in text
    assert "@tf.function leaves out what Python does in each step: time.sleep at" in text
