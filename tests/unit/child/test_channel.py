"""Objects between two ends of a pair of sockets: whole, in order, within a time, and none after the end."""

import os
import resource
import socket

import pytest

from pytest_tfperf.child.channel import Channel


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    with left, right:
        yield Channel(left), Channel(right), right


def test_objects_arrive_in_order_however_they_are_cut(ends):
    here, there, raw = ends
    here.send(run="a", next=None)
    here.send(text="two\nlines", path=len)
    assert there.receive() == {"run": "a", "next": None}
    assert there.receive(1) == {
        "text": "two\nlines",
        "path": str(len),
    }  # what JSON has not is said in words
    raw.sendall(b'{"a": 1}\n{"b"')
    assert here.receive() == {"a": 1}
    raw.sendall(b": 2}\n")
    assert here.receive(0) == {"b": 2}


def test_no_answer_in_time(ends):
    here, _, raw = ends
    raw.sendall(b'{"cut')
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        here.receive(0.01)


def test_an_end_that_does_not_listen(ends):
    here, _there, _ = ends
    with pytest.raises(TimeoutError):
        here.send(0.01, text="x" * 10_000_000)


def test_the_end(ends):
    here, there, _ = ends
    there.send(last=True)
    there.close()
    assert here.receive() == {"last": True}
    with pytest.raises(EOFError, match="the other end is closed"):
        here.receive(1)
    with pytest.raises(EOFError):
        here.send(more=1)


def test_a_process_may_have_many_files_open():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, max(hard, 2048)))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        left, right = socket.socketpair()
        with left, right:
            Channel(right).send(word="hear")
            assert Channel(left).receive(1) == {"word": "hear"}
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
