import itertools

import pytest

from pytest_tfperf.baseline.store import Place


@pytest.fixture
def new_place(tmp_path):
    """Each call gives the baseline files of another test file, of which nothing is stored yet."""
    numbers = itertools.count()
    return lambda: Place.of("test_model.py", tmp_path / str(next(numbers)), None)
