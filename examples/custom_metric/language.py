"""A language model of one layer that predicts each next token."""

import numpy as np
import tensorflow as tf

TOKENS, WIDTH, BATCH, LENGTH = 256, 32, 16, 64


def sequences(n=8 * BATCH, seed=0):
    """Make sequences of tokens, each with the token after its last."""
    return np.random.default_rng(seed).integers(0, TOKENS, (n, LENGTH + 1)).astype("int32")


def training_step():
    """Make a step with its own weights: sequences in, the loss out."""
    start = tf.keras.initializers.GlorotUniform(seed=0)
    embedding, head = tf.Variable(start((TOKENS, WIDTH))), tf.Variable(start((WIDTH, TOKENS)))

    @tf.function
    def train(batch):
        with tf.GradientTape() as tape:
            logits = tf.gather(embedding, batch[:, :-1]) @ head
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(batch[:, 1:], logits)
            )
        for variable, gradient in zip(
            (embedding, head), tape.gradient(loss, (embedding, head)), strict=True
        ):
            variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return loss

    return train
