"""What the windows of one profile have seen, and the recording that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_tfperf.capture.batch_rows import batches_seen
from pytest_tfperf.capture.elements import Elements
from pytest_tfperf.compiler.lowering import Lowered, lower
from pytest_tfperf.compiler.op_graph import op_graph
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.step_calls import Calls
from pytest_tfperf.compiler.step_graph import step_graph
from pytest_tfperf.recording import Modules, Recording
from pytest_tfperf.values import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """
    How large a step may be that is looked into after its windows, in nodes; None is any size.

    `hlo` is for lowering it, `graphs` for its graphs; `optimizers` says that somebody asks what each of Grappler's did,
    `op_guide` what breaks the op guide.
    """

    hlo: int | None
    graphs: int | None
    optimizers: bool = False
    op_guide: bool = False


@dataclass(slots=True)
class Observations:
    """
    The fields are those of a `Recording`; `calls` were made, and `elements` consumed, in the steps of the trace.

    `conditions` are notes on what the machine did besides in the timed window.
    """

    first_step_s: float | Unknown | None = None
    blocks: list[tuple[float, int]] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    epoch_gaps_s: list[float] = field(default_factory=list)
    retraces: list[tuple[str, int, str]] = field(default_factory=list)
    cold: Path | None = None
    trace: Path | None = None
    calls: Calls = field(default_factory=lambda: Calls(why="nothing was traced"))
    probe: Probe = field(default_factory=Probe)
    elements: Elements = field(default_factory=Elements)
    settled: bool = True
    instrumented: bool = False
    ended: str | None = None
    notes: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    def recording(
        self,
        name: str,
        workload: Mapping[str, Any],
        max_seconds: float,
        depth: Depth,
        **others: Any,
    ) -> Recording:
        """Of a profile that has ended; its functions are lowered and their graphs looked at, and nothing is run."""
        lowered = lower(self.calls, workload, max_seconds, depth.hlo)
        graph = step_graph(self.probe, depth.optimizers, depth.graphs)
        ops = op_graph(self.probe, depth.op_guide)
        elements = self.elements
        batches = (
            Unknown(elements.why)
            if elements.why
            else batches_seen(elements.kept, elements.data, elements.sampled)
        )
        return Recording(
            name=name,
            trace=self.trace,
            workload=workload,
            first_step_s=self.first_step_s,
            blocks=tuple(self.blocks),
            step_seconds=tuple(self.step_seconds),
            epoch_gaps_s=tuple(self.epoch_gaps_s),
            lowered=self._modules(lowered),
            cold=self.cold,
            graph=graph,
            ops=ops,
            eager=tuple(
                (op_type, line, count) for (op_type, line), count in self.probe.eager.items()
            ),
            batches=batches,
            settled=self.settled,
            instrumented=self.instrumented,
            ended=self.ended,
            notes=tuple(
                dict.fromkeys(
                    (
                        *self.notes,
                        *self.conditions,
                        *(() if isinstance(lowered, Unknown) else lowered.notes),
                        *self.probe.calls.notes(self.calls),
                    )
                )
            ),
            **others,
        )

    def _modules(self, lowered: Lowered | Unknown) -> Modules | Unknown:
        if not isinstance(lowered, Unknown):
            return lowered.modules
        return Unknown(self.ended) if self.trace is None and self.ended else lowered
