"""One message for one cause: what follows from what, on evidence of the same profile."""

from dataclasses import replace

from helpers.builders import check, profile, value
from msgspec import convert

from pytest_tfperf.checks.roots import causes, with_causes
from pytest_tfperf.report.failure import failure_message
from pytest_tfperf.results import Check
from pytest_tfperf.values import PARTS, Source, Step, Value


def broken(metric, now, bound=0, relation="max", name=""):
    """A broken limit."""
    words = "below" if relation == "min" else "above"
    return check(
        "FAIL",
        metric,
        f"{metric} is {now}, {words} the limit of {bound}",
        name=name,
        detail={"relation": relation, "bound": bound},
    )


def worse(metric, before, after, kind="baseline", **detail):
    """A regression."""
    return check(
        "REGRESSION",
        metric,
        f"{metric} rose from {before} to {after}",
        kind=kind,
        detail={"before": before, "after": after, **detail},
    )


def steps(largest):
    parts = dict.fromkeys(PARTS, 1e-3) | {largest: 9e-3}
    return (Step(name="step 1", period_s=sum(parts.values()), parts_s=parts),)


def counted(metric, number, *names, **detail):
    return value(metric, number, counted_by=dict.fromkeys(names, 1), **detail)


def grouped(measured, *checks):
    """The heads of the messages, each with what follows from it."""
    found = with_causes(checks, [measured])
    assert [(one.metric, one.kind, one.verdict) for one in found] == [
        (one.metric, one.kind, one.verdict) for one in checks
    ]
    return {
        head.metric: sorted({one.metric for one in found if one.follows == head.metric})
        for head in causes(found)
    }


def test_one_profile_has_one_message_for_each_cause_on_its_evidence():
    n = {"n_steps": 12}
    step, of_jax = ("step",), ("multiply", "add")
    cases = [
        # (what holds, the metric that follows, the profile with the evidence, and without)
        (
            "eager_ops",
            "retraces",
            profile(eager_ops=counted("eager_ops", 9, *of_jax), retraces=counted("retraces", 3, "add")),
            profile(eager_ops=counted("eager_ops", 9, *of_jax), retraces=counted("retraces", 3, "add", "loss")),
        ),
        (
            "eager_ops",
            "host_device_copies",
            profile(
                eager_ops=counted("eager_ops", 9, *of_jax),
                host_device_copies=counted("host_device_copies", 6, "multiply"),
            ),
            profile(
                eager_ops=counted("eager_ops", 9, *of_jax),
                host_device_copies=counted("host_device_copies", 6, "multiply", ""),
            ),
        ),
        (
            "retraces",
            "xla_compiles",
            profile(retraces=counted("retraces", 3, *step), xla_compiles=counted("xla_compiles", 3, *step)),
            profile(retraces=counted("retraces", 3, *step), xla_compiles=counted("xla_compiles", 3, "other")),
        ),
        (
            "retraces",
            "memory_growth",
            profile(retraces=counted("retraces", 11, *step, **n), memory_growth=1e6),
            profile(retraces=counted("retraces", 1, *step, **n), memory_growth=1e6),
        ),
        (
            "retraces",
            "step_time",
            profile(retraces=3, step_time=1.0, steps=steps("compile")),
            profile(retraces=3, step_time=1.0, steps=steps("input")),
        ),
        (
            "input_bound",
            "step_time",
            profile(input_bound=0.6, step_time=1.0, steps=steps("input")),
            profile(input_bound=0.1, step_time=1.0, steps=steps("host_compute")),
        ),
        (
            "input_python_stages",
            "input_bound",
            profile(input_python_stages=1, input_bound=value("input_bound", 0.6, where="stage Map (sequential, runs Python) is the slowest")),
            profile(input_python_stages=1, input_bound=value("input_bound", 0.6, where="stage Shuffle (sequential) is the slowest")),
        ),
        (
            "eager_ops",
            "step_time",
            profile(eager_ops=300, step_time=1.0, steps=steps("other")),
            profile(eager_ops=300, step_time=1.0, steps=steps("host_compute")),
        ),
        (
            "eager_ops",
            "host_overhead",
            profile(eager_ops=45, host_overhead=0.9, steps=steps("other")),
            profile(eager_ops=44, host_overhead=0.9, steps=steps("other")),  # 4.4 of 9 ms
        ),
        (
            "python_calls",
            "step_time",
            profile(python_calls=900, step_time=1.0, steps=steps("other")),
            profile(python_calls=12, step_time=1.0, steps=steps("other")),  # one of them sleeps
        ),
        (
            "xla_coverage",
            "step_time",
            profile(xla_coverage=0.0, step_time=1.0, steps=steps("host_compute")),
            profile(xla_coverage=0.9, step_time=1.0, steps=steps("host_compute")),
        ),
        (
            "xla_clusters",
            "xla_coverage",
            profile(xla_clusters=3, xla_coverage=0.9),
            profile(xla_clusters=3, xla_coverage=value("xla_coverage", 0.9, where="PyFunc at m.py:3")),
        ),
        (
            "step_time",
            "device_time",
            profile(step_time=1.0, device_time=0.9, steps=steps("device_compute")),
            profile(step_time=1.0, device_time=0.1, steps=steps("input")),
        ),
    ]  # fmt: skip
    for root, metric, with_evidence, without in cases:
        checks = (broken(metric, 9), broken(root, 9))
        assert grouped(with_evidence, *checks) == {root: [metric]}, (root, metric)
        assert grouped(without, *checks) == {root: [], metric: []}, (root, metric)


