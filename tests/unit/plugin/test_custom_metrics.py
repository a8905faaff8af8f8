"""A project's own metrics: what may be added, what their values are, and that limits, baselines and reports know them."""

import json
import math
import os

import numpy as np
import pytest
from helpers.builders import LAPTOP, profile, record_of, run_of
from helpers.paired_project import Project
from helpers.paths import TESTS
from helpers.runs_within import measure_with_stand_in

from pytest_tfperf.baseline.compare import Baseline, compare_with_baseline
from pytest_tfperf.baseline.compare_runs import compare_runs
from pytest_tfperf.baseline.record import record
from pytest_tfperf.baseline.store import Place, read_structure, read_times
from pytest_tfperf.checks.arguments import Wanted, argument_names, parse_limit_lines
from pytest_tfperf.checks.limits import check_limits
from pytest_tfperf.errors import LimitError, MetricError, TfperfError, UnknownMetric
from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.plugin.registry import Registry
from pytest_tfperf.report.run_text import render
from pytest_tfperf.results import Profile
from pytest_tfperf.runs import Run
from pytest_tfperf.values import Source
from pytest_tfperf.variants.comparison import Comparison

ROW = {"unit": "1/s", "better": "higher", "scope": "machine", "meaning": "tokens a second"}


def registry_of(function=lambda _: 1, name="tokens", **row):
    registry = Registry()
    registry.add(name, function, **{**ROW, **row})
    return registry


def measured(function, **row):
    return registry_of(function, **row).measured(profile(step_time=0.5, retraces=3)).value("tokens")


NAMES = [
    ("step_time", "the name is taken: time of a step"),
    ("steps", "the name is taken: profile.steps is something else"),
    ("result", "profile.result"),
    ("registry", "profile.registry"),
    ("max_tokens", "begins with max_ or min_"),
    ("min_tokens", "begins with max_ or min_"),
    ("warmup", "warmup= is an argument of the marker"),
    ("commit", "baselines keep the commit of a run"),
    ("tokens per second", "valid Python identifier"),
    ("_tokens", "neither a keyword nor begin with _"),
    ("lambda", "neither a keyword nor begin with _"),
    ("", "valid Python identifier"),
    (7, "valid Python identifier"),
]


def test_a_name_that_cannot_be_used_is_refused():
    registry = Registry()
    for name, said in NAMES:
        with pytest.raises(MetricError) as refusal:
            registry.add(name, lambda _: 1, **ROW)
        assert f"metric {name!r}: " in str(refusal.value)
        assert said in str(refusal.value), name
        assert registry.own == {}, name


def test_a_name_can_be_added_once():
    registry = registry_of(meaning="the first")
    with pytest.raises(MetricError, match="the name is taken: the first"):
        registry.add("tokens", lambda _: 1, **ROW)


ROWS = [
    (
        {"unit": "tokens"},
        "unit 'tokens' is not one of 's', '1/s', '0..1', 'ratio', 'count', 'bytes', 'FLOP'",
    ),
    ({"unit": None}, "unit None is not one of"),
    ({"unit": "bytes/s"}, "unit 'bytes/s' is not one of"),
    ({"better": "more"}, "better 'more' is not one of 'lower', 'higher', None"),
    ({"scope": "global"}, "scope 'global' is not one of 'program', 'platform', 'machine'"),
    ({"meaning": " "}, "it needs a meaning"),
    (
        {"function": 3},
        "its function must be a callable that takes a profile and returns a number, not int",
    ),
]


def test_a_row_that_cannot_be_used_is_refused():
    for row, said in ROWS:
        with pytest.raises(MetricError) as refusal:
            registry_of(**row)
        assert said in str(refusal.value), row


def test_a_number_is_whatever_is_one():
    for given, number in [(2, 2.0), (0, 0.0), (np.float32(0.5), 0.5), (np.int64(7), 7.0)]:
        found = measured(lambda _, given=given: given)
        assert (found.number, found.unit, found.source) == (number, "1/s", Source.OWN), given
        assert found.why is None, given


