"""
Three input pipelines: a slow and a fast one for the same images, and one for records with a delay.

The last one follows the talk on TensorFlow's profiler. A parallel map made its input five times
as fast.
"""

import time
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH = 16
FILE_SIZE = 640
SIZE = 144
CROP = 128
AUTOTUNE = tf.data.AUTOTUNE


def write_images(folder, n_images=48):
    """Make JPEG files of smooth noise, as hard to decode as photographs, and return their paths."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(n_images):
        coarse = random.uniform(0, 255, (20, 20, 3)).astype("float32")
        pixels = tf.cast(
            tf.image.resize(coarse, (FILE_SIZE, FILE_SIZE), "bicubic")
            + random.normal(0, 8, (FILE_SIZE, FILE_SIZE, 3)),
            tf.float32,
        )
        path = Path(folder) / f"{number}.jpg"
        tf.io.write_file(
            str(path), tf.io.encode_jpeg(tf.cast(tf.clip_by_value(pixels, 0, 255), tf.uint8))
        )
        paths.append(str(path))
    return paths


def decode(path, label):
    """Read, decode and shrink one image."""
    image = tf.image.convert_image_dtype(
        tf.io.decode_jpeg(tf.io.read_file(path), channels=3), tf.float32
    )
    return tf.image.resize(image, (SIZE, SIZE)), label


def load_in_python(path, label):
    """Decode, crop, mirror and brighten one image, in Python and NumPy."""
    random = np.random.default_rng()
    image = decode(path, label)[0].numpy()
    top, left = random.integers(0, SIZE - CROP, 2)
    image = image[top : top + CROP, left : left + CROP]
    if random.random() < 0.5:
        image = image[:, ::-1]
    return np.clip(image * random.uniform(0.8, 1.2), 0, 1), label


def augment(images, labels):
    """Crop, mirror and brighten a batch of images, in TensorFlow: one crop a batch."""
    images = tf.image.random_crop(images, (BATCH, CROP, CROP, 3))
    images = tf.image.random_flip_left_right(images)
    gains = tf.random.uniform((BATCH, 1, 1, 1), 0.8, 1.2)
    return tf.clip_by_value(images * gains, 0, 1), labels


def sequential(paths, labels):
    """Load one image at a time, in Python, while the model waits."""

    def load(path, label):
        image, label = tf.py_function(load_in_python, [path, label], [tf.float32, tf.int64])
        return tf.ensure_shape(image, (CROP, CROP, 3)), tf.ensure_shape(label, ())

    return (
        tf.data.Dataset.from_tensor_slices((paths, labels))
        .map(load, name="load")
        .batch(BATCH, drop_remainder=True)
    )


def parallel(paths, labels):
    """Decode once, augment whole batches with TensorFlow ops on all cores, and prefetch."""
    data = tf.data.Dataset.from_tensor_slices((paths, labels))
    data = data.map(decode, AUTOTUNE, name="decode").cache().repeat()
    data = data.batch(BATCH, drop_remainder=True)
    # A buffer of this size outlasts the moments in which other processes hold the cores.
    return data.map(augment, AUTOTUNE, name="augment").prefetch(8)


RECORD_S = 0.005  # delay of the storage
AT_A_TIME = 8


def records(at_a_time=None):
    """Make batches of records from a slow storage, one request at a time or several in parallel."""

    def fetch(number):
        time.sleep(RECORD_S)
        return np.full(16, number, "float32")

    def load(number):
        return tf.ensure_shape(tf.numpy_function(fetch, [number], tf.float32), (16,))

    options = tf.data.Options()
    options.threading.private_threadpool_size = (
        AT_A_TIME  # threads that wait; the default is one a core
    )
    return (
        tf.data.Dataset.range(100_000)
        .map(load, at_a_time, name="load")
        .batch(BATCH, drop_remainder=True)
        .with_options(options)
    )
