"""Bounds of the peak where the trace knows too little, and comparisons that chance does not decide."""

import pytest
from helpers.builders import profile
from helpers.xspace import MS, event, line, plane, space

from pytest_tfperf.baseline.structure import against_profile, structure_of
from pytest_tfperf.checks.limits import Limit, check_limits
from pytest_tfperf.graphs import OpNode, StepGraph, Tensor
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics import memory_causes
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.memory import analyse_peak as analyse
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import MEMORY_CAUSES, Unknown

MIB = 1 << 20


def peak(*steps, op="MaxPool", eager=(), bound=Unknown(""), device=False, allocated=0):  # noqa: B008
    """
    The value of a trace whose steps allocate these sizes, each for the op.

    A negative size frees as many bytes, whose address is their number. Steps take 10 ms. Eager ops allocate the sizes in `eager`.
    """
    marks = [event("train", n * 10 * MS, 9 * MS, step_num=n, _r=1) for n in range(len(steps))]
    memory, held = [], 0
    for n, sizes in enumerate(steps):
        for place, size in enumerate(sizes, 1):
            held += size
            name = "MemoryAllocation" if size > 0 else "MemoryDeallocation"
            start = n * 10 * MS + place * MS // 10
            stats = {"bytes_allocated": held, "allocation_bytes": abs(size), "addr": abs(size)}
            if size in eager:
                memory.append(event("EagerKernelExecute", start - 1000, 2000))
            memory.append(event(name, start, 0, **stats, **({"tf_op": op} if size > 0 else {})))
    planes = [plane("/host:CPU", line("a", *marks), line("b", *memory))]
    if device:
        planes.append(plane("/device:GPU:0", line("Stream #1", event("kernel", MS, MS))))
    graph = StepGraph(before={}, after={}, allocated=allocated)
    recording = Recording(name="", trace=None, workload={}, memory_bound=bound, graph=graph)
    return analyse(Evidence(recording, decode_trace(space(*planes)))).values["peak_memory"]


def verdict(value, relation, bound):
    limit = Limit(metric=METRICS["peak_memory"], relation=relation, bound=bound, argument="")
    return check_limits(profile(peak_memory=value), [limit], None, False)[0].verdict.value


def test_small_steps_are_bounded_by_the_growth_of_the_process():
    value = peak([1000, -1000], [2000, -2000], bound=5 * MIB)
    assert (value.number, value.low(), value.high()) == (5 * MIB, 1000, 5 * MIB)
    assert [verdict(value, "max", limit) for limit in (999, 1000, 5 * MIB - 1, 5 * MIB)] == [
        "FAIL",
        "UNKNOWN",
        "UNKNOWN",
        "PASS",
    ]
    assert verdict(value, "min", 5 * MIB + 1) == "FAIL"


def test_the_largest_result_of_the_graph_is_a_lower_bound():
    for steps, allocated, found in (
        ([[1000, -1000]], 3 * MIB, (3 * MIB, 5 * MIB)),
        ([[2000, -2000]], 1000, (2000, 5 * MIB)),
        ([[2 * MIB, -2 * MIB]], 3 * MIB, (3 * MIB, 5 * MIB)),  # it bypassed the allocator
        ([[4 * MIB, -4 * MIB], [2 * MIB, -2 * MIB]], 3 * MIB, (2 * MIB, 4 * MIB)),
    ):
        value = peak(*steps, bound=5 * MIB, allocated=allocated)
        assert (value.low(), value.high()) == found, steps
    assert verdict(peak([9, -9], bound=5 * MIB, allocated=3 * MIB), "max", 2 * MIB) == "FAIL"


def test_a_limit_holds_in_every_step():
    value = peak([4 * MIB, -4 * MIB], [2 * MIB, -2 * MIB])
    assert [verdict(value, "max", limit) for limit in (4 * MIB - 1, 4 * MIB)] == ["FAIL", "PASS"]


def causes(evidence):
    """The shares and places of what the memory holds."""
    value = analyse(evidence).values["peak_memory"]
    rows = memory_causes.analyse(evidence).tables[MEMORY_CAUSES].rows
    return value, [(round(share, 3), where) for _, _, share, where, _ in rows]


def test_the_arrays_are_those_of_the_allocator_that_reported_the_value():
    def allocation(at_ms, allocator, size, op, shape):
        stats = {"bytes_allocated": size, "allocation_bytes": size, "addr": at_ms, "tf_op": op}
        stats |= {"allocator_name": allocator, "data_type": "1", "shape": shape}
        return event("MemoryAllocation", at_ms * MS, 0, **stats)

    memory = [
        allocation(1, "GPU_0_bfc", 100 * MIB, "MatMul", "[5120,5120]"),
        allocation(2, "mklcpu", 900 * MIB, "ParallelMap", "[230400,1024]"),
    ]
    marks = line("a", event("train", 0, 9 * MS, step_num=0, _r=1))
    device = plane("/device:GPU:0", line("Stream #1", event("kernel", MS, MS)))
    trace = decode_trace(space(plane("/host:CPU", marks, line("b", *memory)), device))
    value, found = causes(Evidence(Recording(name="", trace=None, workload={}), trace))
    assert value.number == 100 * MIB
    assert found == [(1, "float32[5120,5120] of MatMul")]


