"""Causes of waits for input, and remedies of the slowest stage."""

from dataclasses import replace

from pytest_tfperf.advice.input_remedies import Pipeline
from pytest_tfperf.facts.stages import FunctionRuns, Stage
from pytest_tfperf.facts.waits import RareWaits
from pytest_tfperf.metrics.pipeline import Waiting, stage_cause, waiting_cause
from pytest_tfperf.recording import ENDLESS, PipelineStage

PREFETCH = Stage(path="Iterator::Root::Prefetch", name="Prefetch")
PARALLEL = "num_parallel_calls=tf.data.AUTOTUNE"


def remedies(name, **fields):
    stage = Stage(path=f"Iterator::Root::Prefetch::{name}", name=name, **fields)
    return stage_cause(stage, Pipeline(stages=[stage, PREFETCH]))["try"]


def waiting(*stages, wait_s=0.01, n_steps=10, **fields):
    """Steps of 12 ms that wait for 10, in the trace too."""
    times = {"wait_s": wait_s, "step_s": 0.012, "traced_wait_s": 0.01, "traced_step_s": 0.012}
    return Waiting(**times, n_steps=n_steps, pipeline=Pipeline(stages=stages), **fields)


def test_only_a_sequential_stage_is_told_to_run_in_parallel():
    for name in ["Map", "MapAndBatch", "FlatMap", "TFRecord"]:
        assert PARALLEL in remedies(name), name
        assert PARALLEL not in remedies(name, parallelism=2, parallel_calls=2), name


def test_a_parallel_stage_on_one_thread_lacks_threads_and_not_calls():
    assert PARALLEL not in remedies("ParallelMap", parallelism=1, parallel_calls=4)


def test_a_shuffle_is_not_cached_since_its_order_would_stay():
    assert remedies("ShuffleAndRepeat") == "a smaller shuffle buffer"
    assert "cache()" in remedies("Map")


class TestGenerator:
    def test_one_of_rows_yields_batches_and_is_not_interleaved(self):
        path = "Iterator::Root::Prefetch::BatchV2::FlatMap::Generator"
        stage = Stage(path=path, name="Generator", per_element=256.0, python=True)
        told = stage_cause(stage, Pipeline(stages=[stage, PREFETCH]))["try"]
        assert told.startswith("yield whole batches: Python runs for each of the 256 rows")
        assert PARALLEL not in told

    def test_one_of_batches_is_replaced(self):
        told = remedies("Generator", python=True)
        assert "TensorFlow ops" in told
        assert "yield" not in told
        assert PARALLEL not in told


def stages(*names):
    """Stages of a linear pipeline, from the step down to the source."""
    return [
        Stage(path="::".join(["Iterator::Root", *names[: n + 1]]), name=name, calls=9, self_s=0.1)
        for n, name in enumerate(names)
    ]


def recorded(*rows):
    return tuple(
        PipelineStage(stage=name, elements=n, element_bytes=8, random=random)
        for name, n, random in rows
    )


MAPPED = (("Range", 100, False), ("Map", 100, False), ("Batch", 25, False))


def cached(*rows, place=1, names=("Prefetch", "Batch", "Map", "Range")):
    found = stages(*names)
    pipeline = Pipeline(stages=found, recorded=recorded(*rows))
    return stage_cause(next(one for one in found if "Map" in one.name), pipeline)["try"]


class TestCache:
    def test_its_size_is_told_where_it_is_known(self):
        assert "cache() right behind it (100 elements of 800 B together)" in cached(*MAPPED)
        fused = cached(*MAPPED, names=("Prefetch", "MapAndBatch", "Range"))
        assert "(100 elements of 800 B together)" in fused

    def test_it_fills_the_memory_behind_an_endless_source(self):
        endless = [("Range", ENDLESS, False), ("Map", ENDLESS, False)]
        assert "cache()" not in cached(*endless, names=("Prefetch", "Map", "Range"))
        huge = [("Range", 10**12, False), ("Map", 10**12, False)]
        assert "cache()" not in cached(*huge, names=("Prefetch", "Map", "Range"))

    def test_it_stands_before_a_repeat_and_not_behind_it(self):
        rows = [("Range", 9, False), ("Repeat", ENDLESS, False), ("Map", ENDLESS, False)]
        told = cached(*rows, names=("Prefetch", "Map", "ForeverRepeat", "Range"))
        assert "cache() right behind it, and repeat() not before but after that" in told

    def test_it_would_stop_what_is_random(self):
        shuffled = [("Range", 9, False), ("Shuffle", 9, True), ("Map", 9, False)]
        assert "cache()" not in cached(*shuffled, names=("Prefetch", "Map", "Shuffle", "Range"))
        drawing = cached(("Range", 9, False), ("Map", 9, True), names=("Prefetch", "Map", "Range"))
        assert "cache() behind the part that is not random" in drawing

    def test_what_comes_behind_it_may_be_random_or_endless(self):
        rows = (*MAPPED, ("Shuffle", 25, True), ("Repeat", ENDLESS, False))
        names = ("Prefetch", "ForeverRepeat", "Shuffle", "Batch", "Map", "Range")
        assert "cache() right behind it (100 elements" in cached(*rows, names=names)

    def test_without_the_data_it_depends(self):
        (stage,) = found = stages("Map")
        told = stage_cause(stage, Pipeline(stages=found))["try"]
        assert "if the data fit in memory and hold nothing random" in told


