"""
Projects whose stored baselines are damaged, and what must hold of whatever pytest and the command make of them.

    Baselines(folder).take([("structure", raw), ("timing", raw), ...])

Every test of one run of pytest in this process has a baseline of its own, so that hundreds of mutants cost one start. A
baseline gives checks, or a check of one sentence that is UNKNOWN. It is replaced as a whole, or stays as it is.
"""

import contextlib
import io
import json
import shutil
from dataclasses import replace

import pytest
from helpers.builders import LAPTOP, record_of, run_of, value
from helpers.commands import (
    GOOD,
    USAGE,
    check_numbers,
    check_terminal,
    contents,
    ran,
    strict_json,
)
from helpers.sample_run import TRAIN

from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place, read_file
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.machine.locks import measuring_anyway
from pytest_tfperf.plugin import conclude, decide, items
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.report.failure import failure_message
from pytest_tfperf.report.run_file import write_run
from pytest_tfperf.text import for_terminal
from pytest_tfperf.values import Column, Table

KINDS = ("structure", "timing")
TEST = "def test_step(tf_profile):\n    tf_profile()\n"
PROFILE = replace(
    TRAIN,
    metrics={
        **TRAIN.metrics,
        **{
            name: value(name, n)
            for name, n in (("graph_ops", 4), ("python_calls", 120), ("input_python_stages", 1))
        },
    },
    tables={
        "graph": Table.of(
            "graph",
            [Column("type", "op"), Column("after", "after", "count")],
            [("MatMul", 3), ("Add", 1)],
        ),
        "pipeline": Table.of(
            "pipeline", [Column("stage", "stage")], [("Range",), ("Map at model.py:3",)]
        ),
        "python_calls": Table.of(
            "calls",
            [
                Column("function", "function"),
                Column("calls", "calls", "count"),
                Column("self_s", "self", "s"),
            ],
            [("model.py:step", 2, 0.001)],
        ),
    },
)


class FakeProfile:
    """A `tf_profile` that gives always the same profile."""

    def environment(self):
        return LAPTOP

    def __init__(self, settings):
        self._limits, self._called = settings.wanted.limits, False

    def __call__(self):
        self._called = True

    @contextlib.contextmanager
    def whole_body(self):
        yield

    def results(self):
        return [(PROFILE, self._limits)] if self._called else []

    def end(self):
        pass

    def unmade(self):
        return []

    def close(self):
        pass


class Reports:
    """A plugin that keeps the message of each test; it is empty if the test passed."""

    def __init__(self):
        self.of_test = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            self.of_test[report.nodeid] = str(report.longrepr or "")

    def pytest_internalerror(self, excrepr):
        raise AssertionError(f"pytest ended with {excrepr}")


def stored_baselines(folder):
    """The bytes of the structure file and of the timing file of `test_model.py`, with seven runs."""
    place = Place.of("test_model.py", folder, None)
    runs = [
        run_of(_tests(step_time), second=n, commit=f"c{n}")
        for n, step_time in enumerate((0.0125, 0.0126, 0.0124, 0.0125, 0.0127, 0.0125, 0.0126))
    ]
    record({place: runs}, only_new=False, also_noisy=True)
    return {
        "structure": place.structure.read_bytes(),
        "timing": place.timing_file(LAPTOP["machine"]).read_bytes(),
    }


def _tests(step_time):
    time = replace(PROFILE.metrics["step_time"], number=step_time)
    return record_of(replace(PROFILE, metrics={**PROFILE.metrics, "step_time": time}))


