"""
FLOPs of a step, their precision, and the share of the devices' peak.

They come from its functions lowered to HLO, else from the executables that it ran.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pytest_tfperf.facts.executions import XlaUse
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.facts.unoptimised import on_its_platform
from pytest_tfperf.hlo.cost import Costs, Programs, module_costs
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.op_work import TABLE, OpWork, ops_of, table_of, with_ops
from pytest_tfperf.metrics.timing import timed_step
from pytest_tfperf.op_types import multiplies_matrices
from pytest_tfperf.quantities import FLOP_RATE, SHARE, format_quantity
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.devices import DeviceSpec
from pytest_tfperf.trace.hlo_modules import live_modules, modules_of
from pytest_tfperf.values import EXECUTABLES, Source, Unknown, Value

_MEAN = "mean"
"""Detail of flops: the mean of steps that differ, which the time of all of them is of."""
ON_CPU = "by_xla_on_cpu"
"""Detail of half_precision; true where XLA's CPU compiler computes the products."""
_OUTSIDE = (
    "the steps also ran ops outside XLA, and the trace says nothing of their shapes and types"
)
_WIDENED = (
    "the CPU's compiler widens 16-bit matrix multiplications to float32, and the compiled module "
    "does not show the types that {} of the matmul FLOPs were written with"
)


def analyse(evidence: Evidence) -> Findings:
    """Find the FLOPs of a step, their precision, and the share of the devices' peak."""
    if evidence.trace is None:
        return evidence.untraced("flops", "half_precision", "flops_utilization")
    if evidence.recording.framework == JAX:
        values, programs = _of_jax(evidence)
    else:
        programs = _programs(evidence)
        values = work_values(programs)
        values = {**values, "flops": _over_kinds(values["flops"], evidence)}
    ops: list[OpWork] = []
    if not isinstance(programs, Unknown):
        framework = evidence.framework
        ops = ops_of(programs, evidence.code.places, evidence.launched.in_keras)
        values = {name: with_ops(name, one, ops, framework) for name, one in values.items()}
    if _is_of_xla_on_cpu(evidence):
        half = values["half_precision"]
        values["half_precision"] = half.changed(detail={**half.detail, ON_CPU: True})
    flops = values["flops"].detail.get(_MEAN, values["flops"].number)
    return Findings(
        values={**values, "flops_utilization": _utilization(evidence, flops)},
        tables={TABLE: table_of(ops)} if ops and values["flops"].number is not None else {},
        notes=evidence.code.lowering_notes,
    )


def _is_of_xla_on_cpu(evidence: Evidence) -> bool:
    """Return whether XLA's CPU compiler compiled the products of the steps, and not TensorFlow."""
    if not evidence.xla.modules or evidence.device_specs:
        return False
    outside = (op.kind for op in evidence.host_ops if not op.module)
    return not any(map(multiplies_matrices, outside))


def _of_jax(evidence: Evidence) -> tuple[dict[str, Value], Programs | Unknown]:
    """
    Return flops and half_precision of a step of JAX and their programs: those before optimisation,
    else its executables, whose values hold on their platform only.
    """
    programs = _before_optimisation(evidence)
    found = work_values(programs)
    if found["flops"].number is not None:
        return evidence.on_its_platform(_over_steps(found, programs, evidence)), programs
    programs = _executables(evidence)
    found = _over_steps(work_values(programs), programs, evidence)
    return on_its_platform(found, EXECUTABLES), programs


def _over_steps(
    values: dict[str, Value], programs: Programs | Unknown, evidence: Evidence
) -> dict[str, Value]:
    """
    Return flops as the median of the steps, with the least and most; a program that a later,
    untraced step compiled counts for the most, in place of one of the same function.
    """
    steps, flops = evidence.steps, values["flops"]
    if flops.number is None or isinstance(programs, Unknown):
        return values
    ran_in = evidence.xla.steps_in_metadata(evidence.executables)
    each = np.zeros(len(steps))
    for name, (costs, runs) in zip(evidence.executables, programs, strict=True):
        runs_then = runs * steps.n_steps / len(ran_in[name])
        if not math.isclose(runs_then, round(runs_then)):
            return values  # the trace does not tell how often it ran in each step
        each[ran_in[name]] += costs.flops * round(runs_then)
    each /= 1 if steps.sizes is None else np.maximum(steps.sizes, 1)
    low, high = float(each.min()), max(float(each.max()), _rare(evidence, programs, flops.number))
    if low == high:
        return values
    detail = {**flops.detail, "low": low, "high": high, _MEAN: flops.number}
    return {**values, "flops": flops.changed(number=float(np.median(each)), detail=detail)}


