"""FLOPs and precision of a step from the costs of its modules."""

import pytest

from pytest_tfperf.facts.executions import XlaUse
from pytest_tfperf.hlo.cost import Costs, Work
from pytest_tfperf.hlo.products import Matmul, Product
from pytest_tfperf.metrics.flops import lowered_programs, traced_programs, work_values
from pytest_tfperf.recording import UNSEEN
from pytest_tfperf.values import Unknown


def costs(flops=0, matmul=0, half=0, unsure=0, uncounted=(), once=(), opaque=()):
    found = Product(op="x", matmul=Matmul(rows=1, columns=1, depth=1), flops=unsure, half=None)
    work, products = Work(flops, matmul, half), (found,)
    return Costs(work, (), uncounted=uncounted, once=once, opaque=opaque, products=products)


def test_modules_count_as_often_as_they_run():
    values = work_values([(costs(100, 80, 80), 2.0), (costs(10, 10, 0), 0.5)])
    assert values["flops"].number == 205
    assert values["half_precision"].number == pytest.approx(160 / 165)


def test_whole_numbers_stay_whole():
    """Ten programs, each in a tenth of the steps, add up to less than one in floats."""
    assert sum([0.1] * 10) != 1
    assert work_values([(costs(1), 0.1)] * 10)["flops"].number == 1
    assert work_values([(costs(5), 0.5)])["flops"].number == 2.5


def test_what_is_not_known_is_said():
    cases = [
        (Unknown("nothing was lowered"), "flops", "nothing was lowered"),
        (Unknown("nothing was lowered"), "half_precision", "nothing was lowered"),
        ([(costs(100), 1.0)], "half_precision", "no matrix multiplication"),
        ([(costs(100, 80, 0, unsure=40), 1.0)], "half_precision", "50 % of the matmul FLOPs"),
        (
            [(costs(100, 80, uncounted=("__cudnn$fmhaSoftmax",)), 1.0)],
            "flops",
            "__cudnn$fmhaSoftmax",
        ),
        ([(costs(100, 80, once=("while.3",)), 1.0)], "flops", "how often its loops run (while.3)"),
        (
            [(costs(100, 80, 40, once=("while.3",)), 1.0)],
            "half_precision",
            "how often its loops run",
        ),
    ]
    for programs, metric, why in cases:
        value = work_values(programs)[metric]
        assert value.number is None, (metric, why)
        assert why in value.why, (metric, why)


@pytest.mark.parametrize(("half", "share"), [(0, 0.0), (80, 1.0)])
def test_loops_that_nobody_counts_leave_a_precision_that_is_the_same_everywhere(half, share):
    assert (
        work_values([(costs(100, 80, half, once=("while.3",)), 1.0)])["half_precision"].number
        == share
    )


def test_a_kernel_of_unknown_work_leaves_nothing_known():
    unknown = costs(100, 80, 80, uncounted=("tpu_custom_call",), opaque=("tpu_custom_call",))
    values = work_values([(unknown, 1.0), (costs(10, 10, 10), 1.0)])
    assert values["flops"].why == "the FLOPs of these instructions are not known: tpu_custom_call"
    assert values["half_precision"].why == (
        "it is not known what these instructions multiply: tpu_custom_call"
    )


def test_declared_flops_count_and_leave_the_precision_open():
    values = work_values([(costs(8_590_000_000, opaque=("tpu_custom_call",)), 2.0)])
    assert values["flops"].number == 17_180_000_000
    assert values["half_precision"].number is None


def test_without_lowering_there_is_a_reason():
    assert lowered_programs(Unknown("it has strings")) == Unknown("it has strings")
    assert "not lowered" in lowered_programs(UNSEEN).why


def test_eager_matmuls_are_in_no_module():
    why = lowered_programs((), ["MatMul", "Conv2D", "AddV2"]).why
    assert "runs Conv2D, MatMul eagerly" in why
    assert lowered_programs((), ["AddV2"]) == ()


def test_of_a_trace_alone_all_work_must_be_in_executables_that_it_holds():
    cases = [
        ({}, False, "no XLA executable"),
        ({"f(1)": 1.0}, True, "outside XLA"),
        ({"f(1)": 1.0}, False, "0 of the 1 executables"),
    ]
    for modules, runs_ops, why in cases:
        assert why in traced_programs({}, XlaUse(None, None, modules), runs_ops).why, why


def test_executables_count_on_each_device_that_ran_them():
    """Of a pipeline each device runs its own part; of parallel data each runs the same program."""
    found = {"f(1)": costs(10), "g(2)": costs(100)}
    ran = {"f(1)": 1.0, "g(2)": 1.0}
    for on_all, flops in [({"f(1)": 1.0, "g(2)": 1.0}, 110), ({"f(1)": 4.0, "g(2)": 4.0}, 440)]:
        use = XlaUse(None, None, ran, on_all_devices=on_all)
        assert work_values(traced_programs(found, use, runs_ops=False))["flops"].number == flops


def test_executables_of_a_trace_count_as_often_as_they_ran():
    ran = XlaUse(None, None, {"f(1)": 2.0, "cut sho(2)": 0.5})
    found = {"f(1)": costs(10), "cut short(2)": costs(100)}
    assert work_values(traced_programs(found, ran, runs_ops=False))["flops"].number == 70
