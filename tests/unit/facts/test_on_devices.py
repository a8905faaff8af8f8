"""Which step caused a device's work; times in ms."""

from helpers.xspace import Uint, at, line, plane, space

from pytest_tfperf.facts.executions import find_xla_use
from pytest_tfperf.facts.steps import find_steps, linked_work, on_the_device
from pytest_tfperf.trace.xspace import decode_trace


def mark(number, begin, end, **stats):
    return at("train", begin, end, step_num=number, _r=1, **stats)


def gpu_trace(marks, launches, kernels, *more):
    """A host that launches (correlation id, time) and a GPU that runs (correlation id, begin, end)."""
    calls = [
        at("cuLaunchKernel", time, time + 0.01, correlation_id=number) for number, time in launches
    ]
    work = [at("gemm", begin, end, correlation_id=number) for number, begin, end in kernels]
    host = plane("/host:CPU", line("python", *marks), line("launches", *calls), *more)
    return decode_trace(space(host, plane("/device:GPU:0", line("Stream #1(Compute)", *work))))


def links(trace):
    steps = find_steps(trace)
    return [step.tolist() for _, step in linked_work(trace, steps)]


def milliseconds(times):
    return [round(time * 1e-9, 6) for time in times.tolist()]


ENQUEUED = [mark(n, n, n + 0.9) for n in range(4)]  # four steps of 1 ms on the host
LAUNCHED = [(10 + n, n + 0.5) for n in range(4)]
LATE = [(10 + n, 2 + 10 * n, 11 + 10 * n) for n in range(4)]  # 9 ms each on the device


def test_a_kernel_belongs_to_the_step_that_launched_it():
    assert links(gpu_trace(ENQUEUED, LAUNCHED, [*LATE, (99, 50, 51)])) == [[0, 1, 2, 3, -1]]


def test_a_launch_outside_every_step_belongs_to_none():
    assert links(gpu_trace(ENQUEUED, [(7, 20)], [(7, 21, 22)])) == [[-1]]


def test_the_last_of_two_launches_with_one_id_counts():
    assert links(gpu_trace(ENQUEUED, [(7, 0.1), (7, 2.1)], [(7, 21, 22)])) == [[2]]


def test_steps_that_only_enqueue_are_where_the_device_ran_them():
    steps = on_the_device(*with_steps(gpu_trace(ENQUEUED, LAUNCHED, LATE)))
    assert steps.source == "step_num, where the device ran them"
    assert milliseconds(steps.start_ps) == [2, 12, 22, 32]
    assert milliseconds(steps.end_ps) == [12, 22, 32, 41]
    assert steps.names == ("train 0", "train 1", "train 2", "train 3")


