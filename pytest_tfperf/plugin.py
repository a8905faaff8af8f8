"""
The pytest plugin: options, marker, fixture, verdicts, summary.

pytest loads this module in every run of every project of the environment: it imports pytest, the standard library and
the registry of metrics, and the rest when a test uses the marker or the fixture, or an option asks for it.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.errors import CaptureError, LimitError, TfperfError
from pytest_tfperf.metrics import METRICS

if TYPE_CHECKING:
    from pytest_tfperf.checks import Wanted
    from pytest_tfperf.fixture import TfProfile
    from pytest_tfperf.options import Options
    from pytest_tfperf.results import Check, TestRecord

_PROFILER: pytest.StashKey[TfProfile] = pytest.StashKey()
_CHECKS: pytest.StashKey[tuple[Check, ...]] = pytest.StashKey()
_BROKEN: pytest.StashKey[bool] = pytest.StashKey()
_OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
_ON_TERMINAL: pytest.StashKey[bool] = pytest.StashKey()

_MARKER = (
    "tfperf(max_<metric>, min_<metric>, <count>=, max_regression, warmup, steps, trace_steps, latency, tpu, target_step_time, "
    "autocluster, findings, ignore_findings): limits on the performance of the step that this test profiles; values are "
    f"numbers or strings such as '5%', '20 ms', '1.5 GiB'. Metrics: {', '.join(METRICS)}."
)
_INIS = {
    "tfperf_limits": "limits for every profiled test, one a line: max_input_bound = 5%",
    "tfperf_max_regression": "the slow-down of step_time that is tolerated, for tests that name none: 5%",
    "tfperf_warmup": "steps before the clock starts (default 10)",
    "tfperf_steps": "timed steps (default 50, and more where they are short)",
    "tfperf_trace_steps": "traced steps (default 20)",
    "tfperf_max_seconds": "the longest that the windows of a profile may take after its first step (default 30)",
    "tfperf_tpu": "the TPU generation that padding is predicted for (default v5e)",
    "tfperf_baseline_dir": "see --tfperf-baseline-dir",
    "tfperf_missing": "see --tfperf-missing",
    "tfperf_min_checks": "see --tfperf-min-checks",
    "tfperf_trace_dir": "see --tfperf-trace-dir",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini values."""
    group = parser.getgroup("tfperf", "performance of TensorFlow code (pytest-tfperf)")
    add = group.addoption
    add("--tfperf-baseline", action="store_true", help="compare with the stored baseline; what has none fails")
    add("--tfperf-update", action="store_true", help="record every test that passes, and compare nothing")
    add("--tfperf-update-new", action="store_true", help="record what is missing from the baseline, and compare nothing")
    add("--tfperf-baseline-dir", metavar="DIR", help="keep baselines under DIR (default: __tfperf__/ beside each test file)")
    add("--tfperf-missing", choices=("fail", "allow"), help="what a missing baseline entry means (default: fail)")
    add("--tfperf-only", choices=("structural", "timing"), help="ask only for what holds on every machine, or only for times")
    add("--tfperf-strict", action="store_true", help="fail whatever was asked for and not decided")
    add("--tfperf-min-checks", metavar="N", help="exit with status 1 if fewer than N limits and comparisons were decided")
    add("--tfperf-report", action="append", default=[], metavar="PATH", help="write the results to PATH (.json)")
    add("--tfperf-trace-dir", metavar="DIR", help="keep traces under DIR, as XProf and TensorBoard open them")
    add("--tfperf-disable", action="store_true", help="run each profiled step once and skip its test")
    for name, text in _INIS.items():
        if name == "tfperf_limits":
            parser.addini(name, text, type="linelist")
        else:
            parser.addini(name, text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse options that contradict each other."""
    config.addinivalue_line("markers", _MARKER)
    option = config.option
    if option.tfperf_baseline and (option.tfperf_update or option.tfperf_update_new):
        raise pytest.UsageError("--tfperf-update records and compares nothing: it cannot be given together with --tfperf-baseline")
    wrong = [path for path in option.tfperf_report if Path(path).suffix != ".json"]
    if wrong:
        raise pytest.UsageError(f"--tfperf-report {wrong[0]}: the file ending must be .json")
    if any(config.getini(name) for name in _INIS) or option.tfperf_min_checks:
        try:
            _options(config)
        except LimitError as error:
            raise pytest.UsageError(str(error)) from error
    config.stash[_ON_TERMINAL] = sys.stdout.isatty()  # later, output is captured
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Controller(config), "tfperf-controller")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A marker that cannot be understood is a collection error of its file."""
    result = yield
    for item in result if isinstance(result, list) else [result]:
        if isinstance(item, pytest.Item) and item.get_closest_marker("tfperf"):
            try:
                _wanted(item)
            except LimitError as error:
                raise collector.CollectError(f"{item.name}: @pytest.mark.tfperf: {error}") from error
    return result


@pytest.fixture
def tf_profile(request: pytest.FixtureRequest) -> Iterator[TfProfile]:
    """
    Profiles a step, as in `profile = tf_profile(step, data)`.

    Also in a loop of your own (`.steps`), in Keras (`.fit`, `.evaluate`, `.predict`), or as a trace that you bracket (`.trace`).
    """
    profiler = _new_profiler(request.node)
    yield profiler
    profiler.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A test with autocluster=True runs in a process of its own, since TensorFlow reads XLA's flags when it starts."""
    profiled = _is_marked(item) or "tf_profile" in getattr(item, "fixturenames", ())
    if item.get_closest_marker("tfperf") is None or not profiled or not _wanted(item).autocluster:
        return None
    from pytest_tfperf.own_process import can_leave, run_test

    if not can_leave(item.config):
        return None
    run_test(item, nextitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Profile a test that has the marker alone; then, if its body ended well, decide what was asked for."""
    if _PROFILER not in item.stash and not _is_marked(item):
        return (yield)
    try:
        result = (yield) if _PROFILER in item.stash else (yield from _profile_body(_new_profiler(item)))
    except Exception as error:
        from pytest_tfperf.compiler.uncompilable import explain

        explain(error)
        raise
    _decide(item)
    return result


def _profile_body(profiler: TfProfile) -> Generator[None, object, object]:
    """The test's body under a profiler of its own; what cannot be profiled in it fails without a traceback of ours."""
    ended = False
    try:
        with profiler.whole_body():
            result = yield
            ended = True
        return result
    except TfperfError as error:
        if not ended:
            raise
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    finally:
        profiler.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Results travel on the report, as plain JSON values: so they reach the controller under xdist too."""
    report = yield
    if report.when == "call" and _PROFILER in item.stash:
        report.tfperf = _record(item, report.outcome).to_json()  # type: ignore[attr-defined]
        report.tfperf_broken = _BROKEN in item.stash  # type: ignore[attr-defined]
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A test that failed for its performance alone shows as P, PERF."""
    if report.when == "call" and report.failed and getattr(report, "tfperf_broken", False):
        return "failed", "P", "PERF"
    return None


class _Controller:
    """What the process that shows the results does: collect them, write baselines and reports, sum up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._records: dict[str, dict[str, Any]] = {}
        self._lines: list[tuple[str, str | None]] = []
        self._skipped = False

    def pytest_report_header(self) -> str | None:
        """What the options ask for, if they do."""
        asked = [text for name, text in _MODES.items() if getattr(self._config.option, name)]
        if asked and _workers(self._config) > 1:
            asked.append("times are measured and not decided with more than one worker on a CPU")
        return f"tfperf: {'; '.join(asked)}" if asked else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test measured; of a test that ran several times the last."""
        data = getattr(report, "tfperf", None)
        if data is not None:
            self._records[report.nodeid] = data
        elif report.when == "teardown" and report.failed and report.nodeid in self._records:
            self._records[report.nodeid]["outcome"] = "error"
        self._skipped |= report.skipped

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write what was asked for."""
        asked = self._config.option.tfperf_report or self._config.option.tfperf_min_checks or self._config.getini("tfperf_min_checks")
        if self._config.option.collectonly or not (self._records or asked):
            return
        from pytest_tfperf.session import conclude

        whole = not self._skipped and not session.shouldstop and not session.shouldfail and _is_whole(self._config)
        self._lines, good = conclude(list(self._records.values()), _options(self._config), whole)
        if not good and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the table, what is not good, and the count."""
        if not self._records and not self._lines:
            return
        from pytest_tfperf.session import summary

        verbosity = self._config.get_verbosity()
        if verbosity >= 0:
            terminalreporter.section("tfperf")
        lines = summary(list(self._records.values()), terminalreporter._tw.fullwidth, verbosity)
        for text, colour in self._lines + lines:
            terminalreporter.write_line(text, **({colour: True} if colour else {}))


_MODES = {
    "tfperf_baseline": "comparing with the stored baseline",
    "tfperf_update": "recording a new baseline",
    "tfperf_update_new": "recording what is missing from the baseline",
    "tfperf_disable": "disabled, profiled tests are skipped",
}


def _options(config: pytest.Config) -> Options:
    """The options of this run, read once."""
    if _OPTIONS not in config.stash:
        from pytest_tfperf.options import read_options

        config.stash[_OPTIONS] = read_options(config, _workers(config))
    return config.stash[_OPTIONS]


def _workers(config: pytest.Config) -> int:
    """How many xdist workers there are; 0 without."""
    if hasattr(config, "workerinput"):
        return int(config.workerinput["workercount"])
    return len(getattr(config.option, "tx", None) or ())


def _is_whole(config: pytest.Config) -> bool:
    """Whether the run was not told to leave tests out."""
    option = config.option
    left_out = (option.keyword, option.markexpr, getattr(option, "lf", False), getattr(option, "deselect", None))
    return not any(left_out) and not any("::" in argument for argument in config.args)


def _wanted(item: pytest.Item) -> Wanted:
    """What the markers of a test and the ini values ask for; of each argument the nearest marker's."""
    from pytest_tfperf.checks import Wanted

    arguments: dict[str, Any] = dict(_options(item.config).limits)
    for marker in reversed(list(item.iter_markers("tfperf"))):
        if marker.args:
            raise LimitError(f"takes keyword arguments only, but was given {marker.args[0]!r}; e.g. max_input_bound='5%'")
        arguments |= marker.kwargs
    return Wanted.read(arguments)


def _is_marked(item: pytest.Item) -> bool:
    """Whether a test carries the marker itself; on a module or class it gives limits alone."""
    return any(mark.name == "tfperf" for mark in item.own_markers)


def _new_profiler(item: pytest.Item) -> TfProfile:
    from pytest_tfperf.announce import announcer
    from pytest_tfperf.fixture import TfProfile
    from pytest_tfperf.own_process import other_flags
    from pytest_tfperf.profiles import Settings

    options = _options(item.config)
    try:
        wanted = _wanted(item)
        notes = other_flags(item.config) if wanted.autocluster else ()
        keep = options.trace_dir / _slug(item.nodeid) if options.trace_dir else None
        settings = Settings(
            wanted=wanted,
            plan=options.plan,
            keep=keep,
            scratch=getattr(item.config.option, "tfperf_own_process", None),  # removed even if this process crashes
            disabled=options.disable,
            notes=notes,
            announce=announcer(item, item.config.stash[_ON_TERMINAL]),
        )
        item.stash[_PROFILER] = TfProfile(settings)
    except (CaptureError, LimitError) as error:
        pytest.fail(str(error), pytrace=False)
    return item.stash[_PROFILER]


def _decide(item: pytest.Item) -> None:
    """Raise one failure with every check that fails this test."""
    from pytest_tfperf.session import decide, fails

    options = _options(item.config)
    checks = decide(item.stash[_PROFILER].results(), _wanted(item), _file(item), _key(item), options)
    item.stash[_CHECKS] = tuple(checks)
    broken = [check for check in checks if fails(check, options)]
    if broken:
        item.stash[_BROKEN] = True
        pytest.fail("\n".join(f"{f'[{c.profile}] ' if c.profile else ''}{c.verdict.value}: {c.message}" for c in broken), pytrace=False)


def _record(item: pytest.Item, outcome: str) -> TestRecord:
    from pytest_tfperf.capture.environment import describe
    from pytest_tfperf.results import TestRecord

    return TestRecord(
        nodeid=item.nodeid, file=_file(item), key=_key(item), outcome=outcome,
        profiles=tuple(profile for profile, _ in item.stash[_PROFILER].results()),
        checks=item.stash.get(_CHECKS, ()),
        environment=describe(),
    )  # fmt: skip


def _file(item: pytest.Item) -> str:
    """The test's file relative to the rootdir, with forward slashes."""
    return Path(os.path.relpath(item.path, item.config.rootpath)).as_posix()


def _key(item: pytest.Item) -> str:
    """The test's name in its file: the names below the module, which xdist does not change."""
    names = [node.name for node in item.listchain() if not isinstance(node, (pytest.Session, pytest.Directory, pytest.File))]
    return "::".join(names)


def _slug(nodeid: str) -> str:
    """A node id as a folder name."""
    text = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in nodeid)
    return text if len(text) <= 120 else f"{text[:110]}-{zlib.crc32(nodeid.encode()):08x}"
