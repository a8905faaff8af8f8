"""The least length of a timed block."""

import pytest

from pytest_tfperf.frameworks import in_use


def test_least_seconds_of_a_block(monkeypatch):
    for behind, sync_s, step_s, n_left, seconds in [
        (False, 0.0001, 0.012, None, 0.02),
        (False, 0.001, 0.012, None, 0.05),
        (True, 0.0001, 0.0001, None, 0.02),
        (True, 0.0001, 0.012, None, 0.12),  # ten steps
        (True, 0.0001, 0.2, None, 0.5),
        (True, 0.0001, 0.012, 99, 0.108),  # nine steps, so that there are ten blocks
        (True, 0.0001, 0.012, 12, 0.02),
    ]:
        monkeypatch.setattr(in_use, "sync_cost", lambda sync_s=sync_s: sync_s)
        monkeypatch.setattr(in_use, "_runs_behind_python", lambda behind=behind: behind)
        case = (behind, sync_s, step_s, n_left)
        assert in_use.least_block(step_s, n_left) == pytest.approx(seconds), case
