"""One run: what is decided, what fails, and what is written at the end."""

import errno
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.builders import LAPTOP, check, created, profile, record_of, value
from helpers.faults import failing

from pytest_tfperf.baseline.store import Place, read_structure, read_times
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin import conclude as conclude_module
from pytest_tfperf.plugin.conclude import conclude, summary
from pytest_tfperf.plugin.decide import decide
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import fails
from pytest_tfperf.report.run_file import read_run
from pytest_tfperf.results import Verdict

FILE = "test_model.py"


@pytest.fixture(autouse=True)
def on_a_laptop(monkeypatch):
    monkeypatch.setattr(conclude_module, "commit", lambda _: "c0ffee")
    monkeypatch.setattr(conclude_module, "branch", lambda _: "main")
    seconds = itertools.count()
    monkeypatch.setattr(conclude_module, "_now", lambda: created(next(seconds)))


def decided(options, *profiles, shared_cpu=False, **arguments):
    wanted = Wanted.read(arguments)
    limited = [(measured, wanted.limits) for measured in profiles]
    return decide(limited, wanted, FILE, "test_step", options, LAPTOP, shared_cpu)


def verdicts(checks):
    return [(found.metric, found.verdict.value) for found in checks]


def concluded(options, *records, whole=True):
    """The text of the lines, and whether all went well; as the records come from reports."""
    lines, good = conclude(list(records), options, whole)
    return [text for text, _ in lines], good


def update(tmp_path, *records, **options):
    return concluded(Options(rootdir=tmp_path, update_all=True, **options), *records)


def stored(tmp_path):
    return read_structure(Place.of(FILE, tmp_path, None).structure)


