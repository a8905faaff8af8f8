"""Ops that run eagerly, and arrays on their way, as they are counted and what remedies they have."""

from collections import Counter

from pytest_tfperf.advice.step_remedies import (
    eager_cause,
    eager_remedies,
    transfer_remedy,
)


def test_counts_beside_a_count_of_a_step_are_of_one_step():
    where = eager_cause(Counter(Mul=2880, Sum=20, Print=2), [], {}, "wrap it", 20)["where"]
    assert where == "eager: Mul ×144, Sum, Print ×0.10"
    where = transfer_remedy(Counter(step=20), 40, 20)["where"]
    assert where == "to and from devices: read by Python ×2, arguments of step"


def test_parts_of_arrays_are_read_on_the_host_only_where_python_reads_them():
    parts = Counter(dynamic_slice=400, squeeze=400, add=400)
    assert eager_remedies(parts, 10, "jit", n_reads=0) == "jit"
    copies, jit = eager_remedies(parts, 10, "jit", n_reads=40).split("; ")
    assert ("np.asarray(x)" in copies, jit) == (True, "jit")
    few = Counter(dynamic_slice=400, add=4)  # too few to be told
    assert ";" not in eager_remedies(few, 1, "jit", n_reads=400)


def test_ops_of_a_callback_are_run_less_often():
    seen = [("Mean", "t.py:5", 3), ("Sum", "t.py:9", 1)]
    cause = eager_cause(Counter(Mean=3, Sum=1), seen, {"t.py:5": "Log.on_end"}, "wrap it")
    assert cause["try"].startswith("do it every n batches in Log.on_end")
    assert cause["try"].endswith("wrap it")
