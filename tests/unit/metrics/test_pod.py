"""Tables of devices and collectives: parts, waits and remarks, counted by hand; times in ms."""

import pytest
from helpers.pods import BYTES, array, gpu_host, hlo_proto, pod_host, replica_groups
from helpers.xspace import at, line, plane, space

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.pod import MOST_DEVICES, analyse
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import decode_trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
HLO = hlo_proto("jit_step", ("reduce", "all-reduce", array(256), replica_groups()))


def findings(raw):
    recording = Recording(name="made", trace=None, workload={}, bare=True)
    return analyse(Evidence(recording, decode_trace(raw)))


def in_ms(record, *keys):
    return [None if record[key] is None else round(record[key] * 1e3, 9) for key in keys]


def devices(raw):
    return findings(raw).tables["device_parts"]


PARTS = ("step", "device_compute", "output", "device_to_device", "collective", "input", "idle")


def test_the_parts_of_a_gpu_sum_to_its_step_and_an_instant_counts_once():
    first = [
        ("MemcpyH2D", 0, 1, ""),
        ("sgemm", 1, 4, ""),
        ("MemcpyD2D", 3, 5, ""),
        (NCCL, 4, 8, "reduce"),
        ("MemcpyD2H", 8, 8.5, ""),
    ]
    second = [("sgemm", 1, 6, ""), (NCCL, 6, 8, "reduce")]
    table = devices(gpu_host([first, second], HLO))
    rows = {one["device"]: one for one in table.records()}
    assert in_ms(rows["GPU:0"], *PARTS) == [10, 3, 0.5, 1, 3, 1, 1.5]
    assert in_ms(rows["GPU:0"], "waiting") == [2]
    assert in_ms(rows["GPU:1"], *PARTS) == [10, 5, 0, 0, 2, 0, 3]
    assert in_ms(rows["GPU:1"], "waiting") == [0]
    assert [in_ms(rows[f"GPU:{n}"], "working") for n in (0, 1)] == [[4.5], [5]]
    assert rows["GPU:1"]["over_median"] == pytest.approx(5 / 4.75 - 1)
    assert [rows[f"GPU:{n}"]["last"] for n in (0, 1)] == [0, 1]
    assert table.title == "parts of a step by device: GPU:1 waits least, GPU:0 longest"
    assert [one["device"] for one in table.records()] == ["GPU:1", "GPU:0"]
    assert all(one["remark"] is None for one in table.records())


def test_waiting_is_at_most_the_collective_time_that_nothing_hides():
    hidden = [("sgemm", 0, 7, ""), (NCCL, 1, 8, "reduce")]
    late = [("sgemm", 0, 6, ""), (NCCL, 6, 8, "reduce")]
    rows = {one["device"]: one for one in devices(gpu_host([hidden, late], HLO)).records()}
    assert in_ms(rows["GPU:0"], "collective", "waiting") == [1, 1], "and not the 5 ms of its kernel"


def test_the_parts_of_a_tpu_core():
    table = devices(pod_host([8, 10], n_steps=4))
    rows = {one["device"]: one for one in table.records()}
    assert in_ms(rows["TPU:0"], *PARTS) == [13, 9, 0, 0, 4, 0, 0]
    assert in_ms(rows["TPU:1"], *PARTS) == [13, 11, 0, 0, 2, 0, 0]
    assert [in_ms(rows[f"TPU:{n}"], "waiting") for n in (0, 1)] == [[2], [0]]


def test_a_late_device_is_the_worst_though_it_does_not_work_longer():
    late = [("sgemm", 3, 5, ""), (NCCL, 5, 7, "reduce")]
    others = [("sgemm", 0, 4, ""), (NCCL, 4, 7, "reduce")]
    table = devices(gpu_host([others, late, others], HLO))
    assert table.rows[0][0] == "GPU:1"


def test_without_waits_the_worst_device_works_longest():
    kernels = [[("sgemm", 0, 2, ""), (NCCL, 2, 5, "")], [("sgemm", 0, 3, ""), (NCCL, 3, 5, "")]]
    table = devices(gpu_host(kernels))
    assert table.title == "parts of a step by device: GPU:1 works longest, GPU:0 shortest"
    assert [one["waiting"] for one in table.records()] == [None, None]
    assert [one["last"] for one in table.records()] == [None, None]
    assert {one["remark"] for one in table.records()} == {
        "waiting: the trace names no replica groups of it"
    }


