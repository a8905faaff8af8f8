"""A small image model whose precision is the current dtype policy."""

import keras

SIZE = 32
CLASSES = 10


def build():
    """Make a compiled classifier; its logits are always float32, so that the loss is exact."""
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(CLASSES),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
