"""Differences between machine classes, and their effect on times."""

from helpers.builders import LAPTOP, SERVER

from pytest_tfperf.machine.description import class_differences, nearest_class

HERE = LAPTOP["machine"]
ON_GPU = SERVER["machine"]
OF_THE_HOST = "matters where the device waits for the host, in launches and the input pipeline"


def test_equal_classes_do_not_differ():
    assert class_differences(HERE, dict(HERE)) == []


FIELDS = [
    (
        HERE,
        "accelerators",
        "H100",
        "accelerators: stored none, here H100 (matters: the step runs on them)",
    ),
    (
        HERE,
        "cpu",
        "X",
        "cpu: stored Laptop 3000, here X (matters: another model has another clock, other caches and vector units)",
    ),
    (
        HERE,
        "cores",
        2,
        "cores: stored 4, here 2 (matters: TensorFlow sizes its thread pools by them)",
    ),
    (
        HERE,
        "tensorflow",
        "2.20",
        "tensorflow: stored 2.21, here 2.20 (matters: kernels and XLA differ from version to version)",
    ),
    (
        HERE,
        "system",
        "X",
        "system: stored Linux x86_64, here X (matters: another system or architecture runs other code)",
    ),
    (ON_GPU, "cpu", "X", f"cpu: stored Server 9000, here X ({OF_THE_HOST})"),
    (ON_GPU, "cores", 2, f"cores: stored 64, here 2 ({OF_THE_HOST})"),
    (
        ON_GPU,
        "tensorflow",
        "2.20",
        "tensorflow: stored 2.21, here 2.20 (matters: kernels and XLA differ from version to version)",
    ),
    (HERE, "room", "B", "room: stored None, here B (not known to matter)"),
]


def test_different_field_is_named_with_both_values_and_its_effect():
    for here, field, now, message in FIELDS:
        assert class_differences(here, {**here, field: now}) == [message], (here, field, now)


def test_field_of_the_stored_class_alone_is_a_difference():
    assert class_differences({**HERE, "room": "B"}, HERE) == [
        "room: stored B, here None (not known to matter)"
    ]


def test_host_fields_matter_fully_with_another_accelerator():
    assert [text.partition(" (")[2] for text in class_differences(HERE, ON_GPU)][1].startswith(
        "matters: another model"
    )


def test_the_nearest_class_has_the_fewest_differences():
    near = {**HERE, "cores": 8}
    assert nearest_class([ON_GPU, near], HERE) is near
    assert nearest_class([], HERE) is None
