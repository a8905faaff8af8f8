"""Workers of pytest-xdist, and what the controller makes of their reports."""

import os
from copy import deepcopy
from itertools import chain, zip_longest
from types import SimpleNamespace

import pytest
from helpers.paths import TESTS
from helpers.reruns import AGAIN

from pytest_tfperf.plugin import controller
from pytest_tfperf.plugin.controller import Controller
from pytest_tfperf.plugin.workers import n_workers


def config(**options):
    return SimpleNamespace(option=SimpleNamespace(**{"dist": "load", **options}))


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"tx": ["popen"] * 3}, 3),
        ({"tx": ["3*popen"]}, 3),
        ({"tx": ["2*popen//python=python3.12", "ssh=host"]}, 3),
        ({"tx": ["popen//chdir=a*b"]}, 1),
        ({"tx": []}, 0),
        ({"tx": None}, 0),
        ({"tx": ["popen"] * 3, "dist": "no"}, 0),
    ],
)
def test_workers_are_counted_before_they_start(options, number):
    assert n_workers(config(**options)) == number


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


@pytest.mark.parametrize(
    ("n_tx", "asked", "modes", "gpus", "header"),
    [
        (0, False, {}, (), None),
        (0, True, {}, (), None),
        (2, False, {}, ("0",), None),
        (1, True, {}, ("0",), None),
        (2, True, {}, (), f"tfperf: {SHARED}"),
        (0, True, {"tfperf_baseline": True}, (), "tfperf: comparing with the stored baseline"),
        (
            3,
            True,
            {"tfperf_baseline": True},
            (),
            f"tfperf: comparing with the stored baseline; {SHARED}",
        ),
        (2, True, {}, ("0",), "tfperf: 1 GPU is shared out among 2 workers"),
        (2, True, {}, ("0", "1"), "tfperf: 2 GPUs are shared out among 2 workers"),
    ],
)
def test_the_header_says_what_workers_mean(monkeypatch, n_tx, asked, modes, gpus, header):
    monkeypatch.setattr(controller, "visible_gpus", lambda: gpus)
    run = config(tx=["popen"] * n_tx, **{**MODES, **modes})
    assert Controller(run, lambda _: None, asked).pytest_report_header() == header


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
        found.tfperf = {"measured": measured, "outcome": outcome}
    return found


FIRST = [report("setup"), report("call", "rerun", "first"), report("teardown")]


@pytest.mark.parametrize(
    ("reports", "kept"),
    [
        (
            [report("setup"), report("call", "passed", "first"), report("teardown")],
            ("first", "passed"),
        ),
        (
            [*FIRST, report("setup"), report("call", "passed", "second"), report("teardown")],
            ("second", "passed"),
        ),
        (
            [*FIRST, report("setup"), report("call", "failed"), report("teardown")],
            None,
        ),  # before it profiled anything
        ([*FIRST, report("setup", "failed"), report("teardown")], None),
        (
            [report("setup"), report("call", "passed", "first"), report("teardown", "failed")],
            ("first", "error"),
        ),
        (
            [report("setup"), report("call", "passed", "first"), report("???", "failed")],
            ("first", "error"),
        ),  # its worker died then
    ],
)
def test_of_a_test_that_runs_again_the_last_run_counts(reports, kept):
    plugin = Controller(config(), lambda _: None, True)
    for each in reports:
        plugin.pytest_runtest_logreport(each)
    found = [(data["measured"], data["outcome"]) for data in plugin.records()]
    assert found == ([] if kept is None else [kept])


GOOD = [report("setup"), report("call", "passed", "good"), report("teardown")]
BAD = [report("setup"), report("call", "failed", "bad"), report("teardown")]
BROKEN = [report("setup"), report("call", "passed", "broken"), report("teardown", "failed")]
DIES = [report("setup"), report("???", "failed")]
LATER = [report("setup"), report("call", "passed", "later"), report("teardown")]


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        (GOOD, LATER, ("later", "passed")),
        (GOOD, BAD, ("bad", "failed")),
        (BAD, GOOD, ("bad", "failed")),
        (BROKEN, GOOD, ("broken", "error")),
        (DIES, GOOD, ("good", "error")),
        (GOOD, DIES, ("good", "error")),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_where_each_worker_runs_a_test_it_has_failed_if_it_fails_in_one(one, other, kept, together):
    plugin = Controller(config(dist="each"), lambda _: None, True)
    first, second = (
        [(each, worker) for each in deepcopy(reports)]
        for reports, worker in ((one, "gw0"), (other, "gw1"))
    )
    for each, worker in (
        filter(None, chain(*zip_longest(first, second))) if together else [*first, *second]
    ):
        each.node = worker
        plugin.pytest_runtest_logreport(each)
    assert [(data["measured"], data["outcome"]) for data in plugin.records()] == [kept]


@pytest.mark.parametrize(
    ("each", "left_out"),
    [
        (report("setup"), False),
        (report("call", "failed"), False),
        (report("teardown", "failed"), False),
        (report("setup", "failed"), True),
        (report("setup", "skipped"), True),
        (report("call", "skipped"), True),
        (report("???", "failed"), True),  # xdist's of a worker that died
    ],
)
def test_a_test_that_did_not_come_to_its_call_is_not_one_whose_baseline_is_unused(each, left_out):
    plugin = Controller(config(), lambda _: None, True)
    plugin.pytest_runtest_logreport(each)
    assert plugin._left_out is left_out


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
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "100")
    pytester.makeconftest(AGAIN)
    pytester.makepyfile(GETS_BETTER)
    done = pytester.runpytest_subprocess("-p", "helpers.fake_profiler", "-p", "no:cacheprovider")
    assert "1 failed, 1 passed, 2 rerun" in done.stdout.str()
    assert "PERF" not in done.stdout.str()
    done.stdout.fnmatch_lines(["tfperf: 1 check passed", "FAILED *::test_fails_otherwise - Valu*"])
