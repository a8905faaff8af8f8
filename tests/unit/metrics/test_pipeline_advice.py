"""Advice on pipelines made by hand: when each rule speaks, and what it says it could save at most."""

from dataclasses import replace

import pytest

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.input_remedies import Pipeline
from pytest_tfperf.facts.stages import FunctionRuns, Stage
from pytest_tfperf.metrics.pipeline import Waiting
from pytest_tfperf.metrics.pipeline_advice import Fill, Openings, pipeline_advice

ROOT = "Iterator::Root::Prefetch"
NO_FILES = Openings(paths=frozenset(), n_files=0, n_records=0, opening_s=0.0)


def stage(path, cost_s=1e-3, **fields):
    name = path.rpartition("::")[2]
    return Stage(path=f"{ROOT}::{path}", name=name, cost_s=cost_s, self_s=10 * cost_s, **fields)


def advised(*stages, wait_s=5e-3, fills=(), openings=NO_FILES):
    """Advise on ten steps of 10 ms, half of which wait for input unless a test says otherwise."""
    times = {"step_s": 10e-3, "traced_step_s": 10e-3, "wait_s": wait_s, "traced_wait_s": wait_s}
    waiting = Waiting(**times, n_steps=10, pipeline=Pipeline(stages=stages))
    return {one.read: one for one in pipeline_advice(waiting, fills, openings)}


def fill(waited_s, path="Shuffle", size=500):
    return (Fill(path=f"{ROOT}::{path}", buffer_size=size, waited_s=waited_s),)


class TestShuffle:
    def test_a_buffer_that_fills_is_told_by_what_it_holds(self):
        cases = [
            ("Shuffle::Map", "shuffle before map"),
            ("Shuffle::Batch", "shuffle before batch"),
            ("Shuffle::Range", "a smaller shuffle buffer"),
        ]
        for below, what in cases:
            found = advised(stage("Shuffle"), stage(below), fills=fill(20e-3))[guides.SHUFFLING]
            assert found.what.startswith(what), below
            assert (
                found.because == "stage Shuffle fills its buffer of 500 elements for 2 ms a step"
            ), below
            assert found.win_s == pytest.approx(2e-3), below

    def test_it_saves_no_more_than_the_steps_wait(self):
        found = advised(stage("Shuffle"), fills=fill(80e-3))[guides.SHUFFLING]
        assert found.win_s == 5e-3

    def test_an_unknown_size_is_left_out(self):
        found = advised(stage("Shuffle"), fills=fill(20e-3, size=0))[guides.SHUFFLING]
        assert "fills its buffer for" in found.because

    def test_a_map_beside_the_shuffle_does_not_fill_it(self):
        found = advised(stage("Map"), stage("Map::Shuffle"), fills=fill(20e-3, "Map::Shuffle"))
        assert found[guides.SHUFFLING].what.startswith("a smaller shuffle buffer")

    def test_a_shuffle_that_is_full_gets_no_advice(self):
        assert guides.SHUFFLING not in advised(stage("Shuffle"))


def mapped(mean_s, path="Batch::Map", size=32, **fields):
    return (
        stage("Batch", 0.0, batch_size=size),
        stage(path, 2e-3, runs=FunctionRuns(n=100, mean_s=mean_s), **fields),
    )


class TestVectorize:
    def test_a_cheap_function_for_each_element_of_a_batch(self):
        found = advised(*mapped(4e-6, node="scale"))[guides.VECTORIZING]
        assert found.because == (
            "stage Map 'scale' runs a function of 4 µs for each of the 32 elements of a batch, "
            "and a call costs as much besides"
        )
        assert found.win_s == 5e-3

    def test_the_threshold_is_excluded(self):
        assert guides.VECTORIZING in advised(*mapped(49e-6))
        assert guides.VECTORIZING not in advised(*mapped(50e-6))

    def test_fused_stages_too(self):
        fused = stage("MapAndBatch", batch_size=32, runs=FunctionRuns(n=100, mean_s=4e-6))
        assert guides.VECTORIZING in advised(fused)

    def test_others_are_left_alone(self):
        cases = {
            "batches": mapped(4e-6, path="Map"),
            "batches of one": mapped(4e-6, size=1),
            "Python": mapped(4e-6, python=True),
            "a filter": mapped(4e-6, path="Batch::Filter"),
            "no runs": (stage("Batch", 0.0, batch_size=32), stage("Batch::Map", 2e-3)),
        }
        for name, stages in cases.items():
            assert guides.VECTORIZING not in advised(*stages), name

    def test_only_the_slowest_thread_counts(self):
        slower = stage("Other", 9e-3)
        apart = replace(slower, path="Iterator::Root::Zip[1]::Prefetch::Other")
        assert guides.VECTORIZING not in advised(*mapped(4e-6), apart)


def decoder(share, cost_s=6e-3, **fields):
    runs = FunctionRuns(n=10, mean_s=1e-3, decoding_s=10e-3 * share)
    return stage("Map", cost_s, runs=runs, **fields)


