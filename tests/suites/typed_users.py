"""
Tests as users type them, for `mypy tests/suites/typed_users.py`: no test runs this.

Each misspelt name is an error: where mypy no longer finds one, it reports the comment that ignores it as unused.
"""

import pytest_tfperf
from pytest_tfperf import Comparison, Profile, UnknownMetric


def test_step(tf_profile: pytest_tfperf.TfProfile) -> None:
    """What a fixture gives has the exported types."""
    profile = tf_profile(abs, [1])
    n: int = profile.retraces
    seconds: float = profile.step_time
    value: pytest_tfperf.Value = profile.value("step_time")
    table: pytest_tfperf.Table = profile.tables["host_ops"]
    for row in table.records():
        row["op"]
    comparison: Comparison = tf_profile.compare({"a": abs, "b": abs})
    assert n == 0
    assert seconds < 1
    assert value.number
    assert comparison.speedup("b")


def register(registry: pytest_tfperf.Registry) -> None:
    """A project's own metrics and errors do too."""
    try:
        assert registry
    except (UnknownMetric, pytest_tfperf.TfperfError):
        assert pytest_tfperf.Verdict.PASS


def misspell(tf_profile: pytest_tfperf.TfProfile, profile: Profile) -> None:
    """Names that do not exist are errors."""
    assert profile.step_tim  # type: ignore[attr-defined]
    assert profile.retraces.real_part  # type: ignore[attr-defined]
    assert tf_profile.evaluat  # type: ignore[attr-defined]
    assert pytest_tfperf.Profil  # type: ignore[attr-defined]
