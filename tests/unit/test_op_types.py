import pytest

from pytest_tfperf.op_types import computes


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
def test_what_computes(op_type):
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
def test_what_does_not(op_type):
    assert not computes(op_type)