class TestPrepare:
    def test_python_that_dominates_is_prepared_once(self):
        found = advised(stage("Batch", 2e-3), stage("Batch::Map", 6e-3, python=True, node="load"))[
            guides.SAVING
        ]
        assert found.because == (
            "stage Map 'load' runs Python in every epoch, 75 % of the slowest thread's work"
        )
        assert found.win_s == 5e-3

    def test_so_is_decoding(self):
        found = advised(decoder(0.8, node="decode"))[guides.SAVING]
        assert "stage Map 'decode' decodes in every epoch, 80 %" in found.because

    def test_it_saves_at_most_the_work_up_to_that_stage(self):
        python, reader = stage("Batch::Map", 6e-3, python=True), stage("Batch::Map::TFRecord", 1e-3)
        found = advised(stage("Batch", 3e-3), python, reader, wait_s=9e-3)[guides.SAVING]
        assert found.win_s == pytest.approx(0.7 * 10e-3)

    def test_the_threshold_is_included(self):
        assert guides.SAVING in advised(decoder(0.5))
        assert guides.SAVING not in advised(decoder(0.49))

    def test_work_that_is_kept_is_done_once(self):
        for kept in ["MemoryCache", "Cache", "Snapshot"]:
            python = stage(f"{kept}::Map", 6e-3, python=True)
            assert guides.SAVING not in advised(stage(kept, 0.0), python), kept

    def test_a_cache_before_it_keeps_nothing_of_it(self):
        found = advised(stage("Map", 6e-3, python=True), stage("Map::MemoryCache", 0.0))
        assert guides.SAVING in found


def opened(seconds, path="Map::FlatMap"):
    return Openings(
        paths=frozenset({f"{ROOT}::{path}"}), n_files=20, n_records=90, opening_s=seconds
    )


class TestFiles:
    def test_opening_that_takes_long_asks_for_larger_files(self):
        found = advised(stage("Map::FlatMap"), openings=opened(20e-3))[guides.READING]
        assert found.because == "opening 20 files of 4 records takes 2 ms a step"
        assert found.win_s == pytest.approx(2e-3)

    def test_it_must_be_on_the_slowest_thread(self):
        assert guides.READING not in advised(
            stage("Map::FlatMap"),
            replace(stage("Map", 9e-3), path="Iterator::Root::Zip[1]::Prefetch::Map"),
            openings=opened(20e-3),
        )

    def test_without_files_there_is_no_advice(self):
        assert guides.READING not in advised(stage("Map::FlatMap"))


def uneven(longest_s, parallelism=4, ordered=True, cost_s=4e-3, n=200):
    """A parallel map of 0.5 ms a run: 200 of them are 2.5 ms a step of four workers."""
    return stage(
        "ParallelMap",
        cost_s,
        runs=FunctionRuns(n=n, mean_s=0.5e-3, longest_s=longest_s),
        parallelism=parallelism,
        ordered=ordered,
    )


class TestOrder:
    def test_results_that_wait_for_a_long_run(self):
        found = advised(uneven(20e-3), wait_s=9e-3)[guides.SOURCES]
        assert found.what.startswith("options.deterministic = False")
        assert "runs of up to 20 ms, of 500 µs in the mean" in found.because
        assert found.win_s == pytest.approx(10e-3 - 2.5e-3)

    def test_the_threshold_is_included(self):
        assert guides.SOURCES in advised(uneven(1.0e-3))
        assert guides.SOURCES not in advised(uneven(0.99e-3))

    def test_others_are_left_alone(self):
        for changed in [{"ordered": False}, {"parallelism": 1}, {"n": 0}]:
            assert guides.SOURCES not in advised(uneven(20e-3, **changed)), changed

    def test_workers_that_are_busy_all_the_time_gain_nothing(self):
        assert guides.SOURCES not in advised(uneven(20e-3, n=800))


def pooled(threads=2, cores=8, calls=8, cost_s=4e-3):
    return stage(
        "ParallelMap",
        cost_s,
        pool_s=cost_s,
        parallelism=min(calls, threads) or calls,
        parallel_calls=calls,
        threads=threads,
        cores=cores,
    )


class TestThreads:
    def test_a_pool_smaller_than_the_machine(self):
        found = advised(pooled(), wait_s=9e-3)[guides.THREADS]
        assert found.what == "options.threading.private_threadpool_size = 8"
        assert found.because == (
            "the functions of the pipeline share 2 threads, and 8 cores are there"
        )
        assert found.win_s == pytest.approx(10e-3 * (1 - 2 / 8))

    def test_others_are_left_alone(self):
        for changed in [{"threads": 8}, {"threads": 0}, {"cores": 0}, {"calls": 2}]:
            assert guides.THREADS not in advised(pooled(**changed)), changed

    def test_a_pool_that_is_not_the_slowest_is_left_alone(self):
        slower = replace(stage("X", 9e-3), path="Iterator::Root::Zip[1]::Prefetch::X")
        assert guides.THREADS not in advised(pooled(), slower)


@pytest.mark.parametrize(("waited_s", "speaks"), [(5e-3, True), (4.99e-3, False)])
def test_a_saving_of_less_than_five_per_cent_is_not_worth_it(waited_s, speaks):
    assert (guides.SHUFFLING in advised(stage("Shuffle"), fills=fill(waited_s))) is speaks


@pytest.mark.parametrize(("wait_s", "speaks"), [(0.5e-3, True), (0.499e-3, False)])
def test_steps_that_wait_for_less_get_no_advice(wait_s, speaks):
    found = advised(stage("Map", 6e-3, python=True), wait_s=wait_s)
    assert bool(found) is speaks
