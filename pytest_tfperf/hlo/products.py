"""
The matrix multiplications and convolutions of XLA modules: sizes, types, and what is not needed.

GPU libraries' calls are read as the product or convolution that they stand for, as
xla/service/gpu/model/gpu_hlo_cost_analysis.cc does (openxla/xla). The names of these kernels are
those of the fusions, and tell nothing of their units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd, prod

from pytest_tfperf.hlo.module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
    source_line,
)
from pytest_tfperf.hlo.walk import is_convolution, is_kernel_gradient

Operands = tuple[HloInstruction, ...]
ConvolutionShapes = tuple[Shape, Shape, Shape]
"""Input, kernel and output of a convolution; of a library's gradient, those of the forward one."""
_GEMMS = ("__cublas$gemm", "__cublas$lt$matmul")
"""And __cublas$lt$matmul$f8: xla/service/gpu/cublas_cudnn.cc."""
_INPUT_GRADIENT = "__cudnn$convBackwardInput"
_KERNEL_GRADIENT = "__cudnn$convBackwardFilter"
_CONVOLUTIONS = {
    "__cudnn$convForward": (0, 1, 2),
    "__cudnn$convForwardGraph": (0, 1, 2),
    "__cudnn$convBiasActivationForward": (0, 1, 2),
    _INPUT_GRADIENT: (2, 1, 0),
    _KERNEL_GRADIENT: (0, 2, 1),
}
"""Places of the forward convolution's input, kernel and output: operands 0 and 1, the result 2."""
_OTHERS = re.compile(r"[^A-Za-z0-9_]")
_HALF, _SINGLE = 16, 32  # bits
_HIGHEST = 2  # xla_data.proto, PrecisionConfig.Precision
_IN_SINGLE = range(11, 13)  # ALG_DOT_F32_F32_F32 and ALG_DOT_F64_F64_F64 of its Algorithm
_MOST_NESTED = 16  # nested tuples
# a value: the computation, the instruction, and which part of its result
_Value = tuple[int, int, tuple[int, ...]]
_Callers = dict[int, list[tuple[HloComputation, HloInstruction]]]
_LONGEST_WINDOW = 1 << 20  # positions; far more than a model's window has


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionWindows:
    """The windows of a convolution, which factor the rows and the depth of its multiplication."""

    examples: int
    """Images of the batch."""
    positions: int
    """Positions of the window in the result; rows are examples × positions."""
    own_positions: int
    """Positions that meet elements of a dilated input, else `positions`."""
    taps: int
    """Elements of the kernel that belong to one channel; depth is channels × taps."""
    channels_in: int
    """Input features."""
    channels_out: int
    """Output features."""
    is_kernel_gradient: bool
    """True for a convolution that computes the gradient of a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """A matrix multiplication: rows × depth by depth × columns, `batch` times."""

    rows: int
    """Rows of the left operand and the result."""
    columns: int
    """Columns of the right operand and the result."""
    depth: int
    """Contracted size."""
    batch: int = 1
    """Number of independent products."""
    windows: ConvolutionWindows | None = None
    """The windows of a convolution; None for one without spatial dimensions, which has none."""

    @property
    def flops(self) -> int:
        """FLOPs, two for each multiply-add."""
        return 2 * self.batch * self.rows * self.columns * self.depth

    @property
    def aligned_sizes(self) -> tuple[tuple[str, int], ...]:
        """The sizes to align, by name: of a convolution only its channels."""
        if self.windows:
            channels = self.windows.channels_in, self.windows.channels_out
            return ("channels in", channels[0]), ("channels out", channels[1])
        return ("rows", self.rows), ("columns", self.columns), ("depth", self.depth)


def matmul_of(op: HloInstruction, operands: Operands) -> Matmul | None:
    """
    Read an instruction as a matrix multiplication; None if it is not one.

    The groups of a grouped convolution are ignored.
    """
    dot = op.dot if op.opcode in ("dot", "scaled-dot") else library_dot(op)
    if dot is not None:
        return _multiplied(dot, operands[0].shape.dimensions, operands[1].shape.dimensions)
    shapes = convolution_shapes(op, operands)
    if shapes is None or op.convolution is None:
        return None
    if op.opcode == "custom-call":
        return _by_library(op, op.convolution, *(shape.dimensions for shape in shapes))
    return _convolved(op, op.convolution, *(shape.dimensions for shape in shapes))


def convolution_shapes(op: HloInstruction, operands: Operands) -> ConvolutionShapes | None:
    """Return input, kernel and output of a convolution or a cuDNN call; None for other ops."""
    places = (0, 1, 2) if op.opcode == "convolution" else _CONVOLUTIONS.get(op.custom_call_target)
    if places is None:
        return None
    result = next(op.shape.arrays(), op.shape)  # a library's call returns scratch memory as well
    shapes = (operands[0].shape, operands[1].shape, result)
    data, kernel, output = (shapes[place] for place in places)
    return data, kernel, output


def library_dot(op: HloInstruction) -> DotDimensions | None:
    """
    Return the dimensions that a cuBLAS call multiplies; None for other ops.

    Source: GemmBackendConfig.dot_dimension_numbers (xla/service/gpu/backend_configs.proto). Older
    versions of XLA write it without the message around it.
    """
    if not op.custom_call_target.startswith(_GEMMS):
        return None
    config = op.config
    inner = config.get("gemm_backend_config", config)
    numbers = inner.get("dot_dimension_numbers") if isinstance(inner, dict) else None
    if not isinstance(numbers, dict):
        return None
    keys = [
        f"{operand}_{kind}_dimensions"
        for kind in ("contracting", "batch")
        for operand in ("lhs", "rhs")
    ]
    return DotDimensions(*(tuple(int(number) for number in numbers.get(key, ())) for key in keys))


def _multiplied(dot: DotDimensions, lhs: Sequence[int], rhs: Sequence[int]) -> Matmul:
    def free(sizes: Sequence[int], used: Sequence[int]) -> int:
        return prod(size for number, size in enumerate(sizes) if number not in used)

    return Matmul(
        rows=free(lhs, dot.lhs_batch + dot.lhs_contracting),
        columns=free(rhs, dot.rhs_batch + dot.rhs_contracting),
        depth=prod(lhs[number] for number in dot.lhs_contracting),
        batch=prod(lhs[number] for number in dot.lhs_batch),
    )


def _convolved(
    op: HloInstruction,
    dims: ConvolutionDimensions,
    data: Sequence[int],
    kernel: Sequence[int],
    output: Sequence[int],
) -> Matmul:
    """
    Read XLA's own convolution: a row for each window, the kernel as columns.

    In the gradient of a kernel HLO calls the input's channels batch (`f01b_i01o->01bf`). Where the
    input is dilated, as in the gradient of a strided convolution, zeros lie between its elements.
    """
    gradient = is_convolution(op) and is_kernel_gradient(op)
    examples, columns = output[dims.output_batch], output[dims.output_feature]
    depth = kernel[dims.kernel_input_feature]
    positions = prod(output[number] for number in dims.output_spatial)
    taps = prod(kernel[number] for number in dims.kernel_spatial)
    dilated = any(window.base_dilation > 1 for window in op.window)
    windows = ConvolutionWindows(
        examples=examples,
        positions=positions,
        own_positions=prod(data[number] for number in dims.input_spatial) if dilated else positions,
        taps=taps,
        channels_in=data[dims.input_batch] if gradient else depth,
        channels_out=columns,
        is_kernel_gradient=gradient,
    )
    return Matmul(
        rows=examples * positions,
        columns=columns,
        depth=depth * taps,
        windows=windows if dims.input_spatial else None,
    )


def _by_library(
    op: HloInstruction,
    dims: ConvolutionDimensions,
    data: Sequence[int],
    kernel: Sequence[int],
    output: Sequence[int],
) -> Matmul:
    """Read cuDNN's convolution, whose labels and shapes are those of the forward convolution."""
    channels, features = kernel[dims.kernel_input_feature], kernel[dims.kernel_output_feature]
    taps = prod(kernel[number] for number in dims.kernel_spatial)
    positions = prod(output[number] for number in dims.output_spatial)
    examples = output[dims.output_batch]
    rows, columns, depth = examples * positions, features, taps * channels
    if op.custom_call_target == _KERNEL_GRADIENT:
        rows, depth = depth, rows
    elif op.custom_call_target == _INPUT_GRADIENT:
        examples = data[dims.input_batch]
        positions = prod(data[number] for number in dims.input_spatial)
        rows, columns, depth = examples * positions, channels, taps * features
    windows = ConvolutionWindows(
        examples=examples,
        positions=positions,
        own_positions=positions,
        taps=taps,
        channels_in=channels,
        channels_out=features,
        is_kernel_gradient=op.custom_call_target == _KERNEL_GRADIENT,
    )
    return Matmul(rows=rows, columns=columns, depth=depth, windows=windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A matrix multiplication or a convolution of a module, also in a fusion, a loop or a call."""

    op: str
    """Name of the framework's op, else of the instruction."""
    matmul: Matmul
    """Its sizes."""
    dtype: str = ""
    """Type of the first operand, as in HLO text."""
    line: str = ""
    """The user's source line, empty if the module does not name it."""
    flops: int = 0
    """FLOPs of one run; of a convolution only those with elements of its input."""
    half: bool | None = False
    """True if its operands have 16 bits or fewer; None if the module does not tell."""
    tensor_cores: bool = False
    """True if it can run on tensor cores; float32 as TF32, unless more precision is asked for."""
    by_library: bool = False
    """True for a call of a GPU's library."""
    grouped: bool = False
    """True for a grouped convolution."""
    fusion: str = field(default="", compare=False)
    """Name of the fusion that computes it, if one does."""
    runs: float = field(default=1.0, compare=False)
    """Number of its runs, in one of the module or in a step."""


def products_of(module: HloModule) -> dict[tuple[int, int], Product]:
    """Return the products of a module by the ids of computation and instruction, as if run once."""
    parts, hidden = module.computations.values(), hides_types(module)
    ops = [(part, op) for part in parts for op in part.instructions.values()]
    fusions = {key: op.name for _, op in ops if op.opcode == "fusion" for key in op.called}
    found = {}
    for part, op in ops:
        operands = part.operands(op)
        matmul, shapes = matmul_of(op, operands), convolution_shapes(op, operands)
        if matmul is None:
            continue
        flops = matmul.flops
        if shapes and op.convolution:
            flops = _convolution_flops(op, op.convolution, *shapes)
        bits = [operand.shape.bits for operand in operands]
        half = all(0 < one <= _HALF for one in bits[:2])
        found[part.id, op.id] = Product(
            op=op.op_name or op.name,
            matmul=matmul,
            dtype=operands[0].shape.dtype,
            line=source_line(op) or "",
            flops=flops,
            half=half or (None if hidden else False),
            tensor_cores=half or (max(bits) <= _SINGLE and _is_fast(op)),
            by_library=op.opcode == "custom-call",
            grouped=max(op.feature_groups, op.batch_groups) > 1,
            fusion=fusions.get(part.id, ""),
        )
    return found


def _convolution_flops(
    op: HloInstruction, d: ConvolutionDimensions, data: Shape, kernel: Shape, output: Shape
) -> int:
    """
    Count the multiply-adds with elements of the input, times two.

    Positions in the padding and in the holes of a dilated input are not computed.
    """
    spatial = zip(op.window, d.input_spatial, d.kernel_spatial, d.output_spatial, strict=True)
    taps = prod(
        _taps(w, data.dimensions[i], kernel.dimensions[k], output.dimensions[o])
        for w, i, k, o in spatial
    )
    features = (
        data.dimensions[d.input_feature] // op.feature_groups * output.dimensions[d.output_feature]
    )
    return 2 * taps * features * (data.dimensions[d.input_batch] // op.batch_groups)


@lru_cache(maxsize=4096)
def _taps(window: WindowDimension, n_input: int, n_kernel: int, n_output: int) -> int:
    """
    Count the pairs of a kernel and an output position, along one dimension, that meet an element.

    Output o and kernel k meet place o × stride + k × window dilation − padding. An element lies at
    each multiple of the base dilation. For each position of the shorter of kernel and output, the
    matching positions of the longer one are counted; they solve a congruence.
    """
    (n_few, few), (n_many, many) = sorted(
        [(n_kernel, window.window_dilation), (n_output, window.stride)]
    )
    if n_few > _LONGEST_WINDOW:
        raise ValueError(f"a window of {n_few} positions")
    shared = gcd(many, window.base_dilation)
    period = window.base_dilation // shared
    inverse = pow(many // shared, -1, period)
    total = 0
    for position in range(n_few):
        place = position * few - window.padding_low
        low = max(0, -(place // many))
        high = min(n_many - 1, ((n_input - 1) * window.base_dilation - place) // many)
        if place % shared == 0 and low <= high:
            first = -place // shared * inverse % period
            total += (high - first) // period - (low - 1 - first) // period
    return total


def product_units(programs: Mapping[str, Iterable[Product]]) -> dict[tuple[str, str], bool]:
    """
    Return whether the products of fusions can run on tensor cores, by program and kernel.

    A program has its name with and without `(program id)`, and the empty one for kernels of unknown
    programs, as of XLA's autotuning. An entry stands for programs that agree.
    """
    found: dict[tuple[str, str], set[bool]] = {}
    for program, products in programs.items():
        fusions: dict[str, list[Product]] = {}
        for one in products:
            fusions.setdefault(one.fusion, []).append(one)
        for name, inside in fusions.items():
            can = all(one.tensor_cores for one in inside)
            for title in (program, program.partition("(")[0], "") if name else ():
                found.setdefault((title, kernel_of(name)), set()).add(can)
    return {key: can.pop() for key, can in found.items() if len(can) == 1}


def kernel_of(instruction: str) -> str:
    """
    Return the name of the kernel that XLA generates for an instruction.

    Underscores stand for characters that an identifier lacks (llvm_ir::SanitizeFunctionName).
    """
    return _OTHERS.sub("_", instruction)


def _is_fast(op: HloInstruction) -> bool:
    precision, algorithm = op.precision
    return algorithm not in _IN_SINGLE if algorithm else precision < _HIGHEST


def hides_types(module: HloModule) -> bool:
    """
    Return whether a CPU's compiler may have widened the 16-bit products of a module.

    A CPU has no 16-bit units: XLA turns a bfloat16 dot into a float32 dot of converted operands
    (xla/service/cpu/cpu_compiler.cc, float normalization; openxla/xla). A TPU's layouts have tiles;
    a GPU's modules have calls and configurations of its own.
    """
    if not module.scheduled:
        return False
    ops = [op for part in module.computations.values() for op in part.instructions.values()]
    arrays = [array for op in ops for array in op.shape.arrays()]
    on_gpu = any(
        op.custom_call_target.startswith("__cu") or '"operation_queue_id"' in op.backend_config
        for op in ops
    )
    return (
        not on_gpu
        and not any(array.tiles for array in arrays)
        and any(_is_float(array.dtype) and array.bits <= _HALF for array in arrays)
    )


def cast_before(module: HloModule, name: str) -> str:
    """
    Return the name of the program's cast from 16 bits that made a product's operands wide.

    Of several it is the farthest from the product: what comes later is wide since that one. Empty
    if nothing before the product was cast, as where the arguments are wide.
    """
    ops = [(part, op) for part in module.computations.values() for op in part.instructions.values()]
    callers: _Callers = {}
    for part, op in ops:
        for key in dict.fromkeys(op.called):
            callers.setdefault(key, []).append((part, op))
    part, product = next((part, op) for part, op in ops if op.name == name)
    values: list[_Value] = [(part.id, key, ()) for key in product.operands]
    seen, cast = set(values), ""
    for key, number, path in values:  # breadth first
        part = module.computations[key]
        op = part.instructions[number]
        if op.shape.dtype != "tuple" and not (_is_float(op.shape.dtype) and op.shape.bits > _HALF):
            continue
        if op.opcode == "convert":
            narrow = part.operands(op)[0].shape
            if _is_float(narrow.dtype) and narrow.bits <= _HALF:
                # else a product's, of its narrower operand
                cast = op.name if _is_cast(op) else cast
                continue
        before = _before(module, callers, part, op, path)
        new = [one for one in before if one not in seen and len(one[2]) <= _MOST_NESTED]
        seen.update(new)
        values += new
    return cast


def _before(
    module: HloModule,
    callers: _Callers,
    part: HloComputation,
    op: HloInstruction,
    path: tuple[int, ...],
) -> list[_Value]:
    """Return the values that a part of an instruction's result is made of."""
    if op.opcode == "get-tuple-element":
        return [(part.id, op.operands[0], (op.tuple_index, *path))]
    if op.opcode == "tuple" and path:
        return [(part.id, op.operands[path[0]], path[1:])]
    if op.opcode == "opt-barrier":
        return [(part.id, op.operands[0], path)]
    if op.opcode in ("fusion", "call", "while"):
        inside = (op.called[0], module.computations[op.called[0]].root_id, path)
        return [inside, (part.id, op.operands[0], path)] if op.opcode == "while" else [inside]
    if op.opcode == "parameter":
        return [
            (caller.id, key, path)
            for caller, call in callers.get(part.id, ())
            for key in _argument(call, part.id, op.parameter_number)
        ]
    return [(part.id, key, ()) for key in op.operands]


def _argument(call: HloInstruction, computation: int, number: int) -> tuple[int, ...]:
    """Return the operands of a call that a parameter of the called computation may hold."""
    if call.opcode in ("fusion", "call"):
        return call.operands[number : number + 1]
    if call.opcode == "while":
        return (call.id,)  # the state also comes from the loop's body
    if call.opcode == "conditional":
        return tuple(
            call.operands[1 + branch]
            for branch, key in enumerate(call.called)
            if key == computation
        )
    return ()


def _is_cast(op: HloInstruction) -> bool:
    """Return whether a conversion is TensorFlow's Cast or JAX's convert_element_type."""
    return op.op_type == "Cast" or op.op_name.endswith("convert_element_type")


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))
