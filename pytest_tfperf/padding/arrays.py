"""The arrays of a step in a TPU's memory, and the cost of their padding, measured or predicted."""

from __future__ import annotations

from dataclasses import dataclass, field

LARGEST_SKIPPED = 4096
"""Padded bytes of one tile of 32-bit elements; arrays of this size or less are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One array."""

    name: str
    """Name of the array."""
    what: str
    """The opcode and the op that made it."""
    shape: str
    """Its shape with its layout."""
    padded_shape: str
    """Its shape rounded up to its tiles."""
    logical_bytes: int
    """Bytes of its data."""
    padded_bytes: int
    """Bytes in the likely layout."""
    upper_bytes: int
    """Bytes in the largest possible layout."""
    lower_bytes: int | None = None
    """Bytes in the smallest possible layout; None if they equal `padded_bytes`."""
    line: str | None = None
    """The user's source line."""
    advice: str = ""
    """A better size and its saving."""

    @property
    def waste(self) -> int:
        """Bytes of padding."""
        return self.padded_bytes - self.logical_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """The arrays of a step."""

    buffers: tuple[Buffer, ...]
    """The arrays that count."""
    source: str
    """`measured`, `estimated` or `predicted`."""
    generation: str
    """Name of the TPU's generation."""
    notes: tuple[str, ...] = field(default=())
    """Notes on the number."""

    @property
    def logical_bytes(self) -> int:
        """Bytes of all arrays without padding."""
        return sum(buffer.logical_bytes for buffer in self.buffers)

    @property
    def overhead(self) -> float | None:
        """Padded ÷ logical bytes − 1; None if there are no arrays."""
        return self._overhead(sum(buffer.padded_bytes for buffer in self.buffers))

    @property
    def low(self) -> float | None:
        """Lower bound of `overhead`."""
        sizes = [
            buffer.padded_bytes if buffer.lower_bytes is None else buffer.lower_bytes
            for buffer in self.buffers
        ]
        return self._overhead(sum(sizes))

    @property
    def high(self) -> float | None:
        """Upper bound of `overhead`."""
        return self._overhead(sum(buffer.upper_bytes for buffer in self.buffers))

    def worst(self, number: int = 5) -> tuple[Buffer, ...]:
        """Return the arrays that waste most bytes."""
        return tuple(
            sorted(
                (one for one in self.buffers if one.waste), key=lambda one: (-one.waste, one.name)
            )[:number]
        )

    def _overhead(self, padded: int) -> float | None:
        return padded / self.logical_bytes - 1 if self.logical_bytes else None
