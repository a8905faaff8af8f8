"""A classifier with dropout, and a training step of its own."""

import keras
import numpy as np
import tensorflow as tf

SIZE, CLASSES, BATCH = 64, 10, 32

model = keras.Sequential(
    [
        keras.Input((SIZE,)),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dropout(0.2, seed=0),
        keras.layers.Dense(CLASSES),
    ]
)
optimizer = keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)


def batch(seed=0):
    """Make inputs, and the class of each."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(BATCH, SIZE)).astype("float32")
    return tf.constant(inputs), tf.constant(random.integers(0, CLASSES, BATCH))


@tf.function
def train_step(inputs, labels):
    """Learn from one batch, and return its loss."""
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return tf.reduce_mean(loss)
