"""Timed blocks of steps, with clocks that the test sets."""

from types import SimpleNamespace

from pytest_tfperf.capture import blocks
from pytest_tfperf.capture.blocks import BlockTimer


def test_a_validation_between_epochs_is_no_part_of_the_step_behind_it(monkeypatch):
    cpu_s = [0.0]
    monkeypatch.setattr(blocks, "process_time", lambda: cpu_s[0])
    for n_before in (0, 1):  # it comes before the first call of a block, or before the second
        timer = BlockTimer(SimpleNamespace(steps_per_call=1, latency=True))
        block = timer.block(3)
        next(block)
        for number in range(3):
            if number == n_before:
                timer.fetched(7, 6)
                cpu_s[0] += 5
                timer.epoch_began()
            timer.fetched(0.25, 0.125)
            cpu_s[0] += 1
            try:
                next(block)
            except StopIteration as end:
                found = end.value
        assert found.cpu_seconds == 3, n_before
        assert found.next_seconds == [0.25] * 3, n_before
        assert found.stood_seconds == [0.125] * 3, n_before
