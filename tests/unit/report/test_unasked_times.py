"""Times that nobody limits and the baseline cannot decide: one line in each report, and never a pass."""

from helpers.builders import check, profile, record_of, run_of

from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import fails, undecided
from pytest_tfperf.report.html.page import render_html
from pytest_tfperf.report.markdown import render_markdown
from pytest_tfperf.report.run_text import render

LINE = "times: not decided in 2 tests; `--tfperf-against main` compares them here"


def time_check(**detail):
    sentence = "step_time is 3 % slower than the baseline: 10 ms to 10.3 ms; 1 of 5 needed runs"
    numbers = {"before": 0.01, "after": 0.0103, "ratio": 1.03}
    return check(
        "INCONCLUSIVE", "step_time", sentence, kind="baseline", detail={**numbers, **detail}
    )


UNASKED = time_check(unasked=True, ref="main")
RUN = run_of(
    *(record_of(profile(step_time=0.01), key=key, checks=[UNASKED]) for key in ("test_a", "test_b"))
)


def shown(run, verbosity):
    return [line.text for line in render(run, 200, verbosity)]


def test_the_terminal_has_one_line_at_every_verbosity_and_lists_them_if_verbose():
    for verbosity in (-2, -1, 0, 1):
        lines = shown(RUN, verbosity)
        assert lines[-2:] == ["tfperf: 0 checks passed, 2 not decided", LINE]
        listed = [line for line in lines if line.startswith("not decided  test_")]
        assert len(listed) == (2 if verbosity == 1 else 0)
        assert not any("INCONCLUSIVE" in line for line in lines)


def test_the_line_is_of_unasked_times_alone():
    asked = run_of(record_of(profile(step_time=0.01), checks=[time_check()]))
    assert not any(line.startswith("times:") for line in shown(asked, 0))
    assert any(line.startswith("INCONCLUSIVE ") for line in shown(asked, 0))
    without_ref = run_of(record_of(profile(), checks=[time_check(unasked=True, ref="")]))
    assert "`--tfperf-against REF` compares it here" in "\n".join(shown(without_ref, -1))


def test_reports_have_the_line_and_the_undecided_values():
    assert render_markdown(RUN).startswith("# ⚠️ tfperf: 0 checks passed, 2 not decided\n")
    beside = record_of(profile(retraces=0), checks=[check("PASS")], key="test_c")
    run = run_of(*RUN.tests, beside)
    page = render_markdown(run)
    assert page.startswith("# ✅ tfperf: 1 check passed, 2 not decided\n")
    assert LINE in page
    assert page.count("| not decided |") == 2
    assert "## Not decided" not in page
    html = render_html(run)
    assert LINE in html
    assert "All checks passed" not in html


def test_it_is_no_failure_and_no_undecided_test():
    assert [fails(one, Options(strict=True)) for one in (UNASKED, time_check())] == [False, True]
    assert [undecided((one,), Options()) for one in (UNASKED, time_check())] == [
        None,
        "INCONCLUSIVE",
    ]
