"""
Sizes of matrix multiplications and convolutions that do not suit a GPU's tensor cores.

Sources: NVIDIA, Matrix Multiplication Background User's Guide (alignment, tile and wave
quantization) and Convolutional Layers User's Guide. The rules concern time on tensor cores, not
memory: a GPU does not pad arrays. Tiles and waves are a model; the library chooses its tile and may
split the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_tfperf.hlo.products import Matmul, Product
from pytest_tfperf.quantities import COUNT, FLOP, RATIO, format_quantity
from pytest_tfperf.text import plural
from pytest_tfperf.tpu.tiles import good_size
from pytest_tfperf.trace.devices import gpus
from pytest_tfperf.trace.events import plane_stats
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Advice, Column, Table

TILES = ((256, 128), (128, 128), (64, 64))
"""Rows and columns of the result that one thread block computes.

They are the largest, the usual and a small tile of cuBLAS.
"""

SMS = {"A100": 108, "H100 SXM": 132}

_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
_ALWAYS_GOOD_BITS, _BEST_BITS = 16 * 8, 128 * 8
_FIRST_WITH_CORES, _FIRST_WITH_TF32, _HALF = 7, 8, 16
_LITTLE = 16  # a size may change by a sixteenth for the best alignment


def on_tensor_cores(products: Iterable[Product]) -> list[Product]:
    """
    Return the products without grouped convolutions, products with a vector, and types that no
    tensor core multiplies.
    """
    return [
        one
        for one in products
        if not one.grouped
        and min(one.matmul.rows, one.matmul.columns) > 1
        and one.matmul.flops
        and bits(one.dtype)
    ]


def bits(dtype: str) -> int:
    """
    Return the bits of a type that tensor cores multiply, 0 for other types.

    Float32 is multiplied as TF32, which takes as many bytes.
    """
    return 8 if dtype in ("s8", "u8") or dtype.startswith("f8e") else _BITS.get(dtype, 0)


def always_good(dtype: str) -> int:
    """
    Return the elements in 16 bytes.

    Multiples of it reach the full rate of tensor cores on every generation so far.
    """
    return max(1, _ALWAYS_GOOD_BITS // bits(dtype))


def best(dtype: str) -> int:
    """Return the elements in 128 bytes, the best alignment on A100 and later."""
    return max(1, _BEST_BITS // bits(dtype))


def aligned_size(size: int, dtype: str) -> int:
    """
    Return the nearest good size: of 128 bytes if it changes by at most a sixteenth, else of 16.

    >>> aligned_size(50257, "bf16"), aligned_size(100, "f16"), aligned_size(30522, "f16")
    (50304, 104, 30528)
    """
    close = good_size(size, best(dtype))
    return close if abs(close - size) * _LITTLE <= size else good_size(size, always_good(dtype))


def tile_overhead(rows: int, columns: int, tile: tuple[int, int]) -> float:
    """Compute the computed ÷ wanted elements of the result − 1 if whole tiles are computed."""
    return _ceil(rows, tile[0]) * tile[0] * _ceil(columns, tile[1]) * tile[1] / (rows * columns) - 1


def tiles_of(rows: int, columns: int, tile: tuple[int, int]) -> int:
    """Count the tiles that cover a result."""
    return _ceil(rows, tile[0]) * _ceil(columns, tile[1])


def wave_overhead(tiles: int, sms: int) -> float:
    """Compute the tiles of whole waves ÷ tiles − 1: idle multiprocessors in the last wave."""
    return _ceil(tiles, sms) * sms / tiles - 1


def misaligned(product: Product) -> tuple[tuple[str, int, int], ...]:
    """Return the sizes that are not multiples of 16 bytes: name, size and the nearest good size."""
    step = always_good(product.dtype)
    return tuple(
        (name, size, aligned_size(size, product.dtype))
        for name, size in product.matmul.aligned_sizes
        if size % step
    )


def gpu_alignment(
    trace: Trace, products: Iterable[Product]
) -> tuple[Table | None, tuple[Advice, ...]]:
    """
    Make the table and the advice for the products that the GPUs of a trace ran.

    Both are empty without an NVIDIA GPU that has tensor cores. GPUs before compute capability 8.0
    have none for float32 and float64.
    """
    stats = [plane_stats(plane) for plane in gpus(trace)]
    nvidia = next(
        (
            found
            for found in stats
            if found.get("compute_cap_major") and found.get("device_vendor") != "AMD"
        ),
        None,
    )
    if nvidia is None or _number(nvidia, "compute_cap_major") < _FIRST_WITH_CORES:
        return None, ()
    narrow_only = _number(nvidia, "compute_cap_major") < _FIRST_WITH_TF32
    found = on_tensor_cores(products)
    found = [one for one in found if not narrow_only or bits(one.dtype) <= _HALF]
    return alignment_table(found, _number(nvidia, "core_count") or None), alignment_advice(found)


def alignment_table(products: Iterable[Product], sms: int | None = None) -> Table | None:
    """
    Make a table of the distinct products, those with most FLOPs first; None if there are none.

    The overhead is that of the best and of the worst tile. Waves are shown if there is a whole one,
    of A100 and H100 if the number of multiprocessors is not known.
    """
    times: dict[Product, float] = {}
    for one in products:
        times[one] = times.get(one, 0) + one.runs
    if not times:
        return None
    gpus = {"": sms} if sms else SMS
    return Table.of_each(
        "GPU alignment (by NVIDIA's rules)",
        sorted(times, key=lambda one: (-one.matmul.flops * times[one], one.op)),
        [
            (Column("op", "op"), lambda one: one.op),
            (Column("size", "rows × columns × depth"), lambda one: _sizes(one.matmul)),
            (Column("type", "type"), lambda one: one.dtype),
            (
                Column("not_aligned", "not aligned"),
                lambda one: ", ".join(f"{name} {size}" for name, size, _ in misaligned(one)),
            ),
            (
                Column("good_size", "good size"),
                lambda one: ", ".join(f"{size} → {good}" for _, size, good in misaligned(one)),
            ),
            (
                Column("alignment_overhead", "alignment_overhead", RATIO),
                lambda one: min(_overheads(one.matmul)),
            ),
            (Column("at_most", "at most", RATIO), lambda one: max(_overheads(one.matmul))),
            (Column("wave_overhead", "wave overhead"), lambda one: _waves(one.matmul, gpus)),
            (Column("flops", "FLOPs", FLOP), lambda one: one.matmul.flops),
            (Column("times", "times", COUNT), times.get),
            (Column("line", "line"), lambda one: one.line or None),
        ],
    )


def alignment_advice(products: Sequence[Product]) -> tuple[Advice, ...]:
    """Advise a better size for the misaligned product with most FLOPs."""
    worst = max(
        filter(misaligned, products),
        key=lambda one: one.matmul.flops,
        default=None,
    )
    if worst is None:
        return ()
    changes = ", ".join(f"{name} {size} → {good}" for name, size, good in misaligned(worst))
    n_others = len(set(filter(misaligned, products))) - 1
    more = f"; {plural(n_others, 'more such product')}" if n_others else ""
    because = (
        f"{worst.op} multiplies {_sizes(worst.matmul)} in {worst.dtype}, for which tensor cores"
        f" need multiples of {always_good(worst.dtype)}{more}"
    )
    what = f"make sizes multiples of 16 bytes for the tensor cores: {changes}"
    return (Advice(what=what, because=because, win_s=None, look="the table GPU alignment"),)


def _overheads(matmul: Matmul) -> list[float]:
    return [tile_overhead(matmul.rows, matmul.columns, tile) for tile in TILES]


def _sizes(matmul: Matmul) -> str:
    return f"{matmul.rows} × {matmul.columns} × {matmul.depth}"


def _waves(matmul: Matmul, gpus: dict[str, int]) -> str:
    """Write the range of wave overheads over the tiles, for each GPU that a product fills."""
    ranges = []
    for name, sms in gpus.items():
        counts = [matmul.batch * tiles_of(matmul.rows, matmul.columns, tile) for tile in TILES]
        found = [wave_overhead(count, sms) for count in counts if count >= sms]
        if found:
            low, high = (format_quantity(end, RATIO) for end in (min(found), max(found)))
            ranges.append(f"{name} {low}" + (f" to {high}" if high != low else ""))
    return ", ".join(ranges).strip()


def _number(stats: Mapping[str, object], name: str) -> int:
    """Read a whole number from a stat, which some profilers write as text; 0 if there is none."""
    text = str(stats.get(name, ""))
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _ceil(number: int, step: int) -> int:
    return -(-number // step)
