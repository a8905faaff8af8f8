"""Tests with autocluster=True that are refused, disabled, or whose flags go lost."""

import pytest


def test_a_test_that_cannot_be_seen_to_profile_is_told_how_to(pytester):
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.tfperf(autocluster=True)
        def test_it(request): request.getfixturevalue("tf_profile")
        def test_plain(): pass
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["autocluster=True needs a process of its own: name tf_profile among the test's arguments*"]
    )


def test_disabled_its_step_runs_once_where_it_is(pytester):
    """No process is started for it."""
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.tfperf(autocluster=True)
        def test_it(tf_profile): tf_profile(lambda: None)
        """
    )
    pytester.runpytest_inprocess("--tfperf-disable").assert_outcomes(skipped=1)


@pytest.mark.full
def test_flags_that_a_conftest_overwrites_are_missed(pytester, monkeypatch, processes):
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    pytester.makeconftest("import os\nos.environ['TF_XLA_FLAGS'] = '--tf_xla_min_cluster_size=2'")
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.tfperf(autocluster=True)
        def test_it(tf_profile): pass
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "autocluster=True had set --tf_xla_auto_jit=2 --tf_xla_cpu_global_jit in TF_XLA_FLAGS, and it was*"
        ]
    )
