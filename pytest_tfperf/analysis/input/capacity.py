"""What the input pipeline could deliver, and its stages for people."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tfperf.analysis import diagnosis
from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.analysis.input.stages import ASYNC, Stage, asynchronous_above
from pytest_tfperf.metrics import COUNT, SECONDS
from pytest_tfperf.values import Column, Source, Table, Value


def analyse(evidence: Evidence) -> Findings:
    """Find what the pipeline could deliver, and its stages."""
    if evidence.trace is None:
        return evidence.untraced("input_capacity", "input_bound_at_target")
    steps, stages = evidence.steps, evidence.stages
    per_step = float((steps.of(evidence.waits[0]) >= 0).sum()) / steps.n_steps
    return Findings(
        values=capacity_values(stages, per_step, evidence.completed.target_step_time_s),
        tables={"stages": stage_table(stages, steps.n_steps)} if stages else {},
    )


def capacity_values(
    stages: Sequence[Stage], elements_per_step: float, target_s: float | None
) -> dict[str, Value]:
    """
    input_capacity, and input_bound_at_target: what a step of the target's time would wait for a pipeline of that capacity.

    Such a step takes as long as its elements: period = max(target, elements a step ÷ capacity), share = 1 − target ÷ period.
    """
    capacity = input_capacity(stages)
    if capacity is None:
        why = "no tf.data stage made an element while the steps were traced, so what the pipeline costs is not known"
        return {
            name: Value.unknown(name, why) for name in ("input_capacity", "input_bound_at_target")
        }
    slowest = max(stages, key=lambda stage: stage.cost_s)
    found = Value.of(
        "input_capacity", capacity, Source.TRACE, **diagnosis.stage_cause(slowest, stages)
    )
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
    Elements of the pipeline's end that it could deliver a second with nobody else running; None without a known cost.

    Threads work side by side, so the slowest decides. The stages that share a thread are those down to the next one that
    has threads of its own; they take their turns, and so do all functions on the pipeline's threads for these.
    """
    threads: dict[str, float] = {}
    for stage in stages:
        threads[_thread(stage)] = threads.get(_thread(stage), 0.0) + stage.cost_s
    slowest = max(*threads.values(), sum(stage.pool_s for stage in stages), 0.0)
    return 1 / slowest if slowest > 0 else None


def stage_table(stages: Sequence[Stage], n_steps: int) -> Table:
    """The tree of stages, the step's side on top."""
    columns = (
        Column("stage", "stage"),
        Column("name", "name"),
        Column("calls", "calls a step", COUNT),
        Column("self_s", "self time a step", SECONDS),
        Column("blocking_s", "blocks a step", SECONDS),
        Column("element_s", "an element", SECONDS),
        Column("parallelism", "parallelism", COUNT),
        Column("buffered", "buffered", COUNT),
        Column("buffer_limit", "of", COUNT),
        Column("kind", "kind"),
    )
    rows = [
        (
            "  " * (stage.depth - 1) + stage.name,
            stage.node,
            stage.calls / n_steps,
            stage.self_s / n_steps,
            stage.blocking_s / n_steps,
            stage.cost_s,
            stage.parallelism,
            stage.buffered if stage.buffer_limit else None,
            stage.buffer_limit or None,
            _kind(stage),
        )
        for stage in sorted(stages, key=lambda stage: stage.path)
    ]
    return Table.of("input pipeline, from the step down", columns, rows)


def _kind(stage: Stage) -> str:
    facts = {
        "Python": stage.python,
        "put in by TensorFlow": stage.injected,
        "reads files": stage.reads_files,
        "on the device": stage.on_device,
    }
    return ", ".join(fact for fact, holds in facts.items() if holds)


def _thread(stage: Stage) -> str:
    """On whose threads a stage works: its functions on their own, else those of the next stage above that has some, else the step's."""
    return f"functions of {stage.path}" if stage.name in ASYNC else asynchronous_above(stage.path)
