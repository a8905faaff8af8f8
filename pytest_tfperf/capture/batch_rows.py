"""
Real and padding elements of the batches that steps consumed, counted after the windows.

What tells padding from data, the first that is there: a RaggedTensor's own rows; a mask (a component named so, of zeros and ones in
one run a row) or lengths; the value that a `padded_batch` of the pipeline fills with; else, for integers of rank 2 such as token ids,
the zeros that rows end in (or begin with, as `keras.utils.pad_sequences` pads). Zeros between data are data. A real element at the
end of a row that equals the pad value is taken for padding, which a mask avoids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_tfperf.compiler.datasets import PaddedComponent, padded_batches
from pytest_tfperf.recording import Batches, BatchRows
from pytest_tfperf.tf_runtime import load_tensorflow
from pytest_tfperf.values import Unknown

_TOKENS = frozenset({"int16", "int32", "int64", "uint16", "uint32", "uint64"})
_LONGEST_LIST = 100  # a list of more items is data, not the structure of an element
_MOST_INSIDE = 0.5  # rows with more zeros between their values are counts or flags, not sequences
_MASK = re.compile(r"(attention|padding|pad)?_?mask", re.IGNORECASE)
_LENGTHS = re.compile(
    r"(?<![a-z])(sequence_|seq_)?(len|lens|length|lengths)(?![a-z])", re.IGNORECASE
)
NOTHING_TO_PAD = (
    "no component of the batches shows padding: that needs ragged rows, a mask or lengths (named so), a padded_batch in the pipeline, "
    "or integers of rank 2 such as token ids"
)

Batch = Mapping[str, Any]


def batches_seen(elements: Sequence[Any], data: Any, sampled: bool) -> Batches | Unknown:
    """What can be padded in these elements of the data, or why that is not known."""
    if not elements:
        return Unknown("no batch was traced")
    try:
        components = _components(
            [dict(_named(part)) for element in elements for part in _replicas(element)],
            padded_batches(data),
        )
    except Exception as error:  # whatever an element of the user's may be
        return Unknown(f"the batches could not be read: {type(error).__name__}: {error!s:.80}")
    if not components:
        return Unknown(NOTHING_TO_PAD)
    return Batches(components=components, n_batches=len(components[0].widths), sampled=sampled)


def could_be_padded(spec: Any, data: Any) -> bool:
    """Whether elements of this signature, of these data, have a component of which `batches_seen` could tell padding."""
    components = dict(_named(spec))
    if padded_batches(data) or any(
        _MASK.search(name) or _LENGTHS.search(name) for name in components
    ):
        return True
    tf = load_tensorflow()
    return any(
        isinstance(one, tf.RaggedTensorSpec)
        or (
            isinstance(one, tf.TensorSpec)
            and one.dtype.name in _TOKENS
            and one.shape.rank in (None, 2)
        )
        for one in components.values()
    )


def _components(
    batches: list[Batch], padded: list[tuple[PaddedComponent, ...]]
) -> tuple[BatchRows, ...]:
    names = [name for name in batches[0] if all(name in batch for batch in batches)]
    ragged = [
        _ragged(name, [batch[name] for batch in batches])
        for name in names
        if _is_ragged(batches[0][name])
    ]
    arrays = {
        name: [_array(batch[name]) for batch in batches]
        for name in names
        if not _is_ragged(batches[0][name])
    }
    dense = {name: column for name, column in arrays.items() if _one_rank(column)}
    guides = {
        name: column
        for name, column in dense.items()
        if _is_mask(name, column) or _is_lengths(name, column)
    }
    found = [_guided(name, column, guides) for name, column in dense.items() if name not in guides]
    if not any(found):
        pads = _pads({name: _dtype(column[0]) for name, column in dense.items()}, padded)
        rows = {
            name: column
            for name, column in dense.items()
            if column[0].ndim > 1 and any(array.shape[1] > 1 for array in column)
        }
        found = [_filled(name, column, pads[name]) for name, column in rows.items() if name in pads]
        found += [
            _guessed(name, column)
            for name, column in rows.items()
            if name not in pads and not ragged
        ]
    return tuple(one for one in [*ragged, *found] if one is not None and any(one.widths))


def _dtype(array: Any) -> str:
    """As TensorFlow calls it."""
    return "string" if array.dtype.kind in "OSU" else str(array.dtype.name)


def _named(element: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The components of an element by their path in it (`0/tokens`)."""
    items: Any
    if isinstance(element, Mapping):
        items = element.items()
    elif isinstance(element, tuple):
        items = zip(getattr(element, "_fields", range(len(element))), element, strict=True)
    elif isinstance(element, list) and len(element) <= _LONGEST_LIST:
        items = enumerate(element)
    else:
        yield path or "element", element
        return
    for key, item in items:
        yield from _named(item, f"{path}/{key}" if path else str(key))


def _replicas(element: Any) -> Iterator[Any]:
    """An element, or the parts of one that a strategy gives its replicas."""
    tf = load_tensorflow()
    leaves = tf.nest.flatten(element)
    n_parts = max(
        (len(leaf.values) for leaf in leaves if isinstance(leaf, tf.distribute.DistributedValues)),
        default=0,
    )
    if not n_parts:
        yield element
    for part in range(n_parts):
        yield tf.nest.map_structure(
            lambda leaf, at=part: (
                leaf.values[at] if isinstance(leaf, tf.distribute.DistributedValues) else leaf
            ),
            element,
        )


