"""
Hold the step time of `tf_profile.fit` on Keras' JAX backend against the same loop without a profiler.

    python benchmarks/jax_fit.py [--pairs 8]

Each pair is two processes: one times the batches of `fit` by a callback that synchronises nothing, the other profiles `fit`. Two
processes of the same code differ for as long as they live, so the ratio is the median over pairs. It prints each pair.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
WARM_UP = 40


def network_and_data():
    import keras
    import numpy as np

    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return (
        model,
        np.random.default_rng(0).random((4096, 28, 28, 1), "float32"),
        np.arange(4096) % 10,
    )


def plain():
    """Seconds of a batch in a loop that only Keras runs: the mean behind the warm-up."""
    import keras

    ends = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            ends.append(time.perf_counter())

    model, x, y = network_and_data()
    model.fit(x, y, batch_size=128, epochs=6, verbose=0, callbacks=[Clock()])
    gaps = [
        after - before for before, after in zip(ends[WARM_UP:], ends[WARM_UP + 1 :], strict=False)
    ]
    return statistics.median(gaps)


def profiled():
    """The step_time of the same loop."""
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.plugin.options import Options
    from pytest_tfperf.plugin.profiled_item import ProfiledItem
    from pytest_tfperf.plugin.registry import Registry

    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    model, x, y = network_and_data()
    found = profiler.fit(model, x, y, batch_size=128, epochs=6, verbose=0)
    profiler.close()
    return found.step_time


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--child", choices=["plain", "profiled"])
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps({"plain": plain, "profiled": profiled}[arguments.child]()))
        return
    ratios = []
    for pair in range(arguments.pairs):
        order = ("plain", "profiled") if pair % 2 else ("profiled", "plain")
        seconds = {
            kind: json.loads(
                subprocess.run(
                    [sys.executable, __file__, "--child", kind],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.splitlines()[-1]
            )
            for kind in order
        }
        ratios.append(seconds["profiled"] / seconds["plain"])
        print(
            f"{1e3 * seconds['plain']:.2f} ms plain, {1e3 * seconds['profiled']:.2f} ms profiled: {ratios[-1]:.3f}"
        )
    print(
        f"median of {len(ratios)} pairs: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    )


if __name__ == "__main__":
    main()
