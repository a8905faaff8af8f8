"""What a person sees: verdicts in the call phase, in the terminal, in JUnit, with and without xdist."""

import xml.etree.ElementTree as ET

import pytest

MIXED = """
@tf.function
def step(x):
    return tf.reduce_sum(x)

@pytest.mark.tfperf(max_eager_ops=0)
def test_good(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)

@pytest.mark.tfperf(max_eager_ops=0)
def test_bad(tf_profile):
    tf_profile(lambda x: step(x) + 1, DATA, **STEP_ARGUMENTS)

def test_plain():
    assert 1
"""


REPORTS = ("--junitxml=junit.xml", "--tfperf-report=run.json")


def agree(path, result):
    """Exit code, terminal, JUnit and run file say that one test of three failed by a limit."""
    assert result.ret == 1
    suites = ET.parse(path / "junit.xml").getroot().find("testsuite")
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("3", "1", "0")
    failure = suites.find("testcase[@name='test_bad']/failure")
    assert "eager_ops is 1" in failure.get("message")
    result.stdout.fnmatch_lines(["tfperf: 1 check passed, 1 failed"])
    assert (path / "run.json").is_file()


def test_a_broken_limit_fails_the_test_itself_with_cause_and_remedy(suite, processes):
    suite.write(MIXED)
    result = suite(*REPORTS)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "test_suite.py .P.*",
            "*eager_ops is 1, above the limit of 0 (max_eager_ops=0)",
            "  where: eager: AddV2 at test_suite.py:*[0-9]",
            "  try: move them into the tf.function that the step calls",
            "tfperf: 1 check passed, 1 failed",
            "PERF test_suite.py::test_bad - *",
        ]
    )
    agree(suite.path, result)
    suite("-v", "-k", "bad").stdout.fnmatch_lines(["test_suite.py::test_bad PERF*"])


SLOW = """
import time

@pytest.mark.tfperf(max_step_time="5 ms")
def test_slow(tf_profile):
    tf_profile(lambda: time.sleep(0.02) or tf.reduce_sum(DATA), **STEP_ARGUMENTS)
"""


@pytest.mark.parametrize("options", [(), ("--tfperf-report=run.json",)])
def test_a_slow_step_has_its_cause_whether_or_not_a_report_is_written(suite, processes, options):
    suite.write(SLOW)
    suite(*options).stdout.fnmatch_lines(
        [
            "*above the limit of 5 ms*",
            "  where: *% of the time: Python at test_suite.py:*",
            "  try: *",
        ]
    )


@pytest.mark.nightly
def test_under_xdist_the_controller_writes_reports_and_baselines(suite, pytester, processes):
    suite.write(MIXED)
    options = ("-n1", "--tfperf-update")
    agree(suite.path, pytester.runpytest_subprocess(*options, *REPORTS))
    assert (suite.path / "__tfperf__" / "test_suite.json").is_file()


BAD_MARKERS = {
    "max_inputbound=0.05": "unknown argument 'max_inputbound'; did you mean 'max_input_bound'?",
    "max_input_bound='5 ms'": "max_input_bound: '5 ms' is not a quantity",
    "input_bound=0": "unknown argument 'input_bound'",
    "warmup=-1": "warmup: -1 is not a whole number",
    "0.05": "takes keyword arguments only, but was given 0.05",
}


def test_a_bad_marker_is_a_collection_error_of_its_file_alone(suite):
    for n, argument in enumerate(BAD_MARKERS):
        (suite.path / f"test_broken_{n}.py").write_text(
            f"import pytest\n\n@pytest.mark.tfperf({argument})\ndef test_it(tf_profile): pass\n"
        )
    (suite.path / "test_fine.py").write_text("def test_fine(): pass\n")
    result = suite("--continue-on-collection-errors")
    result.assert_outcomes(passed=1, errors=len(BAD_MARKERS))
    for said in BAD_MARKERS.values():
        result.stdout.fnmatch_lines([f"*test_it: @pytest.mark.tfperf: {said}*"])


