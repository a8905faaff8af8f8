"""One run: what is decided, what fails, and what is written at the end."""

from pathlib import Path

import pytest
from builders import LAPTOP, SERVER, check, profile, record_of

from pytest_tfperf import session
from pytest_tfperf.baseline.store import Place, read_entries
from pytest_tfperf.checks import Wanted
from pytest_tfperf.options import Options
from pytest_tfperf.report.runfile import read_run
from pytest_tfperf.results import Verdict
from pytest_tfperf.session import conclude, decide, fails, summary

FILE = "test_model.py"


@pytest.fixture(autouse=True)
def on_a_laptop(monkeypatch):
    monkeypatch.setattr(session, "describe", lambda: LAPTOP)


def decided(options, *profiles, **arguments):
    wanted = Wanted.read(arguments)
    return decide([(measured, wanted.limits) for measured in profiles], wanted, FILE, "test_step", options)


def verdicts(checks):
    return [(found.metric, found.verdict.value) for found in checks]


def concluded(options, *records, whole=True):
    """The text of the lines, and whether all went well; as the records come from reports."""
    lines, good = conclude([found.to_json() for found in records], options, whole)
    return [text for text, _ in lines], good


def update(tmp_path, *records, **options):
    return concluded(Options(rootdir=tmp_path, update="all", **options), *records)


def stored(tmp_path):
    return read_entries(Place.of(FILE, tmp_path, None).structure)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (Options(), {"max_retraces": 0}),
        (Options(), {"max_regression": "5%"}),
        (Options(baseline=True), {}),
    ],
)
def test_asking_for_something_and_profiling_nothing_is_unknown(options, arguments):
    [found] = decided(options, **arguments)
    assert (found.metric, found.kind, found.verdict) == ("profile", "profile", Verdict.UNKNOWN)
    assert "profiled no step: call tf_profile(step, data) in it" in found.message
    assert fails(found, options)


@pytest.mark.parametrize("options", [Options(), Options(update="all")])
def test_asking_for_nothing_and_profiling_nothing_is_fine(options):
    assert decided(options) == []


def test_limits_hold_for_each_profile():
    checks = decided(Options(), profile(retraces=0), profile("eval", retraces=1), max_retraces=0)
    assert [(found.profile, found.verdict.value) for found in checks] == [("", "PASS"), ("eval", "FAIL")]


@pytest.mark.parametrize(("machine", "verdict"), [(LAPTOP, "INCONCLUSIVE"), (SERVER, "FAIL")])
def test_other_workers_make_times_undecided_on_a_cpu(monkeypatch, machine, verdict):
    monkeypatch.setattr(session, "describe", lambda: machine)
    assert verdicts(decided(Options(parallel=True), profile(step_time=0.2), max_step_time=0.1)) == [("step_time", verdict)]


def test_max_regression_without_a_baseline_has_nothing_to_compare_with():
    [found] = decided(Options(), profile(step_time=0.1), max_regression="0.5%")
    assert (found.metric, found.verdict, found.wanted) == ("step_time", Verdict.INCONCLUSIVE, "at most 0.5 % slower")
    assert found.message == "max_regression of 0.5 % has nothing to compare with\n  try: run with --tfperf-baseline"


@pytest.mark.parametrize("options", [Options(only="structural"), Options(update="all")])
def test_max_regression_is_no_check_where_times_are_not_asked_for_or_recorded(options):
    assert decided(options, profile(step_time=0.1), max_regression="5%") == []


def test_the_baseline_is_compared_with_where_that_is_asked_for(tmp_path):
    update(tmp_path, record_of(profile(retraces=0)))
    options = Options(rootdir=tmp_path, baseline=True)
    assert verdicts(decided(options, profile(retraces=1), max_retraces=5)) == [("retraces", "PASS"), ("retraces", "REGRESSION")]


