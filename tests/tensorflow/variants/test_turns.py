"""Variants in turns: with a clock of the test's own, where everything can be counted, and with real TensorFlow."""

import gc
import random
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.tables import cells

from pytest_tfperf.errors import CaptureError, UnknownMetric
from pytest_tfperf.frameworks import in_use
from pytest_tfperf.variants import turns
from pytest_tfperf.variants.outputs import Tolerance
from pytest_tfperf.variants.steps import check_variants, data_of, variants_of
from pytest_tfperf.variants.turns import compare_steps

EXACT = Tolerance()


class Clock:
    """Seconds that pass only in steps; `log` holds the steps by name, and "sync" for each synchronisation."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def step(self, name, seconds):
        """A step that takes so long, or what a list says of its first calls and then of all others."""
        times = iter(seconds if isinstance(seconds, list) else [seconds])
        last = None

        def run():
            nonlocal last
            last = next(times, last)
            self.now += last() if callable(last) else last
            self.log.append(name)
            return 1.0

        return run

    def sync(self):
        self.log.append("sync")


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(turns, "perf_counter", lambda: clock.now)
    for module in (turns, in_use):
        monkeypatch.setattr(module, "synchronise", clock.sync)
    monkeypatch.setattr(in_use, "sync_cost", lambda: 1e-6)
    monkeypatch.setattr(in_use, "_runs_behind_python", lambda: False)  # JAX may be loaded
    return clock


def compare(clock, max_seconds=30.0, **steps):
    return compare_steps(
        variants_of({name: clock.step(name, seconds) for name, seconds in steps.items()}),
        {},
        EXACT,
        max_seconds,
    )


def turns_of(clock, n):
    """(name, untimed steps, timed steps) of the last n turns; each ends with a synchronisation, and has one in it."""
    blocks = [block.split() for block in " ".join(clock.log).split("sync")][-1 - 2 * n : -1]
    in_process = list(zip(blocks[::2], blocks[1::2], strict=True))
    assert all(len({*untimed, *timed}) == 1 for untimed, timed in in_process)
    return [(timed[0], len(untimed), len(timed)) for untimed, timed in in_process]


def test_steady_steps_are_known_after_eight_rounds(clock):
    found = compare(clock, plain=0.003, xla=0.001)
    assert found.variants == ("plain", "xla")
    assert [len(found.turns[name]) for name in found.variants] == [8, 8]
    assert found.step_time("plain") == pytest.approx(0.003)
    ratio = found.speedup("xla", over="plain")
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((3, 3, 3))


def test_a_turn_is_one_untimed_step_and_then_20_ms_of_them(clock):
    compare(clock, plain=0.003, xla=0.001)
    rounds = turns_of(clock, 16)
    assert {(name, untimed) for name, untimed, _ in rounds} == {("plain", 1), ("xla", 1)}
    for name, seconds in (("plain", 0.003), ("xla", 0.001)):
        sizes = {timed for other, _, timed in rounds if other == name}
        assert len(sizes) == 1
        assert 0.02 <= sizes.pop() * seconds < 0.03


def test_a_slow_synchronisation_makes_longer_turns(clock, monkeypatch):
    monkeypatch.setattr(in_use, "sync_cost", lambda: 0.002)
    compare(clock, plain=0.003, xla=0.001)
    assert all(
        0.1 <= timed * {"plain": 0.003, "xla": 0.001}[name] < 0.13
        for name, _, timed in turns_of(clock, 16)
    )


def test_every_round_has_each_variant_once_in_an_order_of_its_own(clock):
    compare(clock, a=0.02, b=0.02, c=0.02)
    names = [name for name, _, _ in turns_of(clock, 24)]
    rounds = [tuple(names[index : index + 3]) for index in range(0, 24, 3)]
    assert {tuple(sorted(one)) for one in rounds} == {("a", "b", "c")}
    assert len(set(rounds)) > 1  # all eight alike has a chance of 6^-7


def test_a_noisy_ratio_takes_more_rounds_and_stops_at_a_look(clock):
    noise = random.Random(4)
    found = compare(clock, plain=0.02, xla=lambda: 0.02 * noise.uniform(0.97, 1.03))
    n_rounds = len(found.turns["xla"])
    assert n_rounds in (16, 32, 64)
    ratio = found.speedup("xla")
    assert ratio.high / ratio.low < 1.01**2


def test_rounds_end_after_ten_seconds_though_the_interval_is_wide(clock):
    noise = random.Random(4)
    found = compare(clock, plain=0.02, xla=lambda: 0.02 * noise.uniform(0.5, 2))
    assert 9.5 < clock.now <= 10.06  # with the first call of each, before the rounds
    assert found.speedup("xla").high > found.speedup("xla").low * 1.02


def test_three_variants_go_on_until_both_ratios_are_known(clock):
    noise = random.Random(4)
    found = compare(clock, plain=0.02, same=0.02, noisy=lambda: 0.02 * noise.uniform(0.97, 1.03))
    assert len(found.turns["same"]) > 8


def test_slow_steps_get_their_eight_rounds_beyond_ten_seconds(clock):
    found = compare(clock, plain=0.5, xla=0.4)
    assert len(found.turns["plain"]) == 8
    assert 14 < clock.now < 30
    assert found.speedup("xla").low == pytest.approx(1.25)


def test_steps_too_slow_for_eight_rounds_give_no_interval_and_say_what_to_do(clock):
    found = compare(clock, plain=3.0, xla=1.5)
    assert len(found.turns["plain"]) == 2
    assert clock.now < 45
    assert found.speedup("xla").ratio == pytest.approx(2)
    with pytest.raises(UnknownMetric, match="2 pairs of turns"):
        _ = found.speedup("xla").low
    assert any(
        "2 rounds of turns took" in note and "tfperf_max_seconds" in note for note in found.notes
    )


def test_one_round_there_always_is(clock):
    assert len(compare(clock, plain=100.0, xla=100.0).turns["plain"]) == 1


def test_the_warm_up_goes_on_until_two_blocks_agree(clock):
    slow_at_first = [0.03 * 0.7**call for call in range(12)] + [0.001]
    found = compare(clock, plain=0.001, xla=slow_at_first)
    assert found.speedup("xla").ratio == pytest.approx(1)
    assert not any("warm-up" in note for note in found.notes)


def test_a_warm_up_that_never_settles_is_bounded_and_said(clock):
    growing = [0.02 * 1.3**call for call in range(40)]
    found = compare(clock, plain=0.02, xla=growing)
    assert "the warm-up of xla was over before two of its blocks agreed within 10 %" in found.notes
    assert not any("plain" in note for note in found.notes)


def test_steps_that_take_no_time_at_all_end(clock):
    found = compare(clock, plain=1e-7, xla=1e-7)
    assert {timed for _, _, timed in turns_of(clock, 16)} == {10_000}
    assert found.step_time("plain") == pytest.approx(1e-7)


def test_the_seed_of_the_order_is_noted_and_the_users_seeds_are_untouched(clock):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    python, numpy = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    seeds = {compare(clock, plain=0.02, xla=0.02).notes[-1] for _ in range(2)}
    assert (random.getstate(), np.random.get_state()[1].tolist()) == (python, numpy)  # noqa: NPY002
    assert len(seeds) == 2
    assert all(note.startswith("order of turns: seed ") for note in seeds)


@pytest.fixture
def collector():
    """Put Python's garbage collector back after the test."""
    before = gc.isenabled()
    yield
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("fails", [True, False])
def test_garbage_is_not_collected_in_turns_and_the_collector_is_as_it_was(clock, collector, fails):
    step, usual = clock.step("xla", 0.02), gc.get_threshold()
    for collects in (True, False):
        (gc.enable if collects else gc.disable)()
        states = []

        def watching(states=states):
            states.append(gc.isenabled() and gc.get_threshold() == usual)
            if fails and len(states) == 9:
                raise ZeroDivisionError
            return step()

        variants = variants_of({"plain": clock.step("plain", 0.02), "xla": watching})
        with pytest.raises(ZeroDivisionError) if fails else nullcontext():
            compare_steps(variants, {}, EXACT, 30.0)
        assert states[-1] is False
        assert gc.isenabled() is collects
        assert gc.get_threshold() == usual


