"""
XLA modules as HLO text, in XLA's own syntax.

Sources: hlo_instruction.cc, hlo_computation.cc and hlo_module.cc (openxla/xla). Left out are
frontend attributes, shardings, values of arrays, the indexing of a gather or a scatter, and the
replicas of a collective. Instructions keep the order of the module's proto: operands come before
their users.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence

from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
)

_SAY_DIMENSIONS = frozenset(
    [
        "all-gather",
        "all-to-all",
        "broadcast",
        "concatenate",
        "map",
        "reduce",
        "reverse",
        "sort",
        "transpose",
    ]
)
# The order of a while's and a select-and-scatter's computations: xla/hlo/ir/hlo_instruction.h.
_CALLEES = {
    "while": ("body", "condition"),
    "select-and-scatter": ("select", "scatter"),
    "fusion": ("calls",),
    "async-start": ("calls",),
    "call": ("to_apply",),
    "reduce": ("to_apply",),
    "reduce-window": ("to_apply",),
    "map": ("to_apply",),
    "sort": ("to_apply",),
    "scatter": ("to_apply",),
    "all-reduce": ("to_apply",),
    "all-reduce-start": ("to_apply",),
    "reduce-scatter": ("to_apply",),
}
_MANY = {"conditional": "branch_computations"}
_COMMENT_EVERY = 5


def text_of(module: HloModule) -> str:
    """Write a module, callees before their callers."""
    entry = module.entry
    layouts = ", ".join(shape_text(op.shape) for op in _parameters(entry))
    head = [f"HloModule {module.name}", *(["is_scheduled=true"] if module.scheduled else [])]
    head.append(f"entry_computation_layout={{({layouts})->{shape_text(entry.root.shape)}}}")
    parts = [_computation(module, part) for part in module.computations.values()]
    return "\n\n".join([", ".join(head), *parts]) + "\n"


def instruction_text(module: HloModule, part: HloComputation, op: HloInstruction) -> str:
    """
    Write one instruction without indentation.

    Example: `%add.1 = f32[8]{0} add(%a, %b), metadata={…}`.
    """
    inside = literal_text(op) or _listed(f"%{operand.name}" for operand in part.operands(op))
    call = f"%{op.name} = {shape_text(op.shape)} {op.opcode}({inside})"
    return ("ROOT " if op.id == part.root_id else "") + ", ".join(
        [call, *_attributes(module, part, op)]
    )


def shape_text(shape: Shape, layout: bool = True) -> str:
    """Write a shape, `f32[8,4]{1,0}` or `(f32[8]{0}, s32[])`, with or without layouts."""
    if shape.dtype == "tuple":
        return f"({_listed(shape_text(part, layout) for part in shape.parts)})"
    if shape.dtype in ("token", "opaque"):
        return f"{shape.dtype}[]"
    dynamic = shape.dynamic or (False,) * len(shape.dimensions)
    sizes = ",".join(
        ("<=" if free else "") + str(size)
        for size, free in zip(shape.dimensions, dynamic, strict=False)
    )
    return f"{shape.dtype}[{sizes}]" + (_layout(shape) if layout else "")


def literal_text(op: HloInstruction) -> str | None:
    """
    Return the text between the brackets of a parameter or a constant; None for other opcodes.

    The values of arrays are unknown and shown as dots.
    """
    if op.opcode == "parameter":
        return str(op.parameter_number)
    if op.opcode != "constant":
        return None
    return "{...}" if op.constant is None else _number(op.shape.dtype, op.constant)


def callees(
    module: HloModule, part: HloComputation, op: HloInstruction
) -> Iterator[tuple[str, HloComputation]]:
    """Yield the computations that an instruction calls, each with its role, such as `body`."""
    titles = _CALLEES.get(op.opcode, ())
    if op.opcode == "conditional":
        two = op.operands and part.operands(op)[0].shape.dtype == "pred"
        titles = ("true_computation", "false_computation") if two else ()
    for place, key in enumerate(op.called):
        yield (
            titles[place] if place < len(titles) else _MANY.get(op.opcode, "called_computations"),
            module.computations[key],
        )


def _computation(module: HloModule, part: HloComputation) -> str:
    parameters = ", ".join(
        f"{op.name}: {shape_text(op.shape, layout=False)}" for op in _parameters(part)
    )
    entry = "ENTRY " if part.id == module.entry_id else ""
    lines = [f"  {instruction_text(module, part, op)}" for op in part.instructions.values()]
    return "\n".join(
        [
            f"{entry}%{part.name} ({parameters}) -> {shape_text(part.root.shape, layout=False)} {{",
            *lines,
            "}",
        ]
    )


def _parameters(part: HloComputation) -> list[HloInstruction]:
    return [op for _, op in sorted(part.parameters.items())]


def _listed(items: Iterable[str]) -> str:
    """Join items with commas and, as XLA does, a comment with the number of every fifth."""
    return ", ".join(
        f"/*index={place}*/{item}" if place and place % _COMMENT_EVERY == 0 else item
        for place, item in enumerate(items)
    )


def _layout(shape: Shape) -> str:
    """
    Write tiles, bits of an element and memory space: `{1,0:T(8,128)E(4)S(1)}` (xla/layout.cc).
    """
    order = ",".join(map(str, shape.minor_to_major))
    tiles = "".join(
        f"({','.join('*' if size < 0 else str(size) for size in tile)})" for tile in shape.tiles
    )
    more = f"T{tiles}" if tiles else ""
    more += f"E({shape.element_bits})" if shape.element_bits else ""
    more += f"S({shape.memory_space})" if shape.memory_space else ""
    return f"{{{order}{':' if more else ''}{more}}}" if order or more else ""


def _number(dtype: str, value: bool | float) -> str:
    """
    Write the shorter of XLA's two lengths that gives the same number again.

    Source: RoundTripFpToString (xla/util.cc).
    """
    if isinstance(value, int):  # a bool is one too
        return str(value).lower()
    if dtype in ("f16", "bf16"):
        return f"{value:.5g}" if dtype == "f16" else f"{value:.4g}"
    short, long, code = (6, 9, "<f") if dtype == "f32" else (15, 17, "<d")
    text = f"{value:.{short}g}"
    return (
        text if struct.pack(code, float(text)) == struct.pack(code, value) else f"{value:.{long}g}"
    )


def _attributes(module: HloModule, part: HloComputation, op: HloInstruction) -> Iterator[str]:
    """Yield `key=value` in XLA's order: the opcode's own, callees, metadata, configuration."""
    yield from _own_attributes(op)
    yield from _calls(module, part, op)
    texts = {"op_type": op.op_type, "op_name": op.op_name, "source_file": op.source_file}
    metadata = [f"{key}={_quoted(text)}" for key, text in texts.items() if text]
    metadata += [f"source_line={op.source_line}"] if op.source_line else []
    if metadata:
        yield f"metadata={{{' '.join(metadata)}}}"
    if op.backend_config:
        yield f"backend_config={op.backend_config if op.config else _quoted(op.backend_config)}"


def _own_attributes(op: HloInstruction) -> Iterator[str]:
    """Yield the attributes that belong to the opcode."""
    if op.opcode == "iota":
        yield f"iota_dimension={op.dimensions[0] if op.dimensions else 0}"
    elif op.dimensions or op.opcode in _SAY_DIMENSIONS:
        yield f"dimensions={_braced(op.dimensions)}"
    if op.opcode == "get-tuple-element":
        yield f"index={op.tuple_index}"
    if op.opcode == "slice":
        strides = any(stride > 1 for *_, stride in op.slices)
        bounds = (
            f"[{start}:{limit}{f':{stride}' if strides else ''}]"
            for start, limit, stride in op.slices
        )
        yield f"slice={{{', '.join(bounds)}}}"
    if op.opcode == "dynamic-slice":
        yield f"dynamic_slice_sizes={_braced(op.shape.dimensions)}"
    if op.padding:
        inner = any(interior for *_, interior in op.padding)
        edges = (
            f"{low}_{high}_{between}" if inner else f"{low}_{high}"
            for low, high, between in op.padding
        )
        yield f"padding={'x'.join(edges)}"
    if op.direction:
        yield f"direction={op.direction}"
    yield from _products(op)
    if op.fft_length:
        yield f"fft_length={_braced(op.fft_length)}"
    if op.custom_call_target:
        yield f"custom_call_target={_quoted(op.custom_call_target)}"
    if op.fusion_kind:
        yield f"kind={op.fusion_kind}"


def _products(op: HloInstruction) -> Iterator[str]:
    """Yield the windows and dimensions of a dot or a convolution."""
    if op.window:
        yield f"window={{{_window(op.window)}}}"
    if op.convolution:
        yield f"dim_labels={_labels(op.convolution)}"
    if op.dot:
        dot = op.dot
        sides = (
            ("lhs_batch_dims", dot.lhs_batch),
            ("lhs_contracting_dims", dot.lhs_contracting),
            ("rhs_batch_dims", dot.rhs_batch),
            ("rhs_contracting_dims", dot.rhs_contracting),
        )
        yield from (f"{key}={_braced(dimensions)}" for key, dimensions in sides if dimensions)
    if op.feature_groups > 1:
        yield f"feature_group_count={op.feature_groups}"
    if op.batch_groups > 1:
        yield f"batch_group_count={op.batch_groups}"


def _calls(module: HloModule, part: HloComputation, op: HloInstruction) -> Iterator[str]:
    """
    Yield the callees, `to_apply=%add`.

    The condition of a while comes before its body; callees with the same role form one list.
    """
    named: dict[str, list[str]] = {}
    for title, called in callees(module, part, op):
        named.setdefault(title, []).append(f"%{called.name}")
    for title in sorted(named, key="condition".__ne__) if op.opcode == "while" else named:
        names = ", ".join(named[title])
        yield f"{title}={{{names}}}" if title.endswith("_computations") else f"{title}={names}"


def _window(window: Sequence[WindowDimension]) -> str:
    """
    Write a window, `size=3x3 stride=2x2 pad=1_1x1_1`, without what has its default everywhere.

    Source: xla/window_util.cc.
    """
    attributes = (
        ("size", [str(one.size) for one in window], None),
        ("stride", [str(one.stride) for one in window], "1"),
        ("pad", [f"{one.padding_low}_{one.padding_high}" for one in window], "0_0"),
        ("lhs_dilate", [str(one.base_dilation) for one in window], "1"),
        ("rhs_dilate", [str(one.window_dilation) for one in window], "1"),
        ("rhs_reversal", [str(int(one.reversal)) for one in window], "0"),
    )
    return " ".join(
        f"{key}={'x'.join(values)}" for key, values, usual in attributes if set(values) != {usual}
    )


def _labels(dims: ConvolutionDimensions) -> str:
    """Write the labels of a convolution's input, kernel and output: `b01f_01io->b01f`."""

    def side(
        first: int, first_label: str, second: int, second_label: str, spatial: Sequence[int]
    ) -> str:
        named = {
            first: first_label,
            second: second_label,
            **{place: str(number) for number, place in enumerate(spatial)},
        }
        return "".join(label for _, label in sorted(named.items()))

    data = side(dims.input_batch, "b", dims.input_feature, "f", dims.input_spatial)
    kernel = side(
        dims.kernel_input_feature, "i", dims.kernel_output_feature, "o", dims.kernel_spatial
    )
    output = side(dims.output_batch, "b", dims.output_feature, "f", dims.output_spatial)
    return f"{data}_{kernel}->{output}"


def _braced(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _quoted(text: str) -> str:
    """Quote a string with C's escapes; non-ASCII characters stay as they are."""
    return json.dumps(text, ensure_ascii=False)