NUMBERS = [  # unit, what the function returns, the number or why there is none
    *(
        ("1/s", given, f"its function returned {given!r}, which is not a number")
        for given in (True, "3", None, [1])
    ),
    ("1/s", math.nan, "its function returned nan"),
    ("1/s", math.inf, "its function returned inf"),
    ("0..1", 1.25, "its function returned 1.25, and a share is from 0 to 1"),
    ("0..1", -0.1, "its function returned -0.1, and a share is from 0 to 1"),
    ("bytes", -1, "its function returned -1 B, which is below zero"),
    ("count", -2, "its function returned -2, which is below zero"),
    # the ends of a quantity
    ("ratio", -0.5, -0.5),
    ("0..1", 0, 0),
    ("0..1", 1, 1),
    ("count", 0, 0),
    # a share that is a sum may be rounded
    ("0..1", 1 + 1e-15, 1),
    ("0..1", -1e-15, 0),
    ("0..1", 0.1 + 0.2, 0.1 + 0.2),
    ("0..1", 1 + 1e-6, "its function returned 1, and a share is from 0 to 1"),
    ("0..1", -1e-6, "its function returned -1e-06, and a share is from 0 to 1"),
]


def test_what_no_such_quantity_can_be_is_unknown():
    for unit, given, wanted in NUMBERS:
        found = measured(lambda _, given=given: given, unit=unit)
        number, why = (None, wanted) if isinstance(wanted, str) else (wanted, None)
        assert (found.number, found.why) == (number, why), (unit, given)


def test_a_function_has_the_profile():
    assert measured(lambda found: 64 / found.step_time).number == 128
    assert measured(lambda found: found.value("retraces").number).number == 3


def test_what_a_function_needs_and_is_unknown_makes_it_unknown_for_the_same_reason():
    assert measured(lambda found: found.peak_memory).why == "peak_memory is unknown: not measured"


def test_what_a_function_says_it_cannot_know_is_unknown():
    def tokens(found):
        raise UnknownMetric("the step returned no tokens")

    assert measured(tokens).why == "the step returned no tokens"


def test_a_function_that_fails_makes_its_metric_unknown_and_says_where():
    def tokens(found):
        return found.tables["no such table"]

    line = tokens.__code__.co_firstlineno + 1
    assert (
        measured(tokens).why
        == f"its function raised KeyError: 'no such table' (test_custom_metrics.py:{line})"
    )


def test_a_metric_may_be_made_of_one_added_before_it():
    registry = registry_of(lambda found: 8 / found.step_time)
    registry.add("words", lambda found: found.tokens / 2, **ROW)
    found = registry.measured(profile(step_time=0.5))
    assert (found.tokens, found.words) == (16, 8)


def test_a_count_is_whole_as_an_attribute():
    found = registry_of(lambda _: 3, unit="count").measured(profile())
    assert (found.tokens, type(found.tokens)) == (3, int)


def test_a_profile_of_a_run_without_own_metrics_is_as_it_was():
    found = profile(step_time=1)
    assert Registry().measured(found) is found


def test_rows_go_where_the_profile_goes():
    found = registry_of().measured(profile(step_time=1))
    again = Profile.from_json(json.loads(json.dumps(found.to_json())))
    row = Metric("tokens", "1/s", "higher", "machine", "tokens a second")
    assert again.own == found.own == {"tokens": row}
    assert again.tokens == 1
    assert list(again.registry)[-1] == "tokens"


def test_a_run_file_of_before_has_none():
    data = profile(step_time=1).to_json()
    del data["own"]
    assert Profile.from_json(data).own == {}


def test_a_unit_that_no_version_had_is_a_damaged_run_file():
    data = run_of(record_of(registry_of().measured(profile()))).to_json()
    data["tests"][0]["profiles"][0]["own"]["tokens"]["unit"] = "furlong"
    with pytest.raises(
        TfperfError,
        match=r"run\.json: damaged run file: Invalid enum value 'furlong' - at `\$\.tests",
    ):
        Run.from_json(data, "run.json")


LIMITS = [
    ({"min_tokens": 100}, "PASS", "tokens is 128/s, limit at least 100/s"),
    (
        {"min_tokens": "200/s"},
        "FAIL",
        "tokens is 128/s, below the limit of 200/s (min_tokens='200/s')",
    ),
    ({"max_tokens": 100}, "FAIL", "tokens is 128/s, above the limit of 100/s (max_tokens=100)"),
]


def test_limits_are_as_on_the_built_in_ones():
    registry = registry_of(lambda _: 128)
    for arguments, verdict, message in LIMITS:
        limits = Wanted.read(arguments, registry.rows).limits
        [found] = check_limits(registry.measured(profile()), limits, None, False)
        assert (found.verdict.value, found.message) == (verdict, message)


def test_a_count_may_be_equal_and_others_may_not():
    assert Wanted.read({"tokens": 3}, registry_of(unit="count").rows).limits[0].relation == "equal"
    with pytest.raises(LimitError, match="unknown argument 'tokens'"):
        Wanted.read({"tokens": 3}, registry_of().rows)


