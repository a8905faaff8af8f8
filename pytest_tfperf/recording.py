"""Recordings: frozen values that go from capture to analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.graphs import OpNode, StepGraph
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.values import Unknown

Modules = tuple[tuple[HloModule, float], ...]
"""HLO modules, and how often each runs in a step."""
StepKinds = tuple[tuple[Modules, int], ...]
"""The modules of each kind of step, and the number of such steps; empty if all steps are alike."""
ENDLESS = -1
"""Elements of a stage that repeats for ever (tf.data.INFINITE_CARDINALITY)."""
UNSEEN = Unknown("")
"""Nobody looked; whoever reads it knows why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """A component of the batches whose rows can be padded."""

    name: str
    """Its name in an element."""
    dtype: str
    rows: tuple[tuple[int, ...], ...]
    """The real elements of each row, batch by batch."""
    widths: tuple[int, ...]
    """The elements that a row of each batch has with padding; of ragged rows it would have."""
    features: int
    """Elements at one position of a row, 0 where rows are padded along several axes."""
    how: str
    """The way in which padding is told from data."""
    pad: str = ""
    """The value that fills."""
    ragged: bool = False
    """True if rows stay ragged, which have no padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Components of the batches of the traced steps that can be padded."""

    components: tuple[BatchRows, ...]
    n_batches: int
    sampled: bool = False
    """True if the same data gave these batches again after the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """A stage of the input pipeline, as the data define it."""

    stage: str
    """Its type, such as `ParallelMap`."""
    python: str = ""
    """The Python that it runs (`py_function`, `from_generator`), empty if it runs none."""
    line: str | None = None
    """The user's line of that Python."""
    by_keras: bool = False
    """True if Keras makes the pipeline behind this source."""
    random: bool = False
    """True if its elements differ from epoch to epoch: it shuffles, or draws random numbers."""
    elements: int | None = None
    """Elements of an epoch behind it, `ENDLESS`, or None if unknown."""
    element_bytes: int | None = None
    """Bytes of such an element, None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaShown:
    """Reasons why traces of this process do not show XLA's work; empty for what they show."""

    executions: str = ""
    """The reason why executions do not show."""
    compilations: str = ""
    """The reason why compilations do not show."""
    modules: str = ""
    """The reason why the HLO of executables does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySamples:
    """Readings of the memory before the first timed block and after each one."""

    n_steps: tuple[int, ...]
    """Timed steps so far."""
    heap: tuple[int, ...]
    """Bytes that the process holds of the C heap."""
    python: tuple[int, ...]
    """Bytes of Python's small objects."""
    mapped: tuple[int, ...]
    """Bytes of the process' other private mappings."""
    devices: tuple[int, ...] = ()
    """Bytes that frameworks hold on GPUs and TPUs; empty without them."""
    tensors: tuple[int, ...] = ()
    """Bytes that TensorFlow's allocator of the CPU has given out; empty if it does not tell."""
    first_call: int = 0
    """Calls of the step before the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A container of Python that holds more objects after each step."""

    kind: str
    """The name of its type."""
    place: str
    """Its variable or attribute, and the function or class of that."""
    holds: str
    """What it holds more after a step: number, type and shape of arrays, or of other objects."""
    is_array: bool
    """True if these are arrays for the most part."""
    is_model: bool
    """True if they are models of Keras."""
    size: float
    """Bytes a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A Python function that the steps called."""

    name: str
    """Its file, relative to site-packages or its project, and its name."""
    line: int
    """The first line of its definition."""
    calls: float
    """Calls a step."""
    self_s: float
    """Seconds a step in its own code, longer than without counting; the median of the steps."""
    place: str = ""
    """The user's file and line of its definition, empty if it is a library's."""
    of_trees: bool = False
    """True if JAX calls it to take a registered pytree apart, or to make one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCalls:
    """Python functions that the steps' own thread called, without those of this package."""

    steps: tuple[tuple[int, int], ...]
    """Calls of each counted step, and the number of steps that loop inside it."""
    functions: tuple[PythonFunction, ...]
    """The functions, the most frequent first."""


