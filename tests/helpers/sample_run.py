"""A run with something of all that reports show: every verdict, two profiles of a test, comparisons with and without an interval."""

from dataclasses import replace

from helpers.builders import check, profile, record_of, value

from pytest_tfperf.remedies.results import Remedies, Tried
from pytest_tfperf.results import Verdict
from pytest_tfperf.runs import Run
from pytest_tfperf.stats.signed_rank import Interval
from pytest_tfperf.values import PARTS, REMEDIES, Advice, Column, Step, Table
from pytest_tfperf.variants.comparison import Ratio

LONG = "TestModels::test_train_step[resnet50-batch_size_256-mixed_bfloat16]"
DIFFERENCES = (
    {
        "what": "3 new Transpose on the GPU (encoder/transpose, encoder/transpose_1, and 1 more)",
        "seconds": 0.0012,
    },
    {"what": "1 fewer fusion on the GPU (12 → 11 a step); fusion.17 lost", "seconds": -0.0004},
    {"what": "XLA executable step: 80 → 95 ops, 12 → 11 fusions", "seconds": None},
)


def compared(verdict, metric, sentence, name="", kind="against", details=(), advice=(), **detail):
    return check(
        verdict, metric, sentence, name, kind, details=details, advice=advice, detail=detail
    )


def steps(*periods_s):
    shares = {"input": 0.25, "host_compute": 0.5, "other": 0.25}
    return tuple(
        Step(
            name=f"train {n}",
            period_s=period,
            parts_s={part: period * shares.get(part, 0.0) for part in PARTS},
        )
        for n, period in enumerate(periods_s)
    )


def tried(remedy, ratio, low, high, **fields):
    """A remedy that took turns, as the sample and its tests show it."""
    interval = Interval(ratio=ratio, low=low, high=high, confidence=0.99, n=8)
    own = {"outputs": "same", "write": f"model.py:3  {remedy}", "step_time": 0.01, **fields}
    return Tried(remedy=remedy, speedup=Ratio(ratio=ratio, interval=interval), **own)


TRAIN = replace(
    profile(
        step_time=0.0125,
        input_bound=0.19,
        xla_compiles=0,
        retraces=0,
        eager_ops=3,
        host_overhead=0.05,
        first_step_time=2.5,
        xla_launches=value("xla_launches", 2, low=2, high=3),
        peak_memory=1.5 * 2**30,
        throughput=2560,
        epoch_gap=0.004,
        steps=steps(0.012, 0.013),
        notes=("timed window: 12 of 50 steps, cut",),
    ),
    tables={
        "stages": Table.of(
            "input pipeline",
            [
                Column("stage", "stage"),
                Column("name", "name"),
                Column("calls", "calls", "count"),
                Column("self_s", "self time a step", "s"),
                Column("blocking_s", "the step waits", "s"),
            ],
            [("Map", "", 1, 0.003, 0.002), ("Batch", "", 1, 0.0001, 0.0)],
        ),
        REMEDIES: Remedies(
            tried=(
                tried("no input at all", 9.6, 9.0, 10.0, is_bound=True, outputs="–"),
                tried(
                    "@tf.function",
                    5.1,
                    4.9,
                    5.3,
                    dropped="time.sleep at train.py:12",
                ),
                tried("num_parallel_calls=tf.data.AUTOTUNE", 3.2, 3.0, 3.4, input_share=0.61),
                tried(".cache()", 1.01, 0.97, 1.06, outputs="step 1 differs by up to 2"),
                tried("jit_compile=True", 0.5, 0.4, 0.6, outputs="within tolerance"),
                Tried(remedy="deterministic=False", why="no time was left"),
            ),
            unchanged_s=0.0125,
            seconds=41.2,
        ).table(),
    },
    advice=(
        Advice(
            what="map in parallel", because="90 % in Map", win_s=0.002, look="the input pipeline"
        ),
    ),
)
EVAL = replace(
    profile("eval", input_bound=0.01, xla_compiles=0), ended="the data ended after 12 steps"
)
FAILED = check(
    "FAIL",
    sentence="input_bound is 19 %, above the limit of 5 % (max_input_bound='5%')",
    details=(("where", "90 % in Map"),),
    advice=(("try", "prefetch"),),
    detail={"relation": "max", "bound": 0.05},
)
PASSED = check(
    "PASS",
    "retraces",
    "retraces is 0, limit 0",
    detail={"relation": "max", "bound": 0},
)
CHECKS = (
    FAILED,
    PASSED,
    check(
        "UNKNOWN",
        "epoch_gap",
        "epoch_gap is unknown, limit 1 s (max_epoch_gap=1): no epoch ended",
        name="eval",
        detail={"relation": "max", "bound": 1},
    ),
    compared(
        "REGRESSION",
        "step_time",
        "step_time is 23 % slower than main: 10.1 ms to 12.5 ms, limit 5 %",
        details=(("", "+1.2 ms: 3 new Transpose on the GPU"),),
        before=0.0101,
        after=0.0125,
        ratio=1.231,
        low=1.18,
        high=1.29,
        confidence=0.99,
        smallest=0.02,
        turns=[[0.0125, 0.0101]],
        differences=list(DIFFERENCES),
    ),
    compared("PASS", "xla_compiles", "xla_compiles is 0, as in main", before=0.0, after=0.0),
    compared("REGRESSION", "eager_ops", "eager_ops rose from 2 to 3", before=2.0, after=3.0),
    compared(
        "IMPROVED",
        "peak_memory",
        "peak_memory fell from 2 GiB to 1.5 GiB",
        before=2.0 * 2**30,
        after=1.5 * 2**30,
    ),
)
OTHERS = (
    compared(
        "INCONCLUSIVE",
        "step_time",
        "step_time is 200 ms; 1 of 5 needed runs recorded",
        kind="baseline",
        before=0.19,
        after=0.2,
        ratio=1.0526,
    ),
    compared(
        "MISSING",
        "baseline",
        "no baseline for 'test_new' in tests/__tfperf__/test_model.json",
        advice=(("try", "record it"),),
        kind="baseline",
    ),
    compared(
        "INCOMPARABLE", "platform", "platform metrics of the baseline are for H100", kind="baseline"
    ),
    compared("NEW", "fusions", "fusions is 3, and the baseline has none", kind="baseline"),
)


def a_run():
    tests = (
        record_of(TRAIN, EVAL, checks=CHECKS, outcome="failed", line=12),
        record_of(profile(step_time=0.2, input_bound=0), key=LONG, checks=OTHERS, line=40),
    )
    run = Run(created="2026-01-31T12:00:00+00:00", tests=tests, commit="0123456789ab+")
    assert {one.verdict for test in run.tests for one in test.checks} == set(Verdict)
    return run
