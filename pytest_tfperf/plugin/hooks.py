"""
The pytest plugin: options, marker, fixture, and the hooks that profile and judge a test.

pytest loads this module in every run of every project of the environment. So it imports only
pytest, the standard library, the errors and the table of options, and the rest when a test uses
the marker or the fixture, or an option is set.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.errors import LimitError, TfperfError
from pytest_tfperf.markers import is_marked, is_profiled
from pytest_tfperf.plugin.options import TABLE, Options, add_options, unknown_names
from pytest_tfperf.plugin.registry import Registry, new_registry
from pytest_tfperf.plugin.workers import is_distributed, is_worker, share_cpu

if TYPE_CHECKING:
    from pytest_tfperf.checks.arguments import Wanted
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.results import Check
    from pytest_tfperf.runs import ProfiledTest

_PROFILER: pytest.StashKey[TfProfile] = pytest.StashKey()
_WANTED: pytest.StashKey[Wanted] = pytest.StashKey()
_CHECKS: pytest.StashKey[tuple[Check, ...]] = pytest.StashKey()
_BROKEN: pytest.StashKey[bool] = pytest.StashKey()
_OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
_ON_TERMINAL: pytest.StashKey[bool] = pytest.StashKey()
_REGISTRY: pytest.StashKey[Registry] = pytest.StashKey()
_PREPARED: pytest.StashKey[bool] = pytest.StashKey()

_MARKER = (
    "tfperf(max_<metric>=, min_<metric>=, ...): limit the performance of the step that the test "
    "profiles, as in tfperf(max_input_bound='5%', max_retraces=0). `tfperf metrics` lists the "
    "metrics. All arguments: https://pytest-tfperf.github.io/pytest-tfperf/reference/marker.html"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini values."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that projects may implement."""
    from pytest_tfperf.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Hand a run over to `tfperf bisect`, before anything of the project is loaded."""
    if early_config.known_args_namespace.tfperf_exit == "bisect":
        from pytest_tfperf.report.bisect_status import run_for_option

        sys.exit(run_for_option(early_config.invocation_params.args))
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Make the registry of metrics, declare the marker, and check the options."""
    config.stash[_ON_TERMINAL] = sys.stdout.isatty()  # output is captured later
    config.stash[_REGISTRY] = new_registry(config)
    names = config.stash[_REGISTRY].own if config.option.markers else ()
    custom = f" Custom metrics: {', '.join(names)}." if names else ""
    config.addinivalue_line("markers", f"{_MARKER}{custom}")
    used = any(option.is_given(config) for option in TABLE.values())
    if used or unknown_names(config):
        try:
            _options(config)
        except LimitError as error:
            raise pytest.UsageError(str(error)) from error
    if used or is_distributed(config):
        _prepare(config, used)
    if config.option.tfperf_against or config.option.tfperf_against_python:
        from pytest_tfperf.turns.names import COORDINATOR

        if not config.pluginmanager.is_blocked(COORDINATOR):  # its child processes block it
            from pytest_tfperf.plugin.paired_run import coordinate

            coordinate(config, _options(config), config.stash[_ON_TERMINAL], _has_own_flags)


def _prepare(config: pytest.Config, used: bool) -> None:
    """
    Prepare this process for a run with profiled tests, once.

    A worker of pytest-xdist sees its share of the GPUs, which TensorFlow must know when it starts;
    without GPUs it runs profiled tests alone. Any other process collects the results and writes the
    summary.
    """
    if _PREPARED in config.stash:
        return
    config.stash[_PREPARED] = True
    if is_worker(config):
        from pytest_tfperf.machine.gpu_share import spread_gpus

        spread_gpus()
        share_cpu(config)
    else:
        from pytest_tfperf.plugin.controller import Controller
        from pytest_tfperf.turns.names import CONTROLLER

        config.pluginmanager.register(Controller(config, _options, used), CONTROLLER)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """
    Read the markers of tests.

    One that cannot be understood is a collection error, and so is a TensorFlow that is too old.
    """
    result = yield
    for item in result if isinstance(result, list) else [result]:
        if not isinstance(item, pytest.Item):
            continue
        if is_profiled(item):
            from pytest_tfperf.frameworks.tensorflow import installed_version, too_old

            if why := too_old(installed_version()):
                raise collector.CollectError(why)
            _prepare(item.config, used=False)
        if item.get_closest_marker("tfperf"):
            try:
                _wanted(item)
            except LimitError as error:
                raise collector.CollectError(
                    f"{item.name}: @pytest.mark.tfperf: {error}"
                ) from error
    return result


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
    keys: tuple[pytest.StashKey[Any], ...] = (_PROFILER, _CHECKS, _BROKEN)
    for key in keys:
        if key in item.stash:
            del item.stash[key]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Profile a test that has only the marker; decide the checks of any test that passed."""
    alone = _new_profiler(item) if _PROFILER not in item.stash and is_marked(item) else None
    try:
        result = (yield from _profile_body(alone)) if alone else (yield)
        if _PROFILER in item.stash:  # the test may have asked for the fixture by its name
            _decide(item)
    except Exception as error:
        if _PROFILER not in item.stash:
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
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the results on the report, as JSON values, which pytest-xdist can send."""
    report = yield
    if report.when == "call" and _PROFILER in item.stash:
        from pytest_tfperf.plugin.items import with_results

        is_broken = _BROKEN in item.stash
        with_results(item, report, _record(item, report), is_broken, _options(item.config))
    elif report.when == "call" and report.passed and item.get_closest_marker("tfperf"):
        from pytest_tfperf.checks.arguments import OPTION_NAMES

        given = {name for mark in item.iter_markers("tfperf") for name in mark.kwargs}
        report.tfperf_unchecked = bool(given - OPTION_NAMES)  # type: ignore[attr-defined]
        _prepare(item.config, used=False)
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """
    Free the iterators of Keras loops that were stopped, whose models refer to them in a cycle.

    At the interpreter's exit their destructor would wait for ever for Python functions of the
    input pipeline.
    """
    if _PREPARED in config.stash:
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
    return ("passed", "I", (undecided, {"yellow": True})) if report.passed and undecided else None


