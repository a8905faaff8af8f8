"""Runs as rows: which of them later runs are compared with, and the entry that these make."""

from dataclasses import replace

from helpers.builders import WORKLOAD, profile, record_of, value
from helpers.histories import run_at
from helpers.refusals import refusal

from pytest_tfperf.baseline.history import merge_runs
from pytest_tfperf.cli.trends import trends_of, why_not_counted
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.results import INTERFERENCE
from pytest_tfperf.stores.history import recorded_entry
from pytest_tfperf.stores.rows import rows_of, utc_time

NOISY = profile(
    step_time=value("step_time", 0.1, settled=True, **{INTERFERENCE: ["other processes ran: x"]})
)

NOISY_RUN = {"tests": [record_of(NOISY)]}


def step_times(*runs):
    every = (part for run in runs for part in rows_of(run, "demo").rows.values())
    return [row for rows in every for row in rows if row.metric == "step_time"]


def test_what_later_runs_are_not_compared_with_has_a_reason():
    cases = [
        (run_at(0), None),
        (run_at(0, outcome="failed"), "the test failed"),
        (run_at(0, commit="abc123def456+"), "the work tree is not that of a commit"),
        (run_at(0, commit=""), "the work tree is not that of a commit"),
        (run_at(0, commit="; rm -rf"), "the work tree is not that of a commit"),
        (run_at(0, shared_cpu=True), "others"),
        (run_at(0, tests=[record_of(profile(retraces=1))]), "step_time is unknown: not measured"),
        (run_at(0, tests=[record_of(profile(step_time=2e7))]), "no step lasts 2"),
        (run_at(0, tests=[record_of(NOISY)]), "other processes ran; run on a quiet machine"),
        (
            run_at(0, tests=[record_of(profile(step_time=value("step_time", 0.1, settled=False)))]),
            "the input buffers were still draining",
        ),
    ]
    for run, why in cases:
        (row,) = step_times(run)
        left_out = rows_of(run, "demo").left_out
        assert row.usable is (why is None), (run, why)
        assert list(left_out) == ([] if why is None else ["test_step"]), (run, why)
        assert why is None or why in left_out["test_step"] or "CPU" in left_out["test_step"], (
            run,
            why,
        )


def test_disturbed_times_count_where_it_is_known_how_much_others_had():
    known = replace(NOISY, metrics={**NOISY.metrics, "other_load": value("other_load", 0.4)})
    (row,) = step_times(run_at(0, tests=[record_of(known)]))
    assert row.usable


def test_the_reason_is_kept_with_each_value():
    noisy, failed = (step_times(run_at(0, **of)) for of in (NOISY_RUN, {"outcome": "failed"}))
    assert noisy[0].why.startswith("other processes ran; run on a quiet machine")
    assert failed[0].why == "the test failed"
    assert step_times(run_at(0))[0].why == ""


def test_why_a_run_does_not_count():
    cases = [
        (run_at(0), {}, ""),
        (run_at(0, branch="topic"), {}, "not on branch main"),
        (run_at(0, branch=""), {}, "not on branch main"),
        (run_at(0, **NOISY_RUN), {}, "other processes ran; run on a quiet machine"),
        (run_at(0, outcome="error"), {}, "the test had an error"),
        (run_at(0, **NOISY_RUN), {"why": ""}, "its row has no reason"),
    ]
    for run, fields, why in cases:
        (row,) = step_times(run)
        found = why_not_counted(replace(row, **fields), "main")
        assert found.startswith(why), (run, fields, why)
        assert bool(found) is bool(why), (run, fields, why)


def test_the_id_of_a_run_is_that_of_its_content():
    ids = [rows_of(run, "demo").run for run in (run_at(0), run_at(0), run_at(1))]
    assert ids[0] == ids[1] != ids[2]


def test_the_entry_is_that_of_a_timing_file_with_the_same_runs():
    times = [0.1, 0.101, 0.099, 0.1, 0.102, 0.1, 0.15, 0.151, 0.149]
    runs = [run_at(n, seconds, commit=f"{n:012x}") for n, seconds in enumerate(times)]
    entry = None
    for run in runs:
        new = {
            "step_time": run.tests[0].profiles[0].step_time,
            "commit": run.commit,
            "created": run.created,
        }
        entry = merge_runs(entry, [new], WORKLOAD, 0.05, 4).entry
    found = recorded_entry(step_times(*runs), WORKLOAD, 0.05, 4)
    assert found == entry
    assert [run["step_time"] for run in found["runs"]] == times[6:]  # another level


def test_runs_of_another_workload_are_left_out():
    other = profile(workload={"batch": 99}, step_time=9.0)
    rows = step_times(run_at(0, tests=[record_of(other)]), run_at(1, 0.1))
    assert len(recorded_entry(rows, WORKLOAD, 0.05, 4)["runs"]) == 1
    (trend,) = trends_of(rows, "main")
    assert trend.history.values == [0.1]


def test_no_usable_run_is_no_entry():
    assert recorded_entry([], WORKLOAD, 0.05, 4) is None


def test_a_time_that_somebody_made_up_is_left_out():
    for number in [0.0, -1.0, 1e300, float("nan"), float("inf"), None]:
        rows = step_times(run_at(0), run_at(1))
        forged = replace(rows[1], value=number)
        assert len(recorded_entry([rows[0], forged], WORKLOAD, 0.05, 4)["runs"]) == 1, number


def test_what_is_no_date():
    for text in ["", "yesterday", "2026-13-01", "9" * 30]:
        assert "is no date, such as 2026-11-24" in refusal(TfperfError, utc_time, text), text


def test_dates_are_in_utc():
    assert utc_time("2026-01-01T12:00:00+02:00") == utc_time("2026-01-01T10:00:00Z")
    assert utc_time("2026-01-01").hour == 0
