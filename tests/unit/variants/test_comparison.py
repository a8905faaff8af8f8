"""Times in turns as ratios, tables and lines."""

import copy
import json
import math
import statistics

import pytest
from helpers.builders import profile, value
from helpers.tables import cells

from pytest_tfperf.errors import CaptureError, UnknownMetric
from pytest_tfperf.values import Value
from pytest_tfperf.variants.comparison import Comparison, Ratio

PLAIN = tuple(0.010 * (1 + 0.02 * turn) for turn in range(8))
FAST = tuple(second / 2 for second in PLAIN)
SLOW = (0.012, 0.012, 0.012, 0.012, 0.016, 0.016, 0.016, 0.016)


@pytest.fixture
def comparison():
    return Comparison(
        turns={"plain": PLAIN, "xla": FAST},
        profiles={
            "plain": profile(
                step_time=0.011, xla_clusters=0, retraces=Value.unknown("retraces", "private API")
            ),
            "xla": profile(
                step_time=0.005,
                xla_clusters=1,
                retraces=0,
                peak_memory=value("peak_memory", 2048, low=1024, high=2048),
            ),
        },
        notes=("order of turns: seed 7",),
    )


def test_a_variant_that_takes_half_the_time_is_twice_as_fast(comparison):
    ratio = comparison.speedup("xla", over="plain")
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((2, 2, 2))
    assert ratio.interval.n == 8
    assert comparison.speedup("plain", over="xla").ratio == pytest.approx(0.5)
    assert comparison.speedup("xla") == ratio
    assert comparison.speedup("plain").ratio == 1
    assert comparison.step_time("plain") == pytest.approx(0.0107)


def test_the_ratio_is_taken_round_by_round():
    drifting = Comparison(turns={"a": SLOW, "b": tuple(second / 3 for second in SLOW)})
    assert (drifting.speedup("b").low, drifting.speedup("b").high) == pytest.approx((3, 3))
    other = Comparison(turns={"a": SLOW, "b": (0.012,) * 8})
    assert (other.speedup("b").low, other.speedup("b").high) == pytest.approx((1, 16 / 12))


def test_too_few_rounds_give_a_ratio_and_no_interval():
    ratio = Comparison(turns={"a": PLAIN[:7], "b": FAST[:7]}).speedup("b")
    assert ratio.ratio == pytest.approx(2)
    for end in ("low", "high"):
        with pytest.raises(
            UnknownMetric,
            match=r"^the ratio has no interval: 7 pairs of turns cannot give .* needs 8$",
        ):
            getattr(ratio, end)
    assert str(ratio) == "2.000 (7 pairs of turns cannot give an interval of 0.99: that needs 8)"
    assert ratio.to_json() == {
        "ratio": ratio.ratio,
        "low": None,
        "high": None,
        "confidence": None,
        "n": None,
        "why": ratio.why,
    }


@pytest.mark.parametrize(
    "read",
    [
        lambda c: c.step_time("xal"),
        lambda c: c.speedup("xal"),
        lambda c: c.speedup("xla", over="xal"),
    ],
)
def test_an_unknown_variant_is_an_error_with_the_nearest(comparison, read):
    with pytest.raises(
        CaptureError, match=r"no variant 'xal' was compared; did you mean 'xla'\? valid: plain, xla"
    ):
        read(comparison)


def test_the_table_has_every_metric_known_of_a_variant_side_by_side(comparison):
    table = comparison.table()
    assert [column.key for column in table.columns] == ["metric", "plain", "xla"]
    assert table.rows == (
        ("step_time in turns", "10.7 ms", "5.35 ms"),
        (
            "against plain",
            None,
            "2.000 times as fast (2.000 to 2.000, 99.2 % interval of 8 rounds)",
        ),
        ("xla_clusters", "0", "1"),
        ("retraces", None, "0"),
        ("peak_memory", None, "1 KiB…2 KiB"),
    )


def test_without_profiles_the_table_has_what_the_turns_say():
    three = Comparison(turns={"a": PLAIN, "b": FAST, "c": SLOW})
    assert cells(three.table(), "metric", "a") == [
        ("step_time in turns", "10.7 ms"),
        ("against a", None),
    ]