@dataclass(frozen=True, slots=True)
class StackTime:
    """Time in which the Python stack of the steps' thread was at one place, by samples."""

    line: str
    """The innermost line of the user's code, empty if none was on the stack."""
    called: str
    """The function of a library that this line called, empty in the user's own code."""
    function: str
    """The innermost function."""
    callback: str
    """The method of a Keras callback that was on the stack, empty without one."""
    phase: str
    """`tracing`, `lowering`, `compiling`, `importing`, or empty."""
    seconds: float
    """Seconds a step."""
    n: int
    """Number of samples, in all steps together."""


@dataclass(frozen=True, slots=True)
class BetweenEpochs:
    """What Keras runs between two epochs: a method of a callback, or the validation."""

    callback: str = ""
    """The class and the method, empty for the validation."""
    line: str = ""
    """The user's line that defines the method, empty for a library's."""
    kind: str = ""
    """The class of Keras of such a callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Seconds of each call of the timed window."""

    next_s: tuple[float, ...]
    """Seconds of its `next()` on the data."""
    stood_s: tuple[float, ...]
    """Those of them in which the thread of the steps stood still, so that it waited."""
    call_s: tuple[float, ...]
    """Seconds from its begin to that of the following one."""
    pause_s: tuple[float, ...]
    """Seconds of the pause before it, in which the input pipeline ran on; 0 within a block."""
    last_ns: int
    """Nanoseconds since 1970 at the end of the last `next()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a marker and the options ask of the analysis of a recording."""

    metrics: frozenset[str] | None = None
    """Metrics and tables that are asked for by name; None for all."""
    target_step_time_s: float | None = None
    """The step time that the input pipeline should be able to feed."""
    max_python_calls_regression: float | None = None
    """The rise of python_calls that a comparison allows, as a share; None if it decides none."""
    tpu: str | None = None
    """The TPU generation that padding is predicted for."""
    findings: tuple[str, ...] = ()
    """Codes of the op guide that are switched on."""
    ignore_findings: tuple[str, ...] = ()
    """Codes of the op guide that are suppressed."""


