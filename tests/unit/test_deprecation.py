"""The warning that announces names which a later version removes."""

import pytest

TEXT = "max_old goes with 0.4: use max_new"
SUITE = f"""
import warnings
import pytest_tfperf

def test_old():
    warnings.warn("{TEXT}", pytest_tfperf.PytestTfperfDeprecationWarning, stacklevel=1)
"""
FILTER = "error::pytest_tfperf.PytestTfperfDeprecationWarning"


@pytest.fixture
def run(pytester):
    pytester.makepyfile(SUITE)
    return lambda *arguments: pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def test_pytest_shows_it_by_default(run):
    result = run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines([f"*PytestTfperfDeprecationWarning: {TEXT}"])


@pytest.mark.parametrize("arguments", [("-W", FILTER), ("-o", f"filterwarnings={FILTER}")])
def test_a_filter_by_its_name_makes_it_an_error(run, arguments):
    run(*arguments).assert_outcomes(failed=1)


def test_the_filter_for_deprecations_holds_too(run):
    run("-W", "error::DeprecationWarning").assert_outcomes(failed=1)
