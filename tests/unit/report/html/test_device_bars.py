"""The picture of the devices: bars by part, the worst first, and what is left out."""

import pytest

from pytest_tfperf.report.html.device_bars import device_bars
from pytest_tfperf.values import Column, Table

KEYS = [
    "device",
    "step",
    "device_compute",
    "output",
    "device_to_device",
    "collective",
    "input",
    "idle",
    "waiting",
    "last",
    "remark",
]


def table_of(*rows, title="parts of a step by device", n_more=0):
    columns = tuple(Column(key, key) for key in KEYS)
    return Table(title=title, columns=columns, rows=rows, n_more=n_more)


def row(device, compute=6, collective=3, idle=1, waiting=2, remark=None):
    return (device, 10, compute, 0, 0, collective, 0, idle, waiting, None, remark)


def test_a_bar_shows_each_part_and_waiting_apart():
    picture = device_bars({"device_parts": table_of(row("GPU:1"), row("GPU:0", 3, 2, 0, 0))})
    first, second = picture.bars
    assert [(one.part, one.left, one.width) for one in first.segments] == [
        ("device_compute", 0, 60),
        ("collective", 60, 10),
        ("waiting", 70, 20),
        ("other", 90, 10),
    ]
    assert [(one.part, one.left, one.width) for one in second.segments] == [
        ("device_compute", 0, 30),
        ("collective", 30, 20),
    ]
    assert (
        first.label
        == "GPU:1: compute: 6 s, collective: 1 s, waiting in collectives: 2 s, idle: 1 s"
    )
    assert [part for part, _ in picture.parts] == [
        "device_compute",
        "collective",
        "waiting",
        "other",
    ]
    assert picture.n_more == 0


def test_unknown_waiting_is_not_drawn_and_the_reason_stands_below():
    rows = [row(f"GPU:{n}", waiting=None, remark="waiting: who knows") for n in range(2)]
    picture = device_bars({"device_parts": table_of(*rows)})
    assert [one.part for one in picture.bars[0].segments] == [
        "device_compute",
        "collective",
        "other",
    ]
    assert picture.remarks == ("waiting: who knows",)


def test_the_devices_of_the_job_come_before_those_of_the_host():
    host, job = (table_of(row("GPU:0"), row("GPU:1"), title=title) for title in ("host", "job"))
    picture = device_bars({"device_parts": host, "job_device_parts": job})
    assert (picture.title, picture.of_job) == ("job", True)
    assert not device_bars({"device_parts": host}).of_job


@pytest.mark.parametrize(("n_rows", "n_more", "left_out"), [(64, 0, 0), (65, 0, 1), (64, 448, 448)])
def test_64_devices_are_drawn_and_the_others_counted(n_rows, n_more, left_out):
    rows = [row(f"GPU:{n}") for n in range(n_rows)]
    picture = device_bars({"device_parts": table_of(*rows, n_more=n_more)})
    assert (len(picture.bars), picture.n_more) == (64, left_out)


def test_less_than_two_devices_have_no_picture():
    for tables in [
        {},
        {"device_parts": table_of()},
        {"device_parts": table_of(row("GPU:0"))},
        {"device_parts": table_of(row("GPU:0", 0, 0, 0), row("GPU:1", 0, 0, 0))},
        {"device_parts": table_of(row("a", None, None, None), row("b", "x", True, -1))},
        {"device_parts": table_of(row("a", 1e300, 1e308, 0), row("b", float("inf"), 0, 0))},
        {"device_parts": Table(title="", columns=(Column("odd", "odd"),), rows=(("x",), ("y",)))},
    ]:
        assert device_bars(tables) is None, tables


def test_long_names_are_cut_and_missing_ones_replaced():
    picture = device_bars({"device_parts": table_of(row("x" * 1000), row(None))})
    assert [len(bar.name) for bar in picture.bars] == [60, 6]
