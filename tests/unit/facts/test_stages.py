"""The stages of hand-made pipelines: what they cost, when they block, what they could deliver; times in ms."""

import numpy as np
import pytest
from helpers.tables import cells
from helpers.traces import real_trace
from helpers.xspace import MS, at, line, plane, space

from pytest_tfperf.facts.stages import FunctionRuns, find_stages
from pytest_tfperf.metrics.multi_host import analyse_trace
from pytest_tfperf.metrics.pipeline import input_capacity, stage_table
from pytest_tfperf.trace.xspace import decode_trace, read_trace


def trace_of(*lines):
    return decode_trace(space(plane("/host:CPU", *lines)))


def stages_of(trace, *waits):
    spans = np.array(waits, float).reshape(-1, 2).T * MS
    return {
        stage.name: stage
        for stage in find_stages(trace, (spans[0].astype(np.int64), spans[1].astype(np.int64)))
    }


def test_self_time_is_without_the_inputs_on_the_same_thread():
    thread = line(
        "tf_data_iterator_resource/1",
        at(
            "Iterator::Root::Batch",
            0,
            10,
            id=1,
            parent_id=9,
            name="BatchDatasetV2:2",
            batch_size="4",
        ),
        at("Iterator::Root::Batch::Map", 1, 5, id=2, parent_id=1, name="decode"),
        at("Iterator::Root::Batch::Map::Range", 2, 3, id=3, parent_id=2, name="RangeDataset:0"),
        at("Iterator::Root::Batch::Map", 6, 9, id=2, parent_id=1, name="decode"),
    )
    stages = {stage.name: stage for stage in find_stages(trace_of(thread))}
    assert {name: round(stage.self_s * 1e3, 6) for name, stage in stages.items()} == {
        "Batch": 3,
        "Map": 6,
        "Range": 1,
    }
    assert (
        stages["Map"].node,
        stages["Map"].calls,
        stages["Batch"].node,
        stages["Batch"].batch_size,
    ) == ("decode", 2, "", 4)
    assert next(iter(stages)) == "Map"  # the one that costs most comes first


def test_the_work_of_a_parallel_stage_is_its_functions_wherever_they_ran():
    producer = line(
        "tf_data_iterator_resource/1",
        at("MapAndBatchProduce", 0, 1, element_id=1),
        at(
            "Iterator::Root::MapAndBatch::Range", 0.1, 0.2, id=2, parent_id=1, name="RangeDataset:0"
        ),
        at("InstantiatedCapturedFunction::RunAsync", 0.3, 0.4, id=77),
    )
    worker = line(
        "tf_data_private_threadpool/1",
        at("ExecutorState::Process", 1, 9, id=77),
        at("PyFunc:PyFunc", 2, 8),
    )
    consumer = line(
        "python",
        at(
            "Iterator::Root::MapAndBatch",
            0,
            10,
            id=1,
            parent_id=9,
            name="fused(load,BatchDatasetV2:1)",
            parallelism="2",
        ),
    )
    stage = find_stages(trace_of(producer, worker, consumer))[0]
    assert (stage.name, stage.node, stage.python, stage.parallelism) == (
        "MapAndBatch",
        "load",
        True,
        2,
    )
    assert (stage.self_s, stage.busy_s) == (pytest.approx(8e-3), pytest.approx(4e-3))


def test_versions_and_input_indices_are_no_part_of_a_stage_s_name():
    thread = line(
        "x",
        at("Iterator::Root::ParallelInterleaveV4[3]::FlatMap", 0, 1, id=1),
        at("Iterator::Root::ParallelMapV2", 2, 3, id=2),
    )
    assert {stage.name for stage in find_stages(trace_of(thread))} == {
        "ParallelInterleave",
        "FlatMap",
        "ParallelMap",
    }


def test_a_prefetch_that_tensorflow_put_in_is_told_from_the_user_s():
    thread = line("x", at("Iterator::Root::Prefetch", 0, 1, id=1, name="inject/prefetch_Map/_3"))
    assert find_stages(trace_of(thread))[0].injected


def test_no_pipeline_has_no_stages():
    assert find_stages(trace_of(line("x", at("Sum:Sum", 0, 1)))) == ()