def _options(config: pytest.Config) -> Options:
    """Return the options of this run, read once."""
    if _OPTIONS not in config.stash:
        from pytest_tfperf.plugin.option_values import read_options

        config.stash[_OPTIONS] = read_options(config, config.stash[_REGISTRY].rows)
    return config.stash[_OPTIONS]


def _wanted(item: pytest.Item) -> Wanted:
    """Return the arguments of a test: its nearest marker's, then other markers' and the ini's."""
    from pytest_tfperf.checks.arguments import Wanted

    arguments: dict[str, Any] = _options(item.config).marker_arguments
    for marker in reversed(list(item.iter_markers("tfperf"))):
        if marker.args:
            raise LimitError(
                f"takes keyword arguments only, but was given {marker.args[0]!r}; "
                "e.g. max_input_bound='5%'"
            )
        arguments |= marker.kwargs
    return Wanted.read(arguments, item.config.stash[_REGISTRY].rows)


def _has_own_flags(item: pytest.Item) -> bool:
    """Return whether a test needs a process with other flags of XLA."""
    with suppress(LimitError):  # of a marker that was added after the collection; the test fails
        return item.get_closest_marker("tfperf") is not None and _wanted(item).autocluster
    return False


def _new_profiler(item: pytest.Item) -> TfProfile:
    """Make the profiler of a test, and keep it with the test."""
    from pytest_tfperf.plugin.items import new_profiler

    config = item.config
    _prepare(config, used=False)  # the first test may ask for the fixture by its name
    item.stash[_WANTED] = wanted = _wanted(item)
    item.stash[_PROFILER] = new_profiler(
        item, wanted, _options(config), config.stash[_REGISTRY], config.stash[_ON_TERMINAL]
    )
    return item.stash[_PROFILER]


def _decide(item: pytest.Item) -> None:
    """Decide the checks of a test, and fail it with one message if any of them fails it."""
    from pytest_tfperf.plugin.decide import fails
    from pytest_tfperf.plugin.items import checks_of

    options, profiler = _options(item.config), item.stash[_PROFILER]  # names that --pdb shows
    try:
        item.stash[_WANTED] = wanted = _wanted(item)  # the test may have added a marker
    except LimitError as error:
        pytest.fail(f"{item.name}: a marker tfperf that was added: {error}", pytrace=False)
    checks = checks_of(item, profiler, wanted, options, item.config.stash[_ON_TERMINAL])
    item.stash[_CHECKS] = tuple(checks)
    broken = [check for check in checks if fails(check, options)]
    if broken:
        item.stash[_BROKEN] = True
        from pytest_tfperf.report.failure import failure_message
        from pytest_tfperf.text import for_terminal

        pytest.fail(for_terminal(failure_message(item.name, broken)), pytrace=False)


def _record(item: pytest.Item, report: pytest.TestReport) -> ProfiledTest:
    """Return the results of a test, and add its metrics to the properties of its reports."""
    from pytest_tfperf.plugin.items import record_of, set_properties

    stash, only = item.stash, _options(item.config).only
    checks = stash.get(_CHECKS, ())
    record = record_of(item, stash[_PROFILER], stash[_WANTED], checks, report.outcome, only)
    set_properties(item, report, record)
    return record
