"""All that is known of one profile, and what an analysis finds in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pytest_tfperf.facts.collectives import Runs, find_runs
from pytest_tfperf.facts.device_ops import device_ops, with_costs
from pytest_tfperf.facts.executions import XlaUse, find_xla_use, step_executables
from pytest_tfperf.facts.host_activity import (
    JAX,
    PYTORCH,
    eager_ops,
    model_processes,
    remote_functions,
    threads_of,
    why_compilations_hidden,
    why_executions_hidden,
)
from pytest_tfperf.facts.late import Late, shown, watched
from pytest_tfperf.facts.memory import MemoryPeak, memory_peaks
from pytest_tfperf.facts.op_times import FunctionUse, OpTime, function_uses, host_ops
from pytest_tfperf.facts.parts import Breakdown, DeviceParts, break_down, find_device_parts
from pytest_tfperf.facts.stages import Stage, batch_of, find_stages
from pytest_tfperf.facts.steps import MARKED, Steps, find_steps, on_the_device, only_own
from pytest_tfperf.facts.unoptimised import (
    LoweredProgram,
    differs_by_platform,
    on_its_platform,
    programs_before,
)
from pytest_tfperf.facts.waits import (
    Drain,
    TimedWaits,
    find_drain,
    input_waits,
    pipeline_share,
    pushed_input,
    runs_on,
    shows_fetches,
    taken_ns,
    timed_waits,
)
from pytest_tfperf.graphs import OpNode, StepGraph
from pytest_tfperf.hlo.cost import Costs, Programs, module_costs
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.hlo.walk import with_calls_inlined, without_dead_code
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import ALL, Asked, Modules, Recording, StepKinds
from pytest_tfperf.stats.steady_state import slow_start
from pytest_tfperf.trace.devices import (
    DeviceSpec,
    accelerators,
    device_name,
    device_spec,
    refuse_many_steps,
)
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.intervals import Spans, covered, intersect, merge
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Advice, Table, Unknown, Value

_NOTHING_TRACED = "nothing was traced"
UNTRACED = "the step ran on PyTorch, which tfperf times and does not trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The contribution of one analysis to a profile."""

    values: Mapping[str, Value] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    """Advice that no rule of the whole profile gives."""