def test_an_iterator_for_each_file_is_one_stage_but_each_input_of_a_zip_its_own():
    def path(*parts):
        return "::".join(["Iterator", "Root", *parts])

    thread = line(
        "x",
        at(path("Zip[0]", "ParallelInterleaveV4[7]", "TFRecord"), 0, 1),
        at(path("Zip[0]", "ParallelInterleaveV4[8]", "TFRecord"), 2, 3),
        at(path("Zip[1]", "Range"), 4, 5),
        at(path("Zip[0]", "Range"), 6, 7),
    )
    found = {
        stage.path.removeprefix("Iterator::Root::"): stage
        for stage in find_stages(trace_of(thread))
    }
    assert found["Zip[0]::ParallelInterleaveV4::TFRecord"].calls == 2
    assert found["Zip[0]::ParallelInterleaveV4::TFRecord"].reads_files
    assert {"Zip[1]::Range", "Zip[0]::Range"} < set(found)


def batch_of_two(wait=(0, 10), parallelism="1"):
    """Two elements of a map for each batch, batched on the step's thread."""
    return trace_of(
        line(
            "python",
            at("Iterator::Root", 0, 10, id=9, threadpool_size="4"),
            at("Iterator::Root::Batch", 0, 10, id=1, parent_id=9, batch_size="2"),
            at("Iterator::Root::Batch::Map", 1, 4, id=2, parent_id=1),
            at("Iterator::Root::Batch::Map", 5, 8, id=2, parent_id=1),
        )
    )


def test_the_cost_of_a_stage_is_for_one_element_of_the_pipeline_s_end():
    stages = stages_of(batch_of_two())
    assert {name: round(stage.cost_s * 1e3, 6) for name, stage in stages.items()} == {
        "Batch": 4,
        "Map": 6,
    }
    assert input_capacity(list(stages.values())) == pytest.approx(
        100
    )  # one thread: 4 + 6 ms an element


def test_a_stage_blocks_while_it_works_and_a_step_waits():
    stages = stages_of(batch_of_two(), (2, 6), (9, 20))
    assert {name: round(stage.blocking_s * 1e3, 6) for name, stage in stages.items()} == {
        "Batch": 2,
        "Map": 3,
    }


@pytest.mark.parametrize(
    ("parallelism", "threads", "shared_by"),
    [("2", "8", 2), ("8", "2", 2), ("3", "0", 3), ("1", "8", 1)],
)
def test_functions_run_on_as_many_threads_as_the_stage_may_use_and_the_pipeline_has(
    parallelism, threads, shared_by
):
    producer = line(
        "tf_data_iterator_resource/1",
        *(at("ParallelMapProduce", n, n + 0.5, element_id=n) for n in range(4)),
        *(
            at(
                "Iterator::Root::Prefetch::ParallelMapV2::Range",
                n + 0.1,
                n + 0.2,
                id=3,
                parent_id=2,
            )
            for n in range(4)
        ),
        *(at("InstantiatedCapturedFunction::RunAsync", n + 0.3, n + 0.4, id=n) for n in range(4)),
    )
    workers = line(
        "tf_data_private_threadpool/1",
        *(at("ExecutorState::Process", 6 * n, 6 * n + 6, id=n) for n in range(4)),
    )
    consumer = line(
        "python",
        at("Iterator::Root", 0, 1, id=9, threadpool_size=threads),
        at(
            "Iterator::Root::Prefetch",
            0,
            1,
            id=1,
            parent_id=9,
            buffer_limit="4",
            buffered_elements="3",
        ),
        at("Iterator::Root", 2, 3, id=9, threadpool_size=threads),
        at(
            "Iterator::Root::Prefetch",
            2,
            3,
            id=1,
            parent_id=9,
            buffer_limit="4",
            buffered_elements="2",
        ),
    )
    runner = line(
        "tf_data_iterator_resource/2",
        at(
            "Iterator::Root::Prefetch::ParallelMapV2",
            0,
            1,
            id=2,
            parent_id=1,
            parallelism=parallelism,
        ),
    )
    stages = stages_of(trace_of(producer, workers, consumer, runner), (3, 9))
    parallel = stages["ParallelMap"]
    assert (parallel.parallelism, parallel.self_s) == (shared_by, pytest.approx(24e-3))
    assert parallel.cost_s == pytest.approx(6e-3 / shared_by)
    assert parallel.blocking_s == pytest.approx(6e-3)
    assert (
        stages["Prefetch"].self_s,
        stages["Prefetch"].buffer_limit,
        stages["Prefetch"].buffered,
    ) == (0, 4, 2.5)
    assert input_capacity(list(stages.values())) == pytest.approx(shared_by / 6e-3)