def test_a_damaged_baseline_is_unknown_beside_the_limits(tmp_path):
    update(tmp_path, record_of(profile(retraces=0)))
    path = Place.of(FILE, tmp_path, None).structure
    path.write_text("{")
    checks = decided(Options(rootdir=tmp_path, baseline=True), profile(retraces=0), max_retraces=0)
    assert verdicts(checks) == [("retraces", "PASS"), ("baseline", "UNKNOWN")]
    assert f"baseline {path}: not JSON" in checks[1].message


@pytest.mark.parametrize(
    ("verdict", "by_default", "allowed", "strict"),
    [
        ("PASS", False, False, False),
        ("IMPROVED", False, False, False),
        ("FAIL", True, True, True),
        ("REGRESSION", True, True, True),
        ("UNKNOWN", True, True, True),
        ("MISSING", True, False, True),
        ("INCONCLUSIVE", False, False, True),
        ("INCOMPARABLE", False, False, True),
        ("NEW", False, False, True),
    ],
)
def test_what_fails_a_test(verdict, by_default, allowed, strict):
    options = (Options(), Options(missing="allow"), Options(strict=True))
    assert [fails(check(verdict), each) for each in options] == [by_default, allowed, strict]
    assert fails(check(verdict), Options(missing="allow", strict=True)) == strict


def test_an_update_records_tests_that_passed_and_no_others(tmp_path):
    outcomes = ("passed", "failed", "skipped", "error")
    lines, good = update(tmp_path, *[record_of(profile(retraces=0), key=f"test_{outcome}", outcome=outcome) for outcome in outcomes])
    path = Place.of(FILE, tmp_path, None).structure
    assert (lines, good) == (
        ["tfperf: baseline: 1 entries written for 1 passing tests", f"  recorded: test_passed in {path}"],
        True,
    )
    assert set(stored(tmp_path)) == {"test_passed"}


def test_an_update_goes_file_by_file(tmp_path):
    for name in ("a/test_one.py", "b/test_two.py"):
        update(tmp_path, record_of(profile(retraces=0), file=name))
        assert Place.of(name, tmp_path, None).structure.is_file()


def test_an_update_mirrors_the_tests_below_a_baseline_dir(tmp_path):
    update(tmp_path, record_of(profile(retraces=0), file="a/test_one.py"), baseline_dir=Path("kept"))
    assert (tmp_path / "kept" / "a" / "test_one.json").is_file()


def test_update_new_leaves_what_is_stored(tmp_path):
    update(tmp_path, record_of(profile(retraces=0)))
    lines, good = concluded(Options(rootdir=tmp_path, update="new"), record_of(profile(retraces=9)))
    assert (lines, good) == (["tfperf: baseline: 0 entries written for 1 passing tests"], True)
    assert stored(tmp_path)["test_step"]["program"] == {"retraces": 0}


def test_an_update_of_a_changed_workload_says_so(tmp_path):
    update(tmp_path, record_of(profile(workload={"batch": 8})))
    lines, _ = update(tmp_path, record_of(profile(workload={"batch": 16})))
    assert lines[1] == f"  replaced: the workload was batch 8: test_step in {Place.of(FILE, tmp_path, None).structure}"


def test_an_update_that_cannot_be_written_is_red_and_leaves_other_files_to_be_written(tmp_path):
    (tmp_path / "a").write_text("a file where a folder should be")
    records = [record_of(profile(retraces=0), file=name) for name in ("a/test_one.py", "b/test_two.py")]
    lines, good = conclude([found.to_json() for found in records], Options(rootdir=tmp_path, update="all"), True)
    text, colour = lines[-1]
    assert (good, colour) == (False, "red")
    assert text.startswith(f"tfperf: baseline {tmp_path / 'a'}")
    assert Place.of("b/test_two.py", tmp_path, None).structure.is_file()