class Cache:
    """pytest's cache in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def mkdir(self, name):
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return self.folder / name


def test_the_results_are_kept_in_the_cache(tmp_path):
    record = record_of(profile(retraces=0))
    assert conclude([record], Options(), True, Cache(tmp_path)) == ([], True)
    kept = read_run(tmp_path / "tfperf" / "last_run.json")
    assert [test.to_json() for test in kept.tests] == [record.to_json()]
    assert kept.commit == "c0ffee"
    # a run that profiles nothing leaves them
    conclude([record_of()], Options(), True, Cache(tmp_path))
    assert read_run(tmp_path / "tfperf" / "last_run.json") == kept


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path):
    (tmp_path / "tfperf").write_text("a file where a folder is wanted")
    [(text, colour)], good = conclude(
        [record_of(profile(retraces=0))], Options(), True, Cache(tmp_path)
    )
    assert (colour, good) == ("yellow", True)
    assert text.startswith("tfperf: tfperf show --last will not show this run: ")


def test_asking_for_something_and_profiling_nothing_is_unknown():
    cases = [
        (Options(), {"max_retraces": 0}),
        (Options(), {"max_regression": "5%"}),
        (Options(), {"max_python_calls_regression": 0}),
        (Options(baseline=True), {}),
    ]
    for options, arguments in cases:
        [found] = decided(options, **arguments)
        assert (found.metric, found.kind, found.verdict) == (
            "profile",
            "profile",
            Verdict.UNKNOWN,
        ), arguments
        assert "nothing was measured: call tf_profile(step, data) in the test" in found.message, (
            arguments
        )
        assert fails(found, options), arguments


@pytest.mark.parametrize("options", [Options(), Options(update_all=True)])
def test_asking_for_nothing_and_profiling_nothing_is_fine(options):
    assert decided(options) == []


def test_limits_hold_for_each_profile():
    checks = decided(Options(), profile(retraces=0), profile("eval", retraces=1), max_retraces=0)
    assert [(found.profile, found.verdict.value) for found in checks] == [
        ("", "PASS"),
        ("eval", "FAIL"),
    ]


def test_max_regression_without_a_baseline_has_nothing_to_compare_with():
    [found] = decided(Options(), profile(step_time=0.1), max_regression="0.5%")
    assert (found.metric, found.verdict, found.wanted) == (
        "step_time",
        Verdict.INCONCLUSIVE,
        "at most 0.5 % slower",
    )
    assert (
        found.message
        == "max_regression of 0.5 % has nothing to compare with\n  try: run with --tfperf-baseline, or --tfperf-against a git ref"
    )


def test_a_limit_on_the_rise_of_calls_without_a_baseline_has_nothing_to_compare_with():
    measured = profile(python_calls=7)
    [found] = decided(Options(), measured, max_python_calls_regression="2%")
    assert (found.metric, found.verdict, found.wanted, found.sentence) == (
        "python_calls",
        Verdict.INCONCLUSIVE,
        "at most 2 % more",
        "max_python_calls_regression of 2 % has nothing to compare with",
    )
    for options in (Options(only="timing"), Options(update_all=True)):
        assert decided(options, measured, max_python_calls_regression="2%") == []


@pytest.mark.parametrize("options", [Options(only="structural"), Options(update_all=True)])
def test_max_regression_is_no_check_where_times_are_not_asked_for_or_recorded(options):
    assert decided(options, profile(step_time=0.1), max_regression="5%") == []


def test_the_baseline_is_compared_with_where_that_is_asked_for(tmp_path):
    update(tmp_path, record_of(profile(retraces=0)))
    options = Options(rootdir=tmp_path, baseline=True)
    assert verdicts(decided(options, profile(retraces=1), max_retraces=5)) == [
        ("retraces", "PASS"),
        ("retraces", "REGRESSION"),
    ]


def test_a_damaged_baseline_is_unknown_beside_the_limits(tmp_path):
    update(tmp_path, record_of(profile(retraces=0)))
    path = Place.of(FILE, tmp_path, None).structure
    path.write_text("{")
    checks = decided(Options(rootdir=tmp_path, baseline=True), profile(retraces=0), max_retraces=0)
    assert verdicts(checks) == [("retraces", "PASS"), ("baseline", "UNKNOWN")]
    assert f"baseline {path}: not JSON" in checks[1].message


def test_times_in_place_of_structure_cost_the_tests_of_that_file_only(tmp_path):
    update(tmp_path, record_of(profile(retraces=0, step_time=0.1)))
    place = Place.of(FILE, tmp_path, None)
    [times] = place.timing.iterdir()
    place.structure.write_text(times.read_text().replace(f"{place.timing_key('')}", ""))
    other = place.structure.with_name("test_other.json")
    other.write_text('{"format": 1, "tests": {}}')
    options = Options(rootdir=tmp_path, baseline=True)
    [found] = decided(options, profile(retraces=0))
    assert (found.verdict.value, found.sentence) == (
        "UNKNOWN",
        f"baseline {place.structure}: not a file of the structure; restore it from git, or delete "
        "it and run --tfperf-update",
    )
    measured = [(profile(retraces=0), ())]
    [beside] = decide(measured, Wanted(), "test_other.py", "test_step", options, LAPTOP)
    assert beside.verdict.value == "MISSING"
    assert concluded(options, record_of(profile(retraces=0))) == ([], True)


def test_verdicts_that_fail_a_test():
    cases = [
        ("PASS", False, False, False),
        ("IMPROVED", False, False, False),
        ("FAIL", True, True, True),
        ("REGRESSION", True, True, True),
        ("UNKNOWN", True, True, True),
        ("MISSING", True, False, True),
        ("INCONCLUSIVE", False, False, True),
        ("INCOMPARABLE", False, False, True),
        ("NEW", False, False, True),
    ]
    for verdict, by_default, allowed, strict in cases:
        options = (Options(), Options(missing="allow"), Options(strict=True))
        assert [fails(check(verdict), each) for each in options] == [by_default, allowed, strict], (
            verdict
        )
        assert fails(check(verdict), Options(missing="allow", strict=True)) == strict, verdict


def test_an_update_records_tests_that_passed_and_no_others(tmp_path):
    outcomes = ("passed", "failed", "skipped", "error")
    lines, good = update(
        tmp_path,
        *[
            record_of(profile(retraces=0), key=f"test_{outcome}", outcome=outcome)
            for outcome in outcomes
        ],
    )
    assert (lines, good) == (
        [
            "tfperf: baseline: 1 entry written for 1 passing test",
            "  in __tfperf__/test_model.json:",
            "    test_passed: recorded",
        ],
        True,
    )
    assert set(stored(tmp_path)) == {"test_passed"}


def test_an_update_goes_file_by_file(tmp_path):
    for name in ("a/test_one.py", "b/test_two.py"):
        update(tmp_path, record_of(profile(retraces=0), file=name))
        assert Place.of(name, tmp_path, None).structure.is_file()


def test_an_update_mirrors_the_tests_below_a_baseline_dir(tmp_path):
    update(
        tmp_path, record_of(profile(retraces=0), file="a/test_one.py"), baseline_dir=Path("kept")
    )
    assert (tmp_path / "kept" / "a" / "test_one.json").is_file()


def test_update_new_leaves_what_is_stored(tmp_path):
    update(tmp_path, record_of(profile(retraces=0)))
    lines, good = concluded(
        Options(rootdir=tmp_path, update_new=True), record_of(profile(retraces=9))
    )
    assert (lines, good) == (["tfperf: baseline: as it was for 1 passing test"], True)
    assert stored(tmp_path)["test_step"]["program"] == {"retraces": 0}


def test_an_update_of_a_changed_workload_says_so(tmp_path):
    update(tmp_path, record_of(profile(workload={"batch": 8})))
    lines, _ = update(tmp_path, record_of(profile(workload={"batch": 16})))
    assert lines[1:] == [
        "  in __tfperf__/test_model.json:",
        "    test_step: replaced: the workload was batch 8",
    ]


def test_an_update_names_each_file_once_below_the_rootdir(tmp_path):
    tests = [record_of(profile(retraces=0), key=f"test_{n}") for n in range(9)]
    other = record_of(profile(retraces=0), file="a/test_other.py")
    lines, _ = update(tmp_path, *tests, other)
    assert lines[1:] == [
        "  in a/__tfperf__/test_other.json:",
        "    test_step: recorded",
        "  in __tfperf__/test_model.json:",
        "    9 tests: recorded",
    ]
    lines, _ = update(tmp_path, *tests, other, baseline_dir=tmp_path.parent / "kept")
    assert f"  in {tmp_path.parent}/kept/test_model.json:" in lines


def test_an_update_says_which_histories_go_on_and_which_start_anew(tmp_path):
    def lines(**of_tests):
        tests = [
            record_of(profile(step_time=time), key=f"test_{name}")
            for name, time in of_tests.items()
        ]
        return update(tmp_path, *tests)[0]

    assert lines(a=0.1, b=0.1)[-1] == "  times: a run added to the history of 2 profiles"
    path = Place.of(FILE, tmp_path, None).timing_file(LAPTOP["machine"])
    assert lines(a=0.3, b=0.1) == [
        "tfperf: baseline: as it was for 2 passing tests",
        f"  in __tfperf__/timing/{path.name}:",
        "    test_a: times: the history starts anew with 1 run: step_time was 100 ms, and is 300 ms now",
        "  times: a run added to the history of 1 profile",
    ]


@pytest.mark.parametrize(("shared_cpu", "runs"), [(True, 0), (False, 1)])
def test_times_beside_other_workers_are_not_recorded(tmp_path, shared_cpu, runs):
    tests = [
        record_of(profile(step_time=0.1), key=f"test_{n}", shared_cpu=shared_cpu) for n in range(5)
    ]
    lines, good = update(tmp_path, *tests)
    said = "  not recorded: 5 tests: times: other workers may have used the CPU; run with -n 0, or --tfperf-only structural"
    assert (said in lines, good) == (not runs, True)
    place = Place.of(FILE, tmp_path, None)
    entries = read_times(place.timing_file(LAPTOP["machine"]))
    assert [
        len(entries.get(place.timing_key(f"test_{n}"), {}).get("runs", [])) for n in range(5)
    ] == [runs] * 5


LOADED = "other processes used 83% of the 2 cores in the timed window: stop what else runs there"


def test_disturbed_times_are_recorded_with_how_busy_others_were(tmp_path):
    said = (
        "  not recorded: test_step: times: other processes used 83% of the 2 cores in the timed "
        "window; run on a quiet machine"
    )
    cases = [([LOADED], {}, False), ([LOADED], {"other_load": 0.83}, True), ([], {}, True)]
    for number, (interference, known, recorded) in enumerate(cases):
        folder = tmp_path / str(number)
        measured = value("step_time", 0.1, settled=True, interference=interference)
        lines, good = update(folder, record_of(profile(retraces=0, step_time=measured, **known)))
        assert (said in lines, good) == (not recorded, True), number
        path = Place.of(FILE, folder, None).timing_file(LAPTOP["machine"])
        assert list(stored(folder)) == ["test_step"], number
        assert path.exists() is recorded, number
        if known:
            ((entry,),) = [one["runs"] for one in read_times(path).values()]
            assert entry["other_load"] == 0.83


def test_a_profile_that_ended_early_is_not_recorded(tmp_path):
    lines, _ = update(tmp_path, record_of(replace(profile(retraces=0), ended="the data ended")))
    assert lines == [
        "tfperf: baseline: as it was for 1 passing test",
        "  not recorded: test_step: the data ended",
    ]


def test_a_run_file_and_the_history_know_the_same_run(tmp_path):
    update(tmp_path, record_of(profile(step_time=0.1)), reports=(tmp_path / "run.json",))
    run, place = read_run(tmp_path / "run.json"), Place.of(FILE, tmp_path, None)
    [stored_run] = read_times(place.timing_file(LAPTOP["machine"]))[place.timing_key("test_step")][
        "runs"
    ]
    assert (stored_run["created"], stored_run["commit"]) == (run.created, run.commit)


def test_times_beside_other_workers_are_not_compared_with_the_baseline(tmp_path):
    for _ in range(5):
        update(tmp_path, record_of(profile(step_time=0.1)))
    options = Options(rootdir=tmp_path, baseline=True)
    checks = decided(options, profile(step_time=0.9), shared_cpu=True)
    assert verdicts(checks) == [("step_time", "INCONCLUSIVE")]


def test_an_update_that_cannot_be_written_says_that_alone(tmp_path):
    for name in ("a", "b"):
        update(tmp_path, record_of(profile(retraces=0), file=f"{name}/test_one.py"))
    place = Place.of("b/test_one.py", tmp_path, None)
    with failing(place.structure.parent, 1, errno.ENOSPC, lasting=True, kinds=("write",)):
        lines, good = update(
            tmp_path,
            *(record_of(profile(retraces=1), file=f"{name}/test_one.py") for name in ("a", "b")),
        )
    assert not good
    assert lines == [
        f"tfperf: baseline {place.detail}: cannot be written: No space left on device; "
        "mend that, and run the same again: it writes the rest"
    ]
    for name, retraces in (("a", 1), ("b", 0)):
        entries = read_structure(Place.of(f"{name}/test_one.py", tmp_path, None).structure)
        assert entries["test_step"]["program"] == {"retraces": retraces}


def test_an_update_that_cannot_be_written_is_red_and_leaves_other_files_to_be_written(tmp_path):
    (tmp_path / "a").write_text("a file where a folder should be")
    records = [
        record_of(profile(retraces=0), file=name) for name in ("a/test_one.py", "b/test_two.py")
    ]
    lines, good = conclude(list(records), Options(rootdir=tmp_path, update_all=True), True)
    text, colour = lines[-1]
    assert (good, colour) == (False, "red")
    assert text.startswith(f"tfperf: baseline {tmp_path / 'a'}")
    assert Place.of("b/test_two.py", tmp_path, None).structure.is_file()


def test_unused_entries_are_listed_of_tests_that_ran_or_could_have(tmp_path):
    for whole, keys in [(True, ("test_gone", "test_step/eval")), (False, ("test_step/eval",))]:
        for mode in ("update_all", "update_new", "baseline"):
            folder = tmp_path / f"{whole} {mode}"
            update(
                folder,
                record_of(profile(retraces=0), profile("eval", retraces=0)),
                record_of(profile(retraces=0), key="test_gone"),
            )
            options = Options(rootdir=folder, **{mode: True})
            lines, good = concluded(options, record_of(profile(retraces=0)), whole=whole)
            unused = (
                f"tfperf: unused baseline entries in __tfperf__/test_model.json: {', '.join(keys)}"
            )
            assert [line for line in lines if "unused" in line] == [unused]
            assert good, (whole, mode)
            assert "test_gone" in stored(folder), (whole, mode)


def test_unused_entries_are_no_matter_of_a_plain_run(tmp_path):
    update(tmp_path, record_of(profile(retraces=0), key="test_gone"))
    assert concluded(Options(rootdir=tmp_path), record_of(profile(retraces=0))) == ([], True)


def test_entries_of_a_test_that_did_not_come_to_its_profiles_are_not_unused(tmp_path):
    update(
        tmp_path,
        record_of(profile(retraces=0), profile("eval", retraces=0)),
        record_of(profile(retraces=0), key="test_step_2"),
    )
    for outcome in ["failed", "error", "skipped"]:
        lines, _ = concluded(Options(rootdir=tmp_path, baseline=True), record_of(outcome=outcome))
        assert [line.rpartition(": ")[2] for line in lines] == ["test_step_2"], outcome


def test_a_damaged_baseline_lists_nothing_as_unused(tmp_path):
    path = Place.of(FILE, tmp_path, None).structure
    path.parent.mkdir()
    path.write_text("[")
    assert concluded(Options(rootdir=tmp_path, baseline=True), record_of(profile(retraces=0))) == (
        [],
        True,
    )


def test_a_report_is_written_and_can_be_read_back(tmp_path):
    tests = (
        record_of(profile(step_time=0.1), checks=[check("PASS")]),
        record_of(outcome="failed", key="test_other"),
    )
    paths = (tmp_path / "run.json", tmp_path / "deep" / "er" / "run.json")
    lines, good = concluded(Options(reports=paths), *tests)
    assert (lines, good) == ([f"tfperf: report written to {path}" for path in paths], True)
    for path in paths:
        assert read_run(path).tests == tests


def test_a_report_that_cannot_be_written_is_red_and_the_run_is_not_good(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "below" / "run.json"
    lines, good = conclude([record_of()], Options(reports=(path, tmp_path / "run.json")), True)
    assert lines == [
        (f"tfperf: report written to {tmp_path / 'run.json'}", None),
        (f"tfperf: report {path}: cannot be written: Not a directory", "red"),
    ]
    assert not good


TWO_DECIDED = record_of(
    checks=[
        check(verdict) for verdict in ("PASS", "FAIL", "UNKNOWN", "INCONCLUSIVE", "MISSING", "NEW")
    ]
)


def test_too_few_decided_checks_are_red():
    for wanted, good in [(0, True), (2, True), (3, False)]:
        lines, went_well = concluded(Options(min_checks=wanted), TWO_DECIDED)
        said = f"tfperf: 2 checks were decided, fewer than the {wanted} that --tfperf-min-checks asks for"
        assert (lines, went_well) == ([] if good else [said], good), wanted


def test_reports_say_what_the_run_did_not_check(tmp_path):
    """As the terminal does, in every kind of report that has a head."""
    cases = [
        ({"min_checks": 3}, {}, ["2 checks were decided, fewer than the 3"]),
        ({}, {"unchecked": ["test_plain"]}, ["1 test has limits and profiles nothing"]),
        ({"min_checks": 3}, {"unchecked": ["t"]}, ["1 test has limits", "2 checks were"]),
        ({"disable": True}, {"unchecked": ["t"]}, []),
        ({}, {"died": ["test_a.py::test_crash"]}, ["1 test lost its worker"]),
        ({}, {}, []),
    ]
    for number, (options, tests, said) in enumerate(cases):
        paths = {kind: tmp_path / f"{number}.{kind}" for kind in ("json", "md", "html")}
        passed = record_of(checks=[check("PASS"), check("PASS")])
        conclude(
            [passed],
            Options(reports=tuple(paths.values()), **options),
            True,
            **tests,
        )
        run = read_run(paths["json"])
        texts = {kind: path.read_text() for kind, path in paths.items()}
        assert len(run.not_checked) == len(said), number
        for sentence in said:
            assert any(text.startswith(sentence) for text in run.not_checked), sentence
            assert sentence in texts["md"], (number, sentence)
            assert sentence in texts["html"], (number, sentence)
        head = "# ⚠️ tfperf: 2 checks passed" if said else "# ✅ tfperf: 2 checks passed"
        assert texts["md"].startswith(head), number
        assert ("not all was checked" in texts["html"]) == bool(said), number


def test_no_checks_at_all_are_too_few():
    assert concluded(Options(min_checks=1))[1] is False


def test_one_decided_check_is_said_as_one():
    assert concluded(Options(min_checks=2), record_of(checks=[check("PASS")])) == (
        ["tfperf: 1 check was decided, fewer than the 2 that --tfperf-min-checks asks for"],
        False,
    )


def test_the_summary_is_what_the_terminal_shows():
    lines = summary(
        [record_of(profile(step_time=0.1), checks=[check("PASS")])], 80, 0, True, "utf-8"
    )
    assert lines[-1][:2] == ("tfperf: 1 check passed", "green")


def test_without_records_there_is_no_summary():
    assert summary([], 80, 0, True, "utf-8") == []


FAILED = record_of(checks=[check("FAIL")], outcome="failed", line=3)


def test_strict_failures_are_annotated_under_strict(tmp_path):
    record = record_of(checks=[check("INCONCLUSIVE")], line=3)
    assert [
        len(concluded(Options(rootdir=tmp_path, workspace=tmp_path, strict=strict), record)[0])
        for strict in (False, True)
    ] == [0, 1]


def test_no_annotations_outside_of_github(tmp_path):
    assert concluded(Options(rootdir=tmp_path), FAILED) == ([], True)


def test_a_summary_that_cannot_be_written_fails_nothing(tmp_path):
    lines, good = conclude([FAILED], Options(rootdir=tmp_path, summary=tmp_path), True)
    assert lines == [(f"tfperf: summary {tmp_path}: cannot be written: Is a directory", "yellow")]
    assert good


def test_a_run_without_profiled_tests_adds_nothing_to_a_summary(tmp_path):
    concluded(Options(rootdir=tmp_path, summary=tmp_path / "summary"))
    assert not (tmp_path / "summary").exists()


def test_keys_of_a_baseline_do_not_control_the_terminal(tmp_path):
    record = record_of(profile(retraces=0))
    update(tmp_path, record, record_of(profile(retraces=0), key="\n::error::x\x1b[31m"))
    lines, _ = concluded(Options(rootdir=tmp_path, baseline=True), record)
    assert [line.partition("unused baseline entries in ")[2] for line in lines] == [
        "__tfperf__/test_model.json: \n: :error::x\ufffd[31m"
    ]
