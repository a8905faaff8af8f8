"""TensorFlow's log in C++: what the profiler writes in a session is hidden, and the threshold is put back."""

import pytest
import tensorflow as tf

from pytest_tfperf import tf_log
from pytest_tfperf.capture.sessions import Session
from pytest_tfperf.tf_log import information_hidden

INFO, WARNING, ERROR = 0, 1, 2


@pytest.fixture
def threshold():
    """Functions that read and set TensorFlow's threshold, which is that of information meanwhile."""
    read, write = tf_log._threshold()
    before = read()
    write(INFO)
    yield read, write
    write(before)


def test_a_session_writes_no_information(threshold, tmp_path, capfd):
    session = Session(tmp_path)
    tf.constant(1) + 1
    [path] = session.stop().values()
    assert path.stat().st_size > 0
    assert "profiler_session" not in capfd.readouterr().err


def test_the_profiler_itself_does(threshold, tmp_path, capfd):
    """This is what the other test would see otherwise."""
    tf.profiler.experimental.start(str(tmp_path))
    tf.profiler.experimental.stop()
    assert "profiler_session" in capfd.readouterr().err


def test_the_threshold_is_raised_and_put_back(threshold):
    read, write = threshold
    for before in (INFO, WARNING, ERROR):
        write(before)
        with pytest.raises(KeyError), information_hidden():
            assert read() == max(before, WARNING), before
            raise KeyError
        assert read() == before


def test_a_build_without_the_functions_logs_as_before(monkeypatch):
    monkeypatch.setattr(tf_log, "_threshold", lambda: None)
    with information_hidden():
        pass


def test_a_library_without_the_names_is_passed_over(tmp_path):
    path = tmp_path / "library"
    path.write_bytes(b"_ZN4absl12lts_2025081411MinLogLevelEv\0")
    assert tf_log._exported(path) is None
