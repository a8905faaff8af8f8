"""Where the baselines of one test file are."""

import pytest

from pytest_tfperf.baseline.store import Place


@pytest.fixture
def place(tmp_path):
    return Place.of("tests/test_model.py", tmp_path, None)