def test_the_nearest_marker_wins_and_names_merge_and_limits_of_a_call_override_it(suite):
    suite.write(
        """
pytestmark = pytest.mark.tfperf(max_eager_ops=0, max_retraces=0)

def seen(tf_profile):
    return sorted(limit.argument for _, limits in tf_profile._test.results.values() for limit in limits)

class TestClass:
    pytestmark = pytest.mark.tfperf(max_eager_ops=5)

    def test_class(self, tf_profile):
        tf_profile(lambda: tf.constant(np.ones(3)), **STEP_ARGUMENTS)
        assert seen(tf_profile) == ["max_eager_ops=5", "max_retraces=0"]

    @pytest.mark.tfperf(max_retraces=7)
    def test_function(self, tf_profile):
        tf_profile(lambda: tf.constant(np.ones(3)), **STEP_ARGUMENTS)
        assert seen(tf_profile) == ["max_eager_ops=5", "max_retraces=7"]

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.tfperf(max_eager_ops=9))])
def test_parameter(tf_profile, n):
    tf_profile(lambda: tf.constant(np.ones(3)), **STEP_ARGUMENTS)
    assert seen(tf_profile) == ["max_eager_ops=0" if n == 1 else "max_eager_ops=9", "max_retraces=0"]

def test_call(tf_profile):
    tf_profile(lambda: tf.ones(3) + 1, limits={"max_eager_ops": 2}, **STEP_ARGUMENTS)
    assert seen(tf_profile) == ["max_eager_ops=2", "max_retraces=0"]
"""
    )
    suite().assert_outcomes(passed=5)


def test_skip_xfail_and_own_failures_are_what_they_are_without_us(suite):
    suite.gives(
        """
@pytest.mark.tfperf(max_eager_ops=0)
def test_skips(tf_profile):
    pytest.skip("not today")

@pytest.mark.xfail(strict=True)
@pytest.mark.tfperf(max_eager_ops=0)
def test_expected(tf_profile):
    tf_profile(lambda: tf.ones(3) + 1, **STEP_ARGUMENTS)

@pytest.mark.tfperf(max_eager_ops=0)
def test_own(tf_profile):
    tf_profile(lambda: tf.ones(3) + 1, **STEP_ARGUMENTS)
    raise ValueError("mine")
""",
        "FAILED test_suite.py::test_own - ValueError: mine",
        skipped=1,
        xfailed=1,
        failed=1,
    )


def test_a_limit_on_what_cannot_be_measured_fails_and_says_why(suite):
    suite.gives(
        """
@pytest.mark.tfperf(max_padding_overhead=0.1)
def test_it(tf_profile):
    tf_profile(lambda: None, **STEP_ARGUMENTS)
""",
        "*padding_overhead is unknown, limit 10 % (max_padding_overhead=0.1): *",
        failed=1,
    )