def test_the_largest_result_is_a_part_of_what_the_process_grew_by():
    def op(name, op_type, inputs, shape):
        tensor = Tensor(op=name, shape=shape, dtype="float32")
        return OpNode(name=name, op_type=op_type, inputs=inputs, outputs=(tensor,))

    x = op("x", "Placeholder", (), (64, 64))
    ops = (x, op("y", "MatMul", x.outputs, (8192, 9600)))
    graph = StepGraph(before={}, after={}, allocated=300 * MIB)
    recording = Recording(
        name="", trace=None, workload={}, memory_bound=1200 * MIB, graph=graph, ops=ops
    )
    marks = line("a", event("train", 0, 9 * MS, step_num=0, _r=1))
    value, found = causes(Evidence(recording, decode_trace(space(plane("/host:CPU", marks)))))
    assert (value.low(), value.high()) == (300 * MIB, 1200 * MIB)
    assert found == [(0.25, "float32[8192,9600] of MatMul 'y'")]


def test_without_a_reading_or_beside_an_accelerator_small_steps_stay_unknown():
    assert peak([1000, -1000], bound=Unknown("swapped out")).why.endswith("; swapped out")
    assert peak([1000, -1000]).number is None
    assert peak([1000, -1000], bound=5 * MIB, device=True).number is None


def test_bounds_are_neither_recorded_nor_compared():
    first, second = (profile(peak_memory=peak([9, -9], bound=size)) for size in (5, 5 * MIB))
    environment = {"platform": "cpu", "setting": {}}
    assert structure_of(first, environment)["platform"]["cpu"] == {}
    assert against_profile(second, first, "HEAD", "against") == []
    known = profile(peak_memory=peak([2 * MIB, -2 * MIB]))
    assert against_profile(first, known, "HEAD", "against") == []
    assert against_profile(known, first, "HEAD", "against") == []


def verdicts(before, after):
    first, second = (profile(peak_memory=value) for value in (before, after))
    return [found.verdict.value for found in against_profile(second, first, "HEAD", "against")]


SEQUENTIAL = [2 * MIB, -2 * MIB, MIB, -MIB, 4 * MIB, -4 * MIB]
OVERLAPPING = [2 * MIB, MIB, 4 * MIB, -2 * MIB, -MIB, -4 * MIB]


@pytest.mark.parametrize(
    ("before", "after"), [(SEQUENTIAL, OVERLAPPING), (OVERLAPPING, SEQUENTIAL)]
)
def test_the_order_of_the_same_allocations_decides_nothing(before, after):
    first, second = peak(before), peak(after)
    assert {first.number, second.number} == {4 * MIB, 7 * MIB}
    assert first.detail["in_any_order"] == second.detail["in_any_order"] == 2 * MIB
    assert verdicts(first, second) == ["PASS"]


def test_an_op_that_allocates_twice_the_peak_before_is_a_regression():
    before = peak(OVERLAPPING)
    largest = [14 * MIB, 14 * MIB + 2, 14 * MIB + 4]
    decided = [verdicts(before, peak([size, -size])) for size in largest]
    assert decided == [["PASS"], ["REGRESSION"], ["REGRESSION"]]
    assert verdicts(peak([15 * MIB, -15 * MIB]), before) == ["PASS"]


def test_a_copy_of_an_array_decides_nothing():
    """NumPy aligns an array by chance, and TensorFlow copies one that is not aligned."""
    aligned, copied = [2 * MIB, -2 * MIB], [50 * MIB, 2 * MIB, -2 * MIB, -50 * MIB]
    assert verdicts(peak(aligned), peak(copied, op="")) == ["PASS"]
    assert verdicts(peak(copied, op=""), peak(aligned)) == ["PASS"]


def test_an_eager_op_allocates_too():
    value = peak([30 * MIB, 20 * MIB, -20 * MIB, -30 * MIB], op="", eager={20 * MIB})
    assert value.detail["in_any_order"] == 10 * MIB


def test_a_copy_of_the_step_before_is_no_memory_that_an_op_may_use():
    """The copy that the second step frees is followed by another one, or there is none at all."""
    steps = [30 * MIB, 20 * MIB, -20 * MIB], [-30 * MIB, 30 * MIB, 20 * MIB, -20 * MIB]
    assert peak(*steps, op="", eager={20 * MIB}).detail["in_any_order"] == 10 * MIB


def test_memory_that_a_step_frees_first_is_not_needed_again():
    """The second step frees 30 MiB of the first before it allocates 40 MiB, or afterwards."""
    early, late = ([31 * MIB], [-31 * MIB, 40 * MIB]), ([31 * MIB], [40 * MIB, -31 * MIB])
    first, second = peak(*early), peak(*late)
    assert (first.number, second.number) == (9 * MIB, 31 * MIB)
    assert first.detail["in_any_order"] == second.detail["in_any_order"] == 9 * MIB // 2
    assert verdicts(first, second) == ["PASS"]


def test_an_address_may_be_used_again():
    """Of two deallocations at one address in a step, the first frees memory of the step before."""
    value = peak([3 * MIB], [-3 * MIB, 3 * MIB, -3 * MIB, 20 * MIB, -20 * MIB])
    assert (
        value.detail["in_any_order"] == 3 * MIB // 2
    )  # of the first step; the second's is 17 MiB / 2
    value = peak([30 * MIB], [-30 * MIB, 30 * MIB, -30 * MIB, 40 * MIB, -40 * MIB])
    assert value.detail["in_any_order"] == 10 * MIB // 2
