"""A stored trace that is not there: its tests are skipped, and in CI fail."""

import pytest
import traces


@pytest.mark.parametrize("name", ["a.xplane.pb", "folder", "*.xplane.pb"])
def test_a_trace_that_is_not_there_skips_and_fails_in_ci(monkeypatch, tmp_path, name):
    monkeypatch.setattr(traces, "TRACES", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no "):
        traces.stored(name)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="is needed where this runs in CI"):
        traces.stored(name)


def test_what_is_there_is_given(monkeypatch, tmp_path):
    monkeypatch.setattr(traces, "TRACES", tmp_path)
    (tmp_path / "a.xplane.pb").touch()
    (tmp_path / "folder").mkdir()
    assert [traces.stored(name) for name in ("a.xplane.pb", "folder")] == [
        tmp_path / "a.xplane.pb",
        tmp_path / "folder",
    ]