def test_a_comparison_tells_what_a_count_rose_by():
    measured = profile(retraces=1, graph_ops=40, python_calls=900, flops=2e9, step_time=2.0)
    cases = [
        ("retraces", worse("graph_ops", 37, 40, added={"Const": 3}), True),
        ("retraces", worse("graph_ops", 37, 40, added={"Const": 1, "Cast": 2}), False),
        ("retraces", worse("python_calls", 100, 900, added={"tensorflow": 700, "model.py": 100}), True),
        ("retraces", worse("python_calls", 100, 900, added={"json": 700, "tensorflow": 100}), False),
    ]  # fmt: skip
    for root, follower, follows in cases:
        found = grouped(measured, worse(root, 0, 1), follower)
        assert (len(found) == 1) is follows, follower.detail


def test_more_flops_explain_a_time_that_rose_with_them():
    for metric, part in (("step_time", "host_compute"), ("device_time", "device_compute")):
        measured = profile(flops=2e9, steps=steps(part), **{metric: 2.0})
        for rise, follows in ((2.0, True), (1.01, False)):
            flops = worse("flops", 1e9, rise * 1e9, ratio=rise)
            slower = worse(metric, 1.0, 2.0, kind="against", ratio=2.0)
            found = grouped(measured, flops, slower)
            assert found == ({"flops": [metric]} if follows else {metric: [], "flops": []}), metric


def test_a_metric_has_one_block_and_a_limit_says_the_value_before():
    limit, compared = broken("retraces", 5), worse("retraces", 0, 5)
    measured = profile(
        retraces=counted("retraces", 5, "step"), xla_compiles=counted("xla_compiles", 5, "step")
    )
    checks = [limit, broken("xla_compiles", 5), worse("xla_compiles", 0, 5), compared]
    found = with_causes(checks, [measured])
    assert failure_message("test_step", found).splitlines() == [
        "test_step: retraces is 5, above the limit of 0",
        "  before: 0 in the baseline",
        "  so also: xla_compiles 0 → 5 (above the limit of 0)",
    ]
    only_compared = with_causes([compared], [measured])
    assert only_compared == [compared]