def test_all_functions_share_the_pipeline_s_threads():
    def mapped(path, begin, ids, work):
        made = [at("ParallelMapProduce", begin + n, begin + n + 0.5) for n in range(2)]
        inputs = [
            at(f"Iterator::Root::{path}::Range", begin + n + 0.1, begin + n + 0.2) for n in range(2)
        ]
        runs = [
            at(
                "InstantiatedCapturedFunction::RunAsync",
                begin + n + 0.3,
                begin + n + 0.4,
                id=ids + n,
            )
            for n in range(2)
        ]
        done = [
            at("ExecutorState::Process", begin + work * n, begin + work * n + work, id=ids + n)
            for n in range(2)
        ]
        calls = [
            at(f"Iterator::Root::{path}", begin + n, begin + n + 0.01, parallelism="2")
            for n in range(2)
        ]
        return (
            line(f"tf_data_iterator_resource/{ids}", *made, *inputs, *runs),
            line(f"tf_data_private_threadpool/{ids}", *done),
            line(f"x{ids}", *calls),
        )

    root = line(
        "python", *(at("Iterator::Root", n, n + 0.1, threadpool_size="2") for n in range(2))
    )
    trace = trace_of(
        root, *mapped("ParallelMapV2", 0, 10, 6), *mapped("ParallelMapV2::ParallelMapV2", 0, 20, 8)
    )
    assert input_capacity(list(find_stages(trace))) == pytest.approx(
        1 / 7e-3
    )  # (6 + 8) ms on two threads, not 4 ms on each stage's own two


def test_a_batch_that_maps_costs_as_many_runs_as_it_has_elements():
    producer = line(
        "tf_data_iterator_resource/1",
        at("MapAndBatchProduce", 0, 1),
        at("Iterator::Root::MapAndBatch::Range", 0.1, 0.2),
        at("InstantiatedCapturedFunction::RunAsync", 0.3, 0.4, id=1),
    )
    worker = line("tf_data_private_threadpool/1", at("ExecutorState::Process", 1, 3, id=1))
    consumer = line(
        "python",
        at("Iterator::Root", 0, 1),
        at("Iterator::Root::MapAndBatch", 0, 1, batch_size="8", parallelism="2"),
    )
    assert stages_of(trace_of(producer, worker, consumer))["MapAndBatch"].cost_s == pytest.approx(
        8 * 2e-3 / 2
    )


def test_what_a_parallel_interleave_reads_is_read_by_its_threads():
    for threads, shared_by in [("0", 4), ("8", 4), ("2", 2)]:
        thread = line(
            "x",
            at("Iterator::Root", 0, 1, threadpool_size=threads),
            at("Iterator::Root::ParallelInterleaveV4", 0, 1, parallelism="4"),
            at("Iterator::Root::ParallelInterleaveV4[0]::TFRecord", 2, 10),
        )
        record = stages_of(trace_of(thread))["TFRecord"]
        assert (record.parallelism, record.cost_s, record.reads_files) == (
            shared_by,
            pytest.approx(8e-3 / shared_by),
            True,
        ), threads


def test_without_a_pipeline_nothing_is_known_of_its_capacity():
    assert input_capacity(()) is None


def test_the_table_is_the_tree_from_the_step_down():
    table = stage_table(list(stages_of(batch_of_two(), (2, 6)).values()), n_steps=2)
    assert cells(table, "stage") == ["  Batch", "    Map"]
    assert cells(table, "calls", "self_s", "blocking_s", "element_s")[1] == (
        1,
        pytest.approx(3e-3),
        pytest.approx(1.5e-3),
        pytest.approx(6e-3),
    )


