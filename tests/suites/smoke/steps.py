"""Steps and data whose counts are known: one executable or none, ten batches of eight rows."""

import keras
import tensorflow as tf

ROWS, COLUMNS, BATCHES = 8, 16, 10


def batches():
    return tf.data.Dataset.from_tensors(tf.ones((ROWS, COLUMNS))).repeat(BATCHES).prefetch(1)


def plain_step():
    weights = tf.Variable(tf.ones((COLUMNS, COLUMNS)))
    return tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x @ weights) + 1.0))


def compiled_step():
    @tf.function(jit_compile=True, reduce_retracing=True)
    def step(x):
        return tf.nn.relu(x @ tf.transpose(x)) + 1.0

    return step


def model(**options):
    made = keras.Sequential([keras.Input((COLUMNS,)), keras.layers.Dense(4, activation="relu")])
    made.compile("sgd", "mse", **options)
    return made


def pairs():
    return tf.data.Dataset.from_tensors((tf.ones((ROWS, COLUMNS)), tf.ones((ROWS, 4)))).repeat(
        BATCHES
    )
