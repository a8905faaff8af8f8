"""Name what takes the time between two epochs: callbacks, validation, or a new iterator."""

from __future__ import annotations

import statistics
from typing import Any

from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import BetweenEpochs, Recording

_ALONE, _BESIDE, _MOST_NAMED = 0.15, 0.1, 3  # of the gap: the largest cause, and others
_ONE_ITER = (
    "repeat() the dataset, before a strategy distributes it, so that one iter() serves all epochs"
)
_VALIDATION = (
    "validate in every n-th epoch (validation_freq=n), on fewer batches (validation_steps=n) or in "
    "larger ones, or make epochs longer (steps_per_epoch=)"
)
_KERAS = {
    "ModelCheckpoint": "save less: save_best_only=True, save_weights_only=True, or save_freq=n "
    "batches, more than an epoch has",
    "BackupAndRestore": "back up less often: save_freq=n batches, more than an epoch has",
    "TensorBoard": "write less: histogram_freq=0 or every n-th epoch, write_images=False, "
    "embeddings_freq=0",
}
"""Remedies of Keras' own callbacks (keras/src/callbacks, as of 3.15)."""


def gap_cause(recording: Recording, gap_s: float) -> dict[str, Any]:
    """Return `where` and `try` for a median gap, and the share of it that `where` accounts for."""
    if 2 * sum(recording.epoch_iters_s) > sum(recording.epoch_gaps_s):
        seconds = statistics.median(recording.epoch_iters_s)
        return {
            "iter_s": seconds,
            "where": "freeing the iterator of an epoch and iter() of the data take "
            f"{format_quantity(seconds, SECONDS)} of it",
            "try": _ONE_ITER,
        }
    medians = {what: statistics.median(each) for what, each in recording.epoch_work_s.items()}
    ordered = sorted(medians.items(), key=lambda item: -item[1])
    if not ordered or ordered[0][1] < _ALONE * gap_s:
        return {}
    named = [(what, s) for what, s in ordered[:_MOST_NAMED] if s >= _BESIDE * gap_s]
    share = min(sum(seconds for _, seconds in named) / gap_s, 1.0)
    taken = [
        f"{_titled(what)} takes {format_quantity(seconds, SECONDS)}" for what, seconds in named
    ]
    return {
        "accounted": share,
        "where": f"{', '.join(taken)}: {format_quantity(share, SHARE)} of it",
        "try": "; ".join(dict.fromkeys(_remedy(what) for what, _ in named)),
    }


def _titled(what: BetweenEpochs) -> str:
    if not what.callback:
        return "validation"
    return f"Keras callback {what.callback}" + (f" at {what.line}" if what.line else "")


def _remedy(what: BetweenEpochs) -> str:
    if not what.callback:
        return _VALIDATION
    general = (
        f"let the callback {what.callback.partition('.')[0]} work less often, in every n-th epoch, "
        "or let a metric of the model (compile(metrics=...)) compute it in the steps"
    )
    return _KERAS.get(what.kind, general)