def test_what_a_comparison_names_stays_with_the_limit_of_its_metric():
    compared = check("REGRESSION", "graph_ops", "graph_ops rose from 4 to 9", kind="baseline",
                     details=(("", "graph: Cast 0 → 3 (new, at train.py:28)"), ("changed besides", "x")),
                     detail={"before": 4, "after": 9})  # fmt: skip
    [head] = causes(with_causes([compared, broken("graph_ops", 9, 5)], [profile(graph_ops=9)]))
    assert head.kind == "limit"
    assert head.lines == ("before: 4 in the baseline", "graph: Cast 0 → 3 (new, at train.py:28)")


def test_values_unknown_since_each_step_was_traced_follow_from_that():
    ended = "stopped after 6 steps, each traced again"
    measured = profile(retraces=5)
    unknown = check("UNKNOWN", "flops", f"flops is unknown: {ended}", kind="baseline")
    checks = [worse("retraces", 0, 5), unknown]
    assert grouped(replace(measured, ended=ended), *checks) == {"retraces": ["flops"]}
    assert grouped(replace(measured, ended="the data ended"), *checks) == {
        "retraces": [],
        "flops": [],
    }
    head, _ = with_causes(checks, [replace(measured, ended=ended)])
    assert head.lines == ("so also: unknown: flops",)


def test_two_causes_are_two_messages_and_the_one_that_explains_the_time_is_first():
    measured = profile(retraces=3, input_bound=0.6, step_time=1.0, steps=steps("input"))
    checks = [broken("retraces", 3), broken("input_bound", 0.6), broken("step_time", 1.0)]
    assert list(grouped(measured, *checks)) == ["input_bound", "retraces"]


def test_causes_are_of_the_same_profile():
    names = ("train", "eval")
    measured = [profile(name, retraces=3, step_time=1.0, steps=steps("compile")) for name in names]
    checks = [broken("retraces", 3, name="train"), broken("step_time", 1.0, name="eval")]
    assert with_causes(checks, measured) == checks


def test_what_passed_is_no_cause_and_follows_from_none():
    measured = profile(retraces=3, step_time=1.0, steps=steps("compile"))
    passed = check("PASS", "retraces", "retraces is 3, limit 3")
    assert grouped(measured, passed, broken("step_time", 1.0)) == {"step_time": [], "retraces": []}


def test_a_check_whose_cause_is_not_shown_has_its_own_message():
    """A MISSING baseline that is allowed fails no test, while the limit beside it does."""
    measured = profile(half_precision=0.0)
    absent = check(
        "MISSING", "baseline", "inputs are float64 now", kind="baseline", detail={"dtypes": True}
    )
    found = with_causes([broken("half_precision", 0, 0.5, "min"), absent], [measured])
    assert [one.metric for one in causes(found)] == ["baseline"]
    assert failure_message("test_step", found[:1]).startswith("test_step: half_precision is 0")


def test_what_is_unknown_is_no_cause():
    measured = replace(profile(), ended="stopped after 6 steps, each traced again")
    checks = [check("UNKNOWN", name, f"{name} is unknown") for name in ("retraces", "xla_compiles")]
    assert with_causes(checks, [measured]) == checks


def test_json_keeps_what_a_check_follows_from():
    one = with_causes([broken("retraces", 5), worse("retraces", 0, 5)], [profile(retraces=5)])
    assert [convert(check.to_json(), Check) for check in one] == one
    assert ["follows" in check.to_json() for check in one] == [False, True]


def test_a_value_without_evidence_leaves_each_check_alone():
    measured = profile(eager_ops=Value.of("eager_ops", 3, Source.TRACE), retraces=2)
    assert grouped(measured, broken("eager_ops", 3), broken("retraces", 2)) == {
        "eager_ops": [],
        "retraces": [],
    }


def test_a_check_has_the_notes_on_its_value_and_no_other():
    measured = profile(
        step_time=value("step_time", 2.0, notes=["the warm-up was cut"]),
        retraces=value("retraces", 1),
    )
    passed = check("PASS", "retraces", "retraces is 1, limit 1")
    slow, other = with_causes([broken("step_time", 2.0, 1.0), passed], [measured])
    assert slow.lines == ("note: the warm-up was cut",)
    assert other.lines == ()
