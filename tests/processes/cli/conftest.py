"""Commands of tfperf write for a terminal that is wide enough for the paths of any worker."""

import pytest


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