def test_tensorflow_missing_fails_the_profile_with_the_install_command_and_nothing_else(pytester):
    pytester.makepyfile(
        """
import sys
import pytest

@pytest.fixture(autouse=True)
def no_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)

def test_profiled(no_tensorflow, tf_profile): tf_profile(lambda: 1)
def test_plain(): pass
"""
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *TensorFlow cannot be imported*pip install tensorflow*"])
    output = result.stdout.str()
    assert output.count("pip install tensorflow") == 1
    assert not [word for word in ("exception", "contextlib") if word in output]


MARKER_ALONE = """
@tf.function
def train(x, n):
    return x * n

@tf.function
def metric(x):
    return x + 1

@tf.function(jit_compile=True)
def compiled(x):
    return x * 3

"""


def test_a_marker_alone_counts_retraces_and_compilations_in_all_of_the_body(suite):
    suite.gives(
        MARKER_ALONE
        + """
@pytest.mark.tfperf(max_retraces=0)
def test_retraces():
    for n in range(4):
        train(DATA[0], n)

@pytest.mark.tfperf(max_xla_compiles=0)
def test_compiles():
    for n in range(2, 5):
        compiled(tf.ones(n))

@pytest.mark.tfperf(max_retraces=0, max_xla_compiles=0, max_eager_ops=0)
def test_good():
    for n in range(4):
        metric(DATA[0])
""",
        "*retraces is 3, above the limit of 0*",
        "*traced again: train at test_suite.py:* (n 0 → 1, n 1 → 2, n 2 → 3), in step 1, 2, 3",
        "*xla_compiles is 2, above the limit of 0*",
        passed=1,
        failed=2,
    )


def test_a_marker_alone_says_what_it_cannot_know(suite):
    suite.gives(
        MARKER_ALONE
        + """
@pytest.mark.tfperf(max_retraces=0)
def test_does_not_guess_which_of_two_functions_is_the_step():
    for n in range(5):
        train(DATA[0], n)
    for n in range(20):
        metric(DATA[0])

@pytest.mark.tfperf(max_retraces=0)
def test_without_any_step():
    assert 1

@pytest.mark.tfperf(max_step_time="1 min")
def test_has_no_times_outside_of_keras():
    for n in range(4):
        metric(DATA[0])
""",
        "this test calls several functions (metric, train): which of them is the step cannot be known*",
        "no step found in this test: it ran no Keras fit, evaluate or predict, called no tf.function*",
        "*step_time is unknown, limit 60 s *: nothing was timed*",
        failed=3,
    )


@pytest.mark.full
def test_a_marker_alone_knows_the_batch_of_keras_arrays(suite, processes):
    body = """
import keras

@pytest.mark.tfperf
def test_fit():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(np.ones((400, 3)), np.ones((400, 1)), batch_size={batch}, epochs=4, verbose=0)
"""
    suite.write(body.format(batch=4))
    suite("--tfperf-update").assert_outcomes(passed=1)
    suite.write(body.format(batch=8))
    result = suite("--tfperf-baseline")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*(batch: stored 4, now 8)"])


def test_keys_are_names_from_the_module_down_also_in_packages(suite, processes):
    suite.write(MIXED)
    (suite.path / "__init__.py").write_text("")
    suite("--tfperf-update", "-k", "good")
    text = (suite.path / "__tfperf__" / "test_suite.json").read_text()
    assert '"test_good"' in text


@pytest.mark.imports("keras")
def test_a_marker_alone_lets_keras_loops_run_to_their_end(suite):
    suite.gives(
        """
import keras

@pytest.mark.tfperf(max_retraces=0, max_step_time="1 min", **STEP_ARGUMENTS)
def test_it():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    history = model.fit(np.ones((64, 3)), np.ones((64, 1)), batch_size=4, epochs=4, verbose=0)
    assert len(history.history["loss"]) == 4
    assert model.predict(np.ones((64, 3)), verbose=0).shape == (64, 1)
""",
        "tfperf: 4 checks passed",
        passed=1,
    )


def test_a_marked_test_that_profiles_nothing_fails(suite):
    suite.gives(
        """
@pytest.mark.tfperf
def test_unused(tf_profile): pass

@pytest.mark.tfperf(max_eager_ops=0)
def test_unused_with_a_limit(tf_profile): pass

@pytest.mark.tfperf
def test_left(tf_profile):
    for _ in tf_profile.steps(DATA):
        break
""",
        "*the test is to be profiled, and nothing was measured: call tf_profile*",
        "*the test is to be profiled, and nothing was measured: call tf_profile*",
        "*the test is to be profiled, and nothing was measured: the loop over tf_profile.steps was left*",
        failed=3,
    )


def test_undecided_comparisons_have_a_letter_of_their_own_and_are_counted(suite):
    suite.write(
        MIXED.partition("@pytest")[0]
        + "@pytest.mark.tfperf(max_regression=0.05, max_step_time='1 min', max_retraces=0)\ndef test_step(tf_profile):\n    tf_profile(step, DATA, **STEP_ARGUMENTS)\n"
    )
    result = suite()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_suite.py I *", "tfperf: 2 checks passed, 1 not decided"])
    result = suite("-v", "--tfperf-only=structural")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "test_suite.py::test_step PASSED *",
            "tfperf: 1 check passed; 2 limits not checked, run without --tfperf-only",
        ]
    )
    result = suite("-v")
    result.stdout.fnmatch_lines(["test_suite.py::test_step INCONCLUSIVE *"])


