from pytest_tfperf.op_types import computes, is_op, multiplies_matrices, waits_for_others


def test_ops_that_compute():
    for op_type in [
        "MatMul",
        "Reshape",
        "Shape",
        "AssignAddVariableOp",
        "ResourceApplyAdam",
        "EagerPyFunc",
        "StringSplitV2",
        "Cast",
    ]:
        assert computes(op_type), op_type


def test_ops_that_compute_nothing():
    for op_type in [
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
    ]:
        assert not computes(op_type), op_type


def test_control_flow_calls_and_arguments_are_not_ops():
    for op_type, counts in [
        ("MatMul", True),
        ("Const", True),
        ("Placeholder", False),
        ("_Retval", False),
        ("StatefulPartitionedCall", False),
        ("RefNextIteration", False),
        ("_SwitchN", False),
        ("NoOp", False),
    ]:
        assert is_op(op_type) is counts, op_type


def test_ops_that_wait_for_others():
    for op_type, waits in [
        ("MatMul", False),
        ("IteratorGetNextAsOptional", True),
        ("StatefulPartitionedCall", True),
        ("_While", True),
        ("Case", True),
        ("_Recv", True),
        ("_HostRecv", True),
        ("_Send", False),
        ("NoOp", True),
    ]:
        assert waits_for_others(op_type) is waits, op_type


def test_ops_that_multiply_matrices():
    for op_type, multiplies in [
        ("BatchMatMulV2", True),
        ("Conv2DBackpropFilter", True),
        ("XlaEinsum", True),
        ("CudnnRNNV3", True),
        ("Mul", False),
    ]:
        assert multiplies_matrices(op_type) is multiplies, op_type
