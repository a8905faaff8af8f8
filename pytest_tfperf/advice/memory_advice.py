"""
Advise on memory: a device that is nearly full, free memory in small pieces, growth from step to
step.

Only what allocators and the timed window tell counts. A capacity or a growth that is unknown gives
no advice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.thresholds import Thresholds
from pytest_tfperf.quantities import BYTES, SHARE, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Advice

_ACCELERATORS = ("GPU", "TPU")
"""Starts of the names of allocators whose capacity is a device's memory."""
_GROWS = (
    "look for what keeps tensors from step to step: a list of losses, a cache, a tf.function or "
    "dataset made in each step"
)
_GROWS_IN_JAX = (
    "look for what keeps jax.Arrays from step to step: a list of losses, a cache, a jax.jit "
    "function made in each step"
)
_FULL = "a smaller batch, 16-bit types, or activations computed again (tf.recompute_grad)"
_FULL_IN_JAX = "a smaller batch, 16-bit types, or activations computed again (jax.checkpoint)"
_PIECES = (
    "TF_GPU_ALLOCATOR=cuda_malloc_async, or batches of one shape, so that freed memory fits again"
)
_PIECES_IN_JAX = "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async, or batches of one shape"
IN_JAX = {_GROWS: _GROWS_IN_JAX, _FULL: _FULL_IN_JAX, _PIECES: _PIECES_IN_JAX}
"""Advice in terms of JAX, by the same advice in terms of TensorFlow."""


def memory_advice(profile: Profile, thresholds: Thresholds) -> Iterable[Advice]:
    """Yield the advice on the memory that the steps hold."""
    table = profile.tables.get("memory")
    records = table.records() if table is not None else []
    for record in records:
        if str(record["allocator"]).startswith(_ACCELERATORS):
            yield from _on_device(record, thresholds)
    yield from _growth(profile, records)


def _on_device(record: dict[str, Any], thresholds: Thresholds) -> Iterable[Advice]:
    """Yield advice for an accelerator whose memory is nearly used up, if its capacity is known."""
    used, pieces = record.get("of_capacity"), record.get("fragmentation")
    if used is None:
        return
    held, capacity = (format_quantity(record[key], BYTES) for key in ("peak", "capacity"))
    because = f"{record['allocator']} holds {held} of {capacity} at its peak"
    if used >= thresholds.memory:
        yield _advice(_FULL, because)
    elif (
        pieces is not None
        and used >= thresholds.fragmented
        and used + (1 - used) * pieces >= thresholds.memory
    ):
        in_pieces = format_quantity(pieces, SHARE)
        yield _advice(_PIECES, f"{because}, and {in_pieces} of what is free is in smaller pieces")


def _growth(profile: Profile, records: list[dict[str, Any]]) -> Iterable[Advice]:
    """Yield advice for memory that grows, by the timed window's interval or the allocators'."""
    growth = profile.value("memory_growth")
    if growth.number is not None and growth.low() > 0:
        least = format_quantity(growth.low(), BYTES)
        yield _advice(_GROWS, f"the process holds at least {least} more after each step")
        return
    for record in records:
        if (record.get("growth") or 0.0) > 0:
            least = format_quantity(record["growth"], BYTES)
            yield _advice(_GROWS, f"{record['allocator']} holds at least {least} more a step")
            return


def _advice(what: str, because: str) -> Advice:
    return Advice(
        what=what, because=because, win_s=None, look="the table memory", read=guides.MEMORY
    )
