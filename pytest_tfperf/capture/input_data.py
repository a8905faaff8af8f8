"""What the input data of the steps show: kept elements, padding in them, stages of the pipeline."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import lgamma, log
from types import CodeType
from typing import Any

import numpy as np

from pytest_tfperf.compiler.datasets import PaddedComponent, named, padded_batches, pipeline_stages
from pytest_tfperf.compiler.functions import Unsupported
from pytest_tfperf.compiler.source_lines import line_of_code
from pytest_tfperf.frameworks.in_use import leaves, mapped
from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.recording import UNSEEN, Batches, BatchRows, PipelineStage
from pytest_tfperf.values import Unknown

MOST_ELEMENTS = 20
_MOST_BYTES = 64 << 20
_TOKENS = frozenset({"int16", "int32", "int64", "uint16", "uint32", "uint64"})
_CHANCE = log(1e-6)
"""Largest logarithmic probability of zeros that fill one end of rows by chance."""
NOTHING_TO_PAD = (
    "no component of the batches shows padding: that needs ragged rows, a mask or lengths (named "
    "so), a padded_batch in the pipeline, or integers of rank 2 (such as token ids) whose zeros "
    "fill one end of rows of several lengths and are nowhere else"
)
Batch = Mapping[str, Any]
_MASK = re.compile(r"(attention|padding|pad)?_?mask", re.IGNORECASE)
_LENGTHS = re.compile(
    r"(?<![a-z])(sequence_|seq_)?(len|lens|length|lengths)(?![a-z])", re.IGNORECASE
)
_PY_DATASET = "PyDataset"
_HOLDERS = ("_original_dataset", "_dataset", "_iterator")
"""Attributes in which TensorFlow's iterators and distributed datasets hold a dataset."""
_DEEPEST = 5  # an iterator of an iterator of a dataset, and some more
_ITERATES = ("__next__", "__getitem__", "__iter__")
"""Methods that make the elements; the first one that is written in Python tells its line."""
_HIDDEN = (
    "the data are {}, and the stages behind it are not visible; pass the tf.data.Dataset itself"
)


@dataclass(slots=True)
class Elements:
    """Elements of the input data, by reference."""

    data: Any = None
    kept: list[Any] = field(default_factory=list)
    why: str | None = "the steps were given no data"
    """Reason why there are none."""
    sampled: bool = False
    """Whether they were drawn from the data again, after the steps."""