def test_steps_of_two_epochs_do_not_reach_over_the_turn_over():
    marks = [mark(n, n, n + 0.9, epoch=n // 2) for n in range(4)]
    steps = on_the_device(*with_steps(gpu_trace(marks, LAUNCHED, LATE)))
    assert milliseconds(steps.end_ps) == [12, 21, 32, 41]


def test_a_step_without_work_is_dropped_where_the_others_are_the_device_s():
    steps = on_the_device(*with_steps(gpu_trace(ENQUEUED, LAUNCHED[:1] + LAUNCHED[2:], LATE)))
    assert (steps.names, steps.n_dropped) == (("train 0", "train 2", "train 3"), 1)
    assert steps.why_dropped.endswith("they caused no work of a device")


def test_steps_stay_the_host_s_while_half_of_the_work_lies_in_them():
    for lag, moved in [(0.0, False), (0.49, False), (0.51, True)]:
        marks = [mark(n, 10 * n, 10 * n + 10) for n in range(3)]
        kernels = [(n, 10 * n + 10 * lag, 10 * n + 10 * lag + 10) for n in range(3)]
        trace = gpu_trace(marks, [(n, 10 * n + 0.1) for n in range(3)], kernels)
        before = find_steps(trace)
        assert (on_the_device(trace, before).source != before.source) is moved, lag


def test_the_last_step_of_an_epoch_lasts_until_its_work_ends():
    marks = [mark(n, 10 * n, 10 * n + 9, epoch=n // 2) for n in range(4)]
    launched = [(n, 10 * n + 1) for n in range(4)]
    kernels = [(n, 10 * n + 4, 10 * n + 9.5) for n in range(3)] + [(3, 34, 43)]
    steps = on_the_device(*with_steps(gpu_trace(marks, launched, kernels)))
    assert milliseconds(steps.start_ps) == [0, 10, 20, 30]
    assert milliseconds(steps.end_ps) == [10, 19.5, 30, 43]


def test_a_step_is_not_prolonged_into_the_next_epoch():
    marks = [mark(n, 10 * n, 10 * n + 8, epoch=n) for n in range(2)]
    kernels = [(0, 3, 12), (1, 13, 15)]
    steps = on_the_device(*with_steps(gpu_trace(marks, [(0, 1), (1, 12.5)], kernels)))
    assert milliseconds(steps.end_ps) == [10, 18]


def test_without_ids_the_host_s_steps_stay_while_the_device_works_in_them():
    """Work after the last step, which no id links to one, leaves their time unknown."""
    for begin, timed in [(1, True), (3.8, True), (3.9, False), (20, False)]:
        trace = gpu_trace(ENQUEUED, [], [(n, begin, begin + 0.5) for n in range(2)])
        steps = find_steps(trace)
        found = on_the_device(trace, steps)
        assert (found is steps) is timed, begin
        assert found.why_untimed.startswith("the devices worked after the last step") is not timed


def jax_on_a_cpu(calls, runs, *more):
    """Calls of `f` that return after 0.1 ms, and executions of it (begin, end) with two thunks each."""
    called = [at("PjitFunction(f)", begin, begin + 0.1) for begin in calls]
    ran = [
        at(
            f"dot.{half}",
            begin + half * (end - begin) / 2,
            begin + (half + 1) * (end - begin) / 2,
            hlo_module="jit_f",
            program_id=1,
            run_id=number,
        )
        for number, (begin, end) in enumerate(runs)
        for half in range(2)
    ]
    host = plane("/host:CPU", line("python", *called, *more), line("worker", *ran))
    return decode_trace(space(host))


def test_calls_of_jax_on_a_cpu_that_run_ahead_are_steps_where_they_ran():
    """With marks around the calls and without; a step may call several times."""
    calls, runs = [0.2 * n for n in range(4)], [(1 + 10 * n, 10 + 10 * n) for n in range(4)]
    steps = on_the_device(*with_steps(jax_on_a_cpu(calls, runs)))
    assert (steps.source, steps.why_untimed) == ("function, where the device ran them", "")
    assert milliseconds(steps.start_ps) == [1, 11, 21, 31]
    assert milliseconds(steps.end_ps) == [11, 21, 31, 40]
    marks = [mark(n, 0.4 * n, 0.4 * n + 0.35) for n in range(2)]
    steps = on_the_device(*with_steps(jax_on_a_cpu(calls, runs, *marks)))
    assert milliseconds(steps.period_ps) == [20, 19]


def test_what_is_called_while_the_last_step_s_work_runs_on_is_not_of_that_step():
    """As the metrics that Keras computes behind an epoch, on a busy machine."""
    calls, runs = [1, 9.2, 21], [(2, 9.6), (9.6, 9.7), (22, 29)]
    marks = [mark(n, 20 * n, 20 * n + 9, epoch=n) for n in range(2)]
    trace, launched = with_steps(jax_on_a_cpu(calls, runs, *marks))
    steps = on_the_device(trace, launched)
    assert milliseconds(steps.end_ps) == [9.6, 29]
    assert find_xla_use(trace, steps, launched).launches.tolist() == [1, 1]


def test_calls_of_jax_on_a_cpu_that_wait_are_steps_as_called():
    calls, runs = [10 * n for n in range(4)], [(10 * n + 0.05, 10 * n + 9) for n in range(4)]
    steps = on_the_device(*with_steps(jax_on_a_cpu(calls, runs)))
    assert (steps.source, steps.why_untimed) == ("function", "")
    assert milliseconds(steps.period_ps) == [10, 10, 10, 9]


def test_steps_of_tensorflow_on_a_cpu_stay_as_called():
    """All that XLA runs there has the same run_id, which is none."""
    marks = [mark(n, 10 * n, 10 * n + 9) for n in range(4)]
    ran = [
        at("dot", 10 * n + 1, 10 * n + 8, program_id=1, run_id=-1, hlo_module="f") for n in range(4)
    ]
    ran.append(at("dot", 50, 99, program_id=1, run_id=-1, hlo_module="f"))
    host = plane("/host:CPU", line("python", *marks), line("tf_Compute/1", *ran))
    trace = decode_trace(space(host))
    steps = find_steps(trace)
    assert on_the_device(trace, steps) is steps


def test_calls_of_jax_on_a_cpu_whose_work_does_not_show_have_no_time():
    calls = [0.2 * n for n in range(4)]
    many = [(1 + 10 * n, 10 + 10 * n) for n in range(5)]
    for runs, why in [
        ([], "has no event of it"),
        (many[:2], "has 4 calls of f and 2 executions"),  # the trace ended first
        (many, "has 4 calls of f and 5 executions"),  # one was called before the trace
    ]:
        steps = on_the_device(*with_steps(jax_on_a_cpu(calls, runs)))
        assert why in steps.why_untimed, runs
    before = [(-5, -4), *((0.2 * n + 0.01, 0.2 * n + 0.09) for n in range(4))]
    assert not on_the_device(*with_steps(jax_on_a_cpu(calls, before))).why_untimed


def test_work_handed_to_other_threads_is_followed_to_the_step_that_asked_for_it():
    def handed(number):
        """Step, first thread and second thread; each takes over much later than it was asked."""
        ask = at("Enqueue", number + 0.1, number + 0.2, _pt=5, _p=Uint((1 << 63) + number))
        middle = at("Take", number + 20, number + 21, _ct=5, _c=Uint((1 << 63) + number))
        pass_on = at("PassOn", number + 20.1, number + 20.2, _pt=7, _p=number)
        last = at("Run", number + 40, number + 41, _ct=7, _c=number)
        return ask, middle, pass_on, last

    asks, middles, passes, lasts = zip(*(handed(n) for n in range(4)), strict=True)
    lines = (
        line("main", *asks),
        line("t1", *(event for pair in zip(middles, passes, strict=True) for event in pair)),
        line("t2", *lasts),
    )
    launches = [(n, n + 40.5) for n in range(4)]
    calls = line(
        "t2",
        *(
            event
            for n in range(4)
            for event in (lasts[n], at("cuLaunchKernel", n + 40.5, n + 40.6, correlation_id=n))
        ),
    )
    host = plane("/host:CPU", line("python", *ENQUEUED), *lines[:2], calls)
    gpu = plane(
        "/device:GPU:0",
        line(
            "Stream #1(Compute)",
            *(at("gemm", 50 + n, 51 + n, correlation_id=n) for n, _ in launches),
        ),
    )
    assert links(decode_trace(space(host, gpu))) == [[0, 1, 2, 3]]


def test_a_circle_of_producers_and_consumers_ends():
    one = at("A", 30, 31, _ct=5, _c=1, _pt=5, _p=1)
    inside = at("cuLaunchKernel", 30.1, 30.2, correlation_id=3)
    host = plane("/host:CPU", line("python", *ENQUEUED), line("t", one, inside))
    gpu = plane("/device:GPU:0", line("Stream #1(Compute)", at("gemm", 50, 51, correlation_id=3)))
    assert links(decode_trace(space(host, gpu))) == [[-1]]


def test_an_execution_on_a_tpu_belongs_to_the_step_that_enqueued_it():
    def enqueue(run, time, ordinal):
        return at(
            "DoEnqueueProgram", time, time + 0.1, run_id=run, queue_id=0, device_ordinal=ordinal
        )

    calls = line("tpu", *(enqueue(n, n + 0.3, core) for n in range(4) for core in (0, 1)))
    host = plane("/host:CPU", line("python", *ENQUEUED), calls)
    cores = [
        plane(
            f"/device:TPU:{core}",
            line(
                "XLA Modules",
                *(at("jit_f(1)", 20 + 5 * n, 24 + 5 * n + core, run_id=n) for n in range(4)),
            ),
        )
        for core in (0, 1)
    ]
    trace = decode_trace(space(host, *cores))
    assert links(trace) == [[0, 1, 2, 3]] * 2
    assert milliseconds(on_the_device(trace, find_steps(trace)).start_ps) == [20, 25, 30, 35]


def with_steps(trace):
    return trace, find_steps(trace)


def test_work_at_times_before_the_trace_s_origin_is_kept():
    early = [(10 + n, -60 + 10 * n, -51 + 10 * n) for n in range(4)]
    steps = on_the_device(*with_steps(gpu_trace(ENQUEUED, LAUNCHED, early)))
    assert milliseconds(steps.end_ps) == [-50, -40, -30, -21]


def test_executor_work_of_one_iteration_number_alone_is_no_loop():
    work = plane(
        "/host:CPU",
        line("t", at("ExecutorState::Process", 0, 5, id=1, iter_num=1), at("FunctionRun", 0, 6)),
    )
    assert find_steps(decode_trace(space(work))).source == "function"
