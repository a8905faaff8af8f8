"""Stages that run Python: counted from the data, or from a trace where it tells."""

from helpers.tables import cells
from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics import shares
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.pipeline import analyse
from pytest_tfperf.recording import PipelineStage, Recording
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Source, Unknown

PLAIN = (PipelineStage(stage="Range"), PipelineStage(stage="Map"), PipelineStage(stage="Prefetch"))
PYTHON = (
    PLAIN[0],
    PipelineStage(stage="Map", python="py_function", line="data.py:7"),
    PipelineStage(stage="Map", python="numpy_function"),
    PLAIN[2],
)


def found(pipeline=None, trace=None, ended=None):
    """The value and the tables of a recording."""
    given = {} if pipeline is None else {"pipeline": pipeline}
    recording = Recording(name="", trace=None, workload={}, ended=ended, **given)
    findings = analyse(Evidence(recording, trace))
    return findings.values["input_python_stages"], findings.tables


def traced(*names):
    """A trace of three steps, in each of which these iterators run."""
    steps = [at("train", 20 * n, 20 * n + 15, step_num=n, _r=1) for n in range(3)]
    iterators = [
        at(name, 20 * n + 1 + depth, 20 * n + 9 - depth, id=str(10 * n + depth))
        for n in range(3)
        for depth, name in enumerate(names)
    ]
    return decode_trace(space(plane("/host:CPU", line("python", *steps, *iterators))))


def test_a_pipeline_without_python_is_zero_and_is_listed():
    value, tables = found(PLAIN)
    assert (value.number, value.source) == (0, Source.GRAPH)
    assert cells(tables["pipeline"], "stage") == ["Range", "Map", "Prefetch"]


def test_each_stage_with_python_counts_and_is_named_with_its_line():
    value, tables = found(PYTHON)
    assert value.number == 2
    assert value.detail["where"] == (
        "Map runs Python (py_function) at data.py:7; Map runs Python (numpy_function)"
    )
    assert cells(tables["pipeline"], "stage", "python", "line")[1] == (
        "Map",
        "py_function",
        "data.py:7",
    )


def test_a_py_dataset_is_told_about_its_workers():
    value, _ = found((PipelineStage(stage="Rows", python="PyDataset", by_keras=True),))
    assert "workers=" in value.detail["try"]
    assert "max_queue_size=" in value.detail["try"]


def test_a_reason_is_kept_and_no_data_without_a_trace_is_unknown():
    assert found(Unknown("hidden"))[0].why == "hidden"
    assert "given no data" in found()[0].why
    assert found(ended="the data ended")[0].why == "the data ended"


def test_without_data_the_trace_is_asked_and_a_zero_needs_stages_without_functions():
    cases = [
        (("Iterator::Root::Prefetch", "Iterator::Root::Prefetch::Range"), 0, None),
        (("Iterator::Root::FlatMap", "Iterator::Root::FlatMap[0]::Generator"), 1, None),
        (("Iterator::Root::Batch", "Iterator::Root::Batch::Map"), None, "no Python in Map, but"),
        (("Iterator::Root::Batch", "Iterator::Root::Batch::Mop"), None, "no Python in Mop, but"),
        (("Iterator::Root::Prefetch", "Iterator::Root::Prefetch::Batch"), None, "in Batch, but"),
        (("Iterator::Root::MemoryCacheImpl",), None, "no Python in MemoryCacheImpl, but"),
        (("Iterator::Prefetch", "Iterator::Prefetch::Generator"), None, "in Prefetch, but"),
        ((), None, "the trace shows no input pipeline"),
        (("ReduceIterator::Root::Scan",), None, "a tf.function loops over a dataset"),
    ]
    for names, number, why in cases:
        value, tables = found(trace=traced(*names))
        assert (value.number, tables) == (number, {}), names
        assert why is None or why in value.why, names


def test_a_long_pipeline_is_listed_whole_up_to_a_thousand_stages():
    for n, n_more in ((1000, 0), (1001, 1)):
        table = found((PLAIN[0],) * n)[1]["pipeline"]
        assert (len(table.rows), table.n_more) == (1000, n_more)


def test_waits_of_a_loop_over_a_dataset_in_a_graph_are_unknown_not_zero():
    recording = Recording(name="", trace=None, workload={})
    waits = "IteratorGetNextOp::DoCompute"
    for names, known in ((waits,), True), ((waits, "ReduceIterator::Root"), False):
        values = shares.analyse(Evidence(recording, traced(*names))).values
        assert (values["input_bound"].number is not None) is known
    assert "loops over a dataset" in values["input_bound"].why
    assert values["input_wait"].number is None
