"""Runs of elsewhere in the stored baselines: what is taken, what is left out and why, what is refused."""

from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, SERVER, profile, record_of, run_of, value
from helpers.refusals import refusal

from pytest_tfperf.baseline.record import accept
from pytest_tfperf.baseline.store import Place, read_structure, read_times
from pytest_tfperf.errors import BaselineError

FILE = "tests/test_model.py"


def a_test(key="test_step", time=0.1, environment=LAPTOP, file=FILE, outcome="passed", **metrics):
    measured = profile(**({} if time is None else {"step_time": time}), **metrics)
    return record_of(measured, key=key, file=file, outcome=outcome, environment=environment)


def accepted(project, *runs, names=(), baseline_dir=None):
    return accept(runs, names, project, baseline_dir)


def place(project):
    return Place.of(FILE, project, None)


def times_of(project, key="test_step", environment=LAPTOP):
    entries = read_times(place(project).timing_file(environment["machine"]))
    return [
        run["step_time"] for run in entries.get(place(project).timing_key(key), {}).get("runs", [])
    ]


def whats(changes):
    return [(change.key, change.what) for change in changes]


def test_structure_is_the_newest_run_s_and_times_are_all_runs_in_their_order(project):
    runs = [
        run_of(a_test(time=0.103, retraces=2), second=3),
        run_of(a_test(time=0.101, retraces=1), second=1),
        run_of(a_test(time=0.102), second=2),
    ]
    done = accepted(project, *runs)
    assert read_structure(place(project).structure)["test_step"]["program"] == {"retraces": 2}
    assert times_of(project) == [0.101, 0.102, 0.103]
    assert (whats(done.entries), whats(done.added), done.anew, done.left_out) == (
        [("test_step", "recorded")],
        [("test_step", "times: 3 runs added, 3 kept")],
        (),
        (),
    )


def test_several_machine_classes_have_each_their_own_history_and_platform(project):
    done = accepted(
        project,
        run_of(a_test(time=0.1, retraces=1, xla_clusters=1), second=1),
        run_of(a_test(time=0.01, retraces=2, xla_clusters=3, environment=SERVER), second=2),
    )
    entry = read_structure(place(project).structure)["test_step"]
    assert entry["program"] == {"retraces": 2}
    assert entry["platform"] == {
        LAPTOP["platform"]: {"xla_clusters": 1},
        SERVER["platform"]: {"xla_clusters": 3},
    }
    assert (times_of(project), times_of(project, environment=SERVER)) == ([0.1], [0.01])
    assert len(done.added) == 2


def test_changes_of_structure_are_described(project):
    accepted(project, run_of(a_test(retraces=0, xla_coverage=0.5, eager_ops=1)))
    done = accepted(project, run_of(a_test(retraces=1, xla_coverage=0.50001, fusions=2)))
    assert whats(done.entries) == [
        (
            "test_step",
            "updated: retraces 0 → 1, eager_ops 1 → unknown, xla_coverage 50 % → 50 % (exactly 0.5 and 0.50001), fusions unknown → 2",
        )
    ]


def test_many_changes_are_named_up_to_a_limit(project):
    accepted(project, run_of(a_test(retraces=0, eager_ops=0, flops=0, xla_compiles=0, fusions=0)))
    done = accepted(
        project, run_of(a_test(retraces=1, eager_ops=1, flops=1, xla_compiles=1, fusions=1))
    )
    [(_, what)] = whats(done.entries)
    assert what.count("→") == 4
    assert what.endswith(", and 1 more")


def test_a_run_that_is_accepted_twice_counts_once(project):
    run = run_of(a_test(retraces=0))
    accepted(project, run)
    before = {path: path.read_bytes() for path in project.rglob("*.json")}
    done = accepted(project, run, run)
    assert (done.entries, done.added, done.anew) == ((), (), ())
    assert {(change.what, change.run) for change in done.left_out} == {
        ("times: it is recorded already", run.created)
    }
    assert {path: path.read_bytes() for path in project.rglob("*.json")} == before