def test_it_is_announced_and_the_line_is_taken_back(clock):
    said = []
    compare_steps(
        variants_of({"a": clock.step("a", 0.02), "b": clock.step("b", 0.02)}),
        {},
        EXACT,
        5.0,
        said.append,
    )
    assert said == ["comparing a, b, about 5 s", ""]


BAD = [
    (
        [lambda: 1, lambda: 2],
        TypeError,
        r'compare takes a dict of steps by name, \{"plain": step, "xla": other_step\}, not list',
    ),
    ({"plain": lambda: 1}, CaptureError, "two or more variants, and got 'plain'"),
    ({}, CaptureError, "two or more variants, and got none"),
    (
        {"plain": lambda: 1, "xla": 3},
        TypeError,
        "variant 'xla' must be a callable that runs one step, but is int: 3",
    ),
    ({"plain": lambda: 1, 7: lambda: 1}, TypeError, "a variant is named by a text, not 7"),
    ({"plain": lambda: 1, "": lambda: 1}, TypeError, "a variant is named by a text, not ''"),
    (
        {"plain": lambda x: 1, "xla": lambda: 1},
        CaptureError,
        "variant 'plain' needs arguments; give compare its data=, or bind what the step needs, as in {'plain': lambda: step",
    ),
    (
        {"plain": tf.function(lambda x: x), "xla": lambda: 1},
        CaptureError,
        "variant 'plain' needs arguments",
    ),
]


