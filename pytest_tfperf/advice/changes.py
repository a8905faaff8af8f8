"""Changes as users type them: the words that advice has in common with remedies that are tried."""

from __future__ import annotations

PARALLEL = "num_parallel_calls=tf.data.AUTOTUNE"
PREFETCH = "prefetch(tf.data.AUTOTUNE)"
CHANGES = (
    PARALLEL,
    PREFETCH,
    "cache()",
    "deterministic",
    "tf.function",
    "jit_compile=True",
    "jax.jit",
    "steps_per_execution",
)
"""Each stands in the name of a remedy (`remedies`) and in the advice on the same change."""


def changes_in(text: str) -> frozenset[str]:
    """Return the changes that a text names."""
    return frozenset(change for change in CHANGES if change in text)