def elements_to_keep(element: Any) -> int:
    """Return the number of elements like this one to keep: up to 20 and 64 MiB, at least one."""
    size = sum(map(_n_bytes, leaves(element)))
    return max(1, min(MOST_ELEMENTS, _MOST_BYTES // max(size, 1)))


def _n_bytes(leaf: Any) -> int:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return 0
    if hasattr(leaf.shape, "num_elements"):
        n_elements = leaf.shape.num_elements()
    else:
        n_elements = math.prod(leaf.shape)
    return int(n_elements or 0) * int(getattr(leaf.dtype, "itemsize", None) or leaf.dtype.size)


def batches_seen(elements: Sequence[Any], data: Any, sampled: bool) -> Batches | Unknown:
    """Return the components of elements that can be padded, or a reason why they are unknown."""
    if not elements:
        return Unknown("no batch was traced")
    try:
        components = _components(
            [dict(named(part)) for element in elements for part in _replicas(element)],
            padded_batches(data),
        )
    except Exception as error:  # an element of the user may be anything
        return Unknown(f"the batches could not be read: {type(error).__name__}: {error!s:.80}")
    if not components:
        return Unknown(NOTHING_TO_PAD)
    return Batches(components=components, n_batches=len(components[0].widths), sampled=sampled)


def could_be_padded(spec: Any, data: Any) -> bool:
    """Return whether elements with this signature have a component that shows padding."""
    components = dict(named(spec))
    if padded_batches(data) or any(may_be_guide(name) for name in components):
        return True
    tf = loaded_tensorflow()
    return tf is not None and any(
        isinstance(component, tf.RaggedTensorSpec)
        or (
            isinstance(component, tf.TensorSpec)
            and component.dtype.name in _TOKENS
            and component.shape.rank in (None, 2)
        )
        for component in components.values()
    )


def _components(
    batches: list[Batch], padded: list[dict[str, PaddedComponent]]
) -> tuple[BatchRows, ...]:
    """Count the rows of all components that show padding."""
    columns = {
        name: [batch[name] for batch in batches]
        for name in batches[0]
        if all(name in batch for batch in batches)
    }
    ragged = [_ragged(name, column) for name, column in columns.items() if _is_ragged(column[0])]
    arrays = {
        name: list(map(_array, column))
        for name, column in columns.items()
        if not _is_ragged(column[0])
    }
    dense = {name: column for name, column in arrays.items() if _one_rank(column)}
    guides = {
        name: column
        for name, column in dense.items()
        if is_mask(name, column) or is_lengths(name, column)
    }
    rows = [_guided(name, column, guides) for name, column in dense.items() if name not in guides]
    if not any(rows):
        rows = _without_guides(dense, padded, may_guess=not ragged)
    components = [component for component in [*ragged, *rows] if component is not None]
    return tuple(component for component in components if any(component.widths))


def _without_guides(
    dense: Mapping[str, Sequence[Any]], padded: list[dict[str, PaddedComponent]], may_guess: bool
) -> list[BatchRows | None]:
    """
    Count the rows of components without masks or lengths; `may_guess` lets zeros at one end count.
    """
    pads = _pads({name: _dtype(column[0]) for name, column in dense.items()}, padded)
    columns = {
        name: column
        for name, column in dense.items()
        if column[0].ndim > 1 and any(array.shape[1] > 1 for array in column)
    }
    rows = [_filled(name, column, pads[name]) for name, column in columns.items() if name in pads]
    if may_guess:
        rows += [_guessed(name, column) for name, column in columns.items() if name not in pads]
    return rows


def _dtype(array: Any) -> str:
    """Return TensorFlow's name of the dtype."""
    return "string" if array.dtype.kind in "OSU" else str(array.dtype.name)


def _replicas(element: Any) -> Iterator[Any]:
    """Yield an element, or the parts that a strategy gives its replicas."""
    n_parts = max(
        (len(leaf.values) for leaf in leaves(element) if _is_distributed(leaf)), default=0
    )
    if not n_parts:
        yield element
    for part in range(n_parts):
        yield mapped(
            lambda leaf, at=part: leaf.values[at] if _is_distributed(leaf) else leaf,  # type: ignore[misc]
            element,
        )


def _is_distributed(leaf: Any) -> bool:
    tf = loaded_tensorflow()
    return tf is not None and isinstance(leaf, tf.distribute.DistributedValues)


def _is_ragged(leaf: Any) -> bool:
    tf = loaded_tensorflow()
    return tf is not None and isinstance(leaf, tf.RaggedTensor)


def _array(leaf: Any) -> Any:
    """Return a dense component as an array of at least rank 1, None for anything else."""
    if isinstance(leaf, np.ndarray):
        return leaf if leaf.ndim else None
    tf, jax = loaded_tensorflow(), loaded_jax()
    if jax is not None and isinstance(leaf, jax.Array):
        return np.asarray(leaf) if leaf.ndim else None
    if tf is not None and isinstance(leaf, tf.Tensor) and tf.is_tensor(leaf) and leaf.shape.rank:
        return np.asarray(leaf.numpy())
    return None


def _one_rank(column: Sequence[Any]) -> bool:
    return all(array is not None and array.ndim == column[0].ndim for array in column)


def _ragged(name: str, column: Sequence[Any]) -> BatchRows:
    rows, widths = [], []
    features = _size(column[0].flat_values.shape[1:])
    for leaf in column:
        splits = [split.numpy() for split in leaf.nested_row_splits]
        ends = splits[0]
        for split in splits[1:]:
            ends = split[ends]
        rows.append(np.diff(ends) * features)
        widths.append(_size([np.diff(split).max(initial=0) for split in splits]) * features)
    return BatchRows(
        name=name,
        dtype=column[0].dtype.name,
        rows=_integers(rows),
        widths=tuple(widths),
        features=features if column[0].ragged_rank == 1 else 0,
        how="ragged rows",
        ragged=True,
    )


def _guided(
    name: str, column: Sequence[Any], guides: Mapping[str, Sequence[Any]]
) -> BatchRows | None:
    """
    Count by the mask or lengths that fit a component.

    Those with its own stem come first (`decoder_mask` for `decoder_ids`), and masks before lengths.
    """
    stems = {
        key: stem(key)
        for key, guide in guides.items()
        if stem(key) in name and fits(key, guide, column)
    }
    if not stems:
        return None
    best = min(stems, key=lambda key: (-len(stems[key]), not is_mask(key, guides[key])))
    guide = guides[best]
    if is_mask(best, guide):
        rank = guide[0].ndim  # number of the component's axes that the guide covers
        counts = [(array != 0).sum(axis=tuple(range(1, rank))) for array in guide]
    else:
        rank, counts = 2, list(guide)
    rows = [
        n.astype(np.int64) * _size(array.shape[rank:])
        for n, array in zip(counts, column, strict=True)
    ]
    return _rows(name, column, rows, _features(column) if rank == 2 else 0, best)


def _filled(name: str, column: Sequence[Any], pad: PaddedComponent) -> BatchRows | None:
    """Count by the fill value of `padded_batch`; an example is the smallest box around the rest."""
    if not pad.axes or column[0].ndim <= max(pad.axes):
        return None
    value = 0 if pad.value is None else pad.value
    rows = [_box(_differs(array, value), pad.axes) for array in column]
    features = _features(column) if pad.axes == (1,) else 0
    return _rows(name, column, rows, features, "padded_batch", str(value))


def _guessed(name: str, column: Sequence[Any]) -> BatchRows | None:
    """Count by the zeros at one end of integer rows, if zero is no value like the others there."""
    if (
        column[0].ndim != 2
        or column[0].dtype.name not in _TOKENS
        or not any((array > 1).any() for array in column)
    ):
        return None
    for end, arrays in ("ends", column), ("beginnings", [array[:, ::-1] for array in column]):
        if _zeros_fill_ends(arrays):
            rows = [_box(array != 0, (1,)) for array in arrays]
            return _rows(name, column, rows, _features(column), f"zeros at the {end} of rows", "0")
    return None


def _zeros_fill_ends(arrays: Sequence[Any]) -> bool:
    """
    Return whether zeros are at the ends of rows alone, and neither by chance nor in sorted rows.

    Were the columns independent of each other, each with its own share of zeros, the rows with a
    zero in one column would be among those with a zero in the next with the probability
    C(next, own) ÷ C(rows, own). Equal rows count once. Rows that descend end with zeros anyway.
    """
    chance, descend = 0.0, True
    for width in {array.shape[1] for array in arrays}:
        alike = [array for array in arrays if array.shape[1] == width]
        rows = np.unique(np.concatenate(alike), axis=0)
        zero = rows == 0
        if (zero[:, :-1] & ~zero[:, 1:]).any():
            return False
        n_zeros = zero.sum(axis=0).tolist()
        chance += sum(
            _log_choices(after, own) - _log_choices(len(rows), own)
            for own, after in pairwise(n_zeros)
        )
        descend = descend and bool((rows[:, 1:] <= rows[:, :-1]).all())
    return chance <= _CHANCE and not descend


def _log_choices(n: int, k: int) -> float:
    """Return the logarithm of the number of ways to choose k of n."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _differs(array: Any, value: Any) -> Any:
    return ~np.isnan(array) if isinstance(value, float) and np.isnan(value) else array != value


def _box(real: Any, axes: tuple[int, ...]) -> Any:
    """
    Return the size of the smallest box around the real elements of each row.

    The box begins at the row's beginning, and has the full size along axes outside `axes`.
    """
    whole = [size for axis, size in enumerate(real.shape) if axis not in (0, *axes)]
    sizes = np.full(len(real), _size(whole))
    for axis in axes:
        others = tuple(other for other in range(1, real.ndim) if other != axis)
        along = real.any(axis=others)
        if not along.shape[1]:
            return sizes * 0
        last = along.shape[1] - along[:, ::-1].argmax(axis=1)
        sizes = sizes * np.where(along.any(axis=1), last, 0)
    return sizes


def _pads(
    dtypes: Mapping[str, str], padded: list[dict[str, PaddedComponent]]
) -> dict[str, PaddedComponent]:
    """
    Return the padding of each component, by name.

    It comes from the last `padded_batch` of the same components, else from the last one that pads
    its dtype, unless that fills components of the dtype with several values.
    """
    for components in padded:
        if {name: one.dtype for name, one in components.items()} == dtypes:
            return components
    by_dtype: dict[str, PaddedComponent | None] = {}
    for components in reversed(padded):
        pads = [one for one in components.values() if one.axes]
        values = {(one.dtype, repr(one.value)) for one in pads}
        several = Counter(dtype for dtype, _ in values)
        by_dtype |= {one.dtype: one if several[one.dtype] == 1 else None for one in pads}
    found = {name: by_dtype.get(dtype) for name, dtype in dtypes.items()}
    return {name: one for name, one in found.items() if one is not None}


def _features(column: Sequence[Any]) -> int:
    """Return the number of elements at one position of a row, 0 if it varies."""
    sizes = {_size(array.shape[2:]) for array in column}
    return sizes.pop() if len(sizes) == 1 else 0


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _integers(rows: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(batch.tolist()) for batch in rows)


def _rows(
    name: str, column: Sequence[Any], rows: Sequence[Any], features: int, how: str, pad: str = ""
) -> BatchRows:
    widths = tuple(_size(array.shape[1:]) for array in column)
    return BatchRows(
        name=name,
        dtype=_dtype(column[0]),
        rows=_integers(rows),
        widths=widths,
        features=features,
        how=how,
        pad=pad,
    )


def may_be_guide(name: str) -> bool:
    """Return whether a component has the name of a mask or of lengths."""
    return bool(_MASK.search(name) or _LENGTHS.search(name))


def is_mask(name: str, column: Sequence[Any]) -> bool:
    """
    Return whether a component is a padding mask: zeros and ones, with one run of ones in a row.

    Flags at single positions (special_tokens_mask) and masks of images are not padding masks.
    """
    word = _MASK.search(name.rsplit("/", 1)[-1])
    if (
        word is None
        or column[0].ndim < 2
        or column[0].dtype.kind not in "biuf"
        or (column[0].ndim > 2 and not word[1])
    ):
        return False
    masks = [array != 0 for array in column]
    one_run = all(
        (mask[..., :1].sum(axis=-1) + (mask[..., 1:] & ~mask[..., :-1]).sum(axis=-1) <= 1).all()
        for mask in masks
    )
    return (
        one_run
        and any(mask.any() for mask in masks)
        and all(((array == 0) | (array == 1)).all() for array in column)
    )


def is_lengths(name: str, column: Sequence[Any]) -> bool:
    """Return whether a component is the lengths of rows."""
    return (
        bool(_LENGTHS.search(name.rsplit("/", 1)[-1]))
        and column[0].ndim == 1
        and column[0].dtype.kind in "iu"
    )


def fits(name: str, guide: Sequence[Any], column: Sequence[Any]) -> bool:
    """Return whether a guide of this name can describe a component."""
    if column[0].ndim < 2:
        return False
    if is_mask(name, guide):
        return all(
            array.shape[: mask.ndim] == mask.shape
            for array, mask in zip(column, guide, strict=True)
        )
    pairs = zip(column, guide, strict=True)
    return all(
        len(array) == len(n) and n.min(initial=0) >= 0 and n.max(initial=0) <= array.shape[1]
        for array, n in pairs
    )


def stem(name: str) -> str:
    """Return the stem of the name of a mask or lengths, "" if they apply to all components."""
    last = name.rsplit("/", 1)[-1]
    return _LENGTHS.sub("", _MASK.sub("", last)).strip("_").removeprefix("input").strip("_")


def stages_of(data: Any, by_keras: bool = False) -> tuple[PipelineStage, ...] | Unknown:
    """Return the stages of input data, from the source to the step, or a reason why not."""
    if data is None:
        return UNSEEN
    try:
        return _stages_of(_dataset_in(data), by_keras)
    except Unsupported as error:
        return Unknown(str(error))
    except Exception as error:  # the user's data may be anything
        return Unknown(
            f"the input pipeline could not be read: {type(error).__name__}: {error!s:.80}"
        )


def _dataset_in(data: Any) -> Any:
    """Return the dataset that an iterator or a distributed dataset of TensorFlow holds."""
    tf = loaded_tensorflow()
    for _ in range(_DEEPEST):
        if tf is None or isinstance(data, tf.data.Dataset) or not _is_of_tensorflow(data):
            break
        # private: 2.18 to 2.22
        held = (getattr(data, name, None) for name in _HOLDERS)
        data = next((one for one in held if one is not None), data)
    return data


def _stages_of(data: Any, by_keras: bool) -> tuple[PipelineStage, ...] | Unknown:
    kind, tf = type(data).__name__, loaded_tensorflow()
    if tf is not None and isinstance(data, tf.data.Dataset):
        return pipeline_stages(data)
    if _is_of_tensorflow(data) and not hasattr(data, "shape"):
        return Unknown(_HIDDEN.format(kind))
    if hasattr(data, "shape") or isinstance(data, (list, tuple, Mapping)):
        return (PipelineStage(stage=kind, by_keras=by_keras),)
    code = getattr(data, "gi_code", None)
    codes = [code] if code else [_code(data, name) for name in _ITERATES]
    codes = [code for code in codes if code is not None]
    if not codes:
        return Unknown(_HIDDEN.format(kind))
    line = next((line for code in codes if (line := line_of_code(code))), None)
    python = "generator" if kind == "generator" else _python_kind(data)
    is_py_dataset = python == _PY_DATASET
    return (PipelineStage(stage=kind, python=python, line=line, by_keras=is_py_dataset),)


def _python_kind(data: Any) -> str:
    keras = [base for base in type(data).__mro__ if "keras" in base.__module__]
    names = {base.__name__ for base in keras}
    return _PY_DATASET if names & {"PyDataset", "Sequence"} else "Python iterable"


def _code(data: Any, name: str) -> CodeType | None:
    return getattr(getattr(type(data), name, None), "__code__", None)


def _is_of_tensorflow(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "tensorflow"
