"""
keras-team/keras#13508, #17118: the device waits for a `PyDataset` that makes its batches one by one.

Cause: `__getitem__` augments each row in Python, 35 ms a batch, and `workers=1`.
Remedy: less work in `__getitem__` (NumPy on the whole batch). By hand: 35 to 70 ms a step, against 0.2 to 1 ms.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)(Rows|PyDataset|__getitem__).*|keras_jax_pydataset\.py:\d+",
    "try": r"(?i)__getitem__|workers|tf\.data|input",
    "never": r"(?i)larger batch|jit_compile|outside jax\.jit|eager",
}
ROWS = np.random.default_rng(0).normal(size=(1280, 64)).astype("float32")


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return len(ROWS) // 64

    def __getitem__(self, index):
        rows = ROWS[index * 64 : index * 64 + 64]
        noisy = [
            [float(value) * 1.01 + 0.01 * (at % 3) for at, value in enumerate(row)]
            for row in rows
            for _ in range(60)
        ]
        rows = np.array(noisy[::60], "float32")
        return rows, rows[:, :1]


class WholeRows(Rows):
    def __getitem__(self, index):
        rows = ROWS[index * 64 : index * 64 + 64] * 1.01 + 0.01 * (
            np.arange(64, dtype="float32") % 3
        )
        return rows, rows[:, :1]


def model():
    made = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)]
    )
    made.compile("adam", "mse")
    return made


@pytest.mark.tfperf(max_step_time="7 ms")
def test_broken(tf_profile):
    tf_profile.fit(model(), Rows(), epochs=20, verbose=0)


@pytest.mark.tfperf(max_step_time="7 ms")
def test_fixed(tf_profile):
    tf_profile.fit(model(), WholeRows(), epochs=20, verbose=0)
