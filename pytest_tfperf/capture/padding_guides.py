"""Padding guides: components of a batch that tell padding from data, as masks or lengths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_MASK = re.compile(r"(attention|padding|pad)?_?mask", re.IGNORECASE)
_LENGTHS = re.compile(
    r"(?<![a-z])(sequence_|seq_)?(len|lens|length|lengths)(?![a-z])", re.IGNORECASE
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
    """
    Return whether a guide can describe a component.

    Args:
        name: Name of the guide.
        guide: Arrays of the guide, batch by batch.
        column: Arrays of the component, batch by batch.
    """
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