def test_what_cannot_be_compared_is_refused_with_what_to_do():
    for steps, error, message in BAD:
        with pytest.raises(error, match=message):
            variants_of(steps)


def test_coroutines_are_refused():
    async def step():
        return 1

    for refuses in (variants_of, lambda steps: data_of(steps, [1])):
        with pytest.raises(TypeError, match="variant 'xla' is a coroutine function"):
            refuses({"plain": lambda: 1, "xla": step})


def test_data_are_one_for_all_or_one_for_each_by_name():
    steps = {"a": lambda x: x, "b": lambda x, y: x}
    assert data_of(steps, [1]) == {"a": [1], "b": [1]}
    assert data_of(steps, {"b": [2], "a": [1]}) == {"a": [1], "b": [2]}


def test_data_that_are_no_data_of_the_variants():
    two = {"a": len, "b": len}
    no_iterable = "must be something to iterate over, but are int: 3"
    for steps, data, error, message in (
        (two, {"a": [1]}, CaptureError, "the data are of 'a', and the variants are 'a', 'b'"),
        (two, {"a": [1], "c": [1]}, CaptureError, "the data are of 'a', 'c', and"),
        (two, {"a": [1], "b": 3}, TypeError, f"the data of 'b' {no_iterable}"),
        (two, 3, TypeError, f"the data of 'a' {no_iterable}"),
        ({"a": len}, [1], CaptureError, "two or more variants, and got 'a'"),
        ({"a": len, "b": 1}, [1], TypeError, "variant 'b' must be a callable"),
        ([len], [1], TypeError, "compare takes a dict of steps by name"),
    ):
        with pytest.raises(error, match=message):
            data_of(steps, data)


def test_defaults_are_no_arguments_that_a_step_needs():
    assert [
        variant.name for variant in variants_of({"plain": lambda x=1: x, "xla": lambda *x: x})
    ] == ["plain", "xla"]


# --- real TensorFlow ---

X = tf.random.stateless_normal((128, 128), (1, 2))


def product(jit):
    w = tf.Variable(tf.random.stateless_normal((128, 128), (3, 4)))
    step = tf.function(
        lambda: {"sum": tf.reduce_sum(tf.tanh(X @ w)), "all": X @ w}, jit_compile=jit
    )
    return lambda: step()


