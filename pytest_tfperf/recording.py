"""What one run of the user's steps left behind, as frozen values: it goes from capture to analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Dims = tuple[int | None, ...]


Edge = tuple[int, int]


Ints = int | tuple["Ints", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A result of an op: its dimensions, None where one is not known, or None altogether, and the name of its type."""

    shape: Dims | None
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """
    An op: where its operands come from, None where that is not known; its results; the user's line that made it.

    `value` is the first result, where it is a small constant of whole numbers. `attrs` are those that a rule reads (`data_format`).
    `in_loop` says that it runs in a loop within the step, `compiles` that XLA has a kernel for it and its types.
    """

    name: str
    op_type: str
    inputs: tuple[Edge | None, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    value: Ints | None = None
    attrs: Mapping[str, str] = field(default_factory=dict)
    line: str | None = None
    in_loop: bool = False
    compiles: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGraph:
    """
    The ops that a step's results and effects need, in the order in which they were made, and the results themselves.

    What a function calls stands in place of the call, so that an op's operands are known through it; bodies of loops and branches
    stand behind the ops that run them, and what changes from turn to turn comes from a Placeholder.
    """

    ops: tuple[Op, ...]
    results: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOp:
    """An op of the step's graph: its name and type, the user's source line that made it (`model.py:12`), and why it is listed."""

    name: str
    op_type: str
    line: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """
    What XLA compiles as one: the function's name, and the compute nodes in it, whose `why` is empty.

    `asked` says that the user asked for it (jit_compile); others were found by auto-clustering, which may not run them after all.
    """

    name: str
    nodes: tuple[GraphOp, ...]
    asked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """
    The graphs of one step, as TensorFlow's runtime instantiated them; a function that is called twice is counted twice.

    `before` and `after` count the ops by type that Grappler was given and left, without arguments, results, calls and the shells
    of control flow. `clusters` hold the compute nodes that XLA compiles, `outside` are the others. `surviving` are ops that an
    optimiser should have removed. `without` is the number of ops that remain when one optimiser is left out, by its option;
    under "" with all of them; empty where that was not tried.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    clusters: tuple[Cluster, ...] = ()
    outside: tuple[GraphOp, ...] = ()
    surviving: tuple[GraphOp, ...] = ()
    without: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """
    A component of the batches whose rows can be padded, in elements: `rows` the real ones of each row, batch by batch, `widths`
    those that a row has with its padding.

    `features` are the elements at one position of a row, 0 where rows are padded along several axes. `how` says what tells padding
    from data, `pad` the value that fills. Rows that stay `ragged` have no padding; their `widths` are what they would be padded to.
    """

    name: str
    dtype: str
    rows: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]
    features: int
    how: str
    pad: str = ""
    ragged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What can be padded in the batches of the traced steps; `sampled` are those that the same data gave again after the steps."""

    components: tuple[BatchRows, ...]
    n_batches: int
    sampled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """
    What one run of the user's steps left behind: times, and where the traces are.

    `blocks` are (seconds, steps) of the timed window, `step_seconds` those of a step in its single calls; `compiled` names the XLA
    executables and `traced` the (function, step, what changed) of the tf.function traces that came after step 0. `lowered` are the
    XLA modules of a step before optimisation, each a serialised HloModuleProto with how often it runs in a step, or `lowered_why`
    there are none. `cold` is the trace of step 0. `graph` is what the probe saw of the step's graphs, or `graph_why` it saw nothing;
    `ops` are the ops of its functions, or `ops_why` they are not known, and `findings` and `ignore_findings` the codes of the op guide
    that are switched on and suppressed; padding is predicted for the generation `tpu`; `eager` the ops that Python ran in it, each type
    with the user's source line and how often. `batches` are what the steps consumed, or `batches_why` that is not known. Of a `bare`
    trace nothing more is known than what is in it, and its steps are all there were.
    """

    name: str
    trace: Path | None
    workload: Mapping[str, Any]
    bare: bool = False
    first_step_s: float | None = None
    first_step_why: str | None = None
    blocks: tuple[tuple[float, int], ...] = ()
    step_seconds: tuple[float, ...] = ()
    epoch_gaps_s: tuple[float, ...] = ()
    n_steps: int = 0
    n_epochs: int = 0
    compiled: tuple[str, ...] | None = None
    traced: tuple[tuple[str, int, str], ...] | None = None
    lowered: tuple[tuple[bytes, float], ...] | None = None
    lowered_why: str | None = None
    cold: Path | None = None
    graph: StepGraph | None = None
    graph_why: str | None = None
    ops: OpGraph | None = None
    ops_why: str | None = None
    eager: tuple[tuple[str, str | None, int], ...] = ()
    batches: Batches | None = None
    batches_why: str | None = None
    target_step_time_s: float | None = None
    tpu: str | None = None
    findings: tuple[str, ...] = ()
    ignore_findings: tuple[str, ...] = ()
    examples_per_step: float | None = None
    settled: bool = True
    instrumented: bool = False
    ended: str | None = None
    notes: tuple[str, ...] = ()
    result: Any = None