def test_names_are_in_messages_and_in_ini_lines():
    rows = registry_of().rows
    assert {"max_tokens", "min_tokens"} <= set(argument_names(rows))
    assert "max_tokens" not in argument_names()
    assert parse_limit_lines(["min_tokens = 5"], "ini", rows) == {"min_tokens": "5"}
    with pytest.raises(LimitError, match="did you mean 'max_tokens'"):
        Wanted.read({"max_token": 1}, rows)
    with pytest.raises(LimitError, match="unknown argument 'min_tokens'"):
        parse_limit_lines(["min_tokens = 5"], "ini")


def place_of(tmp_path):
    return Place.of("test_model.py", tmp_path, None)


def stored(tmp_path, number, scope, unit="bytes"):
    """What a run of a metric with this number stores; it is read back from JSON, as by a process without the project's hook."""
    found = registry_of(lambda _: number, unit=unit, scope=scope, better="lower").measured(
        profile(step_time=1)
    )
    run = Run.from_json(json.loads(json.dumps(run_of(record_of(found)).to_json())), "run.json")
    return record({place_of(tmp_path): [run]}, False), run.tests[0].profiles[0]


BASELINE = [  # it was 2048
    (2048, "PASS", "tokens is 2 KiB, as in the baseline"),
    (4096, "REGRESSION", "tokens rose from 2 to 4 KiB"),
    (1024, "IMPROVED", "tokens fell from 2 to 1 KiB"),
]


@pytest.mark.parametrize("scope", ["program", "platform"])
def test_structure_is_held_against_the_baseline(tmp_path, scope):
    stored(tmp_path, 2048, scope)
    for now, verdict, message in BASELINE:
        _, found = stored(tmp_path / "other", now, scope)
        checks = compare_with_baseline(
            found, "test_step", Baseline(place_of(tmp_path)), LAPTOP, "structural", None
        )
        [check] = [check for check in checks if check.metric == "tokens"]
        assert check.verdict.value == verdict, now
        assert check.message.startswith(message)


def test_what_changed_in_a_baseline_is_told_in_its_unit(tmp_path):
    stored(tmp_path, 2048, "program")
    recorded, _ = stored(tmp_path, 4096, "program")
    assert [change.what for change in recorded.entries] == ["updated: tokens 2 KiB → 4 KiB"]


def test_one_that_the_project_has_no_more_is_told_as_the_number_it_was(tmp_path):
    stored(tmp_path, 2048, "program")
    recorded = record({place_of(tmp_path): [run_of(record_of(profile(step_time=1)))]}, False)
    assert [change.what for change in recorded.entries] == ["updated: tokens 2048 → unknown"]


def test_times_of_its_own_are_in_the_history(tmp_path):
    stored(tmp_path, 2, "machine", "s")
    place = place_of(tmp_path)
    [run] = read_times(place.timing_file(LAPTOP["machine"]))[place.timing_key("test_step")]["runs"]
    assert run["tokens"] == 2


def test_two_run_files_are_compared_by_their_own_rows(tmp_path):
    runs = [run_of(record_of(stored(tmp_path, number, "program")[1])) for number in (2048, 4096)]
    [found] = [check for check in compare_runs(*runs).tests[0].checks if check.metric == "tokens"]
    assert found.verdict.value == "REGRESSION"


def test_variants_have_it_side_by_side():
    registry = registry_of(lambda found: 16 / found.step_time)
    profiles = {
        name: registry.measured(profile(step_time=seconds))
        for name, seconds in (("plain", 0.5), ("xla", 0.25))
    }
    found = Comparison(turns={"plain": (0.5,), "xla": (0.25,)}, profiles=profiles)
    assert list(found.table().rows[-1]) == ["tokens", "32/s", "64/s"]


def test_a_table_shows_it(tmp_path):
    _, found = stored(tmp_path, 2048, "program")
    lines = [line.text for line in render(run_of(record_of(found)), 80, 0)]
    assert "tokens 2 KiB" in [" ".join(line.split()[-3:]) for line in lines]


CONFTEST = """
def pytest_tfperf_metrics(registry):
    registry.add("{name}", {function}, unit="{unit}", better="higher", scope="program", meaning="of this project")
"""
TEST = """
import pytest

@pytest.mark.tfperf(min_tokens={tokens})
def test_tokens(tf_profile):
    assert tf_profile(0.5, retraces=3) is None
    [(profile, _)] = tf_profile._test.results.values()
    assert profile.tokens == 32
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """Runs pytest on a project, with a stand-in that measures; the project's own metric is `tokens`."""
    measure_with_stand_in(monkeypatch)
    monkeypatch.setenv("COLUMNS", "100")

    def write(path, text):
        target = pytester.path / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)

    write(
        "conftest.py",
        CONFTEST.format(name="tokens", function="lambda found: 16 / found.step_time", unit="1/s"),
    )
    write("test_model.py", TEST.format(tokens=20))

    def project(*arguments):
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    project.write = write
    return project


