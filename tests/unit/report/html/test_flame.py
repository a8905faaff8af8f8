"""The flame graph of ops, counted by hand."""

from pytest_tfperf.report.html.flame import flame
from pytest_tfperf.values import Column, Table

KEYS = ("where", "op", "type", "self_s")


def ops(*rows, n_more=0):
    table = Table.of("ops", [Column(key, key) for key in KEYS], rows)
    return Table(title=table.title, columns=table.columns, rows=table.rows, n_more=n_more)


HOST = ops(
    ("host", "a/MatMul", "MatMul", 0.006),
    ("tf.data", "PyFunc", "PyFunc", 0.001),
    ("host", "b/MatMul", "MatMul", 0.002),
    ("host", "Relu", "Relu", 0.001),
)


def boxes(picture, level):
    return [(box.name, box.left, box.width) for box in picture.boxes if box.level == level]


def test_groups_stand_above_their_ops_the_longest_first():
    picture = flame({"host_ops": HOST})
    assert boxes(picture, 0) == [("host", 0, 90), ("tf.data", 90, 10)]
    assert boxes(picture, 1) == [("MatMul", 0, 80), ("Relu", 80, 10), ("PyFunc", 90, 10)]
    assert boxes(picture, 2) == [
        ("a/MatMul", 0, 60),
        ("b/MatMul", 60, 20),
        ("Relu", 80, 10),
        ("PyFunc", 90, 10),
    ]
    assert picture.label.startswith("ops on the host, 10 ms a step; the longest: a/MatMul: 6 ms")


def test_devices_come_before_the_host():
    devices = ops(("GPU", "gemm", "fusion", 0.001), n_more=7)
    picture = flame({"host_ops": HOST, "device_ops": devices})
    assert picture.title == "ops on the devices by self time a step, without 7 short ones"


def test_ops_without_time_give_no_picture():
    assert flame({}) is None
    assert flame({"host_ops": ops(("host", "a", "A", None), ("host", "b", "B", 0.0))}) is None
    assert flame({"host_ops": Table.of("ops", (Column("op", "op"),), [("a",)])}) is None


def test_five_thousand_ops_give_a_bounded_number_of_boxes():
    many = [("host", f"op{n}", "Add", 0.001) for n in range(5000)]
    table = Table.of("ops", [Column(key, key) for key in KEYS], many, len(many))
    assert len(flame({"host_ops": table}).boxes) <= 502
