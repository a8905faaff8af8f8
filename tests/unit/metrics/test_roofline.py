"""Peaks and rates counted by hand, and XProf's figures (wheel 2.24.2) for the real traces."""

import pytest
from helpers.tables import cells
from helpers.traces import real
from helpers.xspace import at, line, plane, space

from pytest_tfperf.facts.device_ops import device_ops
from pytest_tfperf.facts.op_times import OpTime
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.flops import flops_utilization
from pytest_tfperf.metrics.op_profile import analyse, op_profile_table, rate_of, roofline_table
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.devices import DeviceSpec, device_spec
from pytest_tfperf.trace.xspace import decode_trace

V100 = {
    "clock_rate": 1530000,
    "core_count": 80,
    "memory_bandwidth": 898048000000,
    "memory_size": 16945512448,
    "compute_cap_major": 7,
    "compute_cap_minor": 0,
}
CHIP = DeviceSpec(name="chip", flops={"16 bit": 100.0}, bandwidth=10.0)


def spec_of(name, stats):
    return device_spec(decode_trace(space(plane(name, stats=stats))).planes[0])


def test_the_peak_of_a_gpu_is_that_of_its_matrix_units():
    """NVIDIA says 125 TFLOP/s and 15.7 in float32, 900 GB/s (Volta whitepaper)."""
    spec = spec_of("/device:GPU:0", V100)
    assert (spec.peak_flops, spec.flops["float32"]) == (
        pytest.approx(125e12, rel=0.003),
        pytest.approx(15.7e12, rel=0.003),
    )
    assert (spec.bandwidth, spec.memory_bytes, spec.name) == (
        898048000000,
        16945512448,
        "NVIDIA GPU, compute capability 7.0",
    )


def test_peaks_are_those_of_nvidia_s_data_sheets():
    """T4, A100, L4 and H100 SXM, dense, 16-bit operands."""
    cases = [
        ((7, 5), 40, 1590000, 65),
        ((8, 0), 108, 1410000, 312),
        ((8, 9), 58, 2040000, 121),
        ((9, 0), 132, 1830000, 989),
    ]
    for capability, cores, khz, tera in cases:
        stats = {
            "clock_rate": khz,
            "core_count": cores,
            "compute_cap_major": capability[0],
            "compute_cap_minor": capability[1],
        }
        assert spec_of("/device:GPU:0", stats).peak_flops == pytest.approx(
            tera * 1e12, rel=0.005
        ), capability


def test_peaks_are_those_of_data_sheets_where_the_driver_reports_a_higher_clock():
    """A clock that is held below that of the sheet counts as it is."""
    cases = [
        ("NVIDIA H200", 132, 1980000, 989),
        ("NVIDIA H100 80GB HBM3", 132, 1980000, 989),
        ("NVIDIA H100 PCIe", 114, 1755000, 756),
        ("NVIDIA H200 NVL", 132, 1785000, 835),
        ("NVIDIA H100 NVL", 132, 1785000, 835),
        ("NVIDIA H800", 132, 1980000, 989),
        ("NVIDIA H100 80GB HBM3", 132, 1500000, 811),
    ]
    for name, cores, khz, tera in cases:
        stats = {
            "gpu_device_name": name,
            "clock_rate": khz,
            "core_count": cores,
            "compute_cap_major": 9,
        }
        spec = spec_of("/device:GPU:0", stats)
        assert spec.peak_flops == pytest.approx(tera * 1e12, rel=0.002), (name, khz)
        assert spec.name == name, (name, khz)
    h20 = {"gpu_device_name": "NVIDIA H20", "clock_rate": 1980000, "core_count": 78}
    assert spec_of("/device:GPU:0", {**h20, "compute_cap_major": 9}).peak_flops is None


def test_the_peaks_of_an_amd_gpu():
    """MI300X: 1307.4 TFLOP/s and 5.3 TB/s in AMD's data sheet; XProf takes ROCm's 2.66 TB/s and finds ops at 120 % of it."""
    stats = {
        "device_vendor": "AMD",
        "clock_rate": 2100000,
        "core_count": 304,
        "memory_bandwidth": 2662400000000,
        "compute_cap_major": 9,
        "compute_cap_minor": 4,
    }
    spec = spec_of("/device:GPU:0", stats)
    assert (spec.peak_flops, spec.bandwidth) == (
        pytest.approx(1307.4e12, rel=1e-4),
        pytest.approx(5.3e12, rel=0.005),
    )


