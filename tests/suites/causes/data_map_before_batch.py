"""
tensorflow/tensorflow#18784: reading CSV lines is slow, although a core is free.

Cause: `map(parse)` runs for each of 1,024 lines of a batch, and each call costs more than the parsing.
Remedy: `batch` first, then parse a whole batch in a call. By hand: 30 to 60 ms a batch, against 4 ms.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)map.*(parse|1,?024|data_map_before_batch\.py:\d+)",
    "try": r"(?i)batch.{0,20}(first|before)|(whole|of) batch|before.*map|vectori[sz]",
    "never": r"(?i)replace the Python function|larger batch",
}
COLUMNS = 20
WEIGHTS = tf.Variable(tf.random.normal((COLUMNS, 8)))
SQUARE = tf.Variable(tf.random.normal((256, 256)) / 256)


def parse(line):
    return tf.stack(tf.io.decode_csv(line, [[0.0]] * COLUMNS), -1)


@tf.function
def step(rows):
    square = SQUARE + tf.reduce_mean(rows @ WEIGHTS)
    for _ in range(6):
        square = tf.tanh(square @ SQUARE)
    return tf.reduce_mean(square)


def lines(folder):
    path = folder / "rows.csv"
    path.write_text((",".join(f"{number}.5" for number in range(COLUMNS)) + "\n") * 20_480)
    return tf.data.TextLineDataset(str(path)).repeat()


@pytest.mark.tfperf(max_input_bound="40%")
def test_broken(tf_profile, tmp_path):
    tf_profile(step, lines(tmp_path).map(parse, name="parse").batch(1024).prefetch(2))


@pytest.mark.tfperf(max_input_bound="40%")
def test_fixed(tf_profile, tmp_path):
    tf_profile(step, lines(tmp_path).batch(1024).map(parse, name="parse").prefetch(2))
