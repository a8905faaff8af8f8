"""
Measure padding in the batches that steps consume, and what buckets of similar lengths would leave
of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import COUNT, SHARE, format_quantity
from pytest_tfperf.recording import Batches, BatchRows, Recording
from pytest_tfperf.text import plural
from pytest_tfperf.values import LEFT, Column, Source, Table, Unknown, Value

_NOT_SEEN = (
    "batches are seen where tf_profile drives the steps: tf_profile(step, data), "
    "tf_profile.steps(data) or a Keras loop"
)
_EMPTY = "the batches have no elements"
_WORTH = 0.02  # what a change must win of the elements to be suggested
_MOST_BUCKETS, _CANDIDATES, _FULL = 8, 256, 8


Lengths = npt.NDArray[np.int64]


def analyse(evidence: Evidence) -> Findings:
    """Find the share of padding in the batches; no trace is needed."""
    value, tables = batch_padding(evidence.recording)
    return Findings(values={"batch_padding": value}, tables=tables)


def batch_padding(recording: Recording) -> tuple[Value, dict[str, Table]]:
    """Return padding ÷ all elements of components that can be padded, and a table of each."""
    batches = recording.batches
    if isinstance(batches, Unknown):
        why = batches.why or recording.ended or _NOT_SEEN
        return Value.unknown("batch_padding", why), {}
    elements = sum(map(_elements, batches.components))
    if not elements:
        return Value.unknown("batch_padding", _EMPTY), {}
    worst = max(
        batches.components,
        key=lambda one: (_elements(one) - _real(one), one.ragged, _elements(one)),
    )
    number = 1 - sum(map(_real, batches.components)) / elements
    seen = {"sampled": batches.sampled, "n_batches": batches.n_batches, "varies": _varies(batches)}
    better = _better(worst)
    if better.get(LEFT, 1) < 1:  # of all components, as the value
        rest = elements - _elements(worst) + _real(worst) / (1 - better[LEFT])
        better[LEFT] = 1 - sum(map(_real, batches.components)) / rest
    detail = {**seen, "where": _where(worst, batches), **better}
    return Value.of("batch_padding", number, Source.COUNTED, **detail), {
        "batch_padding": _table(batches)
    }


def _varies(batches: Batches) -> float:
    """
    Return 4 standard errors of a ratio of sums, 0 for equal batches: 3 of the difference of two
    profiles of the same data, which see other batches (W. G. Cochran, Sampling Techniques, 2.11).
    """
    elements, padding = np.zeros(batches.n_batches), np.zeros(batches.n_batches)
    for one in batches.components:
        real = np.array([sum(rows) for rows in one.rows], float)
        whole = (
            real
            if one.ragged
            else np.array(
                [len(rows) * width for rows, width in zip(one.rows, one.widths, strict=True)], float
            )
        )
        elements, padding = elements + whole, padding + whole - real
    n, total = batches.n_batches, float(elements.sum())
    residuals = padding - elements * padding.sum() / total
    return 4 * float(np.sqrt(n / (n - 1) * (residuals**2).sum())) / total if n > 1 else 0.0


def padded_to_longest(rows: Sequence[Sequence[int]]) -> float:
    """Return the share of padding of batches padded to their longest row; 0 for empty rows."""
    padded = sum(len(batch) * max(batch, default=0) for batch in rows)
    return 1 - sum(map(sum, rows)) / padded if padded else 0.0


def bucketed(lengths: Lengths, boundaries: Sequence[int], size: int) -> float:
    """
    Return the share of padding that `bucket_by_sequence_length` leaves, whose bucket for a length
    is the first with a greater boundary (tensorflow/python/data/ops/dataset_ops.py).
    """
    bucket = np.searchsorted(boundaries, lengths, side="right")
    members = (lengths[bucket == index] for index in range(len(boundaries) + 1))
    return padded_to_longest(
        [batch.tolist() for column in members for batch in _chunks(column, size)]
    )


def _chunks(lengths: Lengths, size: int) -> Iterator[Lengths]:
    return (lengths[start : start + size] for start in range(0, len(lengths), size))


def _real(component: BatchRows) -> int:
    return sum(map(sum, component.rows))


def _elements(component: BatchRows) -> int:
    """Count elements with padding; ragged rows have no padding."""
    return _real(component) if component.ragged else _padded(component)


def _padded(component: BatchRows) -> int:
    return sum(
        len(rows) * width for rows, width in zip(component.rows, component.widths, strict=True)
    )


def _share(component: BatchRows) -> float:
    return 1 - _real(component) / _padded(component) if _padded(component) else 0.0


def _where(worst: BatchRows, batches: Batches) -> str:
    seen = plural(batches.n_batches, "batch", "batches")
    seen += " taken from the same data after the steps" if batches.sampled else ""
    if worst.ragged:
        return (
            f"{worst.name} stays ragged in {seen}; made dense, "
            f"{format_quantity(_share(worst), '0..1')} of it would be padding"
        )
    real = f"{_real(worst)} of {_padded(worst)} elements are real"
    return f"{worst.name} ({worst.dtype}): {real} in {seen}, told by {_told(worst)}{_shapes(worst)}"


def _shapes(worst: BatchRows) -> str:
    """Describe the number of batch shapes, if there are several."""
    n_widths, n_sizes = len(set(worst.widths)), len(set(map(len, worst.rows)))
    said = (
        f"; {n_widths} lengths of rows, each a new shape that XLA compiles anew"
        if n_widths > 1
        else ""
    )
    return said + (
        "; batches differ in their number of rows (drop_remainder=True keeps it)"
        if n_sizes > 1
        else ""
    )


def _told(component: BatchRows) -> str:
    if component.how.startswith("zeros"):
        return f"{component.how} (where these are data, give the batch a mask or lengths)"
    return f"{component.how} with {component.pad}" if component.pad else component.how


def _better(worst: BatchRows) -> dict[str, Any]:
    """Describe the padding of the same rows as dense rows, in batches by length, or in buckets."""
    if worst.ragged:
        return {"if_dense": _share(worst)}
    if not worst.features or not sum(map(len, worst.rows)):
        return {}
    rows = [[real // worst.features for real in batch] for batch in worst.rows]
    lengths = np.array([length for batch in rows for length in batch], np.int64)
    size = max(map(len, rows))
    boundaries, share = _best_buckets(lengths, size)
    detail: dict[str, Any] = {
        "sorted": padded_to_longest([batch.tolist() for batch in _chunks(np.sort(lengths), size)])
    }
    said = dict(_shorter(worst, lengths))
    if boundaries and share + _WORTH <= _share(worst):
        detail |= {"bucketed": share, "boundaries": boundaries}
        said[share] = f"bucket_by_sequence_length(…, bucket_boundaries={boundaries}, …)"
    if said:
        tried = (f"{what}: {_instead(left, worst)}" for left, what in said.items())
        detail |= {"try": "; ".join(tried), LEFT: min(said)}
    return detail


def _shorter(worst: BatchRows, lengths: Lengths) -> Iterator[tuple[float, str]]:
    """Suggest the longest row's length for rows that are all padded to one length."""
    width, longest = worst.widths[0] // worst.features, int(lengths.max(initial=0))
    if len(set(worst.widths)) == 1 and longest < width:
        share = 1 - float(lengths.sum()) / max(len(lengths) * longest, 1)
        if share + _WORTH <= _share(worst):
            yield share, f"pad to {longest}, the longest row seen, not to {width}"


