"""The values of instruction attributes in HLO text."""

from __future__ import annotations

import re
import struct
from math import inf, nan

from pytest_tfperf.hlo.lexer import pairs, parts
from pytest_tfperf.hlo.module import ConvolutionDimensions, DotDimensions, Shape, WindowDimension

_INTEGER = re.compile(r"-?\d{1,18}")
_FLOATS = {"inf": inf, "-inf": -inf, "nan": nan, "-nan": nan}
_ROUNDED = {"f16": "<e", "f32": "<f", "f64": "<d"}
_WINDOW = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def without_braces(text: str) -> str:
    """Return the text between braces, or the whole text if it has none."""
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def integer(text: str) -> int:
    """
    Read a whole number.

    Raises:
        ValueError: If the text is not one.
    """
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is not a number")
    return int(text)


def integers(text: str) -> tuple[int, ...]:
    """Read whole numbers between commas, with or without braces around them."""
    return tuple(integer(part) for part in parts(without_braces(text)))


def dot_dimensions(attributes: dict[str, str]) -> DotDimensions:
    """Read the dimensions of a dot from its attributes."""
    keys = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    return DotDimensions(*(integers(attributes.get(key, "")) for key in keys))


def window_dimensions(text: str) -> tuple[WindowDimension, ...]:
    """
    Read a window: `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=1x1}`.

    Source: xla/window_util.cc (openxla/xla).

    Raises:
        ValueError: If its attributes are not numbers, or differ in rank.
    """
    attributes = pairs(text, "window")
    columns = {key: attributes[key].split("x") for key in _WINDOW if key in attributes}
    rank = len(next(iter(columns.values()), []))
    if any(len(column) != rank for column in columns.values()):
        raise ValueError(f"a window whose attributes differ in rank: {text[:80]}")

    def column(key: str, usual: str) -> list[str]:
        return columns.get(key, [usual] * rank)

    sides = [tuple(map(integer, side.split("_"))) for side in column("pad", "0_0")]
    return tuple(
        WindowDimension(
            integer(size),
            integer(stride),
            low,
            high,
            integer(dilation),
            integer(base),
            reversal != "0",
        )
        for size, stride, (low, high), dilation, base, reversal in zip(
            column("size", "1"),
            column("stride", "1"),
            sides,
            column("rhs_dilate", "1"),
            column("lhs_dilate", "1"),
            column("rhs_reversal", "0"),
            strict=True,
        )
    )


def convolution_dimensions(text: str) -> ConvolutionDimensions:
    """
    Read the labels of a convolution's input, kernel and output: `b01f_01io->b01f`.

    Raises:
        ValueError: If a label is missing or repeated.
    """
    match = re.fullmatch(r"([bf\d?]+)_([io\d?]+)->([bf\d?]+)", text)
    if match is None:
        raise ValueError(f"{text[:40]!r} names no dimensions, as b01f_01io->b01f does")
    data, kernel, output = match.groups()
    ranks = {size for labels in match.groups() for size in (len(labels), len(set(labels)))}
    if len(ranks) > 1:
        raise ValueError(f"{text[:40]!r} repeats dimensions, or its ranks differ")
    numbers = [str(number) for number in range(len(data) - 2)]
    spatial = [tuple(map(labels.index, numbers)) for labels in (data, kernel, output)]
    return ConvolutionDimensions(
        input_batch=data.index("b"),
        input_feature=data.index("f"),
        input_spatial=spatial[0],
        kernel_input_feature=kernel.index("i"),
        kernel_output_feature=kernel.index("o"),
        kernel_spatial=spatial[1],
        output_batch=output.index("b"),
        output_feature=output.index("f"),
        output_spatial=spatial[2],
    )


def slice_bounds(text: str) -> tuple[int, int, int]:
    """Read the bounds of a slice, `[0:8:2]`; the stride is optional."""
    start, limit, stride = (*map(integer, text.strip("[]").split(":")), 1)[:3]
    return start, limit, stride


def padding_edges(text: str) -> tuple[int, int, int]:
    """Read the edges of a pad, `low_high_interior`; the interior is optional."""
    low, high, interior = (*map(integer, text.split("_")), 0)[:3]
    return low, high, interior


def scalar(shape: Shape, text: str) -> bool | float | None:
    """Read a constant as its type holds it; None for arrays and other types."""
    if shape.dimensions or text.startswith(("{", "(")):
        return None
    if shape.dtype == "pred":
        return text == "true"
    if re.fullmatch(r"[su]\d+", shape.dtype):
        return int(text) if re.fullmatch(r"-?\d{1,20}", text) else None
    return (
        _round(shape.dtype, _FLOATS[text] if text in _FLOATS else float(text))
        if shape.dtype in _ROUNDED or shape.dtype == "bf16"
        else None
    )


def _round(dtype: str, value: float) -> float:
    """Round a number to the nearest one that the type holds."""
    if dtype == "bf16":  # the upper half of a float32, rounded to even
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
        if value != value or value in (inf, -inf):
            return value
        upper = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        code, raw = "<f", struct.pack("<I", upper)
    else:
        code = _ROUNDED[dtype]
        raw = struct.pack(code, value)
    return struct.unpack(code, raw)[0]  # type: ignore[no-any-return]
