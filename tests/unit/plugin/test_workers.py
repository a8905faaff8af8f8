"""Workers of pytest-xdist, and what the controller makes of their reports."""

from copy import deepcopy
from itertools import chain, zip_longest
from types import SimpleNamespace

from helpers.builders import record_of
from helpers.reruns import AGAIN
from helpers.runs_within import measure_with_stand_in

from pytest_tfperf.plugin import controller
from pytest_tfperf.plugin.controller import Controller
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.plugin.workers import n_workers


def config(**options):
    return SimpleNamespace(option=SimpleNamespace(**{"dist": "load", **options}))


def test_workers_are_counted_before_they_start():
    for options, number in [
        ({"tx": ["popen"] * 3}, 3),
        ({"tx": ["3*popen"]}, 3),
        ({"tx": ["2*popen//python=python3.12", "ssh=host"]}, 3),
        ({"tx": ["popen//chdir=a*b"]}, 1),
        ({"tx": []}, 0),
        ({"tx": None}, 0),
        ({"tx": ["popen"] * 3, "dist": "no"}, 0),
    ]:
        assert n_workers(config(**options)) == number, options


def test_without_xdist_there_are_none():
    assert n_workers(SimpleNamespace(option=SimpleNamespace())) == 0


def test_a_worker_is_told():
    worker = config(tx=[])
    worker.workerinput = {"workercount": 4}
    assert n_workers(worker) == 4


MODES = dict.fromkeys(
    ["tfperf_baseline", "tfperf_update", "tfperf_update_new", "tfperf_disable"], False
)
SHARED = "a profiled test runs while the other workers wait"


def test_the_header_says_what_workers_mean(monkeypatch):
    compares = {"tfperf_baseline": True}
    comparing = "tfperf: comparing with the stored baseline"
    for n_tx, asked, modes, gpus, header in [
        (0, False, {}, (), None),
        (0, True, {}, (), None),
        (2, False, {}, ("0",), None),
        (1, True, {}, ("0",), None),
        (2, True, {}, (), f"tfperf: {SHARED}"),
        (0, True, compares, (), comparing),
        (3, True, compares, (), f"{comparing}; {SHARED}"),
        (2, True, {}, ("0",), "tfperf: 1 GPU is shared out among 2 workers"),
        (2, True, {}, ("0", "1"), "tfperf: 2 GPUs are shared out among 2 workers"),
    ]:
        monkeypatch.setattr(controller, "visible_gpus", lambda gpus=gpus: gpus)
        run = config(tx=["popen"] * n_tx, **{**MODES, **modes})
        found = Controller(run, lambda: None, asked).pytest_report_header()
        assert found == header, (n_tx, asked, modes, gpus)


def report(when, outcome="passed", measured=None, nodeid="test_model.py::test_step"):
    found = SimpleNamespace(
        nodeid=nodeid,
        when=when,
        outcome=outcome,
        failed=outcome == "failed",
        skipped=outcome == "skipped",
        passed=outcome == "passed",
    )
    if measured is not None:
        of_body = "failed" if outcome == "rerun" else outcome  # the plugin changes the report alone
        found.tfperf = record_of(key=measured, outcome=of_body).to_json()
    return found


FIRST = [report("setup"), report("call", "rerun", "first"), report("teardown")]


def test_of_a_test_that_runs_again_the_last_run_counts():
    passed, failed = report("call", "passed", "first"), report("teardown", "failed")
    for why, reports, kept in [
        ("one run", [report("setup"), passed, report("teardown")], ("first", "passed")),
        (
            "two runs",
            [*FIRST, report("setup"), report("call", "passed", "second"), report("teardown")],
            ("second", "passed"),
        ),
        (
            "it failed before it profiled anything",
            [*FIRST, report("setup"), report("call", "failed"), report("teardown")],
            None,
        ),
        ("its setup failed", [*FIRST, report("setup", "failed"), report("teardown")], None),
        ("its teardown failed", [report("setup"), passed, failed], ("first", "error")),
        (
            "its worker died then",
            [report("setup"), passed, report("???", "failed")],
            ("first", "error"),
        ),
    ]:
        plugin = Controller(config(), lambda: None, True)
        for each in reports:
            plugin.pytest_runtest_logreport(each)
        found = [(test.key, test.outcome) for test in plugin.tests()]
        assert found == ([] if kept is None else [kept]), why


