"""What lies behind the metrics, for people: ops, functions, kernels, devices and memory; and the metrics that follow from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_tfperf.analysis.device.duty_cycle import duty_cycle, duty_cycles, idle_share
from pytest_tfperf.analysis.device.kernels import find_kernels, kernel_table, tensor_core_time
from pytest_tfperf.analysis.device.launches import copy_values, kernel_launches
from pytest_tfperf.analysis.device.op_profile import op_profile_table
from pytest_tfperf.analysis.device.roofline import flops_utilization, roofline_table
from pytest_tfperf.analysis.device.skew import (
    DeviceTimes,
    device_table,
    device_times,
    idle_seconds,
    step_skew,
)
from pytest_tfperf.analysis.host.function_times import FunctionUse, function_table, function_uses
from pytest_tfperf.analysis.host.memory import (
    live_table,
    memory_peaks,
    memory_table,
    over_step_table,
)
from pytest_tfperf.analysis.host.op_times import (
    device_ops,
    eager_share,
    host_ops,
    op_table,
    with_costs,
)
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.hlo.cost import Costs
from pytest_tfperf.trace.device_spec import DeviceSpec, device_spec
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Table, Value

Values = dict[str, Value]
Tables = dict[str, Table]


def host_statistics(trace: Trace, steps: Steps, values: Values) -> tuple[Values, Tables]:
    """Tables of what the host ran and allocated; eager_ops and retraces with the shares of time that go to them."""
    ops, uses, peaks = (
        host_ops(trace, steps),
        function_uses(trace, steps),
        memory_peaks(trace, steps),
    )
    tables = {}
    if ops:
        tables["host_ops"] = replace(op_table(ops, steps.n_steps), title="ops on the host")
    if uses:
        tables["functions"] = function_table(uses, steps)
    if peaks:
        tables |= {
            "memory": memory_table(peaks),
            "memory_over_step": over_step_table(peaks[0]),
            "memory_at_peak": live_table(peaks[0]),
        }
    return {
        "eager_ops": _with(values["eager_ops"], time_share=eager_share(ops)),
        "retraces": _with(values["retraces"], expensive_share=_expensive_share(uses)),
    }, tables


def device_statistics(
    trace: Trace, launched: Steps, steps: Steps, values: Values, executables: Mapping[str, Costs]
) -> tuple[Values, Tables]:
    """
    Metrics and tables of the accelerators, which ran these executables; `steps` are those that the devices ran, `launched` the same
    as the host launched them.
    """
    ops, kernels = with_costs(device_ops(trace, steps), executables), find_kernels(trace, steps)
    times = device_times(trace, steps)
    cycles = duty_cycles(trace)
    found = {
        "kernel_launches": kernel_launches(trace, launched),
        **copy_values(trace, launched),
        "tensor_core_time": tensor_core_time(kernels),
        "step_skew": step_skew(times),
        "flops_utilization": _utilization(trace, times, steps, values),
    }
    awaiting = _share(
        [op.self_s for op in ops if op.kind.endswith("-done")], [op.self_s for op in ops]
    )
    found["device_busy"] = _with(
        values["device_busy"],
        awaiting_share=awaiting,
        duty_cycle=duty_cycle(cycles),
        idle_share=idle_share(cycles),
    )
    tables = {}
    if ops:
        spec = next(iter(_specs(trace, times)), None)
        idle_s = idle_seconds(times, steps)
        tables["device_ops"] = replace(op_table(ops, steps.n_steps), title="ops on the devices")
        tables["op_profile"] = op_profile_table(ops, idle_s, spec, steps.n_steps)
        tables |= (
            {"roofline": roofline}
            if (roofline := roofline_table(ops, spec, steps.n_steps)).rows
            else {}
        )
    if kernels:
        tables["kernels"] = kernel_table(kernels, steps.n_steps)
    if times.names:
        tables["devices"] = device_table(times, steps)
    return found, tables


def _utilization(trace: Trace, times: DeviceTimes, steps: Steps, values: Values) -> Value:
    """Each device runs the program that the FLOPs were counted of, in the time of a step that was not profiled if there is one."""
    specs, flops = _specs(trace, times), values["flops"].number
    period = values["step_time"].number or float(steps.period_ps.sum()) * 1e-12 / steps.n_steps
    return flops_utilization(None if flops is None else flops * len(specs), period, specs)


def _specs(trace: Trace, times: DeviceTimes) -> list[DeviceSpec]:
    """Of the accelerators that did anything in the steps."""
    return [
        device_spec(plane)
        for plane in accelerators(trace)
        if plane.name.removeprefix("/device:") in times.names
    ]


def _expensive_share(uses: list[FunctionUse]) -> float | None:
    return _share([use.expensive_s for use in uses], [use.self_s for use in uses])


def _share(some: list[float], of_all: list[float]) -> float | None:
    return sum(some) / sum(of_all) if sum(of_all) > 0 else None


def _with(value: Value, **detail: float | None) -> Value:
    """The value with those details that are known and not zero."""
    return replace(
        value, detail={**value.detail, **{key: number for key, number in detail.items() if number}}
    )