@pytest.fixture
def short(monkeypatch):
    """Eight rounds and no more."""
    monkeypatch.setattr(turns, "SECONDS", 0.1)


@pytest.mark.full
def test_a_jit_function_against_the_same_without(short):
    found = compare_steps(
        variants_of({"plain": product(False), "xla": product(True)}), {}, EXACT, 30.0
    )
    assert len(found.turns["plain"]) == len(found.turns["xla"]) == 8
    ratio = found.speedup("xla", over="plain")
    assert 0 < ratio.low <= ratio.ratio <= ratio.high
    assert ratio.ratio * found.speedup("plain", over="xla").ratio == pytest.approx(1)


@pytest.mark.nightly  # of times: other work of the machine may fall on one of the two
def test_a_step_is_as_fast_as_itself(short):
    step = product(False)
    found = compare_steps(variants_of({"one": step, "other": step}), {}, EXACT, 30.0)
    ratio = found.speedup("other")
    assert ratio.low < 1.1  # 1 is outside in one of a hundred runs, and then hardly
    assert ratio.high > 1 / 1.1


def test_outputs_that_differ_by_a_percent_are_refused_naming_the_leaf():
    right, wrong = product(False), product(True)
    steps = {"plain": right, "xla": lambda: {**wrong(), "sum": wrong()["sum"] * 1.01}}
    with pytest.raises(
        AssertionError,
        match=r"variants 'plain' and 'xla' return different .*\n  output\['sum'\], float32\[\], differs by up to",
    ):
        check_variants(variants_of(steps), EXACT)
    assert check_variants(variants_of(steps), Tolerance(rtol=0.02)) == ()
    assert check_variants(variants_of(steps), None) == ()


def test_outputs_of_random_steps_differ_with_a_hint():
    generator = [tf.random.Generator.from_seed(seed) for seed in (1, 2)]
    steps = {f"seed {i}": (lambda g=g: g.normal((3,))) for i, g in enumerate(generator)}
    with pytest.raises(AssertionError, match="are random in each call as with dropout"):
        check_variants(variants_of(steps), EXACT)


def trained(seed=1):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="dense")])
    model.compile("sgd", "mse")
    return model


BATCH = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")


@pytest.mark.imports("keras")
def test_models_built_twice_from_one_seed_may_train_and_those_of_two_seeds_differ():
    one, same, other = trained(), trained(), trained(seed=2)
    steps = {"one": lambda: one.train_on_batch(*BATCH), "same": lambda: same.train_on_batch(*BATCH)}
    assert check_variants(variants_of(steps), EXACT) == ()
    with pytest.raises(AssertionError, match=r"'one' and 'other' .*\n  output"):
        check_variants(
            variants_of(
                {
                    "one": lambda: trained().train_on_batch(*BATCH),
                    "other": lambda: other.train_on_batch(*BATCH),
                }
            ),
            EXACT,
        )


def test_a_variant_that_was_profiled_before_keeps_its_first_output_and_is_not_called_again():
    calls = []

    def counted():
        calls.append(1)
        return len(calls)

    variants = variants_of({"one": counted, "other": lambda: 1})
    for _ in range(5):
        last = variants[0]()
    assert last == 5
    assert check_variants(variants, EXACT) == ()
    assert len(calls) == 5


@pytest.mark.full
def test_profiles_made_of_the_variants_first_stand_side_by_side(profile, short):
    variants = variants_of({"plain": product(False), "xla": product(True)})
    profiles = {variant.name: profile(variant, name=variant.name) for variant in variants}
    found = compare_steps(variants, profiles, EXACT, 30.0)
    rows = {metric: both for metric, *both in cells(found.table(), "metric", "plain", "xla")}
    assert rows["xla_clusters"] == ["0", "1"]
    assert rows["retraces"] == ["0", "0"]
    assert rows["eager_ops"] == ["0", "0"]
    assert None not in rows["first_step_time"]
    assert found.profiles["xla"].xla_clusters == 1
