"""The arrays of a step that a TPU keeps in memory, and what their padding costs; measured and predicted alike."""

from __future__ import annotations

from dataclasses import dataclass, field

LARGEST_SKIPPED = 4096
"""Padded bytes of an array that takes no more than one tile of 32 bits; such arrays say nothing of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """
    One array: its name, the `what` that made it (opcode, operation), its shape as it is and as it is padded, and their bytes.

    `line` is the user's source line; where the layout is not certain `upper_bytes` is what it takes at most, and `lower_bytes` at
    least, if that is below `padded_bytes`. `advice` is a better size and what it saves.
    """

    name: str
    what: str
    shape: str
    padded_shape: str
    logical_bytes: int
    padded_bytes: int
    upper_bytes: int
    lower_bytes: int | None = None
    line: str | None = None
    advice: str = ""

    @property
    def waste(self) -> int:
        """Bytes of padding."""
        return self.padded_bytes - self.logical_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """The arrays of a step; `source` is measured, estimated or predicted, `generation` that of the TPU."""

    buffers: tuple[Buffer, ...]
    source: str
    generation: str
    notes: tuple[str, ...] = field(default=())

    @property
    def logical_bytes(self) -> int:
        """Bytes of all arrays without padding."""
        return sum(buffer.logical_bytes for buffer in self.buffers)

    @property
    def overhead(self) -> float | None:
        """Padded ÷ logical bytes − 1; None if there is no array."""
        return self._overhead(sum(buffer.padded_bytes for buffer in self.buffers))

    @property
    def low(self) -> float | None:
        """The same at least."""
        sizes = [
            buffer.padded_bytes if buffer.lower_bytes is None else buffer.lower_bytes
            for buffer in self.buffers
        ]
        return self._overhead(sum(sizes))

    @property
    def high(self) -> float | None:
        """The same at most."""
        return self._overhead(sum(buffer.upper_bytes for buffer in self.buffers))

    def worst(self, number: int = 5) -> tuple[Buffer, ...]:
        """The arrays that waste most bytes."""
        return tuple(
            sorted(
                (one for one in self.buffers if one.waste), key=lambda one: (-one.waste, one.name)
            )[:number]
        )

    def _overhead(self, padded: int) -> float | None:
        return padded / self.logical_bytes - 1 if self.logical_bytes else None
