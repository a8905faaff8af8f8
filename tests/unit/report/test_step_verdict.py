"""The bottleneck of a profile in a sentence, from the parts of its steps."""

from dataclasses import replace

import pytest
from helpers.builders import profile, value

from pytest_tfperf.report.step_verdict import (
    key_figures,
    parts_of,
    steps_title,
    top_ops,
    verdict,
)
from pytest_tfperf.values import PARTS, Column, Source, Step, Table


def steps(n=2, period_s=0.01, names="train", **shares):
    parts = {part: shares.get(part, 0.0) * period_s for part in PARTS}
    return tuple(Step(name=f"{names} {i}", period_s=period_s, parts_s=parts) for i in range(n))


def of_steps(*given, source="step_num", **metrics):
    return replace(profile("trace", steps=given, **metrics), step_source=source)


def test_the_largest_part_is_the_bottleneck():
    for shares, metrics, sentence in [
        (
            {"input": 0.89, "other": 0.11},
            {"host_overhead": 0.11},
            "Waiting for input takes 89 % of the step.",
        ),
        (
            {"other": 0.571, "input": 0.429},
            {"host_overhead": 0.571},
            "Python and the loop take 57.1 % of the step.",
        ),
        ({"other": 0.8, "input": 0.2}, {}, "The trace does not explain 80 % of the step."),
        (
            {"input": 0.4, "host_compute": 0.35, "other": 0.25},
            {"host_overhead": 0.25},
            "Waiting for input takes 40 % of the step. Ops on the host take 35 %.",
        ),
        ({"device_compute": 1.0}, {}, "Computing on the device takes 100 % of the step."),
    ]:
        assert verdict(of_steps(*steps(**shares), **metrics)) == sentence, shares


@pytest.mark.parametrize(
    ("devices", "n", "said"),
    [
        ("8 GPUs", 8, "All 8 GPUs are idle 91 % of the step."),
        ("1 TPU core", 1, "The TPU is idle 91 % of the step."),
        ("", 1, "The device is idle 91 % of the step."),
    ],
)
def test_idle_accelerators_come_first(devices, n, said):
    shown = of_steps(
        *steps(other=0.9, device_compute=0.1),
        device_busy=value("device_busy", 0.09, n_devices=n),
        host_overhead=0.9,
    )
    assert verdict(shown, devices) == f"{said} Python and the loop take 90 % of the step."


def test_busy_accelerators_are_not_idle():
    busy = value("device_busy", 0.97, n_devices=1)
    assert "idle" not in verdict(
        of_steps(*steps(device_compute=0.97, other=0.03), device_busy=busy)
    )


def test_full_buffers_do_not_hide_the_bottleneck():
    hidden = value("input_bound", 0.7).changed(source=Source.CORRECTED)
    shown = of_steps(*steps(input=0.02, host_compute=0.98), input_bound=hidden)
    assert verdict(shown) == (
        "Waiting for input takes 70 % of the step once its buffers are empty."
    )
    seen = replace(shown, metrics={**shown.metrics, "input_bound": value("input_bound", 0.02)})
    assert verdict(seen) == "Ops on the host take 98 % of the step."


@pytest.mark.parametrize("given", [(), steps(2, 0.0)])
def test_steps_without_time_have_no_parts(given):
    assert parts_of(of_steps(*given)) == []
    assert verdict(of_steps(*given)) == "The trace shows no time of a step."


def test_a_part_of_a_newer_version_is_left_out():
    odd = Step(name="train 0", period_s=0.01, parts_s={"input": 0.004, "warp_drive": 0.006})
    assert [part.key for part in parts_of(of_steps(odd))] == ["input"]


def test_the_steps_have_a_time_and_an_origin():
    for given, title in [
        (steps(3, 0.0277), "3 steps of 27.7 ms (train, from step_num)"),
        (steps(1, names=""), "1 step of 10 ms (from step_num)"),
        ((*steps(1), *steps(1, names="other")), "2 steps of 10 ms (from step_num)"),
        ((Step(name="7", period_s=0.01, parts_s={}),), "1 step of 10 ms (from step_num)"),
        ((), "steps of unknown time"),
    ]:
        assert steps_title(of_steps(*given)) == title, given


def test_known_figures_are_shown_and_unknown_ones_are_not():
    assert key_figures(profile()) == []
    shown = profile(flops_utilization=4.2e-9, half_precision=1, retraces=0, kernel_launches=1234)
    assert key_figures(shown) == [
        "FLOPs <0.0001 % of peak",
        "16-bit 100 %",
        "kernels 1,234",
        "retraces 0",
    ]


def test_memory_is_that_of_the_allocator_where_its_capacity_is_known():
    memory = Table.of(
        "memory",
        [Column("peak", "peak", "bytes"), Column("capacity", "capacity", "bytes")],
        [(2**30, 144 * 2**30)],
    )
    shown = profile(peak_memory=2**20)
    assert key_figures(shown) == ["memory 1 MiB"]
    assert key_figures(replace(shown, tables={"memory": memory})) == ["allocated 1 GiB of 144 GiB"]
    bounded = profile(peak_memory=value("peak_memory", 2**20, low=0, high=2**20, bounds="growth"))
    assert key_figures(bounded) == ["memory up to 1 MiB"]


def ops(*rows):
    columns = [Column(key, key) for key in ("where", "op", "share")]
    return Table.of("ops", columns, rows)


def test_the_largest_ops_are_those_of_the_devices_if_there_are_any():
    on_host = ops(("tf.data", "Map", 0.9), ("host", "MatMul", 0.6), ("host", "tiny", 0.001))
    shown = replace(profile(), tables={"host_ops": on_host})
    assert top_ops(shown) == ("the host", ["MatMul 60 %"])
    on_gpu = ops(*(("GPU", f"k{n}", 0.2) for n in range(5)))
    shown = replace(profile(), tables={"host_ops": on_host, "device_ops": on_gpu})
    assert top_ops(shown) == ("the devices", ["k0 20 %", "k1 20 %", "k2 20 %"])
    assert top_ops(replace(profile(), tables={"host_ops": ops(("host", "a", None))})) == ("", [])