def add_words(project):
    """Another metric of the project, which only a folder below has."""
    project.write(
        "below/conftest.py",
        CONFTEST.format(name="words", function="lambda found: 4 / found.step_time", unit="1/s"),
    )
    project.write("below/test_below.py", TEST.format(tokens="100, max_words='7/s'"))


def check_both(done, folder):
    """Check what a run with both metrics said, reported and recorded."""
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*tokens is 32/s, below the limit of 100/s (min_tokens=100)",
            "*words is 8/s, above the limit of 7/s (max_words='7/s')",
            "test *metric *value *limit *result",
        ]
    )
    run = json.loads((folder / "run.json").read_text())
    rows = {test["file"]: list(test["profiles"][0]["own"]) for test in run["tests"]}
    assert sorted(rows["below/test_below.py"]) == ["tokens", "words"]
    recorded = read_structure(Place.of("test_model.py", folder, None).structure)
    assert recorded["test_tokens"]["program"]["tokens"] == 32


BOTH = "--tfperf-report=run.json", "--tfperf-update", "below", "test_model.py"


def test_a_project_adds_a_metric_and_tests_have_limits_on_it(project, pytester):
    add_words(project)
    check_both(project(*BOTH), pytester.path)


@pytest.fixture
def in_process(pytester, monkeypatch, processes):
    """Runs pytest in a process, with the same stand-in."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    options = "-p", "helpers.fake_profiler", "-p", "no:cacheprovider"
    return lambda *arguments: pytester.runpytest_subprocess(*options, *arguments)


@pytest.mark.full
def test_workers_have_it_too(project, in_process, pytester):
    add_words(project)
    check_both(in_process("-n2", *BOTH), pytester.path)


def test_an_ini_value_has_limits_on_it(project):
    project.write("pytest.ini", "[pytest]\ntfperf_limits = min_tokens = 100")
    project.write(
        "test_model.py",
        TEST.format(tokens="20") + "\ndef test_other(tf_profile):\n    tf_profile(0.5)\n",
    )
    done = project()
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*tokens is 32/s, below the limit of 100/s (min_tokens='100')",
            "PERF test_model.py::test_other*",
        ]
    )


@pytest.mark.full
def test_a_process_of_its_own_has_it_too(project, in_process):
    project.write("test_model.py", TEST.format(tokens="100, autocluster=True"))
    done = in_process()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*tokens is 32/s, below the limit of 100/s (min_tokens=100)"])


@pytest.mark.full
@pytest.mark.usefixtures("processes")
def test_in_a_paired_run_each_version_has_that_of_its_files(tmp_path):
    """A metric of both versions is compared, one that the working tree added is new."""
    added = 'registry.add("words", lambda found: 5, unit="count", better="lower", scope="program", meaning="of this tree")'
    there = CONFTEST.format(
        name="tokens", function="lambda found: found.retraces", unit="count"
    ).replace("higher", "lower")
    test = "import model\n\ndef test_tokens(tf_profile):\n    tf_profile(1.0, retraces=model.RETRACES)\n"
    tree = {"conftest.py": f"{there}    {added}\n", "src/model.py": "RETRACES = 3\n"}
    project = Project(
        tmp_path,
        {"conftest.py": there, "test_model.py": test, "src/model.py": "RETRACES = 1\n"},
        tree,
    )
    done = project.run("--tfperf-only=structural")
    assert "tokens rose from 1 to 3" in done.text
    assert "words is 5, and HEAD has none" in done.text


def test_a_metric_that_cannot_be_added_is_a_usage_error(project):
    project.write("conftest.py", CONFTEST.format(name="tokens", function="len", unit="tokens/s"))
    done = project()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        ["ERROR: pytest_tfperf_metrics: metric 'tokens': unit 'tokens/s' is not one of *"]
    )


def test_one_of_a_folder_that_cannot_be_added_is_an_error_of_that_folder(project):
    project.write("below/conftest.py", CONFTEST.format(name="tokens", function="len", unit="1/s"))
    project.write("below/test_below.py", TEST.format(tokens=1))
    done = project("--continue-on-collection-errors")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(
        ["*MetricError: pytest_tfperf_metrics: metric 'tokens': the name is taken: of this project"]
    )


def test_markers_tell_the_name(project):
    done = project("--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.tfperf(max_<metric>*"])
    assert "Custom metrics: tokens." in " ".join(done.stdout.str().split())
