"""
The generations of TPUs: tiles and matrix units.

Sources: jax, tpu_info.get_sublane_tiling (sublanes); openxla.org/xla/tiled_layout (small tiles);
the system architecture pages of cloud.google.com/tpu (widths of the matrix unit).
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.errors import LimitError
from pytest_tfperf.metric_registry import nearest

LANES, SUBLANES = 128, 8
_LONGEST_TILE = 1024
DEFAULT = "v5e"


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs."""

    name: str
    """Name, such as v5e."""
    least_rows: int
    """Fewest rows of a tile of 32-bit elements."""
    rows_of_16_bits: int
    """Most rows of a tile of 16-bit elements."""
    narrow_rows: bool
    """True if narrower elements have tiles of more than 8 rows."""
    matrix_width: int
    """Rows and columns of the matrix unit."""

    def tile(self, bits: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """
        Return the first tile of an array.

        Args:
            bits: Bits of an element.
            sizes: The array's sizes, the fastest first.
        """
        packed = max(1, 32 // bits)  # an element of 64 bits takes two of 32
        least = self.least_rows * packed
        if len(sizes) < 2:
            return (
                min(_LONGEST_TILE, max(_power_of_two(sizes[0] if sizes else 1), least * LANES)),
            )
        return min(self._most_rows(bits), max(_power_of_two(sizes[1]), least)), LANES

    def _most_rows(self, bits: int) -> int:
        if bits == 16:
            return self.rows_of_16_bits
        return SUBLANES * 32 // bits if bits < 16 and self.narrow_rows else SUBLANES


_GENERATIONS = {
    found.name: found
    for found in (
        Generation("v2", 2, 8, False, 128),
        Generation("v3", 2, 8, False, 128),
        Generation("v4", 1, 8, True, 128),
        Generation("v5e", 1, 8, True, 128),
        Generation("v5p", 1, 8, True, 128),
        Generation("v6e", 1, 8, True, 256),
        Generation("v7x", 1, 16, True, 256),
    )
}


def generation(name: str) -> Generation:
    """
    Return the generation of a name: v2, v3, v4, v5e, v5p, v6e or v7x.

    Raises:
        LimitError: If it does not exist.
    """
    if name not in _GENERATIONS:
        raise LimitError(f"{name!r} is not a TPU generation; {nearest(name, _GENERATIONS)}")
    return _GENERATIONS[name]


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()
