"""Cutting a plan to the available steps."""

from dataclasses import replace

from pytest_tfperf.capture.plan import Plan


def test_plan_that_fits_is_unchanged():
    for available in [85, 100, 10**6]:
        plan = Plan().cut_to(available)
        assert (plan.warmup, plan.timed_steps, plan.traced_steps, plan.available) == (
            10,
            50,
            20,
            available,
        ), available


def test_steps_of_many_events_are_traced_fewer_times():
    for n_events, traced in [(0, 20), (50_000, 20), (50_001, 19), (270_000, 3), (10**7, 2)]:
        plan, notes = Plan().of_events(n_events)
        assert plan.traced_steps == traced, (n_events, traced)
        said = f"traced window: {traced} of 20 steps, since the first has {n_events:,} events"
        assert notes == ({} if traced == 20 else {"traced": said}), (n_events, traced)


def test_processes_that_run_steps_together_trace_as_many():
    assert Plan().in_step().of_events(10**7) == (Plan().in_step(), {})


def test_plan_that_does_not_fit_uses_all_available_steps():
    for available in [5, 6, 8, 13, 32, 50, 84]:
        plan = Plan().cut_to(available)
        assert plan.total == available, available
        assert plan.traced_steps >= 2, available
        assert plan.timed_steps >= 1, available


def test_cut_plan_keeps_the_proportions_of_windows():
    plan = Plan().cut_to(45)
    assert (plan.warmup, plan.timed_steps, plan.traced_steps) == (5, 25, 10)


def test_short_loops_keep_no_steps_for_counting_calls():
    for available, counted in [(29, 0), (30, 3), (84, 3), (85, 3)]:
        plan = Plan().cut_to(available)
        assert (plan.counted_steps, plan.total) == (counted, available), available


def test_given_steps_are_divided_into_as_many_blocks_as_a_limit_needs():
    for steps in (1, 7, 8, 9, 15, 16, 100, 1000):
        for period_s in (2e-6, 1e-3, 1.0):
            size = Plan(steps=steps, least_blocks=8).block_size(0.02, period_s)
            assert -(-steps // size) >= min(steps, 8), (steps, period_s)
            assert size <= Plan(steps=steps).block_size(0.02, period_s), (steps, period_s)
    assert Plan(steps=100).block_size(0.02, 2e-6) == 100
    assert Plan(least_blocks=8).block_size(0.02, 2e-6) == 10_000


def test_calls_are_counted_where_three_steps_are_left():
    plan = Plan(available=100)
    assert plan.why_not_counted(97, 1e-3) is None
    assert plan.why_not_counted(98, 1e-3) == (
        "the loop had no steps left in which to count them; give it more data or epochs"
    )
    assert Plan(counted_steps=0).why_not_counted(1, 1e-3)


def test_slow_steps_are_counted_only_if_their_calls_are_asked_for():
    assert Plan().why_not_counted(80, 1.0) is None
    assert Plan().why_not_counted(80, 1.01) == (
        "a step takes 1.01 s, and no limit, report or baseline asks for it"
    )
    assert Plan(counts_slow_steps=True).why_not_counted(80, 1.01) is None


def test_windows_before_leave_the_probe_and_the_counted_steps():
    plan = Plan(available=200)
    assert plan.timed_at_most(11) == 200 - 11 - 20 - 1 - 3
    assert plan.turns_at_most(150) == 200 - 150 - 1 - 3
    assert plan.turns_at_most(199) == 0
    assert Plan().turns_at_most(150) is None


def test_a_plan_cut_by_less_than_the_counted_steps_keeps_its_windows():
    plan = Plan(warmup=3, steps=12, trace_steps=6).cut_to(25)
    assert (plan.warmup, plan.traced_steps, plan.counted_steps, plan.total) == (3, 6, 0, 25)


def test_windows_hold_whole_epochs_where_these_are_short():
    plan = Plan()
    cases = [
        (plan, None, (50, 20)),
        (plan, 8, (56, 24)),
        (plan, 25, (50, 25)),
        (plan, 80, (80, 80)),
        (plan, 81, (81, 20)),
        (plan, 200, (200, 20)),
        (plan, 201, (50, 20)),
        (replace(plan, most_traced=23), 8, (56, 20)),
        (replace(plan, available=72), 8, (50, 24)),
        (replace(plan, available=71), 8, (50, 20)),
        (replace(plan, steps=30), 8, (30, 24)),
        (replace(plan, trace_steps=20), 8, (56, 20)),
        (replace(plan, max_seconds=2.4), 8, (50, 24)),  # a tenth of it, in steps of 10 ms
        (replace(plan, max_seconds=2.3), 8, (50, 20)),
        (plan.in_step(), 8, (50, 20)),  # alike in every process
    ]
    for row, (before, epoch, lengths) in enumerate(cases):
        found = before.in_epochs(epoch, 0.01)
        assert (found.timed_steps, found.traced_steps) == lengths, row


def test_blocks_of_several_steps_hold_whole_short_epochs():
    cases = [
        (0.010, None, 2),
        (0.010, 3, 3),
        (0.010, 8, 8),
        (0.010, 9, 2),  # over four times as long
        (0.020, 4, 1),  # blocks of one step stay
        (0.001, 8, 24),
    ]
    for period_s, epoch, size in cases:
        assert Plan().block_size(0.02, period_s, epoch) == size, (period_s, epoch)
    assert Plan(steps=30).block_size(0.02, 0.010, 8) == 2