def test_alike_devices_have_no_slowest_one():
    table = devices(gpu_host([[("sgemm", 0, 2, "")]] * 2))
    assert table.title == "parts of a step by device"
    assert [in_ms(one, "collective", "waiting") for one in table.records()] == [[0, 0], [0, 0]]


def test_one_device_waits_for_nobody_that_is_known():
    table = devices(gpu_host([[("sgemm", 0, 2, ""), (NCCL, 2, 5, "reduce")]], HLO))
    [row] = table.records()
    assert in_ms(row, "collective", "waiting") == [3, None]
    assert "one device" in row["remark"]


def test_a_bound_of_nothing_is_unknown_and_not_0():
    hlo = hlo_proto("jit_step", ("reduce", "all-reduce", array(256), replica_groups(range(8))))
    kernels = [[(NCCL, 2, 5, "reduce")], [(NCCL, 3, 5, "reduce")]]
    found = findings(gpu_host(kernels, hlo)).tables
    rows = {one["device"]: one for one in found["device_parts"].records()}
    assert in_ms(rows["GPU:0"], "waiting") == [1]
    assert in_ms(rows["GPU:1"], "waiting") == [None]
    assert "2 of its 8 devices are traced" in rows["GPU:1"]["remark"]
    alike = findings(gpu_host([[(NCCL, 2, 5, "reduce")]] * 2, hlo)).tables["collectives"]
    assert [alike.records()[0][key] for key in ("waiting", "waiting_share")] == [None, None]


def test_ops_without_categories_have_no_parts():
    ops = [at(f"%fusion.{n} = f32[] fusion()", n, n + 1) for n in range(3)]
    planes = [
        plane(f"/device:TPU:{n}", line("Steps", at("0", 0, 4)), line("XLA Ops", *ops, id=2))
        for n in range(2)
    ]
    table = devices(space(plane("/host:CPU"), *planes))
    for row in table.records():
        assert in_ms(row, *PARTS, "working") == [4, None, None, None, None, None, 1, None]
        assert row["waiting"] is None
        assert "hlo_category" in row["remark"]
    assert table.title == "parts of a step by device"


def test_collectives_that_only_the_host_shows_are_unknown():
    raw = space(
        plane(
            "/host:CPU",
            line("python", at("train", 0, 10, step_num=0, _r=1)),
            line("tf_Compute", at("reduce:CollectiveReduceV2", 1, 2)),
        ),
        plane("/device:GPU:0", line("Stream #1(Compute)", at("sgemm", 1, 4), id=1)),
    )
    [row] = devices(raw).records()
    assert in_ms(row, "device_compute", "collective", "waiting") == [3, None, None]
    assert row["remark"] == "the host ran collective ops, and no event of a device is one"


def test_the_row_of_a_collective():
    [row] = findings(pod_host([8, 10, 9], n_steps=4)).tables["collectives"].records()
    assert {key: row[key] for key in ("collective", "kind", "program", "groups", "bytes")} == {
        "collective": "all-reduce.3",
        "kind": "all-reduce",
        "program": "jit_step",
        "groups": "{}",
        "bytes": BYTES,
    }
    assert (row["devices"], row["runs"]) == (3, 1)
    assert in_ms(row, "duration", "waiting", "step") == [3, 1, 3], "4, 2 and 3 ms, 2 of them alone"
    assert row["waiting_share"] == pytest.approx(1 / 3)
    assert (row["last"], row["last_share"]) == ("TPU:1", 1)
    assert (row["delay"], row["remark"]) == (None, None)


def test_a_kernel_without_hlo_has_a_row_with_its_reasons():
    [row] = findings(gpu_host([[(NCCL, 1, 3, "")]] * 2)).tables["collectives"].records()
    assert (row["collective"], row["kind"], row["bytes"], row["groups"]) == (NCCL, None, None, None)
    assert in_ms(row, "duration", "waiting") == [2, None]
    assert row["remark"] == (
        "waiting: the trace names no replica groups of it; bytes: the trace has no HLO of it"
    )


