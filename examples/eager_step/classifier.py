"""A classifier of named classes, and a training step of its own."""

import keras
import numpy as np
import tensorflow as tf

SIZE, BATCH = 64, 32
CLASSES = ("cat", "dog", "fox", "owl")

model = keras.Sequential(
    [
        keras.Input((SIZE,)),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(len(CLASSES)),
    ]
)
optimizer = keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)
numbers = tf.lookup.KeyValueTensorInitializer(CLASSES, tf.range(len(CLASSES)))
table = tf.lookup.StaticHashTable(numbers, default_value=-1)


def batch(seed=0):
    """Make inputs, and the name of each one's class."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(BATCH, SIZE)).astype("float32")
    return tf.constant(inputs), tf.constant(random.choice(CLASSES, BATCH))


@tf.function
def train_step(inputs, names):
    """Learn from one batch, and return its loss."""
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        labels = table.lookup(names)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return tf.reduce_mean(loss)
