"""How many steps a turn of a remedy has."""

import pytest

from pytest_tfperf.remedies import turns as of_turns
from pytest_tfperf.remedies.remedy import Call


@pytest.mark.parametrize("n_ready", [0, 4, 50])
def test_elements_that_are_ready_at_first_make_no_turn_of_thousands_of_slow_steps(
    n_ready, monkeypatch
):
    now, taken = [0.0], []

    class Data:
        def __iter__(self):
            for number in range(100_000):
                now[0] += 1e-6 if number < n_ready else 0.01
                taken.append(number)
                yield number

    monkeypatch.setattr(of_turns, "perf_counter", lambda: now[0])
    turns = of_turns.Turns(Call(step=lambda _: None, data=Data()))
    turns.warm_up()
    assert 20 <= turns.timed <= 160  # 0.2 s, or eight times that
    assert len(taken) < 600
