"""Inspection of a step's code after its windows: graphs, ops and HLO; nothing is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pytest_tfperf.compiler.grappler import exactly, ops_without_each_pass, options_in_force
from pytest_tfperf.compiler.lower import Lowered, lower
from pytest_tfperf.compiler.source_lines import nodes_of, places
from pytest_tfperf.compiler.step_calls import Calls, Probe
from pytest_tfperf.compiler.step_graph import InspectedGraph, inspect_graph
from pytest_tfperf.compiler.xla_fusion_dump import FusionStage, fusion_stages
from pytest_tfperf.frameworks.jax_objects import JaxProgram, JaxPrograms
from pytest_tfperf.frameworks.tensorflow import unseen
from pytest_tfperf.graphs import OpNode, StepGraph
from pytest_tfperf.recording import UNSEEN, Modules, StepKinds
from pytest_tfperf.values import Unknown

_DUMP_S = 120.0  # for a process that imports TensorFlow and compiles the step


class StepInspection:
    """
    The code of one profile's steps; each fact is computed, in `max_seconds`, when first read.

    `probe` is of the step after those of `calls`; `ended` says why no steps were traced.
    """

    def __init__(
        self,
        calls: Calls,
        probe: Probe,
        workload: Mapping[str, Any],
        max_seconds: float,
        ablation: bool,
        ended: str | None = None,
        programs: JaxPrograms | None = None,
    ) -> None:
        self.calls, self._ablation = calls, ablation
        self._probe, self._workload, self._ended = probe, workload, ended
        self._max_seconds, self._programs = max_seconds, programs
        self._options = options_in_force()  # facts may be read under other ones

    @property
    def graph(self) -> StepGraph | Unknown:
        """The graphs of the probe's step."""
        return self._inspected.graph

    @cached_property
    def ops(self) -> tuple[OpNode, ...]:
        """The ops of the functions that the steps called, none if that takes too long."""
        return nodes_of(self._graphs, self._max_seconds)

    @cached_property
    def grappler(self) -> Mapping[str, int]:
        """Ops that remain when one Grappler pass is left out, by its option; under "" with all."""
        with unseen(), exactly(self._options):
            return ops_without_each_pass(self._inspected.optimized, self._ablation)

    @property
    def lowered(self) -> Modules | Unknown:
        """The HLO modules of a step before optimisation."""
        lowering = self._lowering
        if not isinstance(lowering, Unknown):
            return lowering.modules
        return Unknown(self._ended) if self._ended else lowering

    @property
    def step_kinds(self) -> StepKinds | Unknown:
        """The HLO modules of each kind of step, if steps call different functions."""
        return () if isinstance(self._lowering, Unknown) else self._lowering.kinds

    def places(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the user's line and function of ops of TensorFlow by name; each takes 0.2 ms."""
        return places(self._graphs, names)

    def programs(self, module: str) -> Sequence[JaxProgram] | Unknown:
        """Return the programs that JAX holds of executables of a module's name."""
        return UNSEEN if self._programs is None else self._programs.named(module)

    @property
    def lowering_notes(self) -> tuple[str, ...]:
        """Notes on what the HLO modules leave out."""
        return () if isinstance(self._lowering, Unknown) else self._lowering.notes

    @cached_property
    def fusion(self) -> tuple[FusionStage, ...]:
        """The functions before and after fusion, compiled again elsewhere. Raises: CaptureError."""
        return fusion_stages(self.calls, self._workload, _DUMP_S)

    @property
    def _graphs(self) -> list[Any]:
        """The FuncGraphs that the steps called, each once."""
        functions = self.calls.functions.values()
        graphs = dict.fromkeys(getattr(function.keep, "graph", None) for function in functions)
        return [graph for graph in graphs if graph is not None]

    @cached_property
    def _inspected(self) -> InspectedGraph:
        with unseen(), exactly(self._options):
            return inspect_graph(self._probe, self._max_seconds)

    @cached_property
    def _lowering(self) -> Lowered | Unknown:
        with unseen():
            return lower(self.calls, self._workload, self._max_seconds)