def test_what_a_plane_does_not_say_is_not_known():
    cases = [
        {},
        {**V100, "compute_cap_major": 99},
        {**V100, "core_count": 0},
        {**V100, "clock_rate": "unknown"},
        {"device_vendor": "Intel"},
    ]
    for stats in cases:
        assert spec_of("/device:GPU:0", stats).peak_flops is None, stats


def test_units_of_a_tpu_are_decimal():
    """v6e: 918 TFLOP/s and 1638 GB/s (Google's documentation of Trillium)."""
    stats = {
        "device_type_string": "TPU v6 Lite",
        "peak_teraflops_per_second": 918.0,
        "peak_hbm_bw_gigabytes_per_second": 1638.0,
    }
    spec = spec_of("/device:TPU:0", stats)
    assert (spec.name, spec.peak_flops, spec.bandwidth) == ("TPU v6 Lite", 918e12, 1638e9)
    assert spec_of("/device:TPU:0", {"peak_teraflops_per_second": 0.0}).peak_flops is None


def op(name="a", kind="fusion", module="m", count=1, self_s=1.0, flops=None, size=None):
    return OpTime(
        side="TPU",
        name=name,
        kind=kind,
        module=module,
        count=count,
        total_s=self_s,
        self_s=self_s,
        flops=flops,
        bytes=size,
    )


def test_the_nearer_peak_bounds_an_op():
    cases = [
        (50.0, 1.0, "compute", 0.5),
        (10.0, 8.0, "memory", 0.8),
        (0.0, 5.0, "memory", 0.5),
        (None, 5.0, "memory", 0.5),
        (None, None, None, None),
    ]
    for flops, size, bound, share in cases:
        rate = rate_of([op(flops=flops, size=size)], CHIP)
        assert (rate.bound, rate.roof_share) == (bound, share), (flops, size)
        if flops and size:  # min(peak, intensity x bandwidth) is the roof
            assert rate.flops / min(100.0, rate.intensity * 10.0) == pytest.approx(share), (
                flops,
                size,
            )


def test_an_op_above_the_peak_has_no_rate():
    rate = rate_of([op(flops=101.0, size=11.0)], CHIP)
    assert (rate.flops, rate.flops_share, rate.bandwidth, rate.bandwidth_share, rate.bound) == (
        None,
    ) * 5


def test_costs_of_loops_and_of_asynchronous_copies_are_left_out():
    """The loop takes 1 s and says what its body costs; the copy took longer than its start and end."""
    ops = [
        op(flops=30.0, size=4.0),
        op("w", "while", flops=30.0, size=4.0),
        op("s", "copy-start", self_s=0.1, flops=0.0, size=99.0),
    ]
    rate = rate_of(ops, CHIP)
    assert (rate.flops, rate.bandwidth) == (15.0, 2.0)
    assert cells(roofline_table(ops, CHIP, 1), "op") == ["a"]


def test_without_peaks_rates_are_known_and_bounds_are_not():
    rate = rate_of([op(flops=30.0, size=4.0)], None)
    assert (rate.flops, rate.bandwidth, rate.intensity, rate.bound) == (30.0, 4.0, 7.5, None)


def test_the_roofline_is_per_step_and_longest_first():
    table = roofline_table(
        [op("a", flops=20.0, size=1.0), op("b", self_s=2.0, flops=20.0, size=16.0), op("c")],
        CHIP,
        2,
    )
    assert table.rows == (
        ("b", "fusion", 1.0, 10.0, 10.0, 8.0, 1.25, "memory", 0.8),
        ("a", "fusion", 0.5, 10.0, 20.0, 1.0, 20.0, "compute", 0.2),
    )


def test_utilization_is_of_all_devices_peaks():
    value = flops_utilization(400.0, 2.0, [CHIP] * 4)
    assert (value.number, value.detail["n_devices"]) == (0.5, 4)


def test_utilization_says_why_it_is_unknown():
    cases = [
        (1.0, 0.0, [CHIP], "time of a step"),
        (1.0, 1.0, [], "no accelerator"),
        (1.0, 1.0, [CHIP, DeviceSpec(name="new chip", flops={})], "not known of new chip"),
        (101.0, 1.0, [CHIP], "count or the clock is wrong"),
    ]
    for flops, period, specs, why in cases:
        value = flops_utilization(flops, period, specs)
        assert value.number is None, why
        assert why in value.why, why


