import pytest


@pytest.fixture
def wide_terminal(monkeypatch):
    """Wide enough for the paths of any worker."""
    monkeypatch.setenv("COLUMNS", "160")