def test_an_assertion_shows_one_line_for_each_variant(comparison):
    assert str(comparison).splitlines() == [
        "plain: 10.7 ms a step",
        "xla: 5.35 ms a step, 2.000 times as fast as plain (2.000 to 2.000, 99.2 % interval of 8 rounds)",
    ]
    assert repr(comparison).startswith("<Comparison plain: 10.7 ms a step; xla: 5.35 ms a step")
    assert repr(Ratio(ratio=123.4, why="too few")) == "123 (too few)"


# medians of 10 and 9 ms, although b is slower in all rounds but two
CONTRADICTING = Comparison(
    turns={
        "a": (0.008, 0.008, 0.008, 0.0101, 0.0102, 0.012, 0.012, 0.0099, 0.0099),
        "b": (0.009, 0.009, 0.009, 0.0111, 0.0112, 0.0132, 0.0132, 0.004, 0.004),
    }
)


def test_times_and_ratio_never_contradict_each_other():
    medians = [statistics.median(seconds) for seconds in CONTRADICTING.turns.values()]
    assert medians[1] < medians[0]
    ratio = CONTRADICTING.speedup("b").ratio
    assert ratio < 1
    assert CONTRADICTING.step_time("b") > CONTRADICTING.step_time("a") == medians[0]
    assert CONTRADICTING.step_time("a") / CONTRADICTING.step_time("b") == pytest.approx(ratio)
    assert CONTRADICTING.to_json()["step_time"]["b"] == CONTRADICTING.step_time("b")


def test_what_is_slower_is_told_by_how_many_times_with_the_interval_that_way_round():
    slower = Comparison(turns={"plain": PLAIN, "xla": tuple(1.25 * second for second in PLAIN)})
    assert str(slower).splitlines()[1] == (
        "xla: 13.4 ms a step, 1.250 times slower than plain "
        "(1.250 to 1.250, 99.2 % interval of 8 rounds)"
    )
    assert slower.speedup("xla").ratio == pytest.approx(0.8)
    turns = {"a": PLAIN, "b": tuple(s * (1.1 + 0.1 * (i % 3)) for i, s in enumerate(PLAIN))}
    found = Comparison(turns=turns).speedup("b")
    low, high = 1 / found.high, 1 / found.low
    assert f"times slower ({low:.3f} to {high:.3f}, 99.2 %" in found.in_words()
    few = Comparison(turns={"a": PLAIN[:7], "b": turns["b"][:7]}).speedup("b")
    assert few.in_words() == f"{1 / few.ratio:.3f} times slower ({few.why})"
    assert (
        Comparison(turns={"a": PLAIN, "b": PLAIN})
        .speedup("b")
        .in_words("a")
        .startswith("1.000 times as fast as a (")
    )


def test_json_is_plain_and_whole(comparison):
    data = comparison.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == {
        **data,
        "table": json.loads(json.dumps(data["table"])),
    }
    assert data["variants"] == ["plain", "xla"]
    assert data["turns"]["xla"] == list(FAST)
    assert data["step_time"]["plain"] == pytest.approx(0.0107)
    assert data["speedup"]["xla"]["low"] == pytest.approx(2)
    assert math.isclose(data["speedup"]["xla"]["confidence"], 1 - 2 / 2**8)
    assert data["notes"] == ["order of turns: seed 7"]


def test_a_comparison_is_a_value(comparison):
    assert copy.deepcopy(comparison) == comparison
    with pytest.raises(AttributeError):
        comparison.notes = ()


def test_what_a_loop_adds_is_a_ratio_of_rounds_with_its_interval():
    bare = tuple(second / 2 for second in PLAIN)
    table = Comparison(turns={"jax": PLAIN, "jax bare": bare, "torch": SLOW}).table()
    [row] = [row for row in table.rows if row[0] == "Keras' loop adds"]
    assert row[1] == "100 % (100 % to 100 %)"
    assert row[2:] == (None, None)


def test_too_few_rounds_give_what_a_loop_adds_no_interval():
    table = Comparison(turns={"jax": PLAIN[:3], "jax bare": PLAIN[:3]}).table()
    [row] = [row for row in table.rows if row[0] == "Keras' loop adds"]
    assert row[1].startswith("0 % (")
    assert "interval" in row[1]