def test_the_op_profile_adds_up_to_the_devices_time():
    ops = [
        op("a", "fusion", self_s=3.0, flops=60.0, size=3.0),
        op("b", "copy", self_s=1.0, size=9.0, flops=0.0),
        op("c", "copy", "n", self_s=2.0),
    ]
    table = op_profile_table(ops, idle_s=2.0, spec=CHIP, n_steps=2)
    assert cells(table, "module", "category", "op") == [
        ("m", "", ""),
        ("m", "fusion", ""),
        ("m", "fusion", "a"),
        ("m", "copy", ""),
        ("m", "copy", "b"),
        ("n", "", ""),
        ("n", "copy", ""),
        ("n", "copy", "c"),
        ("idle", "", ""),
    ]
    assert sum(row["share"] for row in table.records() if not row["category"]) == pytest.approx(1)
    assert tuple(table.records()[0].values())[4:] == (2.0, 0.5, 30.0, 6.0, 15.0, 0.15, 0.3)
    assert tuple(table.records()[5].values())[6:] == (None,) * 5


def test_the_roofline_of_the_real_tpu_trace_agrees_with_xprof():
    """
    roofline_model: 164.578 GFLOP/s, 1226.2 GiB/s, 0.125 FLOP/byte, HBM bound, 80.4 % of the roof.

    For copy-start.4 it says 546,269 times the roof: 5 GiB in the 6 ns that it takes to start them. Ours has no row for it.
    """
    trace, _ = real("tpu_v6e_jax_inference")
    table = roofline_table(
        device_ops(*real("tpu_v6e_jax_inference")), device_spec(trace.plane("/device:TPU:0")), 1
    )
    rows = {row["op"]: row for row in table.records()}
    fusion = rows["broadcast_add_fusion.1"]
    assert (fusion["category"], fusion["flop_per_byte"]) == ("loop fusion", 0.125)
    assert fusion["bound_by"] == "memory"
    assert (fusion["flop_rate"], fusion["bandwidth"] / 2**30) == (
        pytest.approx(164.5779380951876e9),
        pytest.approx(1226.2011922537356),
    )
    assert fusion["share_of_the_roof"] == pytest.approx(0.8038028136700988)
    assert not [name for name in rows if "copy" in name]


def test_the_op_profile_of_the_real_tpu_trace_agrees_with_xprof():
    """op_profile: rawTime of jit_f 313653114681250 ps, of its loop fusions 9619893637500 ps at 81.77 % of the bandwidth."""
    trace, steps = real("tpu_v6e_jax_inference")
    table = op_profile_table(
        device_ops(trace, steps), 48.6117950625, device_spec(trace.plane("/device:TPU:0")), 1
    )
    rows = {(row["module"], row["category"], row["op"]): row for row in table.records()}
    module = rows[("jit_f(12190760917235803885)", "", "")]
    assert (module["self_s"], module["share"]) == (
        pytest.approx(313.65311468125),
        pytest.approx(313.65311468125 / 363.72969876875),
    )
    fusions = rows[("jit_f(12190760917235803885)", "loop fusion", "")]
    assert (fusions["self_s"], fusions["of_peak_bandwidth"]) == (
        pytest.approx(9.6198936375),
        pytest.approx(0.8177089736558968),
    )
    assert fusions["of_peak"] == pytest.approx(1610612736000 / 9.6198936375 / 918e12)


def tables_of(*teraflops):
    """Return the tables of TPUs of these peaks that run one op of 1 ms in a step of 10 ms."""
    text = "%add.1 = f32[8]{0} add(f32[8]{0} %a, f32[8]{0} %b)"
    told = {"hlo_category": "loop fusion", "flops": 10**9, "bytes_accessed": 8}
    cores = [
        plane(
            f"/device:TPU:{n}",
            line("XLA Ops", at(text, 1, 2)),
            metadata={text: told},
            stats={"peak_teraflops_per_second": peak},
        )
        for n, peak in enumerate(teraflops)
    ]
    host = plane("/host:CPU", line("marks", at("train", 0, 10, step_num=0, _r=1)))
    recording = Recording(name="", trace=None, workload={})
    return analyse(Evidence(recording, decode_trace(space(host, *cores)))).tables


def shares_of_peak(*teraflops):
    tables = tables_of(*teraflops)
    shares = [row["of_peak"] for row in tables["op_profile"].records() if row["op"]]
    return shares + [row["share_of_the_roof"] for row in tables["roofline"].records()]


def test_ops_of_different_devices_have_no_common_peak():
    assert shares_of_peak(10.0, 10.0) == pytest.approx([0.1, 0.1])  # 1 TFLOP/s each
    assert shares_of_peak(10.0, 20.0) == [None, None]


def test_time_without_an_op_on_each_device_is_idle():
    idle = tables_of(10.0, 10.0)["op_profile"].records()[-1]
    assert (idle["module"], idle["self_s"]) == ("idle", pytest.approx(18e-3))