def test_the_end_of_a_pipeline_on_the_device_is_told():
    assert stages_of(trace_of(line("x", at("Iterator::Prefetch::Generator", 0, 1))))[
        "Generator"
    ].on_device


def test_the_runs_of_a_function_are_counted_each_as_a_whole():
    producer = line(
        "tf_data_iterator_resource/1",
        *(at("ParallelMapProduce", n, n + 0.5) for n in range(2)),
        *(at("Iterator::Root::ParallelMapV2::Range", n + 0.1, n + 0.2) for n in range(2)),
        *(at("InstantiatedCapturedFunction::RunAsync", n + 0.3, n + 0.4, id=n) for n in range(2)),
    )
    workers = line(
        "tf_data_private_threadpool/1",
        at("ExecutorState::Process", 2, 4, id=0),
        at("decode/DecodeJpeg:DecodeJpeg", 2.5, 3.5),
        at("DecodeImageV2Op::JPEG", 2.5, 3.5),  # the same work again, in the op
        at("ExecutorState::Process", 4, 5, id=1),
        at("ExecutorState::Process", 6, 9, id=0),
        at("Cast:Cast", 7, 8),
    )
    root = {"threadpool_size": "2", "cpu_budget": "8"}
    calls = {"parallelism": "4", "deterministic": "true"}
    consumer = line(
        "python",
        at("Iterator::Root", 0, 1, **root),
        at("Iterator::Root::ParallelMapV2", 0, 1, **calls),
    )
    found = stages_of(trace_of(producer, workers, consumer))["ParallelMap"]
    assert found.runs == FunctionRuns(
        n=2,
        mean_s=pytest.approx(3e-3),
        longest_s=pytest.approx(5e-3),
        decoding_s=pytest.approx(1e-3),
    )
    assert (found.parallelism, found.parallel_calls, found.threads, found.cores) == (2, 4, 2, 8)
    assert found.ordered


def test_without_the_stat_results_keep_no_order():
    thread = line("x", at("Iterator::Root::ParallelMapV2", 0, 1, deterministic="false"))
    assert not stages_of(trace_of(thread))["ParallelMap"].ordered


def waiting(*lines, step=(0, 100)):
    """The capacity that a trace of one step shows, while a wait of 100 ms for its element goes on."""
    step, wait = at("train", *step, step_num=0, _r=1), at("IteratorGetNextOp::DoCompute", 0, 100)
    consumer = line("input", wait, at("Iterator::Root::Prefetch", 0, 100))
    trace = trace_of(line("python", step), consumer, *lines)
    return analyse_trace(trace).profile.value("input_capacity")


def test_the_capacity_is_at_most_what_the_waits_allow():
    """Two whole calls of 5 ms show; the one that took most of the time began before the trace."""
    calls = [at("Iterator::Root::Prefetch::TFRecord", begin, begin + 5) for begin in (80, 90)]
    value = waiting(line("tf_data_iterator_resource/1", *calls))
    assert (value.number, value.unit) == (pytest.approx(10), "1/s")


def test_without_a_whole_call_of_a_stage_the_capacity_is_unknown():
    """The batch was begun before the trace, and one of its elements."""
    calls = [at("Iterator::Root::Prefetch::Batch::Generator", 70, 100)]
    value = waiting(line("tf_data_iterator_resource/1", *calls))
    assert value.number is None
    assert value.why.startswith(
        "no call of stage Batch began and ended while the steps were traced"
    )


def test_a_step_within_the_wait_for_one_element_tells_no_capacity():
    calls = [at("Iterator::Root::Prefetch::TFRecord", begin, begin + 5) for begin in (80, 90)]
    value = waiting(line("tf_data_iterator_resource/1", *calls), step=(10, 99))
    assert value.number is None
    assert value.why == "the traced steps lie within the wait for one element; trace more steps"


def test_a_batch_that_was_begun_before_a_real_trace_tells_no_capacity():
    """Its one whole call of the generator took 31 s of the 87 s that the step waited."""
    value = analyse_trace(read_trace(real_trace("gpu_turing_tf23_deepreg_generator")))
    assert "no call of stage Batch" in value.profile.value("input_capacity").why
