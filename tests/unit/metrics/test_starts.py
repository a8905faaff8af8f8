"""Hand-made shuffle buffers that fill and files that open; times in ms."""

import numpy as np
import pytest
from helpers.xspace import MS, at, line, plane, space

from pytest_tfperf.facts.stages import find_stages
from pytest_tfperf.metrics.pipeline_advice import find_fills, find_openings
from pytest_tfperf.trace.xspace import decode_trace

SHUFFLE = "Iterator::Root::Prefetch::ShuffleV3"
FLAT_MAP = "Iterator::Root::ForeverRepeat[{}]::FlatMap"


def trace_of(*events):
    return decode_trace(space(plane("/host:CPU", line("tf_data_iterator_resource/1", *events))))


def fills(*events, waits=((0, 100),)):
    spans = np.array(waits, np.int64).T * MS
    return find_fills(trace_of(*events), (spans[0], spans[1]))


def shuffled(begin, end, taken, **stats):
    """A call of a shuffle stage that takes in so many elements."""
    width = (end - begin) / (taken + 1)
    inputs = [
        at(f"{SHUFFLE}::Range", begin + n * width, begin + (n + 0.5) * width) for n in range(taken)
    ]
    return [at(SHUFFLE, begin, end, buffer_size="500", **stats), *inputs]


def test_a_call_that_takes_in_many_elements_fills_the_buffer():
    (fill,) = fills(*shuffled(0, 30, 20), *shuffled(40, 41, 1))
    assert (fill.path, fill.buffer_size, fill.waited_s) == (SHUFFLE, 500, pytest.approx(30e-3))


def test_only_the_time_in_which_a_step_waits_counts():
    (fill,) = fills(*shuffled(0, 30, 20), waits=[(10, 15), (28, 50)])
    assert fill.waited_s == pytest.approx(7e-3)
    assert fills(*shuffled(0, 30, 20), waits=[(40, 50)]) == ()


def test_a_full_buffer_takes_in_one_element_and_two_at_an_epoch_s_end():
    for taken, is_filling in [(1, False), (2, False), (3, True)]:
        assert bool(fills(*shuffled(0, 30, taken))) is is_filling, taken


def test_another_stage_that_takes_in_many_fills_no_buffer():
    inputs = [at("Iterator::Root::Batch::Range", n, n + 1) for n in range(8)]
    assert fills(at("Iterator::Root::Batch", 0, 9), *inputs) == ()


def test_without_a_pipeline_nothing_starts():
    assert fills(at("Sum:Sum", 0, 9)) == ()


def openings(*events):
    trace = trace_of(*events)
    return find_openings(trace, find_stages(trace))


def file_read(begin, number, records=2, epoch=0):
    """A file that takes 3 ms to open, 1 of them in the reader, and 1 ms for each record."""
    stage, end = FLAT_MAP.format(epoch), begin + 3 + records
    reader = f"{stage}[{number}]::TFRecord"
    reads = [at(reader, begin + 2, begin + 4), at("X::SetupStreamsLocked", begin + 2, begin + 3)]
    rest = [at(reader, begin + 4 + n, begin + 5 + n) for n in range(records - 1)]
    return [at(stage, begin, end), *reads, *rest]


def test_opening_is_the_work_of_the_stage_that_makes_the_reader_and_of_the_reader_itself():
    found = openings(*file_read(0, 0), *file_read(10, 1), *file_read(20, 0, epoch=1))
    assert (found.n_files, found.n_records) == (3, 6)
    assert found.opening_s == pytest.approx(9e-3)
    path = FLAT_MAP.format(0).replace("[0]", "")
    assert found.paths == {path, f"{path}::TFRecord"}


def test_files_of_every_epoch_are_read_by_one_stage():
    trace = trace_of(*file_read(0, 0), *file_read(10, 1), *file_read(20, 7, epoch=1))
    assert [stage.calls for stage in find_stages(trace) if stage.reads_files] == [6]


def test_a_parallel_interleave_makes_its_iterators_in_events_of_their_own():
    path = "Iterator::Root::ParallelInterleaveV4"
    found = openings(
        at("ParallelInterleaveInitializeInput", 0, 4),
        at("TFRecordDatasetOp::Iterator::SetupStreamsLocked", 5, 6),
        at(f"{path}[0]::TFRecord", 5, 7),
        at(path, 8, 9, parallelism="2"),
    )
    assert (found.n_files, found.n_records, found.opening_s) == (1, 1, pytest.approx(5e-3))


def test_a_flat_map_that_reads_no_file_opens_none():
    found = openings(
        at("Iterator::Root::FlatMap", 0, 5), at("Iterator::Root::FlatMap[0]::Range", 1, 2)
    )
    assert (found.n_files, found.opening_s, found.paths) == (0, 0, frozenset())
