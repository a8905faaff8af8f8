"""What the processes of a paired run need, in tests without pytest in them."""

import pytest

from pytest_tfperf.child.cleanup import Janitor


@pytest.fixture
def janitor():
    one = Janitor()
    yield one
    one.close()
