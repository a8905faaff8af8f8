"""Profiler sessions of the plugin and of the user."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from helpers.processes import files_of_at_most

from pytest_tfperf.capture.sessions import Session, keep_trace, read_session, user_session_runs
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.frameworks import in_use
from pytest_tfperf.protobuf import Message
from pytest_tfperf.trace.xspace import read_trace

step = tf.function(lambda x: x + 1)
DATA = [tf.ones(3)] * 4


def one_trace(session):
    [path] = session.stop().values()
    return path


def test_sessions_of_one_second_have_separate_files(tmp_path):
    paths = [one_trace(Session(tmp_path)) for _ in range(3)]
    assert len(set(paths)) == 3
    assert all(read_trace(path).hostnames for path in paths)


def test_session_of_the_user_is_reported_and_not_stopped(tmp_path, profile):
    tf.profiler.experimental.start(str(tmp_path))
    with pytest.raises(
        CaptureError, match="a TensorFlow profiler session is already running in this process"
    ):
        profile(step, DATA)
    assert user_session_runs()
    tf.profiler.experimental.stop()
    assert profile(step, DATA, name="next").retraces == 0


def test_session_left_running_by_a_test_is_stopped(tmp_path, profile):
    tf.profiler.experimental.start(str(tmp_path))
    profile.close()
    assert not user_session_runs()


def test_a_search_for_sessions_loads_no_framework(monkeypatch):
    """The test may import another one later, such as JAX."""
    for name in ("tensorflow", "jax", "jax._src.xla_bridge", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(in_use, "load_tensorflow", lambda: pytest.fail("it is loaded"))
    assert not user_session_runs()


def test_a_native_session_elsewhere_does_not_block_later_ones(tmp_path):
    from tensorflow.python.profiler.internal import _pywrap_profiler

    native = _pywrap_profiler.ProfilerSession()
    native.start(str(tmp_path), {})
    with pytest.raises(CaptureError, match="another profiler running"):
        Session(tmp_path)
    native.stop()
    assert one_trace(Session(tmp_path)).is_file()


def test_traces_are_kept_where_xprof_finds_them(tmp_path):
    trace = one_trace(Session(tmp_path))
    for _ in range(2):
        keep_trace(trace, tmp_path / "kept", "")
    keep_trace(trace, tmp_path / "kept", "../a b")
    assert len(list((tmp_path / "kept").glob("plugins/profile/*/*.xplane.pb"))) == 2
    assert len(list((tmp_path / "kept" / "_a_b").glob("plugins/profile/*/*.xplane.pb"))) == 1


def test_traces_kept_in_the_same_second_have_separate_folders(tmp_path, monkeypatch):
    trace = one_trace(Session(tmp_path))
    monkeypatch.setattr("time.strftime", lambda _: "2026_01_31_12_00_00")
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda _: keep_trace(trace, tmp_path / "kept", ""), range(40)))
    assert len({path.parent for path in kept}) == 40
    assert all(path.read_bytes() == trace.read_bytes() for path in kept)


def test_no_partial_trace_is_kept_on_a_full_disk(tmp_path):
    trace = one_trace(Session(tmp_path))
    whole = keep_trace(trace, tmp_path / "kept", "")
    with (
        files_of_at_most(trace.stat().st_size - 1),
        pytest.raises(
            CaptureError,
            match=r"^the trace cannot be kept in .*: File too large; see --tfperf-trace-dir$",
        ),
    ):
        keep_trace(trace, tmp_path / "kept", "")
    assert list((tmp_path / "kept/plugins/profile").glob("**/*")) == [whole.parent, whole]
    assert whole.read_bytes() == trace.read_bytes()


@pytest.mark.parametrize("n_call", [1, 5])
def test_a_clock_that_is_set_while_steps_are_traced_is_an_error(profile, monkeypatch, n_call):
    """The first step and the traced ones; shares of a trace would be of an hour, and pass every limit."""
    real, lead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + lead[0])
    for jump_s, said in ((3600.0, "forward by 3,600 s"), (-3600.0, "back by 3,600 s")):
        lead[0], calls = 0.0, []

        def jumping(x, jump_s=jump_s, calls=calls):
            calls.append(x)
            traced = user_session_runs() or len(calls) == 1
            if traced and len(calls) >= n_call:
                lead[0] = jump_s
            return step(x)

        told = f"the clock of this machine was set {said} while steps"
        with pytest.raises(CaptureError, match=told):
            profile(lambda x, jumping=jumping: jumping(x), [tf.ones(3)] * 40, name=said)


@pytest.mark.parametrize("jump_s", [3600.0, pytest.param(-3600.0, marks=pytest.mark.full)])
def test_a_clock_that_is_set_between_other_steps_changes_no_duration(profile, monkeypatch, jump_s):
    real, lead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + lead[0])

    def jumping(x):
        if not user_session_runs():
            lead[0] += jump_s
        return step(x)

    found = profile(jumping, [tf.ones(3)] * 40)
    assert 0 < found.step_time < 60
    assert 0 <= found.host_overhead < 1


def test_truncated_trace_is_a_trace_error(tmp_path):
    session = Session(tmp_path)
    step(tf.ones(3))
    path = one_trace(session)
    raw = path.read_bytes()
    assert read_session(path).planes
    planes = [end for _, _, _, end in Message(raw, "whole").fields(0, len(raw), "XSpace")]
    for length in {*planes[:-1], *range(0, len(raw), 1 + len(raw) // 300)}:
        path.write_bytes(raw[:length])
        with pytest.raises(TraceError):
            read_session(path)