def transfers():
    """A TPU core that sends, awaits a receive for 2 ms, and ends an asynchronous all-reduce for 1 ms."""
    texts = {
        "%send.1 = (f32[8]{0}, u32[], token[]) send(f32[8]{0} %x, token[] %t)": ("send", 1, 1.5),
        "%recv-done.2 = (f32[8]{0}, token[]) recv-done((f32[8]{0}, u32[], token[]) %r)": (
            "recv-done",
            2,
            4,
        ),
        "%start.3 = f32[8]{0} all-reduce-start(f32[8]{0} %x), replica_groups={}": (
            "all-reduce-start",
            5,
            5.25,
        ),
        "%done.4 = f32[8]{0} all-reduce-done(f32[8]{0} %start.3), replica_groups={}": (
            "all-reduce-done",
            7,
            8,
        ),
    }
    core = [
        line("Steps", at("0", 0, 10)),
        line("XLA Ops", *(at(name, *span) for name, (_, *span) in texts.items()), id=2),
    ]
    metadata = {name: {"hlo_category": kind} for name, (kind, *_) in texts.items()}
    planes = [plane(f"/device:TPU:{n}", *core, metadata=metadata) for n in range(2)]
    return space(plane("/host:CPU"), *planes)


def test_the_delay_of_transfers_is_the_time_in_their_done_ops():
    found = findings(transfers()).tables
    rows = {one["collective"]: one for one in found["collectives"].records()}
    assert in_ms(rows["recv-done.2"], "duration", "delay") == [2, 2]
    assert in_ms(rows["send.1"], "duration", "delay") == [0.5, None]
    assert in_ms(rows["done.4"], "duration", "delay", "waiting") == [1, 1, None]
    assert "asynchronous" in rows["done.4"]["remark"]
    assert rows["recv-done.2"]["bytes"] == 32
    row = found["device_parts"].records()[0]
    assert in_ms(row, "device_to_device", "collective", "waiting") == [2.5, 1.25, None]
    assert "asynchronous" in row["remark"]


def test_collectives_outside_of_the_steps_are_a_note():
    found = findings(gpu_host([[("sgemm", 1, 2, ""), (NCCL, 12, 13, "reduce")]] * 2, HLO))
    assert "collectives" not in found.tables
    assert found.notes == ("2 runs of collectives lie outside of the steps, and are in no table",)


def test_the_table_has_the_worst_devices_and_counts_the_others():
    kernels = [[("sgemm", 0, 1 + n / 100, "")] for n in range(MOST_DEVICES + 3)]
    table = devices(gpu_host(kernels))
    assert (len(table.rows), table.n_more) == (MOST_DEVICES, 3)
    assert table.rows[0][0] == f"GPU:{MOST_DEVICES + 2}"
    assert table.title.endswith("GPU:0 shortest"), "it is named though its row is left out"


def test_a_device_whose_events_take_no_time_has_no_row():
    host = plane("/host:CPU", line("a", *(at("train", n, n + 1, step_num=n, _r=1) for n in (0, 2))))
    planes = [
        plane(f"/device:GPU:{n}", line("Stream #1", at("ncclKernel_AllReduce", 0.1, 0.1 + long)))
        for n, long in enumerate((0.5, 0.0))
    ]
    assert [row[0] for row in devices(space(host, *planes)).rows] == ["GPU:0"]


def test_a_trace_without_devices_has_no_table():
    raw = space(plane("/host:CPU", line("python", at("train", 0, 10, step_num=0, _r=1))))
    assert findings(raw).tables == {}
    assert analyse(Evidence(Recording(name="", trace=None, workload={}))).tables == {}


def test_devices_of_one_name_have_no_waiting():
    first = [("sgemm", 1, 4, ""), (NCCL, 4, 8, "reduce")]
    raw = gpu_host([first, first], HLO).replace(b"/device:GPU:1", b"/device:GPU:0")
    records = devices(raw).records()
    assert [one["waiting"] for one in records] == [None, None]
    assert {one["remark"] for one in records} == {
        "waiting is unknown: several devices of the trace have one name"
    }