class StepCode(Protocol):
    """Facts of the step's code that take long; an inspection computes them when they are read."""

    @property
    def lowered(self) -> Modules | Unknown:
        """The HLO modules of a step before optimisation."""

    @property
    def step_kinds(self) -> StepKinds | Unknown:
        """The HLO modules of each kind of step, if steps call different functions."""

    @property
    def lowering_notes(self) -> tuple[str, ...]:
        """Notes on what these modules leave out."""

    @property
    def graph(self) -> StepGraph | Unknown:
        """The step's graphs."""

    @property
    def ops(self) -> tuple[OpNode, ...]:
        """The ops of the step's functions, none if they are not known."""

    @property
    def grappler(self) -> Mapping[str, int]:
        """Ops that remain when one Grappler pass is left out, by its option; under "" with all."""

    def places(self, names: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Return the user's line and function of ops of TensorFlow by name."""

    def programs(self, module: str) -> Sequence[LoweredProgram] | Unknown:
        """Return the programs that JAX holds of executables of a module's name."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A recording with its traces; derived facts are computed once, when first asked for."""

    recording: Recording
    trace: Trace | None = None
    """The trace of its steps; without one there is no fact below but `late` and `code`."""
    first_step_trace: Trace | None = None
    """The trace of its first step, if that had a session of its own."""
    inspection: StepCode | None = None
    """Facts of the step's code, if they are not in the recording."""
    input_trace: Trace | None = None
    """The trace of TensorFlow over the same steps, if another framework ran them."""
    asked: Asked = ALL

    @property
    def code(self) -> StepCode:
        """The facts of the step's code; only expensive analyses may read them."""
        return self.recording if self.inspection is None else self.inspection

    def untraced(self, *metrics: str) -> Findings:
        """Return these metrics as unknown, since there is no trace."""
        of_framework = UNTRACED if self.recording.framework == PYTORCH else _NOTHING_TRACED
        why = self.recording.ended or of_framework
        return Findings(values={name: Value.unknown(name, why) for name in metrics})

    @property
    def in_process(self) -> bool:
        """True if this process made the trace; False for a trace of unknown origin."""
        return not self.recording.bare or self.inspection is not None

    @cached_property
    def late(self) -> Late:
        """What was traced and compiled after the first step; of a bare trace, what it shows."""
        if self.trace is None or not self.recording.bare:
            return watched(self.recording)
        return shown(self.recording, self.trace, self.launched, self.why_compilations_hidden)

    @cached_property
    def workload(self) -> Mapping[str, Any]:
        """The step's inputs and batch; the pipeline tells one that their signature leaves open."""
        workload = self.recording.workload
        is_open = self.trace is not None and workload.get("batch", 0) is None
        batch = batch_of(self.stages) if is_open else None
        return {**workload, "batch": batch} if batch else workload

    @property
    def examples_per_step(self) -> float | None:
        """The examples in a step, or None: what the user says, else the batch of the pipeline."""
        is_open = self.recording.workload.get("batch", 0) is None
        return self.recording.examples_per_step or (self.workload["batch"] if is_open else None)

    @property
    def framework(self) -> str:
        """The framework that ran the steps: as the process knew it, or as its trace tells it."""
        return self.recording.framework

    @cached_property
    def why_compilations_hidden(self) -> str | None:
        """The reason why the trace may not show what XLA compiled, or None if it does."""
        shown = self.recording.xla_shown
        missing = shown and (shown.compilations if self.recording.bare else shown.modules)
        return missing or why_compilations_hidden(self._trace, self.in_process)

    @cached_property
    def why_xla_unknown(self) -> str | None:
        """The reason why the executables that ran in the steps are unknown, or None."""
        if self.xla.modules:
            return None
        if self.xla.launches.any():
            return "the trace does not tell which executables ran"
        shown = self.recording.xla_shown
        missing = shown and shown.executions
        return missing or why_executions_hidden(self._trace, self.in_process)

    @cached_property
    def launched(self) -> Steps:
        """The step's launches; raises TraceError without steps, or with too many on its devices."""
        steps = find_steps(self._trace, only_own(self.recording.own_functions))
        refuse_many_steps(self._trace, len(steps))
        return steps

    @cached_property
    def steps(self) -> Steps:
        """The steps as the devices ran them. Raises: as `launched`."""
        return on_the_device(self._trace, self.launched)

    @cached_property
    def breakdown(self) -> Breakdown:
        """The parts of each step's time."""
        return break_down(self._trace, self.steps, self.waits)

    @cached_property
    def waits(self) -> Spans:
        """The times in which a step waited for its next element, not merged."""
        trace, steps = self.pipeline
        begin, end = input_waits(trace)
        if trace is self._trace:
            return begin, end
        # profilers number their events from their own starts
        shift = int(np.median(self.launched.start_ps - steps.start_ps))
        return begin + shift, end + shift

    @cached_property
    def timed_waits(self) -> TimedWaits | None:
        """
        The waits for input in the timed window, less the trace's share of hidden time; None where
        only the trace shows them, as without `next()` or where a device may work meanwhile.
        """
        fetches, trace, steps = self.recording.fetches, self.pipeline[0], self.steps
        on_device = self.breakdown.device.n_devices or pushed_input(trace)[0].size
        if fetches is None or on_device or not shows_fetches(trace):
            return None
        waited = int(covered(merge(self.waits), steps.start_ps, steps.end_ps).sum())
        visible = float(self.breakdown.parts_ps["input"].sum()) / waited if waited else 1.0
        per_step = [seconds / n_steps for seconds, n_steps in self.recording.blocks]
        return timed_waits(
            fetches,
            pipeline_share(trace),
            visible=min(visible, 1.0),
            runs_on=runs_on(trace),
            n_dropped=slow_start(per_step),
            epoch_calls=self.recording.epoch_calls,
        )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the input pipelines."""
        return find_stages(self.pipeline[0], self.pipeline_waits)

    @cached_property
    def pipeline(self) -> tuple[Trace, Steps]:
        """The trace of the input pipelines, and the steps in it."""
        if self.input_trace is not None:
            steps = find_steps(self.input_trace)
            if steps.source == MARKED and len(steps) == len(self.launched):
                return self.input_trace, steps
        return self._trace, self.steps

    @cached_property
    def pipeline_waits(self) -> Spans:
        """The merged times in which a step waited, in the trace of the input pipelines."""
        trace, steps = self.pipeline
        inside = merge((steps.start_ps, steps.end_ps))
        return intersect(merge(input_waits(trace)), inside)

    @cached_property
    def drain(self) -> Drain:
        """The draining of the pipeline's buffers during the steps."""
        waiting_ps = self.breakdown.parts_ps["input"]
        return find_drain(*self.pipeline, waiting_ps, taken_ns(self.recording.fetches))

    @cached_property
    def xla(self) -> XlaUse:
        """The XLA executables that ran in the steps, and how often."""
        return find_xla_use(self._trace, self.steps, self.launched)

    @cached_property
    def executables(self) -> dict[str, HloModule]:
        """Executables with optimised HLO in the trace, by name; raises TraceError if damaged."""
        return step_executables(self._trace, self.xla)

    @cached_property
    def lowered(self) -> Modules | Unknown:
        """The HLO modules of a step before optimisation; only expensive analyses may read it."""
        if self.recording.framework != JAX:
            return self.code.lowered
        if self.trace is None:
            return Unknown(self.recording.ended or _NOTHING_TRACED)
        if why := self.why_xla_unknown:
            return Unknown(why)
        return programs_before(self.xla, self.executables, self.code.programs)

    @cached_property
    def lowered_costs(self) -> Programs | Unknown:
        """The costs of these modules, with their products."""
        if isinstance(self.lowered, Unknown):
            return self.lowered
        return [(module_costs(module), runs) for module, runs in self.lowered]

    @cached_property
    def inlined(self) -> Modules | Unknown:
        """The same modules with their functions inlined and without dead code."""
        if isinstance(self.lowered, Unknown):
            return self.lowered
        return tuple(
            (without_dead_code(with_calls_inlined(module)), runs) for module, runs in self.lowered
        )

    def on_its_platform(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Mark values of the step's programs, if JAX makes other programs for other platforms."""
        if self.recording.framework != JAX or isinstance(self.lowered, Unknown):
            return dict(values)
        differs = any(differs_by_platform(module) for module, _ in self.lowered)
        return on_its_platform(values) if differs else dict(values)

    @cached_property
    def costs(self) -> dict[str, Costs]:
        """The cost of one run of each executable. Raises: as `executables`."""
        return {name: module_costs(module) for name, module in self.executables.items()}

    @cached_property
    def runs_executor(self) -> bool:
        """True if TensorFlow's executor ran ops in the steps, outside XLA."""
        return bool((self.launched.of(model_processes(self._trace).start) >= 0).any())

    @cached_property
    def eager_ops(self) -> tuple[Ints, Counter[str]]:
        """The number of ops run eagerly in each step, shape (n_steps,), and how often each type."""
        return eager_ops(self._trace, self.launched)

    @cached_property
    def own_threads(self) -> list[int]:
        """The lines of the threads of the steps, none where the steps are of no thread."""
        host = Events.of(self._trace.plane(HOST))
        return threads_of(self.launched, host, self.in_process)

    @cached_property
    def remote_functions(self) -> Counter[str]:
        """The calls of functions that the steps let other processes run, by name."""
        return remote_functions(self._trace, self.launched)

    @cached_property
    def functions(self) -> list[FunctionUse]:
        """The tf.functions that Python called in the steps."""
        return function_uses(self._trace, self.launched)

    @cached_property
    def host_ops(self) -> list[OpTime]:
        """The ops that the host ran in the steps."""
        return host_ops(self._trace, self.launched, self.steps)

    @cached_property
    def memory_peaks(self) -> list[MemoryPeak]:
        """The peak of each allocator that held memory in the steps, the largest first."""
        return memory_peaks(self._trace, self.launched)

    @cached_property
    def device_ops(self) -> list[OpTime]:
        """The ops that accelerators ran in the steps, with their costs."""
        return with_costs(device_ops(self._trace, self.steps), self.costs)

    @cached_property
    def device_parts(self) -> DeviceParts:
        """The parts of each step on each device alone."""
        return find_device_parts(self._trace, self.steps)

    @cached_property
    def collectives(self) -> tuple[list[Runs], int]:
        """The collectives of the steps, and the number of runs outside of them."""
        return find_runs(self._trace, self.steps)

    @cached_property
    def device_specs(self) -> list[DeviceSpec]:
        """The peak rates of each accelerator that did anything in the steps."""
        names = frozenset(self.device_parts.names)
        planes = accelerators(self._trace)
        return [device_spec(plane) for plane in planes if device_name(plane) in names]

    @property
    def _trace(self) -> Trace:
        assert self.trace is not None, "an analysis asks for facts of a trace that there is not"
        return self.trace
