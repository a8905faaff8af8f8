"""Names of tests as folders take them."""

import os

from pytest_tfperf.turns.names import as_folder_name


def test_each_test_has_a_folder_of_its_own_that_file_systems_take():
    plain = as_folder_name("tests/test_a.py::TestB::test_c[8-float32]")
    assert plain == "tests_test_a.py__TestB__test_c_8-float32_"
    nodeids = [f"t.py::test[{op}]" for op in ("<", ">", "a b", "a_b", "é" * 90, "é" * 91, "\udcff")]
    names = [as_folder_name(nodeid) for nodeid in nodeids]
    assert len(set(names)) == len(names)
    assert max(len(os.fsencode(name)) for name in names) <= 120