STEP = """
@tf.function
def step(x):
    return tf.reduce_sum(x)

def bad(x):
    return step(x) + 1
"""

LIMITED = (
    STEP
    + """
pytestmark = pytest.mark.tfperf(max_retraces=0)

def test_good(tf_profile):
    tf_profile(step, DATA, **STEP_ARGUMENTS)

def test_helper():
    pass

@pytest.mark.skip
def test_skipped():
    pass

class TestMore:
    def test_bad(self):
        assert False

    def test_one(self):
        pass
"""
)
NOT_CHECKED = (
    "tfperf: 2 tests have limits and profile nothing, so these limits were not "
    "checked: test_suite.py::TestMore::test_one, test_suite.py::test_helper; profile with the "
    "fixture tf_profile, or mark only the tests that do"
)


def test_limits_of_a_module_that_no_profile_meets_are_named(suite):
    suite.write(LIMITED)
    result = suite()
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    assert result.stdout.lines.count(NOT_CHECKED) == 1


@pytest.mark.nightly
def test_limits_that_no_profile_meets_are_named_once_under_xdist(suite, processes):
    suite.write(LIMITED)
    result = suite("-n", "2")
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    assert result.stdout.lines.count(NOT_CHECKED) == 1


@pytest.mark.parametrize("limit", ["max_retraces=0", "max_regression='5%'"])
def test_strict_fails_a_run_that_leaves_limits_unchecked(suite, limit):
    suite.write(LIMITED.replace("max_retraces=0", limit))
    for options, status in (((), 0), (("--tfperf-strict",), 1)):
        result = suite(*options, "-k", "helper or one")
        assert (result.ret, NOT_CHECKED in result.stdout.lines) == (status, True), options


def test_tests_without_limits_and_disabled_runs_name_none(suite):
    suite.write(LIMITED)
    suite("--tfperf-disable", "-k", "helper or one").stdout.no_fnmatch_line("*not checked*")
    for settings_alone_or_no_marker in (
        LIMITED.replace("max_retraces=0", "steps=5"),
        LIMITED.replace("pytestmark", "unused"),
    ):
        suite.write(settings_alone_or_no_marker)
        result = suite("--tfperf-strict", "-k", "helper or one")
        assert result.ret == 0
        result.stdout.no_fnmatch_line("*not checked*")


ADDED = (
    STEP
    + """
LIMIT = pytest.mark.tfperf(max_eager_ops=0)

def test_before(tf_profile, request):
    request.node.add_marker(LIMIT)
    tf_profile(bad, DATA, **STEP_ARGUMENTS)

def test_after(tf_profile, request):
    tf_profile(bad, DATA, **STEP_ARGUMENTS)
    request.node.add_marker(LIMIT)

@pytest.mark.tfperf(max_retraces=0)
def test_one_more(tf_profile, request):
    request.node.add_marker(LIMIT)
    tf_profile(bad, DATA, **STEP_ARGUMENTS)

def test_own_goes_first(tf_profile, request):
    tf_profile(bad, DATA, limits={"max_eager_ops": 1}, **STEP_ARGUMENTS)
    request.node.add_marker(LIMIT)

def test_plain(request):
    request.node.add_marker(LIMIT)

def test_typo(tf_profile, request):
    tf_profile(bad, DATA, **STEP_ARGUMENTS)
    request.node.add_marker(pytest.mark.tfperf(max_eagerops=0))
"""
)


def test_limits_of_a_marker_that_a_test_adds_hold(suite):
    result = suite.gives(
        ADDED,
        "test_typo: a marker tfperf that was added: unknown argument 'max_eagerops'; did you mean*",
        "tfperf: 1 test has limits and profiles nothing, *: test_suite.py::test_plain; *",
        "tfperf: 2 checks passed, 3 failed",
        passed=2,
        failed=4,
    )
    assert result.ret == 1