class Baselines:
    """A project of many test files, each with a damaged baseline."""

    def __init__(self, folder):
        self._outer, self._root = folder, folder / "project"
        (folder / "made").mkdir()
        self.seeds = stored_baselines(folder / "made")
        shutil.rmtree(folder / "made")
        self.n_read = 0
        """Mutants that were read."""

    def take(self, mutants):
        """Give each mutant to a test; return the faults as (number of the mutant, text)."""
        try:
            return self._take(mutants)
        except Exception as error:  # of the whole run of pytest
            if len(mutants) == 1:
                return [(0, f"{type(error).__name__}: {error}")]
        finally:
            shutil.rmtree(self._root, ignore_errors=True)
        half = len(mutants) // 2  # halves find the mutant
        others = [(half + number, text) for number, text in self.take(mutants[half:])]
        return [*self.take(mutants[:half]), *others]

    def _take(self, mutants):
        self._root.mkdir()
        (self._root / "pytest.ini").write_text("[pytest]\n")
        for number, (kind, raw) in enumerate(mutants):
            self._make(self._name(number), kind, raw)
        before = contents(self._outer)
        faults = [*self._compared(len(mutants), before), *self._updated(len(mutants), before)]
        for number in range(len(mutants)):
            try:
                self._accepted(self._name(number))
            except Exception as error:
                faults.append((number, f"accept: {type(error).__name__}: {error}"))
        return faults

    def compare(self, kind, raw):
        """Compare with one baseline, and accept a run over it: much less than a run of pytest."""
        self._root.mkdir()
        try:
            self._make("one", kind, raw)
            file, options = "one/test_model.py", Options(rootdir=self._root, baseline=True)
            checks = decide.decide(
                [(PROFILE, ())], Wanted.read({}), file, "test_step", options, LAPTOP
            )
            assert checks
            json.dumps([check.to_json() for check in checks], allow_nan=False)
            check_terminal(for_terminal(failure_message("test_step", checks)))
            self._accepted("one")
        finally:
            shutil.rmtree(self._root)

    @staticmethod
    def _name(number):
        return f"t{number:03}"

    def _make(self, name, kind, raw):
        (self._root / name).mkdir()
        (self._root / name / "test_model.py").write_text(TEST)
        place = Place.of(f"{name}/test_model.py", self._root, None)
        place.timing.mkdir(parents=True)
        for key, path in (
            ("structure", place.structure),
            ("timing", place.timing_file(LAPTOP["machine"])),
        ):
            path.write_bytes(raw if key == kind else self.seeds[key])

    def _compared(self, n_mutants, before):
        report = self._root / "run.json"
        messages, text = self._pytest("--tfperf-baseline", f"--tfperf-report={report}")
        tests = {test["file"]: test for test in strict_json(report.read_text("utf-8"))["tests"]}
        report.unlink()
        assert contents(self._outer) == before, "a comparison changed a file"
        check_terminal(text)
        for number in range(n_mutants):
            file = f"{self._name(number)}/test_model.py"
            message = messages.get(f"{file}::test_step")
            try:
                self.n_read += self._decided(tests[file], message)
            except (AssertionError, KeyError) as error:
                yield number, f"--tfperf-baseline: {type(error).__name__}: {error}\n{message}"

    def _decided(self, test, message):
        """Check what became of a test; return whether its baseline was read."""
        assert test["checks"], "no check"
        assert test["outcome"] in ("passed", "failed")
        lines = (message or "").splitlines()
        assert (lines == []) == (test["outcome"] == "passed"), "failed without a message"
        assert not lines or lines[0].startswith("test_step"), "an error of the plugin"
        check_terminal(message or "")
        is_unread = any(
            one["kind"] == one["metric"] == "baseline" and one["verdict"] == "UNKNOWN"
            for one in test["checks"]
        )
        if not is_unread:
            check_numbers(message or "")
        return not is_unread

    def _updated(self, n_mutants, before):
        _, text = self._pytest("--tfperf-update", "--tfperf-record-noisy")
        check_terminal(text)
        written = contents(self._outer)
        for number in range(n_mutants):
            folder = self._root / self._name(number)
            changed = [
                path
                for path, content in written.items()
                if folder in path.parents and content != before.get(path)
            ]
            try:
                self._sound(changed)
            except Exception as error:
                yield number, f"--tfperf-update: {type(error).__name__}: {error}"
        for path, content in written.items():
            if path not in before:
                path.unlink()
            elif content != before[path]:
                path.write_bytes(before[path])

    def _sound(self, changed):
        for path in changed:
            assert path.parent.name in ("__tfperf__", "timing"), path
            strict_json(path.read_text("utf-8"))
            read_file(path)

    def _pytest(self, *options):
        """The message of each test, and all that is printed."""
        reports, out = Reports(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            patch.delenv("PYTEST_ADDOPTS", raising=False)
            patch.setattr(items, "TfProfile", FakeProfile)
            patch.setattr(items, "_exclusive", lambda *_: measuring_anyway)
            patch.setattr(items, "has_accelerators", lambda: False)
            patch.setattr(items, "profiled_again", lambda *_: {PROFILE.name: PROFILE})
            patch.setattr(conclude, "commit", lambda _: "c0ffee")
            patch.setattr(conclude, "branch", lambda _: "main")
            status = pytest.main(
                ["-q", "-p", "pytest_tfperf.plugin.hooks", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--assert=plain",
                 "--import-mode=importlib", "-c", str(self._root / "pytest.ini"), *options, str(self._root)],
                plugins=[reports],
            )  # fmt: skip
        assert status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), out.getvalue()
        return reports.of_test, out.getvalue()

    def _accepted(self, name):
        run = self._outer / "good.json"
        write_run(run_of(record_of(PROFILE, file=f"{name}/test_model.py")), run)
        before = contents(self._root)
        status, out, err = ran("accept", run, "--rootdir", self._root, "--tfperf-record-noisy")
        check_terminal(out + err)
        check_numbers(out)
        run.unlink()
        changed = [
            path for path, content in contents(self._root).items() if content != before.get(path)
        ]
        assert status != USAGE or err.startswith("tfperf: baseline "), err
        assert status == GOOD or not changed, "what was not accepted changed a file"
        self._sound(changed)
