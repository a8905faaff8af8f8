"""The command `tfperf padding`: padding of an HLO file or of the executables of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_tfperf.cli.terminal import Line, Screen, labelled, laid_out, line, profile_table
from pytest_tfperf.errors import LayoutError, TraceError
from pytest_tfperf.facts.executions import find_xla_use, programs_of
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.files import open_regular
from pytest_tfperf.hlo.cost import module_costs, products_in
from pytest_tfperf.hlo.module import HloModule, source_line
from pytest_tfperf.hlo.text_in import read_hlo
from pytest_tfperf.hlo.walk import without_dead_code
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.results import Profile
from pytest_tfperf.tpu.gpu_alignment import alignment_table, gpu_alignment, on_tensor_cores
from pytest_tfperf.tpu.padding import (
    MATRIX_UNIT,
    MEMORY,
    Modules,
    has_tiles,
    measured_padding,
    padding_table,
    trace_generation,
    values_of,
)
from pytest_tfperf.tpu.predict import predict
from pytest_tfperf.tpu.tiles import DEFAULT, Generation, Padding, generation
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.trace.logdir import find_traces
from pytest_tfperf.trace.xspace import Trace, read_trace
from pytest_tfperf.values import Source, Unknown, Value

_TEXT = (".hlo", ".txt")
_HEAD = b"HloModule"
_ALL = 1000  # rows
_OPTIMISED = (
    "predicted from HLO that a compiler for another device has optimised; HLO before optimisation "
    "predicts better: export(stage='unoptimized') in pytest, or XLA's dump before_optimizations"
)
_MISSING = "the trace holds the HLO of {} of the {} executables that ran on the TPU"
_NO_HLO = (
    "no HLO in the trace: XLA had compiled nothing when it ended (jit_compile=True compiles a "
    "tf.function, jax.jit a function of JAX), or the profiler ran without enable_hlo_proto"
)
_NO_GENERATION = "the trace does not name its TPU generation; give it by --tpu"
_NUMBERS = (False, True, False)
_NOT_RUN = "no step ran an executable; these are the ones that were loaded"


@dataclass(frozen=True, slots=True)
class _Read:
    """Content of a file."""

    modules: Modules
    """With the runs of each in a step."""
    trace: Trace | None = None
    tpu: Generation | None = None
    """The one that the trace names."""
    notes: tuple[str, ...] = ()
    why: str = ""
    """Reason why the padding is unknown."""


def padding_profile(path: Path, tpu: str | None, verbose: bool) -> Profile:
    """
    Make a profile that holds only the padding of an HLO text or a trace.

    It is measured if layouts have tiles or a TPU ran the HLO, and predicted otherwise. With
    `verbose` GPU alignment is added where no GPU ran the HLO. Raises LayoutError, LimitError and
    TraceError.
    """
    asked = generation(tpu or DEFAULT)
    read = _read_text(path) if _is_text(path) else _read_trace(path)
    try:
        return _profile(str(path), read, asked, verbose)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: an instruction does not fit its operands: {error!r}") from error


def padding_view(profile: Profile, verbosity: int, screen: Screen) -> Iterator[str | Line]:
    """Yield the overheads with their origins, the tables and the advice."""
    values = profile.metrics.items()
    yield line((profile.name, "bold"))
    for note in profile.notes:
        yield from labelled([("note:", note)])
    yield ""
    known = [
        (
            name,
            _number(name, value),
            f"{value.detail.get('padding', '')}, TPU {value.detail.get('tpu', '')}",
        )
        for name, value in values
        if value.number is not None
    ]
    if known:
        yield from laid_out(TextTable(("metric", "value", ""), known, _NUMBERS), screen.width)
    for name, value in values:
        if value.number is None:
            yield f"{name} is unknown: {value.why}"
    for key, table in profile.tables.items():
        yield ""
        yield from profile_table(key, table, verbosity, screen)
    if profile.advice:
        yield ""
    for advice in profile.advice:
        yield f"{advice.what} ({advice.because})"


def _is_text(path: Path) -> bool:
    if path.suffix.lower() in _TEXT or not path.is_file():
        return path.suffix.lower() in _TEXT
    try:
        with open_regular(path) as file:
            return file.read(len(_HEAD)) == _HEAD
    except OSError:  # whoever reads the trace says why
        return False


def _read_text(path: Path) -> _Read:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not HLO text: byte {error.start} is not UTF-8") from error
    return _Read([(module, 1.0) for module in read_hlo(text, str(path))])


def _read_trace(path: Path) -> _Read:
    """Read the executables that the steps of the first host with HLO ran, or else all of them."""
    for one in find_traces(path):
        trace = read_trace(one)
        if programs := programs_of(trace):
            tpu = trace_generation(trace)
            n_missing = _n_missing(trace, len(programs)) if tpu else 0
            why = _MISSING.format(len(programs), len(programs) + n_missing) if n_missing > 0 else ""
            unsure = {
                _NOT_RUN: programs[0].runs is None,
                _NO_GENERATION: tpu is None and bool(tpus(trace)),
            }
            notes = tuple(note for note, said in unsure.items() if said)
            return _Read(
                [(program.module, program.runs or 1.0) for program in programs],
                trace,
                tpu,
                notes,
                why,
            )
    return _Read((), why=_NO_HLO)


def _n_missing(trace: Trace, n_known: int) -> int:
    """Count the executables that the steps of a trace ran and whose HLO is missing."""
    try:
        return len(find_xla_use(trace, find_steps(trace)).modules) - n_known
    except TraceError:  # no step
        return 0


def _profile(name: str, read: _Read, asked: Generation, verbose: bool) -> Profile:
    on_tpu = read.tpu is not None or any(has_tiles(module) for module, _ in read.modules)
    runs = (
        read.modules
        if on_tpu
        else [(without_dead_code(module), times) for module, times in read.modules]
    )
    modules = [module for module, _ in runs]
    tpu = read.tpu or asked
    if read.why:
        return Profile(
            name=name,
            metrics={metric: Value.unknown(metric, read.why) for metric in (MEMORY, MATRIX_UNIT)},
            notes=read.notes,
        )
    found = measured_padding(modules, tpu) if on_tpu else _predicted(modules, tpu)
    notes = read.notes + (
        (_OPTIMISED,) if not on_tpu and any(module.scheduled for module in modules) else ()
    )
    products = products_in((module_costs(module), times) for module, times in runs)
    metrics, tables = values_of(found, products, tpu, Source.HLO if on_tpu else Source.PREDICTED)
    if isinstance(found, Padding):
        tables = {"padding": padding_table(found, _ALL)} if found.worst(1) else {}
        notes += found.notes
    alignment, advice = gpu_alignment(read.trace, products) if read.trace else (None, ())
    if alignment is None and verbose:
        alignment = alignment_table(on_tensor_cores(products))
    tables |= {"alignment": alignment} if alignment else {}
    return Profile(name=name, metrics=metrics, notes=notes, tables=tables, advice=advice)


def _predicted(modules: Sequence[HloModule], tpu: Generation) -> Padding | Unknown:
    ops = (
        op
        for module in modules
        for part in module.computations.values()
        for op in part.instructions.values()
    )
    lines = {op.op_name: line for op in ops if (line := source_line(op))}
    try:
        return predict(modules, tpu, lines)
    except LayoutError as error:
        return Unknown(str(error))


def _number(name: str, value: Value) -> str:
    """Write a number with its bounds if it has any."""
    assert value.number is not None
    low, high = (
        format_quantity(number, METRICS[name].unit) for number in (value.low(), value.high())
    )
    likely = format_quantity(value.number, METRICS[name].unit)
    return likely if low == high else f"{likely} ({low} to {high})"
