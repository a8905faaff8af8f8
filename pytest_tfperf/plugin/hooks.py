"""
The pytest plugin: options, marker, fixture, and the hooks that profile and judge a test.

pytest loads this module in every run of every project of the environment. So it imports only
pytest, the standard library, the errors and the table of options, and the rest when a test uses
the marker or the fixture, or an option is set.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.errors import CaptureError, LimitError, TfperfError
from pytest_tfperf.markers import is_marked, is_profiled, note_deselected
from pytest_tfperf.plugin import registry
from pytest_tfperf.plugin.options import TABLE, Options, add_options, unknown_names
from pytest_tfperf.plugin.workers import is_distributed, is_worker, share_cpu

if TYPE_CHECKING:
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.plugin.profiled_item import ProfiledItem

_RUN: pytest.StashKey[_Run] = pytest.StashKey()
_TEST: pytest.StashKey[ProfiledItem] = pytest.StashKey()
_INTERNALS = ("pytest_tfperf", "contextlib")

_MARKER = (
    "tfperf(max_<metric>=, min_<metric>=, ...): limit the performance of the step that the test "
    "profiles, as in tfperf(max_input_bound='5%', max_retraces=0). `tfperf metrics` lists the "
    "metrics. All arguments: https://pytest-tfperf.github.io/pytest-tfperf/reference/marker.html"
)

_RECORD_NOISY = (
    "--tfperf-record-noisy has no effect, since the times of busy machines are recorded anyway, "
    "with how busy they were; version 0.4 removes it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini values."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hook that projects may implement."""
    pluginmanager.add_hookspecs(registry)


def pytest_configure(config: pytest.Config) -> None:
    """Make the registry of metrics, declare the marker, and check the options."""
    run = config.stash[_RUN] = _Run(config)
    names = run.registry.own if config.option.markers else ()
    custom = f" Custom metrics: {', '.join(names)}." if names else ""
    config.addinivalue_line("markers", f"{_MARKER}{custom}")
    used = any(option.is_given(config) for option in TABLE.values())
    if used or unknown_names(config):
        try:
            _ = run.options
        except LimitError as error:
            raise pytest.UsageError(str(error)) from error
    if config.option.tfperf_record_noisy and not is_worker(config):
        from pytest_tfperf.errors import PytestTfperfDeprecationWarning

        config.issue_config_time_warning(PytestTfperfDeprecationWarning(_RECORD_NOISY), 2)
    if used or is_distributed(config):
        run.prepare(used)
    if config.option.tfperf_against or config.option.tfperf_against_python:
        from pytest_tfperf.turns.names import COORDINATOR

        if not config.pluginmanager.is_blocked(COORDINATOR):  # its child processes block it
            from pytest_tfperf.plugin.paired_run import PairedRun

            paired = PairedRun(config, run.options, run.on_terminal, _has_own_flags)
            config.pluginmanager.register(paired, COORDINATOR)


class _Run:
    """What holds for all tests of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        has_terminal = config.pluginmanager.has_plugin("terminal")
        self.on_terminal = has_terminal and sys.stdout.isatty()  # output is captured later
        self.registry = registry.new_registry(config)
        self.is_prepared = False

    @cached_property
    def options(self) -> Options:
        """The options. Raises LimitError."""
        from pytest_tfperf.plugin.option_values import read_options

        return read_options(self._config, self.registry.rows)

    def prepare(self, used: bool = False) -> None:
        """
        Prepare this process once: a worker of pytest-xdist gets its share of the GPUs, which
        TensorFlow must know when it starts, or runs profiled tests alone; any other one collects
        the results and writes the summary.
        """
        if self.is_prepared:
            return
        self.is_prepared = True
        if is_worker(self._config):
            from pytest_tfperf.machine.gpu_share import spread_gpus

            spread_gpus()
            share_cpu(self._config)
        else:
            from pytest_tfperf.plugin.controller import Controller
            from pytest_tfperf.turns.names import CONTROLLER

            controller = Controller(self._config, lambda: self.options, used)
            self._config.pluginmanager.register(controller, CONTROLLER)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Read the tests' markers; a wrong one, or too old a TensorFlow, is a collection error."""
    result = yield
    for item in result if isinstance(result, list) else [result]:
        if not isinstance(item, pytest.Item):
            continue
        if is_profiled(item):
            from pytest_tfperf.frameworks.tensorflow import installed_version, too_old

            if why := too_old(installed_version()):
                raise collector.CollectError(why)
        if item.get_closest_marker("tfperf"):
            try:
                _test_of(item).read_marker()
            except LimitError as error:
                raise collector.CollectError(
                    f"{item.name}: @pytest.mark.tfperf: {error}"
                ) from error
    return result


def pytest_itemcollected(item: pytest.Item) -> None:
    """Prepare for a profiled test before the first one runs, be it of a unittest.TestCase."""
    if is_profiled(item):
        item.config.stash[_RUN].prepare()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note that the run has not all tests, be it by an option of pytest or of another plugin."""
    note_deselected(items)


@pytest.fixture
def tf_profile(request: pytest.FixtureRequest) -> Iterator[TfProfile]:
    """
    Profile a step with TensorFlow's profiler: `profile = tf_profile(step, data)`.

    Every metric is an attribute of the profile. `.steps` profiles a loop of your own; `.fit`,
    `.evaluate` and `.predict` profile a Keras loop; `.trace` traces steps that you bracket.
    `.compare` runs variants of a step alternately. @pytest.mark.tfperf sets limits.
    """
    profiler = _new_profiler(request.node)
    yield profiler
    profiler.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with autocluster=True in its own process: XLA reads its flags at the start."""
    if not is_profiled(item) or not _has_own_flags(item):
        return None
    from pytest_tfperf.turns.own_flags import can_isolate, run_test

    if not can_isolate(item.config):
        return None
    run_test(item, nextitem)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the results of an earlier run of the same test."""
    if _is_started(item):
        del item.stash[_TEST]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Profile a test that has only the marker; decide the checks of any test that passed."""
    alone = _new_profiler(item) if is_marked(item) and not _is_started(item) else None
    try:
        result = (yield from _profile_body(alone)) if alone else (yield)
        # private: what a test of unittest raised (_pytest/unittest.py, pytest 8 and 9)
        if _is_started(item) and not getattr(item, "_excinfo", None):
            _decide(item)
    except Exception as error:
        if not _is_started(item):
            raise
        from pytest_tfperf.compiler.step_graph import explain

        explain(error)
        raise
    finally:
        if alone:
            alone.close()
    return result