def _over_kinds(flops: Value, evidence: Evidence) -> Value:
    """Return a known flops as the median of the steps, with the least and most if they differ."""
    kinds = evidence.code.step_kinds
    if flops.number is None or not kinds:
        return flops
    if isinstance(kinds, Unknown):
        return Value.unknown("flops", kinds.why)
    each: list[float] = []
    for modules, n_steps in kinds:
        found = _flops([(module_costs(module), runs) for module, runs in modules])
        if found.number is None:
            return found
        each += [found.number] * n_steps
    if min(each) == max(each):
        return flops
    mean = math.fsum(each) / len(each)
    detail = {**flops.detail, "low": min(each), "high": max(each), _MEAN: mean}
    return flops.changed(number=float(np.median(each)), detail=detail)


def _rare(evidence: Evidence, programs: Programs, flops: float) -> float:
    """Return the most FLOPs of a step with a program that ran in no traced one, else 0."""
    ran_in, n_steps = evidence.xla.steps_in_metadata(evidence.executables), evidence.steps.n_steps
    usual = {
        name.rpartition("(")[0]: (costs.flops, runs * n_steps / len(ran_in[name]))
        for name, (costs, runs) in zip(evidence.executables, programs, strict=True)
    }
    found = [0.0]
    for name, module in _unseen(evidence).items():
        function = name.rpartition("(")[0]
        if function in usual:
            one, runs = usual[function]
            found.append(flops + runs * (module_costs(module).flops - one))
    return max(found)


def _unseen(evidence: Evidence) -> dict[str, HloModule]:
    """Return the executables that later steps compiled, and that ran in no traced one."""
    compiled = set(evidence.late.compiled or ()) - set(evidence.executables)
    if evidence.trace is None or not compiled:
        return {}
    return modules_of(evidence.trace, sorted(live_modules(evidence.trace) & compiled))


def _before_optimisation(evidence: Evidence) -> Programs | Unknown:
    if evidence.runs_executor:
        return Unknown(_OUTSIDE)
    return evidence.lowered_costs


def _executables(evidence: Evidence) -> Programs | Unknown:
    """Return the executables of a step as its modules."""
    if evidence.why_xla_unknown:
        return Unknown(evidence.why_xla_unknown)
    return traced_programs(evidence.costs, evidence.xla, evidence.runs_executor)


def _programs(evidence: Evidence) -> Programs | Unknown:
    """Return the modules of a step as it was lowered, else, as of a bare trace, its executables."""
    lowered = evidence.lowered_costs
    if evidence.recording.bare and (isinstance(lowered, Unknown) or not lowered):
        return _executables(evidence)
    return lowered_programs(lowered, evidence.eager_ops[1])


def _utilization(evidence: Evidence, flops: float | None) -> Value:
    """Return flops_utilization, over the time of steps that were not profiled if it is known."""
    if flops is None:
        return Value.unknown("flops_utilization", "the FLOPs of a step are not known")
    traced_s = float(evidence.steps.period_ps.sum()) * 1e-12 / evidence.steps.n_steps
    period_s = timed_step(evidence.recording).number or traced_s
    return flops_utilization(flops, period_s, evidence.device_specs)


def work_values(programs: Programs | Unknown) -> dict[str, Value]:
    """Return flops and half_precision of a step of these modules."""
    if isinstance(programs, Unknown):
        return {name: Value.unknown(name, programs.why) for name in ("flops", "half_precision")}
    return {"flops": _flops(programs), "half_precision": _half_precision(programs)}


