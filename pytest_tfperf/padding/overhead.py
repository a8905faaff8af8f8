"""The padding of a step as metrics and a table: measured if compiled for a TPU, else predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.op_types import multiplies_matrices
from pytest_tfperf.padding.matrix_unit import better_sizes, matrix_work
from pytest_tfperf.padding.measured import has_tiles, measured_padding
from pytest_tfperf.padding.predict import predict
from pytest_tfperf.padding.tiles import DEFAULT, LARGEST_SKIPPED, Generation, Padding, generation
from pytest_tfperf.quantities import BYTES
from pytest_tfperf.recording import Recording
from pytest_tfperf.text import plural
from pytest_tfperf.values import NOTES, Column, Source, Table, Unknown, Value

MEMORY, MATRIX_UNIT = "padding_overhead", "mxu_padding_overhead"
Modules = Sequence[tuple[HloModule, float]]
"""The modules of a step, each with its runs in one step."""

_WORST = 5
_NO_HLO = "the trace does not hold the HLO of what ran on the TPU"
_NOT_LOWERED = (
    "nothing in the trace was compiled for a TPU, and padding is predicted only if pytest runs the"
    " step"
)
_EAGER = (
    "the step runs {} eagerly, whose shapes the trace does not have; put them into a tf.function"
)
_NOTHING = f"no array of the step takes more than the {LARGEST_SKIPPED:,} bytes of one tile"
_NO_PRODUCT = (
    "the step's HLO has no matrix multiplication and no convolution; library calls do not count"
)
_GROUPED = (
    "the only matrix multiplications of the step are grouped convolutions ({}), which the model"
    " does not cover"
)
_MISSING = "the trace holds the HLO of {} of the {} executables that ran on the TPU"
_TOGETHER = "it is unknown whether the positions of a window fill the matrix unit together"
_UNCERTAIN = "only a compiler for TPUs decides the layouts"

Found = tuple[dict[str, Value], dict[str, Table]]
"""The metrics of this module, and the tables behind them."""


def padding_values(
    recording: Recording,
    lowered: Modules | Unknown,
    lines: Mapping[str, str],
    executables: Modules = (),
    tpu: Generation | None = None,
    n_missing: int = 0,
) -> Found:
    """
    Compute the padding of a step: measured on a TPU, else predicted.

    Args:
        recording: The recording of the step; it names the generation to predict for.
        lowered: The modules of the step before optimisation, with functions inlined.
        lines: The user's line of each op, which HLO that TensorFlow lowers does not name.
        executables: The executables that the step ran.
        tpu: The generation of the TPU that ran them; None if it did not run on one.
        n_missing: Number of further executables whose HLO is missing.
    """
    if tpu is not None and not executables:
        return _unknown(_NO_HLO)
    if tpu is not None or any(has_tiles(module) for module, _ in executables):
        if n_missing:
            return _unknown(_MISSING.format(len(executables), len(executables) + n_missing))
        tpu = tpu or generation(recording.tpu or DEFAULT)
        found = measured_padding([module for module, _ in executables], tpu)
        return values_of(found, executables, tpu, Source.HLO)
    return predicted_values(recording, lowered, lines)


def predicted_values(
    recording: Recording, lowered: Modules | Unknown, lines: Mapping[str, str]
) -> Found:
    """Predict the padding of a step on a TPU from its HLO before optimisation."""
    outside = sorted({op for op, *_ in recording.eager if multiplies_matrices(op)})
    if outside:
        return _unknown(_EAGER.format(", ".join(outside)))
    if isinstance(lowered, Unknown):
        return _unknown(lowered.why or _NOT_LOWERED)
    tpu = generation(recording.tpu or DEFAULT)
    try:
        found = predict([module for module, _ in lowered], tpu, lines)
        return values_of(found, lowered, tpu, Source.PREDICTED)
    except TfperfError as error:
        return _unknown(str(error))


def padding_table(padding: Padding, limit: int = _WORST) -> Table:
    """Make the table of the arrays that waste most, with better sizes."""
    title = f"Padding on a TPU {padding.generation} ({padding.source})"
    return Table.of_each(
        title,
        padding.worst(len(padding.buffers)),
        [
            (Column("array", "array"), lambda one: one.name),
            (Column("made_by", "made by"), lambda one: one.what),
            (Column("shape", "shape"), lambda one: one.shape),
            (Column("padded", "padded"), lambda one: one.padded_shape),
            (Column("bytes", "bytes", BYTES), lambda one: one.logical_bytes),
            (Column("padded_bytes", "padded bytes", BYTES), lambda one: one.padded_bytes),
            (Column("line", "line"), lambda one: one.line or ""),
            (Column("try", "try"), lambda one: one.advice),
        ],
        limit,
    )


def values_of(
    padding: Padding | Unknown, modules: Modules, tpu: Generation, source: Source
) -> Found:
    """
    Return the metrics and the table of a step's padding.

    Args:
        padding: The padding, or the reason why it is unknown.
        modules: The step's modules, for the matrix unit.
        tpu: The generation.
        source: Source of the values.
    """
    products = _matrix_unit(modules, tpu, source)
    if isinstance(padding, Unknown) or padding.overhead is None:
        why = padding.why if isinstance(padding, Unknown) else _NOTHING
        return {MEMORY: Value.unknown(MEMORY, why), MATRIX_UNIT: products}, {}
    detail = (
        _bounds(padding.low, padding.high, _UNCERTAIN)
        | {"padding": padding.source, "tpu": tpu.name}
        | _explained(padding)
    )
    value = Value.of(MEMORY, padding.overhead, source, **detail)
    return {MEMORY: value, MATRIX_UNIT: products}, {
        "padding": padding_table(padding)
    } if padding.worst(1) else {}


def _matrix_unit(modules: Modules, tpu: Generation, source: Source) -> Value:
    work, width = matrix_work(modules), tpu.matrix_width
    overhead = work.overhead(tpu)
    if overhead is None:
        return Value.unknown(
            MATRIX_UNIT,
            _GROUPED.format(", ".join(work.skipped[:3])) if work.skipped else _NO_PRODUCT,
        )
    low, high = overhead
    detail: dict[str, Any] = {
        **_bounds(low, high, _TOGETHER),
        "padding": "estimated" if source is Source.HLO else "predicted",
        "tpu": tpu.name,
    }
    if work.skipped:
        skipped = plural(len(work.skipped), "grouped convolution")
        detail["without"] = f"{skipped}, which the model does not cover"
    if worst := work.worst(tpu):
        detail["where"] = ", ".join(
            f"{one.name} ({one.text})" + (f" at {one.line}" if one.line else "") for one in worst
        )
        if sizes := better_sizes(worst, width):
            detail["try"] = f"sizes that fill the {width} × {width} unit: {', '.join(sizes)}"
    return Value.of(MATRIX_UNIT, low, source, **detail)


def _bounds(low: float | None, high: float | None, why: str) -> dict[str, Any]:
    return {"low": low, "high": high, "bounds": why} if low != high else {}


def _explained(padding: Padding) -> dict[str, Any]:
    """Return the largest waste and the advice as details."""
    detail: dict[str, Any] = {}
    for one in padding.worst(1):
        line = f" at {one.line}" if one.line else ""
        detail["where"] = f"most in {one.what}{line}: {one.shape} takes {one.padded_shape}"
        if one.advice:
            detail["try"] = one.advice
    if padding.notes:
        detail[NOTES] = list(padding.notes)
    return detail


def _unknown(why: str) -> Found:
    return {name: Value.unknown(name, why) for name in (MEMORY, MATRIX_UNIT)}, {}
