"""Child processes of a paired run that do nothing but answer as a test says; no process runs."""

from collections import deque
from types import SimpleNamespace

import pytest
from helpers.builders import LAPTOP, profile

import pytest_tfperf.plugin.conclude
import pytest_tfperf.plugin.paired_run  # noqa: F401 - pytester unloads what its runs load first
from pytest_tfperf.errors import PairedError
from pytest_tfperf.turns import pairs as processes
from pytest_tfperf.turns import versions
from pytest_tfperf.turns.messages import Ended, Profiled
from pytest_tfperf.turns.pytest_child import ChildProcess
from pytest_tfperf.turns.worktree import Tree


class FakeChild:
    """
    A `ChildProcess` whose tests all pass.

    `collected` are node keys; `profiles` are those that each test makes, without turns.
    """

    is_awaited = False
    pid = 0

    def __init__(self, run, collected, profiles, errors):
        self.label, self.pytest_run = run.label, run
        self.collected, self.profiled = frozenset(collected), tuple(collected)
        self.reports, self.warnings, self.ran, self.checks = [], [], [], {}
        self.has_ended = False
        self._profiles, self._errors, self._events = profiles, errors, deque()

    def await_collected(self, test=None):
        pass

    def require(self, test):
        ChildProcess.require(self, test)

    def errors_of(self, test):
        return self._errors

    def run(self, test, following, part=None):
        self.ran.append((test, following))
        profiles, setting = tuple(self._profiles), LAPTOP["setting"]
        self._events.append(Profiled(profiles=profiles, tolerance=None, setting=setting))

    def send(self, judged):
        test = self.ran[-1][0]
        self.checks[test] = judged.checks
        self.reports = [_report(test, phase) for phase in ("setup", "call", "teardown")]
        self._events.append(Ended())

    def next_event(self, seconds=None):
        return self._events.popleft()

    def move_to(self, cores):
        pass

    def output(self):
        return ""

    def dismiss(self):
        pass

    def close(self):
        self.has_ended = True

    interrupt = kill = close


def _report(test, phase):
    report = pytest.TestReport(
        nodeid=test, location=("", 0, ""), keywords={}, outcome="passed", longrepr=None, when=phase
    )
    return {**report._to_json(), "$report_type": "TestReport"}


class FakeRun:
    """
    A run of pytest in this process, with `--tfperf-against`, whose child processes are fakes.

    `tree` and `ref` are the node keys that each version collects; a ref that is a text cannot
    start, for that reason. `against` are the arguments that name what is compared with.
    """

    def __init__(self, pytester, monkeypatch):
        self._pytester = pytester
        self.children = {}
        self.has_started = False
        self.tree, self.ref = [], []
        self.against = ("--tfperf-against=main",)
        self.errors = {"tree": "", "ref": ""}
        self.profiles = {"tree": [profile(retraces=0)], "ref": [profile(retraces=0)]}
        root = pytester.path.resolve()
        self.files = Tree(
            root=root,
            path=root.parent / "ref" / root.name,
            commit="c" * 40,
            ref="main",
            same=False,
            listing=None,
        )
        monkeypatch.setattr(processes, "start_pytest", self._start)
        monkeypatch.setattr(versions, "write_tree", self._write_tree)
        cleanup = SimpleNamespace(folder=root.parent, close=lambda: None)
        monkeypatch.setattr(processes, "Cleanup", lambda: cleanup)

    def _write_tree(self, *_):
        self.has_started = True
        return self.files

    def _start(self, run, _):
        version = "tree" if run.task.root == str(self.files.root) and run.python is None else "ref"
        collected = getattr(self, version)
        if isinstance(collected, str):
            raise PairedError(collected)
        child = FakeChild(run, collected, self.profiles[version], self.errors[version])
        self.children.setdefault(version, []).append(child)
        return child

    def __call__(self, *arguments):
        return self._pytester.runpytest_inprocess(
            "-p", "tfperf", "-p", "no:cacheprovider", *self.against, *arguments
        )

    def checks(self, test):
        """Return verdict and message of each check that the working tree's process was sent."""
        return {
            (check.profile, check.metric): (check.verdict, check.message)
            for check in self.children["tree"][0].checks[test]
        }