def lowered_programs(lowered: Programs | Unknown, eager: Iterable[str] = ()) -> Programs | Unknown:
    """Return the lowered modules, or the reason why they are not all of a step."""
    if isinstance(lowered, Unknown):
        return Unknown(lowered.why or "the step's functions were not lowered to HLO")
    outside = sorted(op for op in set(eager) if multiplies_matrices(op))
    if outside:
        return Unknown(
            f"the step runs {', '.join(outside)} eagerly, whose shapes and types the trace does "
            "not tell; put them into a tf.function"
        )
    return lowered


def traced_programs(
    executables: Mapping[str, Costs], use: XlaUse, runs_ops: bool
) -> Programs | Unknown:
    """Return the executables that ran as a step's modules, or the reason why they are not all."""
    if not use.modules:
        return Unknown(
            "the steps ran no XLA executable, and the trace says nothing of the shapes and types "
            "of other ops"
        )
    if runs_ops:
        return Unknown(_OUTSIDE)
    if len(executables) < len(use.modules):
        return Unknown(
            f"the trace holds the HLO of {len(executables)} of the {len(use.modules)} executables "
            "that ran"
        )
    runs = use.on_all_devices_in_metadata(executables)
    return [(costs, runs[name]) for name, costs in executables.items()]


def _flops(programs: Programs) -> Value:
    unknown = sorted({target for costs, _ in programs for target in costs.uncounted})
    loops = sorted({loop for costs, _ in programs for loop in costs.once})
    if unknown:
        return Value.unknown(
            "flops", f"the FLOPs of these instructions are not known: {and_more(unknown, 3)}"
        )
    if loops:
        return Value.unknown(
            "flops", f"the program does not say how often its loops run ({', '.join(loops[:3])})"
        )
    matmul = sum(costs.matmul_flops * runs for costs, runs in programs)
    return Value.of(
        "flops",
        _whole(sum(costs.flops * runs for costs, runs in programs)),
        Source.HLO,
        matmul_and_convolution=_whole(matmul),
    )


def _whole(number: float) -> float:
    """Return the integer that a number is but for the rounding of floats, else the number."""
    return float(round(number)) if math.isclose(number, round(number), rel_tol=1e-12) else number


def _half_precision(programs: Programs) -> Value:
    matmul = sum(costs.matmul_flops * runs for costs, runs in programs)
    opaque = sorted({target for costs, _ in programs for target in costs.opaque})
    if opaque:
        return Value.unknown(
            "half_precision",
            f"it is not known what these instructions multiply: {and_more(opaque, 3)}",
        )
    unsure = sum(costs.unsure_flops * runs for costs, runs in programs)
    if unsure:
        share = format_quantity(unsure / matmul, SHARE)
        return Value.unknown("half_precision", _WIDENED.format(share))
    if not matmul:
        return Value.unknown(
            "half_precision", "the step has no matrix multiplication and no convolution"
        )
    half = sum(costs.half_flops * runs for costs, runs in programs)
    if any(costs.once for costs, _ in programs) and 0 < half < matmul:
        return Value.unknown(
            "half_precision",
            "some are in 16 bits, and the program does not say how often its loops run",
        )
    counts = {"half_flops": half, "matmul_flops": matmul}
    return Value.of("half_precision", half / matmul, Source.HLO, **counts)


def flops_utilization(flops: float, period_s: float, specs: Sequence[DeviceSpec]) -> Value:
    """Return a step's `flops` on all these devices ÷ (`period_s` x sum of the peaks)."""
    peaks = [spec.peak_flops for spec in specs]
    if not period_s:
        return Value.unknown("flops_utilization", "the time of a step is not known")
    if not peaks or None in peaks:
        names = ", ".join(sorted({spec.name for spec in specs if spec.peak_flops is None}))
        return Value.unknown(
            "flops_utilization",
            f"the peak FLOP rate is not known of {names}" if names else "there is no accelerator",
        )
    peak = sum(peak for peak in peaks if peak is not None)
    share = flops / (period_s * peak)
    if share > 1:
        why = (
            f"{format_quantity(flops / period_s, FLOP_RATE)} would be {share:.2f} times the peak of"
            f" {format_quantity(peak, FLOP_RATE)}: the count or the clock is wrong"
        )
        return Value.unknown("flops_utilization", why)
    return Value.of(
        "flops_utilization",
        share,
        Source.TRACE,
        peak_flops=peak,
        device=specs[0].name,
        n_devices=len(specs),
    )