GOOD = [report("setup"), report("call", "passed", "good"), report("teardown")]
BAD = [report("setup"), report("call", "failed", "bad"), report("teardown")]
BROKEN = [report("setup"), report("call", "passed", "broken"), report("teardown", "failed")]
DIES = [report("setup"), report("???", "failed")]
LATER = [report("setup"), report("call", "passed", "later"), report("teardown")]


def test_where_each_worker_runs_a_test_it_has_failed_if_it_fails_in_one():
    for one, other, kept in [
        (GOOD, LATER, ("later", "passed")),
        (GOOD, BAD, ("bad", "failed")),
        (BAD, GOOD, ("bad", "failed")),
        (BROKEN, GOOD, ("broken", "error")),
        (DIES, GOOD, ("good", "error")),
        (GOOD, DIES, ("good", "error")),
    ]:
        for together in (False, True):
            plugin = Controller(config(dist="each"), lambda: None, True)
            first, second = (
                [(each, worker) for each in deepcopy(reports)]
                for reports, worker in ((one, "gw0"), (other, "gw1"))
            )
            mixed = filter(None, chain(*zip_longest(first, second)))
            for each, worker in mixed if together else [*first, *second]:
                each.node = worker
                plugin.pytest_runtest_logreport(each)
            found = [(test.key, test.outcome) for test in plugin.tests()]
            assert found == [kept], (kept, together)


def test_a_test_that_did_not_come_to_its_call_is_not_one_whose_baseline_is_unused():
    for each, left_out in [
        (report("setup"), False),
        (report("call", "failed"), False),
        (report("teardown", "failed"), False),
        (report("setup", "failed"), True),
        (report("setup", "skipped"), True),
        (report("call", "skipped"), True),
        (report("???", "failed"), True),  # xdist's of a worker that died
    ]:
        plugin = Controller(config(), lambda: None, True)
        plugin.pytest_runtest_logreport(each)
        assert plugin._left_out is left_out, each


GETS_BETTER = """
import pytest

RUNS = []

@pytest.mark.tfperf(max_retraces=0)
def test_gets_better(tf_profile):
    RUNS.append(1)
    tf_profile(0.5, retraces=0 if len(RUNS) > 1 else 3)

@pytest.mark.tfperf(max_retraces=0)
def test_fails_otherwise(request):
    RUNS.append(2)
    if RUNS.count(2) == 1:
        request.getfixturevalue("tf_profile")(0.5, retraces=3)
    else:
        raise ValueError("of its own")
"""


def test_what_a_run_said_of_a_test_is_not_said_of_the_next_one(pytester, monkeypatch):
    measure_with_stand_in(monkeypatch)
    monkeypatch.setenv("COLUMNS", "100")
    pytester.makeconftest(AGAIN)
    pytester.makepyfile(GETS_BETTER)
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert "1 failed, 1 passed, 2 rerun" in done.stdout.str()
    assert "PERF" not in done.stdout.str()
    done.stdout.fnmatch_lines(["tfperf: 1 check passed", "FAILED *::test_fails_otherwise - Valu*"])


WAIT = """
import pytest

@pytest.mark.tfperf(max_retraces=0)
@pytest.mark.parametrize("n", [1, 2])
def test_waits(tf_profile, n):
    tf_profile(0.5, retraces=0)
"""


def test_waits_for_other_runs_are_summed(pytester, monkeypatch):
    measure_with_stand_in(monkeypatch)
    pytester.makepyfile(WAIT)
    start = ProfiledItem.start
    for waits_s, said in [
        ([4.0, 1.6], ["tfperf: waited 11 s for other measurements on this machine"]),
        ([0.4], []),
    ]:

        def started(test, waits_s=waits_s):
            start(test)
            test.waits_s += waits_s

        monkeypatch.setattr(ProfiledItem, "start", started)
        done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
        assert [line for line in done.outlines if "waited" in line] == said
