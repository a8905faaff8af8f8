"""The timeline of the median step; hand-made traces with times in ms, counted by hand."""

from helpers.traces import SYNTHETIC, whole
from helpers.xspace import at, line, plane, space

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.parts import break_down
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.metrics import median_step
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.intervals import covered
from pytest_tfperf.trace.xspace import HOST, decode_trace


def rows_of(*lines, planes=(), periods=((0, 10),)):
    """(lane, name, part, begin, end) of each row, in ms of the trace."""
    marks = line(
        "python", *(at("train", *period, step_num=n, _r=1) for n, period in enumerate(periods))
    )
    trace = decode_trace(space(plane(HOST, marks, *lines), *planes))
    found = median_step.analyse(Evidence(Recording(name="", trace=None, workload={}), trace))
    return [
        (lane, name, part, round(1e3 * start, 6), round(1e3 * (start + length), 6))
        for lane, name, part, start, length in found.tables["median_step"].rows
    ]


def test_the_parts_of_the_step_stand_side_by_side():
    fetch = line("tf_Compute/1", at("IteratorGetNextOp::DoCompute", 1, 4))
    model = line(
        "tf_Compute/2", at("ExecutorState::Process", 5, 9, id=7), at("dense/MatMul:MatMul", 5, 9)
    )
    assert rows_of(fetch, model) == [
        ("step", "", "other", 0, 1),
        ("step", "", "input", 1, 4),
        ("step", "", "other", 4, 5),
        ("step", "", "host_compute", 5, 9),
        ("step", "", "other", 9, 10),
        ("host ops", "dense/MatMul:MatMul", "host_compute", 5, 9),
    ]


def test_it_is_the_step_whose_period_is_nearest_to_the_median():
    starts = (0, 5, 14, 34)  # a period lasts to the next start: 5, 9, 20, and 1 ms of the last
    ops = [at(f"step{n}/MatMul:MatMul", start, start + 1) for n, start in enumerate(starts)]
    rows = rows_of(line("tf_Compute/1", *ops), periods=[(start, start + 1) for start in starts])
    assert [name for lane, name, *_ in rows if lane == "host ops"] == ["step0/MatMul:MatMul"]


def test_events_that_reach_beyond_the_step_are_cut():
    long = line("tf_data_private_threadpool/1", at("Iterator::Root::Prefetch::Map", 5, 35))
    rows = rows_of(long, periods=((0, 9), (10, 30), (40, 80)))
    assert ("tf.data", "Map", "input", 0, 25) in rows  # of the step from 10 to 40 ms


def test_a_lane_with_many_events_shows_the_longest_and_the_time_that_all_cover():
    ops = [at(f"op{n}:Add", 0.01 * n, 0.01 * n + 0.01) for n in range(500)]
    longest = at("long:MatMul", 6, 8)
    rows = [row for row in rows_of(line("tf_Compute/1", *ops, longest)) if row[0] == "host ops"]
    covering = [row[3:] for row in rows if not row[1]]
    assert covering == [(0, 5), (6, 8)]
    named = [row for row in rows if row[1]]
    assert len(named) == 24
    assert ("host ops", "long:MatMul", "host_compute", 6, 8) in named


def test_a_gpu_has_a_lane_of_kernels_and_one_of_copies():
    gpu = plane(
        "/device:GPU:0",
        line("stream", at("gemm", 2, 5, correlation_id=1), at("MemcpyH2D", 5, 6, correlation_id=2)),
    )
    rows = rows_of(planes=[gpu])
    assert ("GPU:0", "gemm", "device_compute", 2, 5) in rows
    assert ("GPU:0 copies", "MemcpyH2D", "input", 5, 6) in rows
    assert [row[2:] for row in rows if row[0] == "step"] == [
        ("other", 0, 2),
        ("device_compute", 2, 5),
        ("input", 5, 6),
        ("other", 6, 10),
    ]


def test_without_a_trace_there_is_no_timeline():
    assert median_step.analyse(Evidence(Recording(name="", trace=None, workload={}))).tables == {}


def test_spans_of_a_step_are_disjoint_and_sum_to_its_parts():
    paths = sorted(SYNTHETIC.glob("*.pb"))
    assert len(paths) > 10
    for path in paths:
        trace = decode_trace(path.read_bytes())
        try:
            steps = find_steps(trace)
        except TraceError:  # some have none
            steps = whole(trace)
        parts = break_down(trace, steps)
        for number in range(min(len(steps), 5)):
            begin, end = int(steps.start_ps[number]), int(steps.end_ps[number])
            sums = dict.fromkeys(parts.parts_ps, 0)
            for part, spans in parts.spans_of(number, begin, end):
                sums[part] += int(covered(spans, steps.start_ps, steps.end_ps)[number])
            sums["other"] = end - begin - sum(sums.values())
            assert sums == {part: int(column[number]) for part, column in parts.parts_ps.items()}, (
                path
            )