def _is_ragged(leaf: Any) -> bool:
    return isinstance(leaf, load_tensorflow().RaggedTensor)


def _array(leaf: Any) -> Any:
    """A dense component as an array of at least rank 1; None for anything else."""
    if isinstance(leaf, np.ndarray):
        return leaf if leaf.ndim else None
    tf = load_tensorflow()
    return (
        np.asarray(leaf.numpy())
        if tf.is_tensor(leaf) and isinstance(leaf, tf.Tensor) and leaf.shape.rank
        else None
    )


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
    """By the mask or the lengths that fit; those of its own stem (`decoder_mask` for `decoder_ids`) first, a mask before lengths."""
    stems = {
        other: _stem(other)
        for other, guide in guides.items()
        if _stem(other) in name and _fits(other, guide, column)
    }
    if not stems:
        return None
    other = min(stems, key=lambda other: (-len(stems[other]), not _is_mask(other, guides[other])))
    guide = guides[other]
    rank = (
        guide[0].ndim if _is_mask(other, guide) else 2
    )  # so many axes of the component are told apart by the guide
    counts = (
        [(array != 0).sum(axis=tuple(range(1, rank))) for array in guide]
        if _is_mask(other, guide)
        else guide
    )
    rows = [
        n.astype(np.int64) * _size(array.shape[rank:])
        for n, array in zip(counts, column, strict=True)
    ]
    return _rows(name, column, rows, _features(column) if rank == 2 else 0, other)


def _filled(name: str, column: Sequence[Any], pad: PaddedComponent) -> BatchRows | None:
    """By the value that `padded_batch` fills with: an example is the smallest box that holds all else."""
    if not pad.axes or column[0].ndim <= max(pad.axes):
        return None
    value = 0 if pad.value is None else pad.value
    rows = [_box(_differs(array, value), pad.axes) for array in column]
    features = _features(column) if pad.axes == (1,) else 0
    return _rows(name, column, rows, features, "padded_batch", str(value))


def _guessed(name: str, column: Sequence[Any]) -> BatchRows | None:
    """By the zeros at one end of rows of integers, unless they are flags or counts."""
    if (
        column[0].ndim != 2
        or column[0].dtype.name not in _TOKENS
        or not any((array > 1).any() for array in column)
    ):
        return None
    real = [array != 0 for array in column]
    after = [_box(array, (1,)) for array in real]
    before = [_box(array[:, ::-1], (1,)) for array in real]
    rows, end = min(
        (after, "ends"),
        (before, "beginnings"),
        key=lambda side: sum(map(int, map(np.sum, side[0]))),
    )
    if sum(int(lengths.sum()) for lengths in rows) * (1 - _MOST_INSIDE) > sum(
        int(array.sum()) for array in real
    ):
        return None
    return _rows(name, column, rows, _features(column), f"zeros at the {end} of rows", "0")


def _differs(array: Any, value: Any) -> Any:
    return ~np.isnan(array) if isinstance(value, float) and np.isnan(value) else array != value


def _box(real: Any, axes: tuple[int, ...]) -> Any:
    """The elements of the smallest box from each row's beginning that holds all that is real; whole along the other axes."""
    sizes = np.full(
        len(real), _size([size for axis, size in enumerate(real.shape) if axis not in (0, *axes)])
    )
    for axis in axes:
        others = tuple(other for other in range(1, real.ndim) if other != axis)
        along = real.any(axis=others)
        sizes = (
            sizes * np.where(along.any(axis=1), along.shape[1] - along[:, ::-1].argmax(axis=1), 0)
            if along.shape[1]
            else sizes * 0
        )
    return sizes


def _pads(
    dtypes: Mapping[str, str], padded: list[tuple[PaddedComponent, ...]]
) -> dict[str, PaddedComponent]:
    """What fills each component: the last `padded_batch` of the same components; else, by dtype, of any that pads."""
    for one in padded:
        if [component.dtype for component in one] == list(dtypes.values()):
            return dict(zip(dtypes, one, strict=True))
    by_dtype = {
        component.dtype: component
        for one in reversed(padded)
        for component in one
        if component.axes
    }
    return {name: by_dtype[dtype] for name, dtype in dtypes.items() if dtype in by_dtype}


def _is_mask(name: str, column: Sequence[Any]) -> bool:
    """Zeros and ones in one run a row; flags at single positions (special_tokens_mask) are no padding, nor are masks of images."""
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


def _is_lengths(name: str, column: Sequence[Any]) -> bool:
    return (
        bool(_LENGTHS.search(name.rsplit("/", 1)[-1]))
        and column[0].ndim == 1
        and column[0].dtype.kind in "iu"
    )


def _fits(other: str, guide: Sequence[Any], column: Sequence[Any]) -> bool:
    if column[0].ndim < 2:
        return False
    if _is_mask(other, guide):
        return all(
            array.shape[: mask.ndim] == mask.shape
            for array, mask in zip(column, guide, strict=True)
        )
    pairs = zip(column, guide, strict=True)
    return all(
        len(array) == len(n) and n.min(initial=0) >= 0 and n.max(initial=0) <= array.shape[1]
        for array, n in pairs
    )


def _stem(name: str) -> str:
    """What is left of the name of a mask or of lengths: whose they are, "" for all."""
    last = name.rsplit("/", 1)[-1]
    return _LENGTHS.sub("", _MASK.sub("", last)).strip("_").removeprefix("input").strip("_")


def _features(column: Sequence[Any]) -> int:
    """The elements at one position of a row, 0 if that differs."""
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