class TestCacheThatDoesNotKeep:
    NAMES = ("Prefetch", "FiniteTake", "MemoryCacheImpl", "Map", "Range")

    def told(self, rows, names=NAMES, **known):
        found = stages(*names)
        pipeline = Pipeline(stages=found, recorded=recorded(*rows), **known)
        return stage_cause(next(one for one in found if one.name == "Map"), pipeline)

    def test_take_ends_each_epoch_before_it_is_full(self):
        rows = (*MAPPED, ("Cache", 25, False), ("Take", 20, False))
        cause = self.told(rows, later_epoch=True)
        assert cause["where"].endswith(
            "the cache behind it is never full: steps of later epochs still ran this stage"
        )
        assert cause["try"] == "put take() before cache()"
        assert self.told(rows)["try"] == "put take() before cache()"

    def test_a_take_of_as_much_as_it_holds_lets_it_fill(self):
        rows = (*MAPPED, ("Cache", 20, False), ("Take", 20, False))
        assert "still filling" in self.told(rows)["where"]

    def test_a_first_epoch_fills_it(self):
        rows, names = (*MAPPED, ("Cache", 25, False)), ("Prefetch", "MemoryCacheImpl", "Map")
        assert "warm-up" in self.told(rows, names, n_taken=24, later_epoch=True)["try"]
        assert (
            "read the data to their end"
            in self.told(rows, names, n_taken=25, later_epoch=True)["try"]
        )


def test_no_stage_is_the_slowest_where_the_trace_shows_no_work_of_any():
    path = "Iterator::Root::ParallelMap"
    cause = waiting_cause(waiting(Stage(path=path, name="ParallelMap", calls=1)))
    assert "not which one is the slowest" in cause["where"]
    assert cause["try"].startswith("trace more steps")


def working(name, work_s, path="", **fields):
    path = path or f"Iterator::Root::Prefetch::{name}"
    return Stage(path=path, name=name, calls=10, self_s=10 * work_s, cost_s=work_s, **fields)


class TestTheStageThatIsNamed:
    def test_it_works_for_half_of_the_wait(self):
        cause = waiting_cause(waiting(working("Map", 0.005), PREFETCH))
        assert cause["where"] == "stage Map (5 ms a step: sequential) is the slowest"
        cause = waiting_cause(waiting(working("Map", 0.0049), PREFETCH))
        assert "stage Map, works for 4.9 ms a step: the trace does not show" in cause["where"]
        assert "trace more steps" in cause["try"]

    def test_it_may_be_several_of_one_thread(self):
        path = "Iterator::Root::Prefetch::Batch"
        both = working("Batch", 0.004, path), working("Map", 0.003, f"{path}::Map")
        cause = waiting_cause(waiting(*both, PREFETCH))
        assert "one after the other take 7 ms a step: Batch (4 ms), Map (3 ms)" in cause["where"]

    def test_its_numbers_fit_the_step(self):
        """A call of 1 ms runs 12 times for an element, on two threads."""
        stage = working("MapAndBatch", 0.006, per_element=12.0, parallelism=2, parallel_calls=2)
        cause = waiting_cause(waiting(stage, PREFETCH))
        assert "(6 ms a step: 12 calls, 2 in parallel)" in cause["where"]
        long = waiting_cause(waiting(working("Map", 0.1), PREFETCH))  # it ran for later steps too
        assert "(12 ms a step" in long["where"]

    def test_traced_steps_that_hardly_wait_do_not_tell_it(self):
        steps = replace(waiting(working("Map", 0.001), PREFETCH), traced_wait_s=0.0006)
        assert "the traced steps waited for 600 µs each" in waiting_cause(steps)["where"]