def _instead(share: float, worst: BatchRows) -> str:
    return (
        f"{format_quantity(share, '0..1')} padding instead of "
        f"{format_quantity(_share(worst), '0..1')} in the rows seen"
    )


def _best_buckets(lengths: Lengths, size: int) -> tuple[list[int], float]:
    """Return the fewest boundaries with nearly the least padding, each of `_FULL` rows or more."""
    found = [(bucketed(lengths, bounds, size), bounds) for bounds in _optimal(lengths)]
    least = min(found, default=(0.0, []))[0]
    near = [option for option in found if option[0] <= least + _WORTH]
    share, best = min(near, key=lambda option: (len(option[1]), option[0]), default=(0.0, []))
    return best, share


def _optimal(lengths: Lengths) -> Iterator[list[int]]:
    """
    Yield boundaries of 2, 3, … buckets whose rows, padded to the longest of each, are least in all,
    where `least[j]` is the sum over the rows of the first `j` lengths.
    """
    tried = np.quantile(lengths, np.linspace(0, 1, _CANDIDATES + 1), method="lower")
    ends = np.unique(tried)  # of buckets: their longest rows
    rows = np.concatenate([[0], np.searchsorted(np.sort(lengths), ends, side="right")])
    inside = rows[None, :] - rows[:, None]
    cost = np.where(inside >= _FULL, inside * np.concatenate([[0], ends])[None, :], np.inf)
    least, begins = cost[0], list[npt.NDArray[np.intp]]()
    for _ in range(_MOST_BUCKETS - 1):
        sums = least[:, None] + cost
        begins.append(sums.argmin(axis=0))
        least = sums.min(axis=0)
        if not np.isfinite(least[-1]):
            return
        place, places = len(ends), []
        for begin in reversed(begins):
            place = int(begin[place])
            places.append(place)
        yield [int(ends[place - 1]) + 1 for place in reversed(places)]


def _table(batches: Batches) -> Table:
    return Table.of_each(
        "batch padding",
        sorted(batches.components, key=lambda one: _real(one) - _elements(one)),
        [
            (Column("component", "component"), lambda one: one.name),
            (Column("type", "type"), lambda one: one.dtype),
            (Column("rows", "rows", COUNT), lambda one: sum(map(len, one.rows))),
            (Column("longest", "longest", COUNT), _longest),
            (Column("real_elements", "real elements", COUNT), _real),
            (Column("elements", "elements", COUNT), _elements),
            (Column("padding", "padding", SHARE), _padding),
            (Column("pad_value", "pad value"), lambda one: one.pad),
            (Column("told_by", "told by"), lambda one: one.how),
        ],
    )


def _longest(one: BatchRows) -> int:
    return max((max(rows, default=0) for rows in one.rows), default=0) // (one.features or 1)


def _padding(one: BatchRows) -> float:
    elements = _elements(one)
    return 1 - _real(one) / elements if elements else 0.0