def _profile_body(profiler: TfProfile) -> Generator[None, object, object]:
    """Run the body of a test under its own profiler; a body without a step fails the test."""
    began = ended = False
    try:
        with profiler.whole_body():
            began = True
            result = yield
            ended = True
        return result
    except TfperfError as error:
        if began and not ended:
            raise
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the results on the report, as JSON values, which pytest-xdist can send."""
    # without pytest's terminal, which a program may switch off, there are no such options
    style = item.config.getoption("tbstyle", "auto")
    is_full = item.config.getoption("fulltrace", False) or style in ("long", "native")
    if call.excinfo and not is_full:
        _hide_internals(call.excinfo.value)
    report = yield
    if report.when == "call" and _is_started(item):
        item.stash[_TEST].report(report)
    elif report.when == "call" and report.passed and item.get_closest_marker("tfperf"):
        from pytest_tfperf.checks.arguments import OPTION_NAMES, REGRESSIONS

        given = {name for mark in item.iter_markers("tfperf") for name in mark.kwargs}
        report.tfperf_unchecked = bool(given - OPTION_NAMES.difference(REGRESSIONS))  # type: ignore[attr-defined]
        item.config.stash[_RUN].prepare()
    return report


def _hide_internals(error: BaseException) -> None:
    """Leave out what raised and caused an error of this package, which says all in a sentence."""
    if not isinstance(error, TfperfError):
        return
    if error.__cause__ is not None:
        error.__cause__ = None  # which hides the context, too
    last = frame = error.__traceback__
    while frame is not None:
        module = str(frame.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _INTERNALS:
            last = frame
        frame = frame.tb_next
    if last is not None:
        last.tb_next = None


def pytest_unconfigure(config: pytest.Config) -> None:
    """
    Free the iterators of stopped Keras loops, whose models refer to them in a cycle: at the exit
    their destructor would wait for ever for Python functions of the input pipeline.
    """
    if _RUN in config.stash and config.stash[_RUN].is_prepared:
        gc.collect()


def pytest_report_teststatus(
    report: pytest.TestReport,
) -> tuple[str, str, str | tuple[str, dict[str, bool]]] | None:
    """Show a test that failed only for its performance as P, and an undecided one as I."""
    if report.when != "call":
        return None
    if report.failed and getattr(report, "tfperf_broken", False):
        return "failed", "P", "PERF"
    undecided = getattr(report, "tfperf_undecided", None)
    if not report.passed or not undecided or hasattr(report, "wasxfail"):  # as XPASS
        return None
    return "passed", "I", (undecided, {"yellow": True})


def _test_of(item: pytest.Item) -> ProfiledItem:
    """Return the state of a test, made when its marker is first read."""
    if _TEST not in item.stash:
        from pytest_tfperf.plugin.profiled_item import ProfiledItem

        run = item.config.stash[_RUN]
        item.stash[_TEST] = ProfiledItem(item, run.options, run.registry, run.on_terminal)
    return item.stash[_TEST]


def _is_started(item: pytest.Item) -> bool:
    """Return whether a test has a profiler."""
    return _TEST in item.stash and item.stash[_TEST].is_started


def _has_own_flags(item: pytest.Item) -> bool:
    """Return whether a test needs a process with other flags of XLA."""
    with suppress(LimitError):  # of a marker that was added after the collection; the test fails
        return (
            item.get_closest_marker("tfperf") is not None
            and _test_of(item).read_marker().autocluster
        )
    return False


def _new_profiler(item: pytest.Item) -> TfProfile:
    """Make the profiler of a test."""
    from pytest_tfperf.plugin.fixture import TfProfile

    item.config.stash[_RUN].prepare()  # the first test may ask for the fixture by its name
    if _is_started(item):  # for its marker alone, and the body has asked for the fixture
        del item.stash[_TEST]
    test = _test_of(item)
    try:
        test.start()
        profiler = TfProfile(test)
    except (CaptureError, LimitError) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    test.is_started = True
    return profiler


def _decide(item: pytest.Item) -> None:
    """Decide the checks of a test, and fail it with one message if any of them fails it."""
    from pytest_tfperf.plugin.decide import checks_of
    from pytest_tfperf.plugin.profiled_item import fails

    test = item.stash[_TEST]  # a name that --pdb shows
    try:
        test.read_marker()  # the test may have added one
    except LimitError as error:
        pytest.fail(f"{item.name}: a marker tfperf that was added: {error}", pytrace=False)
    test.checks = tuple(checks_of(test))
    if test.options.try_failed or test.options.try_all:
        from pytest_tfperf.plugin.remedies import with_remedies

        test.checks = with_remedies(test, test.checks)
    broken = [check for check in test.checks if fails(check, test.options)]
    if broken:
        test.is_broken = True
        from pytest_tfperf.report.failure import failure_message
        from pytest_tfperf.text import for_terminal

        pytest.fail(for_terminal(failure_message(item.name, broken)), pytrace=False)
