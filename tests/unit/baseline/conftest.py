import itertools

import pytest

from pytest_tfperf.baseline.store import Place


@pytest.fixture
def new_project(tmp_path):
    """Each call gives another project with a test file, of which nothing is stored yet."""

    def made():
        root = tmp_path / str(next(numbers)) / "project"
        (root / "tests").mkdir(parents=True)
        (root / "tests/test_model.py").touch()
        return root

    numbers = itertools.count()
    return made


@pytest.fixture
def project(new_project):
    return new_project()


@pytest.fixture
def new_place(tmp_path):
    """Each call gives the baseline files of another test file, of which nothing is stored yet."""
    numbers = itertools.count()
    return lambda: Place.of("test_model.py", tmp_path / str(next(numbers)), None)
