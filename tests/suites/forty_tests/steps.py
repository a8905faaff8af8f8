"""Small steps that the tests of this suite have in common."""

import keras
import tensorflow as tf

ONES = [tf.ones((8, 8))] * 4


def dense(rows, units):
    """A training step of one layer, and the elements that it takes."""
    weights = tf.Variable(tf.ones((units, units)) / units)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ weights) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    return step, [tf.ones((rows, units))] * 4


def chain(x):
    """More than the four ops that make a cluster."""
    return tf.tanh(tf.exp(tf.sin(x) + 1) * 2)


def batches():
    """A pipeline of twelve batches, and a little work in it."""
    return (
        tf.data.Dataset.range(96)
        .map(lambda n: tf.fill([8], tf.cast(n, tf.float32)))
        .batch(8, drop_remainder=True)
    )


def model():
    """A Keras model, and the arrays that it is fitted to."""
    layers = [keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    made = keras.Sequential(layers)
    made.compile("sgd", "mse")
    return made, tf.ones((96, 8)).numpy(), tf.ones((96, 1)).numpy()