def test_left_out_profiles_name_reason_and_run(new_project):
    cases = [
        (a_test(outcome="failed"), "the test failed"),
        (a_test(outcome="error"), "the test had an error"),
        (a_test(outcome="skipped"), "the test was skipped"),
        (
            record_of(replace(profile(step_time=0.1), ended="the data ended"), file=FILE),
            "the data ended",
        ),
        (
            replace(a_test(), shared_cpu=True),
            "times: other workers may have used the CPU; run with -n 0, or --tfperf-only structural",
        ),
        (
            a_test(time=value("step_time", 0.1, settled=False)),
            "times: the input buffers were still draining",
        ),
    ]
    for test, why in cases:
        project = new_project()
        good, bad = run_of(a_test(time=0.1), second=1), run_of(test, second=2)
        done = accepted(project, good, bad)
        assert times_of(project) == [0.1], why
        assert [(change.key, change.what, change.run) for change in done.left_out] == [
            ("test_step", why, bad.created)
        ], why


def test_runs_of_another_workload_than_the_newest_are_left_out(project):
    old = record_of(profile(step_time=0.2, workload={"batch": 4}), file=FILE)
    done = accepted(project, run_of(old, second=1), run_of(a_test(), second=2))
    assert times_of(project) == [0.1]
    assert whats(done.left_out) == [
        ("test_step", "its workload (batch 4) is not that of the newest run")
    ]


@pytest.mark.parametrize("name", ["test_b", f"{FILE}::test_b"])
def test_only_the_tests_that_are_named_are_taken(project, name):
    accepted(project, run_of(a_test("test_a"), a_test("test_b")), names=[name])
    assert set(read_structure(place(project).structure)) == {"test_b"}


def test_a_name_that_no_test_has_is_an_error_with_the_nearest(project):
    with pytest.raises(BaselineError) as refusal:
        accepted(
            project, run_of(a_test("test_train"), a_test("test_predict")), names=["test_trian"]
        )
    assert str(refusal.value).startswith(
        "no profiled test 'test_trian' in these runs; did you mean 'test_train'? valid: "
    )
    assert not place(project).structure.parent.exists()


def test_many_names_are_listed_up_to_a_limit(project):
    with pytest.raises(BaselineError, match=r"valid: .*, and 40 more$"):
        accepted(project, run_of(*(a_test(f"test_{n}") for n in range(30))), names=["zzz"])


def test_runs_without_a_profile_are_nothing_to_accept(project):
    with pytest.raises(BaselineError, match="no test in these runs was profiled"):
        accepted(project, run_of(record_of(file=FILE)))


def test_a_folder_without_the_test_files_is_an_error(project):
    with pytest.raises(BaselineError) as refusal:
        accept([run_of(a_test())], (), project / "tests", None)
    assert str(refusal.value) == (
        f"no test file {FILE} in {project / 'tests'}: give the folder that the tests are below with --rootdir, or the tests to accept by name"
    )
    assert list(project.rglob("*.json")) == []


def test_a_run_that_does_not_say_where_it_ran_is_refused(new_project):
    for name in ["platform", "machine", "setting"]:
        environment = {key: given for key, given in LAPTOP.items() if key != name}
        run = run_of(a_test(environment=environment))
        said = refusal(BaselineError, accepted, new_project(), run)
        text = "test_step: its run does not say on which platform and machine it ran"
        assert text in said, name


def test_a_damaged_file_of_one_folder_leaves_those_of_all_as_they_were(project):
    (project / "other").mkdir()
    (project / "other" / "test_it.py").write_text("")
    damaged = Place.of("other/test_it.py", project, None).structure
    damaged.parent.mkdir()
    damaged.write_text("<<<<<<< HEAD\n")
    with pytest.raises(BaselineError, match="has conflict marks of a merge"):
        accepted(project, run_of(a_test(), a_test(file="other/test_it.py")))
    assert list(project.rglob("*.json")) == [damaged]


def test_drift_is_accepted_at_the_tolerance_of_the_test(project):
    def runs(time, n, first):
        return [
            run_of(replace(a_test(time=time), max_regression=0.01), second=first + second)
            for second in range(n)
        ]

    accepted(project, *runs(0.1, 5, 0))
    entry = read_times(place(project).timing_file(LAPTOP["machine"]))
    assert next(iter(entry.values()))["anchor"]["runs"] == 5
    done = accepted(project, *runs(0.12, 3, 10))
    assert whats(done.anew) == [
        (
            "test_step",
            "times: the history starts anew with 3 runs: step_time was 100 ms, and is 120 ms now",
        )
    ]