BY_NAME = (
    STEP
    + """
@pytest.mark.tfperf(max_eager_ops=0)
class TestLimited:
    def test_by_name(self, request):
        request.getfixturevalue("tf_profile")(bad, DATA, **STEP_ARGUMENTS)

def test_own(request):
    tf_profile = request.getfixturevalue("tf_profile")
    tf_profile(bad, DATA, limits={"max_eager_ops": 0}, **STEP_ARGUMENTS)

def test_good(request):
    request.getfixturevalue("tf_profile")(step, DATA, limits={"max_eager_ops": 0}, **STEP_ARGUMENTS)
"""
)


def test_a_fixture_that_the_test_gets_by_its_name_is_decided(suite):
    line = "*eager_ops is 1, above the limit of 0 (max_eager_ops=0)"
    suite.gives(BY_NAME, line, line, "tfperf: 1 check passed, 2 failed", passed=1, failed=2)


def test_limits_in_a_teardown_are_an_error_since_nothing_would_decide_them(suite):
    suite.gives(
        """
@pytest.fixture
def late(tf_profile):
    yield
    tf_profile(lambda x: x + 1, DATA, limits={"max_eager_ops": 0}, **STEP_ARGUMENTS)

@pytest.fixture
def late_without_limits(tf_profile):
    yield
    assert tf_profile(lambda x: x + 1, DATA, **STEP_ARGUMENTS).eager_ops == 1

def test_late(late):
    pass

def test_without_limits(late_without_limits):
    pass
""",
        "*the limits of this test are decided: profile before it ends",
        passed=2,
        errors=1,
    )


def test_a_wrong_marker_of_a_collection_hook_is_an_error_of_its_test(suite):
    (suite.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.tfperf(max_eager_opz=0))\n"
    )
    suite.write("def test_one(tf_profile):\n    pass\n\ndef test_two():\n    pass\n")
    result = suite()
    assert result.ret == 1
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.fnmatch_lines(["*unknown argument 'max_eager_opz'; did you mean*"])


UNMADE = (
    STEP
    + """
LIMITS = {"max_eager_ops": 0}

def broken(x):
    raise ZeroDivisionError

def test_caught_in_a_trace(tf_profile):
    with pytest.raises(ZeroDivisionError), tf_profile.trace(limits=LIMITS) as trace, trace.step():
        broken(0)

def test_empty(tf_profile):
    with pytest.raises(Exception, match="empty"):
        tf_profile(step, iter([]), limits=LIMITS)

@pytest.mark.tfperf(**LIMITS)
def test_the_second_is_caught(tf_profile):
    tf_profile(step, DATA, name="good", **STEP_ARGUMENTS)
    with pytest.raises(ZeroDivisionError):
        tf_profile(broken, DATA, name="broken", **STEP_ARGUMENTS)

@pytest.mark.tfperf(max_regression="5%")
def test_of_a_change(tf_profile):
    tf_profile(step, DATA, name="good", **STEP_ARGUMENTS)
    with pytest.raises(ZeroDivisionError):
        tf_profile(broken, DATA, name="broken", **STEP_ARGUMENTS)

@pytest.mark.parametrize("name", ["max_regression", "max_python_calls_regression", "autocluster"])
def test_of_the_whole_test(tf_profile, name):
    with pytest.raises(Exception, match=f"{name} holds for all profiles of a test"):
        tf_profile(step, DATA, limits={name: 0.02}, **STEP_ARGUMENTS)

def test_no_loop(tf_profile):
    tf_profile.steps(DATA, limits=LIMITS)

def test_no_trace(tf_profile):
    tf_profile.trace(limits=LIMITS)

def test_without_limits(tf_profile):
    with pytest.raises(ZeroDivisionError):
        tf_profile(broken, DATA, **STEP_ARGUMENTS)
"""
)


def test_limits_of_a_profile_that_was_not_made_are_not_passed(suite):
    said = "*a profile that the test asked for was not made, *: max_eager_ops=0; was its error*"
    of_a_change = said.replace("max_eager_ops=0", "max_regression=0.05")
    result = suite.gives(UNMADE, *[said] * 3, of_a_change, *[said] * 2, passed=4, failed=6)
    result.stdout.fnmatch_lines(["tfperf: 1 check passed, 7 not decided"])
