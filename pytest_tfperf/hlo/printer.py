"""
XLA modules as HLO text, in XLA's own syntax (openxla/xla, hlo_instruction.cc, hlo_computation.cc, hlo_module.cc).

Left out is what few read: frontend attributes, shardings, the values of arrays, how a gather or a scatter indexes, and which
replicas a collective joins. Instructions stand in the order of the module's proto, which is that of their operands.
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
_CALLEES = {  # xla/hlo/ir/hlo_instruction.h: the order of a while's and a select-and-scatter's computations
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
    """The whole module, callees before their callers."""
    entry = module.entry
    layouts = ", ".join(shape_text(op.shape) for op in _parameters(entry))
    head = [f"HloModule {module.name}", *(["is_scheduled=true"] if module.scheduled else [])]
    head.append(f"entry_computation_layout={{({layouts})->{shape_text(entry.root.shape)}}}")
    parts = [_computation(module, part) for part in module.computations.values()]
    return "\n\n".join([", ".join(head), *parts]) + "\n"


def instruction_text(module: HloModule, part: HloComputation, op: HloInstruction) -> str:
    """One instruction of a computation, without indentation: `%add.1 = f32[8]{0} add(%a, %b), metadata={…}`."""
    inside = literal_text(op) or _listed(f"%{operand.name}" for operand in part.operands(op))
    call = f"%{op.name} = {shape_text(op.shape)} {op.opcode}({inside})"
    return ("ROOT " if op.id == part.root_id else "") + ", ".join(
        [call, *_attributes(module, part, op)]
    )


def shape_text(shape: Shape, layout: bool = True) -> str:
    """`f32[8,4]{1,0}`, a tuple `(f32[8]{0}, s32[])`; without its layouts if it is not wanted."""
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
    """What stands between the brackets of a parameter or constant, None of others; of an array's values nothing is known."""
    if op.opcode == "parameter":
        return str(op.parameter_number)
    if op.opcode != "constant":
        return None
    return "{...}" if op.constant is None else _number(op.shape.dtype, op.constant)


def callees(
    module: HloModule, part: HloComputation, op: HloInstruction
) -> Iterator[tuple[str, HloComputation]]:
    """The computations that an instruction calls, each with what it is to it: `body`, `to_apply`, `calls`."""
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
    given = ", ".join(
        f"{op.name}: {shape_text(op.shape, layout=False)}" for op in _parameters(part)
    )
    entry = "ENTRY " if part.id == module.entry_id else ""
    lines = [f"  {instruction_text(module, part, op)}" for op in part.instructions.values()]
    return "\n".join(
        [
            f"{entry}%{part.name} ({given}) -> {shape_text(part.root.shape, layout=False)} {{",
            *lines,
            "}",
        ]
    )


def _parameters(part: HloComputation) -> list[HloInstruction]:
    return [op for _, op in sorted(part.parameters.items())]


def _listed(items: Iterable[str]) -> str:
    """Items with a comma between them and, as XLA has it, the number of every fifth."""
    return ", ".join(
        f"/*index={place}*/{item}" if place and place % _COMMENT_EVERY == 0 else item
        for place, item in enumerate(items)
    )


def _layout(shape: Shape) -> str:
    """`{1,0:T(8,128)E(4)S(1)}` (xla/layout.cc): tiles, bits of an element, memory space."""
    order = ",".join(map(str, shape.minor_to_major))
    tiles = "".join(
        f"({','.join('*' if size < 0 else str(size) for size in tile)})" for tile in shape.tiles
    )
    more = f"T{tiles}" if tiles else ""
    more += f"E({shape.element_bits})" if shape.element_bits else ""
    more += f"S({shape.memory_space})" if shape.memory_space else ""
    return f"{{{order}{':' if more else ''}{more}}}" if order or more else ""


def _number(dtype: str, value: bool | float) -> str:
    """As few digits as give the same number again, but XLA knows two lengths only (xla/util.cc, RoundTripFpToString)."""
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
    """`key=value` in XLA's order: the opcode's own, what is called, metadata, the backend's configuration."""
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
    """What an instruction does beside its opcode."""
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
        yield f"padding={'x'.join(f'{low}_{high}' + (f'_{between}' if inner else '') for low, high, between in op.padding)}"
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
    """Windows, and which dimensions a dot or a convolution multiplies."""
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
    """`to_apply=%add`; a while's condition stands before its body; those that have one title are one list."""
    named: dict[str, list[str]] = {}
    for title, called in callees(module, part, op):
        named.setdefault(title, []).append(f"%{called.name}")
    for title in sorted(named, key="condition".__ne__) if op.opcode == "while" else named:
        names = ", ".join(named[title])
        yield f"{title}={{{names}}}" if title.endswith("_computations") else f"{title}={names}"


def _window(window: Sequence[WindowDimension]) -> str:
    """`size=3x3 stride=2x2 pad=1_1x1_1` (xla/window_util.cc); what is as usual in all dimensions is not said."""
    said = (
        ("size", [str(one.size) for one in window], None),
        ("stride", [str(one.stride) for one in window], "1"),
        ("pad", [f"{one.padding_low}_{one.padding_high}" for one in window], "0_0"),
        ("lhs_dilate", [str(one.base_dilation) for one in window], "1"),
        ("rhs_dilate", [str(one.window_dilation) for one in window], "1"),
        ("rhs_reversal", [str(int(one.reversal)) for one in window], "0"),
    )
    return " ".join(
        f"{key}={'x'.join(values)}" for key, values, usual in said if set(values) != {usual}
    )


def _labels(dims: ConvolutionDimensions) -> str:
    """`b01f_01io->b01f`: what each dimension of input, kernel and output is."""

    def side(
        first: int, first_label: str, second: int, second_label: str, spatial: Sequence[int]
    ) -> str:
        named = {
            first: first_label,
            second: second_label,
            **{place: str(number) for number, place in enumerate(spatial)},
        }
        return "".join(label for _, label in sorted(named.items()))

    given = side(dims.input_batch, "b", dims.input_feature, "f", dims.input_spatial)
    kernel = side(
        dims.kernel_input_feature, "i", dims.kernel_output_feature, "o", dims.kernel_spatial
    )
    return f"{given}_{kernel}->{side(dims.output_batch, 'b', dims.output_feature, 'f', dims.output_spatial)}"


def _braced(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _quoted(text: str) -> str:
    """A string in C's escapes, but for what is no ASCII."""
    return json.dumps(text, ensure_ascii=False)
