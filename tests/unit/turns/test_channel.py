"""Messages between two ends of a pair of sockets: whole, in order, within a time, and none after the end."""

import os
import resource
import socket
from dataclasses import replace
from types import MappingProxyType

import msgspec
import numpy as np
import pytest
from helpers.builders import check, profile

from pytest_tfperf.turns.messages import (
    Channel,
    Ended,
    FromChild,
    Judged,
    Measured,
    Ran,
    Reported,
    Run,
    ToChild,
)


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    yield Channel(left, FromChild, 0.05), Channel(right, ToChild)
    for one in (left, right):
        one.close()


def test_messages_arrive_in_order_with_their_kinds_and_values(ends):
    here, there = ends
    sent = [
        Run(test="two\nlines", following=None),
        Judged(checks=(check("FAIL", sentence="x" * 100_000, detail={"before": float("inf")}),)),
        Judged(checks=None),
    ]
    for message in sent:
        here.send(message)
    assert [there.receive(1) for _ in sent] == sent


def test_a_profile_arrives_with_findings_that_wait_and_numbers_of_numpy(ends):
    here, there = ends
    one = profile(workload={"batch": 8}, step_time=0.5)
    waiting = MappingProxyType(one.metrics)  # as `metrics.profile.Demanded`, no dict
    there.send(Measured(profile=replace(one, metrics=waiting, workload={"batch": np.int64(8)})))
    assert here.receive(1).profile == one


def test_what_a_message_cannot_hold_is_a_plain_number_or_words(ends):
    here, there = ends
    there.send(Reported(report={"a": np.float32(0.5), "b": len, "c": np.arange(2)}))
    assert here.receive(1).report == {"a": 0.5, "b": str(len), "c": "[0 1]"}
    there.send(
        Reported(report={"a": [2**64, -(2**63)], "b": "data_\udcff.npy", "c": np.float32(1)})
    )
    expected = {"a": [str(2**64), -(2**63)], "b": "data_\\udcff.npy", "c": 1.0}
    assert here.receive(1).report == expected


def test_a_message_of_another_kind_is_refused(ends):
    here, there = ends
    here.send(Ended())
    with pytest.raises(msgspec.ValidationError, match="ended"):
        there.receive(1)


def test_no_answer_in_time(ends):
    here, _ = ends
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        here.receive(0.01)


def test_an_end_that_does_not_listen(ends):
    here, _ = ends
    with pytest.raises(TimeoutError):
        here.send(Run(test="x" * 10_000_000, following=None))


def test_the_end(ends):
    here, there = ends
    there.send(Ran(step_s=1))
    there.close()
    assert here.receive() == Ran(step_s=1)
    with pytest.raises(EOFError):
        here.receive(1)
    with pytest.raises(EOFError):
        here.send(Judged(checks=None))


def test_a_process_may_have_many_files_open():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, max(hard, 2048)))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        left, right = socket.socketpair()
        Channel(right, ToChild).send(Ended())
        assert Channel(left, FromChild).receive(1) == Ended()
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
