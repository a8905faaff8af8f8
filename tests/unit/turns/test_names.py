"""Names of tests as folders take them."""

import os

from pytest_tfperf.turns.names import as_folder_name


def test_each_test_has_a_folder_of_its_own_that_file_systems_take():
    plain = as_folder_name("tests/test_a.py::TestB::test_c[8-float32]")
    assert plain == "tests_test_a.py__TestB__test_c_8-float32_-c4858df6"
    arguments = ("<", ">", "a b", "a_b", "a/b", "a:b", "é" * 90, "é" * 91, "\udcff")
    nodeids = [f"t.py::test[{argument}]" for argument in arguments]
    nodeids += ["tests/unit/test_x.py::test_a", "tests/unit_test_x.py::test_a"]
    names = [as_folder_name(nodeid) for nodeid in nodeids]
    assert len(set(names)) == len(names)
    assert max(len(os.fsencode(name)) for name in names) <= 120
