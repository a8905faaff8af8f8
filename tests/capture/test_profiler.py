"""Profiler sessions, and those of others."""

import pytest
import tensorflow as tf

from pytest_tfperf.capture.profiler import Session, keep_trace, read_session, user_session_runs
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.trace.wire import Message
from pytest_tfperf.trace.xspace import read_trace

step = tf.function(lambda x: x + 1)
DATA = [tf.ones(3)] * 4


def test_sessions_of_one_second_have_files_of_their_own(tmp_path):
    paths = [Session(tmp_path).stop() for _ in range(3)]
    assert len(set(paths)) == 3
    assert all(read_trace(path).hostnames for path in paths)


def test_another_session_in_the_process_is_named_and_left_alone(tmp_path, profile):
    tf.profiler.experimental.start(str(tmp_path))
    with pytest.raises(CaptureError, match="a TensorFlow profiler session is already running in this process"):
        profile(step, DATA)
    assert user_session_runs()
    tf.profiler.experimental.stop()
    assert profile(step, DATA, name="next").retraces == 0


def test_a_session_that_a_test_leaves_running_is_stopped_with_it(tmp_path, profile):
    tf.profiler.experimental.start(str(tmp_path))
    profile.close()
    assert not user_session_runs()


def test_a_native_session_elsewhere_does_not_block_later_ones(tmp_path):
    from tensorflow.python.profiler.internal import _pywrap_profiler

    native = _pywrap_profiler.ProfilerSession()
    native.start(str(tmp_path), {})
    with pytest.raises(CaptureError, match="another profiler running"):
        Session(tmp_path)
    native.stop()
    assert Session(tmp_path).stop().is_file()


def test_traces_are_kept_where_xprof_looks_for_them(tmp_path):
    trace = Session(tmp_path).stop()
    for _ in range(2):
        keep_trace(trace, tmp_path / "kept", "")
    keep_trace(trace, tmp_path / "kept", "../a b")
    assert len(list((tmp_path / "kept").glob("plugins/profile/*/*.xplane.pb"))) == 2
    assert len(list((tmp_path / "kept" / "_a_b").glob("plugins/profile/*/*.xplane.pb"))) == 1


def test_a_captured_trace_cut_anywhere_is_a_trace_error(tmp_path):
    session = Session(tmp_path)
    step(tf.ones(3))
    path = session.stop()
    raw = path.read_bytes()
    assert read_session(path).planes
    planes = [end for _, _, _, end in Message(raw, "whole").fields(0, len(raw), "XSpace")]
    for length in {*planes[:-1], *range(0, len(raw), 1 + len(raw) // 300)}:
        path.write_bytes(raw[:length])
        with pytest.raises(TraceError):
            read_session(path)