def test_the_work_of_a_step_never_exceeds_the_step_that_the_message_names():
    shown = 0.09  # step_time
    for step_s, traced_s, work_s, said in (
        (0.09, 0.12, 0.085, "85 ms a step"),
        (0.09, 0.099, 0.097, "97 ms a step of 99 ms under the profiler"),
        (0.09, 0.2, 0.15, "150 ms a step of 200 ms under the profiler"),
        (0.12, 0.06, 0.1, "100 ms a step of 120 ms in the mean"),
    ):
        times = {"step_s": step_s, "traced_step_s": traced_s, "usual_step_s": shown}
        steps = waiting(working("Map", work_s), PREFETCH, wait_s=min(work_s, step_s))
        where = waiting_cause(replace(steps, **times))["where"]
        assert where == f"stage Map ({said}: sequential) is the slowest"


def test_a_cheap_function_of_many_elements_costs_by_its_calls():
    path = "Iterator::Root::Prefetch::MapAndBatch"
    runs = FunctionRuns(n=9000, mean_s=4e-6)
    cheap = Stage(
        path=path,
        name="MapAndBatch",
        calls=9,
        self_s=0.04,
        cost_s=4e-3,
        per_element=1000,
        runs=runs,
    )
    found = waiting_cause(waiting(cheap, PREFETCH))
    assert "runs a function of 4 µs for each of the 1000 elements of a step" in found["where"]
    assert found["try"].startswith("batch before map")
    few = waiting_cause(waiting(replace(cheap, per_element=50, cost_s=2e-4), PREFETCH))
    assert "the trace does not show" in few["where"]  # 50 calls cost no 10 ms


class TestRareWaits:
    RARE = RareWaits(
        n=2, n_calls=50, longest_s=0.3, usual_s=0.0001, begin_epochs=False, first=False
    )

    def cause(self, *found, **fields):
        return waiting_cause(waiting(*found, rare=replace(self.RARE, **fields)))

    def test_first_steps_of_epochs(self):
        found = self.cause(working("Map", 0.01), PREFETCH, begin_epochs=True)
        assert found["where"].startswith("the first step of each epoch waits for up to 300 ms")
        assert found["try"].startswith("repeat() the dataset")
        assert "shuffle" in self.cause(working("Shuffle", 0.01), begin_epochs=True)["try"]

    def test_first_steps_of_all(self):
        assert "warm-up" in self.cause(working("Map", 0.01), first=True)["try"]

    def test_long_runs_of_a_stage(self):
        rare = working("Map", 0.01, runs=FunctionRuns(n=10, longest_s=0.15))
        where = self.cause(rare)["where"]
        assert where.startswith("2 of 50 steps hold most of the wait: up to 300 ms")
        assert "stage Map has runs of up to 150 ms" in where
        short = working("Map", 0.01, runs=FunctionRuns(n=10, longest_s=0.14))
        assert "has runs" not in self.cause(short)["where"]


DEVICE = Stage(path="Iterator::Root::Prefetch::Generator", name="Generator", calls=20, self_s=0.04)


def host_stage(name, self_s):
    path = f"Iterator::Root::Prefetch::Rebatch::{name}"
    return Stage(path=path, name=name, calls=10, self_s=self_s, cost_s=self_s / 10)


def test_the_host_stage_that_a_device_waits_for_is_named():
    found = DEVICE, host_stage("Map", 0.004), host_stage("Batch", 0.001), PREFETCH
    cause = waiting_cause(waiting(*found))
    assert cause["where"] == (
        "the device's own prefetch waited 4 ms a step for the host, whose stage Map (400 µs a step: "
        "sequential) is the slowest"
    )
    assert PARALLEL in cause["try"]


def test_a_host_that_works_less_than_a_tenth_of_the_waits_does_not_cause_them():
    cause = waiting_cause(waiting(DEVICE, host_stage("Map", 0.0039), PREFETCH))
    assert cause["where"].endswith("works less: handing elements over takes the time")
    assert "larger batch" in cause["try"]


def test_a_trace_without_stages_of_the_host_should_be_longer():
    cause = waiting_cause(waiting(DEVICE, PREFETCH))
    assert "no stage of the host's pipeline" in cause["where"]
