"""The summary of workers against counts by hand."""

from dataclasses import replace

import pytest
from helpers.builders import profile

from pytest_tfperf.turns.workers import WORKERS, summarised
from pytest_tfperf.values import PARTS, Column, Step, Table

OPS = [Column(key, key) for key in ("type", "self_s")]


def worker(period_s, collective_s=0.0, on_device_s=0.0, n_steps=2, **parts_s):
    """A profile whose steps last so long; `collective_s` are in ops of the host."""
    parts = dict.fromkeys(PARTS, 0.0) | parts_s | {"collective": on_device_s}
    parts["host_compute"] += collective_s
    steps = tuple(Step(name=f"step {n}", period_s=period_s, parts_s=parts) for n in range(n_steps))
    rows = [("CollectiveReduceV2", collective_s), ("MatMul", 0.5)] if collective_s else []
    return replace(profile(steps=steps), tables={"host_ops": Table.of("ops", OPS, rows)})


def skew(*profiles):
    return summarised(profiles)[0].value("step_skew")


def test_the_slowest_works_longest_outside_of_collectives():
    fast = worker(0.030, collective_s=0.024, other=0.002, host_compute=0.004)
    slow = worker(0.030, collective_s=0.004, other=0.022, host_compute=0.004)
    found = summarised([fast, fast, slow])
    for one in found:
        value = one.value("step_skew")
        assert value.number == pytest.approx(26 / 6 - 1)  # 26 ms against a median of 6 ms
        assert value.detail["where"] == (
            "worker 2 is the slowest: 26 ms of a step outside of collectives, the others 6 ms; "
            "most of the difference is Python and the loop (+20 ms)"
        )
    rows = found[0].tables[WORKERS].records()
    assert [row["worker"] for row in rows] == ["worker 0", "worker 1", "worker 2"]
    assert [row["collective"] for row in rows] == pytest.approx([0.024, 0.024, 0.004])
    assert [row["work"] for row in rows] == pytest.approx([0.006, 0.006, 0.026])
    assert [row["over_median"] for row in rows] == pytest.approx([0, 0, 26 / 6 - 1])
    assert [WORKERS in one.tables for one in found] == [True, False, False]


def test_collectives_of_devices_count_as_those_of_the_host():
    on_device = worker(0.010, on_device_s=0.004, device_compute=0.006)
    on_host = worker(0.010, collective_s=0.004, host_compute=0.006)
    assert skew(on_device, on_host).number == pytest.approx(0)


def test_equal_workers_have_no_skew():
    one = worker(0.010, collective_s=0.002, host_compute=0.008)
    assert skew(one, one).number == 0


def test_waits_for_input_are_named_as_the_cause():
    fast = worker(0.010, collective_s=0.008, host_compute=0.002)
    slow = worker(0.010, collective_s=0.001, host_compute=0.002, input=0.007)
    assert "most of the difference is input (+7 ms)" in skew(slow, fast).detail["where"]


def test_without_evidence_of_a_collective_the_skew_is_unknown():
    cases = [
        (worker(0.010, host_compute=0.010), "worker 1"),
        (worker(0.010, n_steps=0), "worker 1"),
        (replace(worker(0.010), tables={}), "worker 1"),
    ]
    for silent, named in cases:
        value = skew(worker(0.010, collective_s=0.002, host_compute=0.008), silent)
        assert value.number is None, (silent, named)
        assert value.why.startswith(f"the trace of {named} shows no collective"), (silent, named)


def test_workers_that_only_wait_have_no_skew_to_know():
    one = worker(0.010, collective_s=0.010)
    assert skew(one, one).why == "the workers do nothing but wait for each other"


def test_ops_cannot_take_longer_than_the_host_computes():
    overlapping = worker(0.010, host_compute=-0.020, collective_s=0.024)  # 4 ms by the breakdown
    [row, _] = summarised([overlapping, overlapping])[0].tables[WORKERS].records()
    assert row["collective"] == pytest.approx(0.004)