@pytest.mark.parametrize(("whole", "listed"), [(True, True), (False, False)])
@pytest.mark.parametrize("mode", [{"update": "all"}, {"update": "new"}, {"baseline": True}])
def test_unused_entries_are_listed_where_no_test_was_left_out(tmp_path, mode, whole, listed):
    update(tmp_path, record_of(profile(retraces=0), profile("eval", retraces=0)), record_of(profile(retraces=0), key="test_gone"))
    lines, good = concluded(Options(rootdir=tmp_path, **mode), record_of(profile(retraces=0)), whole=whole)
    path = Place.of(FILE, tmp_path, None).structure
    unused = [f"tfperf: unused baseline entry {path}: {key}" for key in ("test_gone", "test_step/eval")]
    assert [line for line in lines if "unused" in line] == (unused if listed else [])
    assert good
    assert "test_gone" in stored(tmp_path)


def test_unused_entries_are_no_matter_of_a_plain_run(tmp_path):
    update(tmp_path, record_of(profile(retraces=0), key="test_gone"))
    assert concluded(Options(rootdir=tmp_path), record_of(profile(retraces=0))) == ([], True)


@pytest.mark.parametrize("outcome", ["failed", "error", "skipped"])
def test_entries_of_a_test_that_did_not_come_to_its_profiles_are_not_unused(tmp_path, outcome):
    update(tmp_path, record_of(profile(retraces=0), profile("eval", retraces=0)), record_of(profile(retraces=0), key="test_step_2"))
    lines, _ = concluded(Options(rootdir=tmp_path, baseline=True), record_of(outcome=outcome))
    assert [line.rpartition(": ")[2] for line in lines] == ["test_step_2"]


def test_a_damaged_baseline_lists_nothing_as_unused(tmp_path):
    path = Place.of(FILE, tmp_path, None).structure
    path.parent.mkdir()
    path.write_text("[")
    assert concluded(Options(rootdir=tmp_path, baseline=True), record_of(profile(retraces=0))) == ([], True)


def test_a_report_is_written_and_can_be_read_back(tmp_path):
    tests = (record_of(profile(step_time=0.1), checks=[check("PASS")]), record_of(outcome="failed", key="test_other"))
    paths = (tmp_path / "run.json", tmp_path / "deep" / "er" / "run.json")
    lines, good = concluded(Options(reports=paths), *tests)
    assert (lines, good) == ([f"tfperf: report written to {path}" for path in paths], True)
    for path in paths:
        assert read_run(path).tests == tests


def test_a_report_that_cannot_be_written_is_red_and_the_run_is_not_good(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "below" / "run.json"
    lines, good = conclude([record_of().to_json()], Options(reports=(path, tmp_path / "run.json")), True)
    assert lines == [
        (f"tfperf: report written to {tmp_path / 'run.json'}", None),
        (f"tfperf: report {path}: cannot be written: Not a directory", "red"),
    ]
    assert not good


TWO_DECIDED = record_of(checks=[check(verdict) for verdict in ("PASS", "FAIL", "UNKNOWN", "INCONCLUSIVE", "MISSING", "NEW")])


@pytest.mark.parametrize(("wanted", "good"), [(0, True), (2, True), (3, False)])
def test_too_few_decided_checks_are_red(wanted, good):
    lines, went_well = concluded(Options(min_checks=wanted), TWO_DECIDED)
    said = f"tfperf: 2 checks were decided, fewer than the {wanted} that --tfperf-min-checks asks for"
    assert (lines, went_well) == ([] if good else [said], good)


def test_no_checks_at_all_are_too_few():
    assert concluded(Options(min_checks=1))[1] is False


def test_the_summary_is_what_the_terminal_shows():
    lines = summary([record_of(profile(step_time=0.1), checks=[check("PASS")]).to_json()], 80, 0)
    assert lines[-1] == ("tfperf: 1 check decided (1 pass, 0 fail)", "green")


def test_without_records_there_is_no_summary():
    assert summary([], 80, 0) == []
