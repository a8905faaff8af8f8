"""Real traces: read from the folder that a variable names."""

import pytest
from helpers.traces import VARIABLE, real_trace


def test_without_the_variable_a_test_of_a_real_trace_skips(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="TFPERF_TRACES names no folder"):
        real_trace("a")


def test_a_missing_file_in_the_named_folder_fails(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(AssertionError, match=r"a folder without a\.xplane\.pb"):
        real_trace("a")
    (tmp_path / "a.xplane.pb").touch()
    assert real_trace("a") == tmp_path / "a.xplane.pb"