ALL = Asked()
"""All that an analysis finds, by its own defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Times and observations of one run of the user's steps, and where its traces are."""

    name: str
    trace: Path | None
    """The trace of its steps, if there is one."""
    input_trace: Path | None = None
    """The trace of TensorFlow, if its pipelines may have fed the steps of another framework."""
    workload: Mapping[str, Any]
    """The step's inputs, batch size, replicas and whatever else two runs must share."""
    bare: bool = False
    """True if nothing is known but the trace, whose steps are all there were."""
    first_step_s: float | Unknown | None = None
    """Seconds of the first step, or why it was not a first step; None if it was not timed."""
    blocks: tuple[tuple[float, int], ...] = ()
    """(seconds, steps) of each block of the timed window."""
    block_cpu_s: tuple[float, ...] | Unknown = UNSEEN
    """Processor time of each of them, in seconds, with the children's share."""
    step_seconds: tuple[float, ...] = ()
    """Seconds of a step in each single call of the timed window."""
    fetches: Fetches | None = None
    """The fetches of the timed window; None if `tf_profile` did not call `next()` itself."""
    epoch_gaps_s: tuple[float, ...] = ()
    """Seconds from the last step of an epoch to the first of the next."""
    epoch_starts: tuple[int, ...] = ()
    """Index of the timed call behind each of these gaps."""
    epoch_calls: int | None = None
    """Calls of the step in an epoch: 0 if Keras does not know them, None if there may be none."""
    epoch_iters_s: tuple[float, ...] = ()
    """Seconds of freeing the iterator and of the next `iter()` in each, if `tf_profile` did it."""
    epoch_work_s: Mapping[BetweenEpochs, tuple[float, ...]] = field(default_factory=dict)
    """Seconds in each gap of what Keras runs there."""
    n_steps: int = 0
    """Steps up to the end of the last window."""
    n_epochs: int = 0
    """Epochs that ended meanwhile."""
    compiled: tuple[str, ...] | None = None
    """XLA executables compiled after the first step; None if that was not watched."""
    traced: tuple[FunctionTrace, ...] | None = None
    """Traces after step 0, of a bare trace all; None if they were not watched."""
    made_elsewhere: tuple[str, ...] = ()
    """Functions that threads of before the steps traced or compiled meanwhile."""
    other_threads: bool = False
    """True if threads of before the traced steps ran meanwhile, perhaps for the steps."""
    lowered: Modules | Unknown = UNSEEN
    """The XLA modules of a step before optimisation."""
    step_kinds: StepKinds | Unknown = ()
    """The HLO modules of each kind of step, if the traced steps call different functions."""
    lowering_notes: tuple[str, ...] = ()
    """Notes on what these modules leave out."""
    xla_shown: XlaShown | None = None
    """What traces of the process show of XLA; None if nobody checked."""
    cold: Path | None = None
    """The trace of step 0, if it had a session of its own."""
    graph: StepGraph | Unknown = UNSEEN
    """The step's graphs, as the probe saw them."""
    grappler: Mapping[str, int] = field(default_factory=dict)
    """Ops that remain when one Grappler pass is left out, by its option; under "" with all."""
    ops: tuple[OpNode, ...] = ()
    """The ops of the step's functions, none if they are not known."""
    eager: tuple[tuple[str, str | None, int], ...] = ()
    """(type, the user's line, count) of the ops that Python ran in the probe's step."""
    callbacks: Mapping[str, str] = field(default_factory=dict)
    """The method of a Keras callback that ran such ops, by the user's line in it."""
    batches: Batches | Unknown = UNSEEN
    """The batches that the steps consumed."""
    pipeline: tuple[PipelineStage, ...] | Unknown = UNSEEN
    """The stages of the input pipeline, from the source to the step."""
    python_calls: PythonCalls | Unknown = UNSEEN
    """The Python functions that the steps called."""
    first_stacks: tuple[StackTime, ...] = ()
    """Where Python was in the first step, the longest time first."""
    stacks: tuple[StackTime, ...] = ()
    """The same in a step of the warm-up."""
    memory: MemorySamples | Unknown = UNSEEN
    """The memory over the timed window."""
    kept: tuple[Kept, ...] = ()
    """What the process keeps from step to step, the largest first; only where memory grows."""
    memory_bound: int | Unknown = UNSEEN
    """Bytes that a step held at most, as the process grew in the windows."""
    examples_per_step: float | None = None
    """Examples in a step, for throughput."""
    framework: str = "TensorFlow"
    """The framework whose trace this is."""
    beside: tuple[str, ...] = ()
    """Other frameworks whose ops the steps ran; their traces are not kept."""
    frameworks: tuple[str, ...] = ()
    """Frameworks that may compute in the process of the steps and are not profiled."""
    own_functions: Mapping[str, bool] | None = None
    """Functions that JAX itself compiles, and whether the user compiles one of the same name."""
    settled: bool = True
    """False if input buffers were still draining in the timed window."""
    instrumented: bool = False
    """True if Python was traced in the timed window."""
    first_step_instrumented: bool = False
    """True if Python was traced in the first step."""
    interference: tuple[str, ...] = ()
    """Remarks on what else used the machine in the timed window."""
    other_load: float | None = None
    """Share of the cores that others had in it (`share_lost`); None if it is unknown."""
    ended: str | None = None
    """The reason why the windows are not full, if they are not."""
    window_notes: Mapping[str, str] = field(default_factory=dict)
    """Notes by window (warm-up, timed, traced) that is shorter than planned, and on the lock."""
    notes: tuple[str, ...] = ()
    result: Any = None
    """The last output of the steps."""

    def places(self, _: object) -> dict[str, tuple[str, str]]:
        """Return no places: a recording holds no function of TensorFlow."""
        return {}

    def programs(self, _: str) -> Unknown:
        """Return that a recording holds no program of JAX."""
        return UNSEEN

    @property
    def called(self) -> tuple[PythonFunction, ...]:
        """The functions among `python_calls`, none where these are unknown."""
        return () if isinstance(self.python_calls, Unknown) else self.python_calls.functions
