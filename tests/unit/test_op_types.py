import pytest

from pytest_tfperf.op_types import computes, is_op, multiplies_matrices, waits_for_others


@pytest.mark.parametrize(
    "op_type",
    [
        "MatMul",
        "Reshape",
        "Shape",
        "AssignAddVariableOp",
        "ResourceApplyAdam",
        "EagerPyFunc",
        "StringSplitV2",
        "Cast",
    ],
)
def test_ops_that_compute(op_type):
    assert computes(op_type)


@pytest.mark.parametrize(
    "op_type",
    [
        "Const",
        "_EagerConst",
        "Identity",
        "IdentityN",
        "StopGradient",
        "VarHandleOp",
        "ReadVariableOp",
        "AssignVariableOp",
        "VariableV2",
        "IteratorGetNext",
        "MultiDeviceIteratorGetNextFromShard",
        "OptionalGetValue",
        "MapDataset",
        "ParallelMapDatasetV2",
        "NoOp",
        "_Send",
    ],
)
def test_ops_that_compute_nothing(op_type):
    assert not computes(op_type)


@pytest.mark.parametrize(
    ("op_type", "counts"),
    [
        ("MatMul", True),
        ("Const", True),
        ("Placeholder", False),
        ("_Retval", False),
        ("StatefulPartitionedCall", False),
        ("RefNextIteration", False),
        ("_SwitchN", False),
        ("NoOp", False),
    ],
)
def test_control_flow_calls_and_arguments_are_not_ops(op_type, counts):
    assert is_op(op_type) is counts


@pytest.mark.parametrize(
    ("op_type", "waits"),
    [
        ("MatMul", False),
        ("IteratorGetNextAsOptional", True),
        ("StatefulPartitionedCall", True),
        ("_While", True),
        ("Case", True),
        ("_Recv", True),
        ("_HostRecv", True),
        ("_Send", False),
        ("NoOp", True),
    ],
)
def test_ops_that_wait_for_others(op_type, waits):
    assert waits_for_others(op_type) is waits


@pytest.mark.parametrize(
    ("op_type", "multiplies"),
    [
        ("BatchMatMulV2", True),
        ("Conv2DBackpropFilter", True),
        ("XlaEinsum", True),
        ("CudnnRNNV3", True),
        ("Mul", False),
    ],
)
def test_ops_that_multiply_matrices(op_type, multiplies):
    assert multiplies_matrices(op_type) is multiplies
