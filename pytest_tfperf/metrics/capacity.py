"""Estimate the rate at which the input pipeline could deliver, and tabulate its stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_tfperf.advice.input_remedies import Pipeline
from pytest_tfperf.facts.stages import Stage, slowest_thread
from pytest_tfperf.facts.waits import elements_taken
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.input_causes import stage_cause, with_keras_source
from pytest_tfperf.quantities import COUNT, SECONDS
from pytest_tfperf.values import Column, Source, Table, Value


def analyse(evidence: Evidence) -> Findings:
    """Find the pipeline's capacity, and its stages."""
    if evidence.trace is None:
        return evidence.untraced("input_capacity", "input_bound_at_target")
    stages, (trace, steps) = evidence.stages, evidence.pipeline
    taken = elements_taken(trace)
    begun = steps.of(taken.start) >= 0
    n_waited_for = int((begun | (steps.of(taken.end - 1) >= 0)).sum())
    waited_s = float(np.subtract(*evidence.pipeline_waits[::-1]).sum()) * 1e-12
    found = capacity_values(
        Pipeline(stages=stages, recorded=evidence.recording.pipeline),
        float(begun.sum()) / steps.n_steps,
        evidence.recording.target_step_time_s,
        n_waited_for / waited_s if waited_s else math.inf,
    )
    return Findings(
        values={
            name: replace(
                value, detail=with_keras_source(value.detail, evidence.recording.pipeline)
            )
            for name, value in found.items()
        },
        tables={"stages": stage_table(stages, steps.n_steps)} if stages else {},
    )


def capacity_values(
    pipeline: Pipeline,
    elements_per_step: float,
    target_s: float | None,
    at_most: float = math.inf,
) -> dict[str, Value]:
    """
    Return input_capacity and input_bound_at_target.

    The capacity is unknown if no call of a stage began and ended in the trace. While a step waits
    the pipeline does what it can, so it is at most the elements ÷ the time that the steps waited
    for them.

    A step of the target waits as a share of its period: period = max(target, elements a step ÷
    capacity), share = 1 − target ÷ period.

    Args:
        pipeline: The pipeline.
        elements_per_step: Elements that a step consumes.
        target_s: Seconds of a step of the target, or None.
        at_most: Elements a second that the steps' waits allow.
    """
    stages = pipeline.stages
    capacity = input_capacity(stages)
    cut_off = next((stage.name for stage in stages if stage.calls == 0 == stage.runs.n), None)
    if capacity is None or cut_off is not None:
        why = (
            "no tf.data stage made an element while the steps were traced, so what the pipeline "
            "costs is not known"
            if capacity is None
            else f"no call of stage {cut_off} began and ended while the steps were traced, so what "
            "an element costs is not known; trace more steps"
        )
        return {
            name: Value.unknown(name, why) for name in ("input_capacity", "input_bound_at_target")
        }
    capacity = min(capacity, at_most)
    slowest = max(stages, key=lambda stage: stage.cost_s)
    found = Value.of("input_capacity", capacity, Source.TRACE, **stage_cause(slowest, pipeline))
    if target_s is None:
        return {
            "input_capacity": found,
            "input_bound_at_target": Value.unknown(
                "input_bound_at_target", "no target: give target_step_time, as in '12 ms'"
            ),
        }
    period = max(target_s, elements_per_step / capacity)
    share = 1 - target_s / period
    at_target = Value.of(
        "input_bound_at_target",
        share,
        Source.PREDICTED,
        target_step_time_s=target_s,
        **found.detail,
    )
    return {"input_capacity": found, "input_bound_at_target": at_target}


def input_capacity(stages: Sequence[Stage]) -> float | None:
    """
    Return the elements per second that the pipeline could deliver alone, or None without a known
    cost.
    """
    slowest, _ = slowest_thread(stages)
    return 1 / slowest if slowest > 0 else None


def stage_table(stages: Sequence[Stage], n_steps: int) -> Table:
    """Tabulate the tree of stages, the step's side first."""
    return Table.of_each(
        "input pipeline, from the step down",
        sorted(stages, key=lambda stage: stage.path),
        [
            (Column("stage", "stage"), lambda one: "  " * (one.depth - 1) + one.name),
            (Column("name", "name"), lambda one: one.node),
            (Column("calls", "calls a step", COUNT), lambda one: one.calls / n_steps),
            (Column("self_s", "self time a step", SECONDS), lambda one: one.self_s / n_steps),
            (Column("blocking_s", "blocks a step", SECONDS), lambda one: one.blocking_s / n_steps),
            (Column("element_s", "an element", SECONDS), lambda one: one.cost_s),
            (Column("parallelism", "parallelism", COUNT), lambda one: one.parallelism),
            (
                Column("buffered", "buffered", COUNT),
                lambda one: one.buffered if one.buffer_limit else None,
            ),
            (Column("buffer_limit", "of", COUNT), lambda one: one.buffer_limit or None),
            (Column("kind", "kind"), _kind),
        ],
    )


def _kind(stage: Stage) -> str:
    facts = {
        "Python": stage.python,
        "put in by TensorFlow": stage.injected,
        "reads files": stage.reads_files,
        "on the device": stage.on_device,
    }
    return ", ".join(fact for fact, holds in facts.items() if holds)
