"""An image model and an input pipeline that must keep up with it."""

import keras
import numpy as np
import pipeline
import pytest
import tensorflow as tf


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    paths = pipeline.write_images(tmp_path_factory.mktemp("images"))
    return paths, np.arange(len(paths)) % 10


@pytest.fixture
def train_step():
    model = keras.Sequential(
        [
            keras.Input((pipeline.CROP, pipeline.CROP, 3)),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


@pytest.mark.tfperf(min_input_bound=0.3)
def test_the_sequential_pipeline_starves_the_model(tf_profile, train_step, files):
    tf_profile(train_step, pipeline.sequential(*files))


@pytest.mark.tfperf(max_input_bound=0.05, max_retraces=0, max_eager_ops=0)
def test_the_parallel_pipeline_keeps_up_and_halves_the_step(tf_profile, train_step, files):
    before = tf_profile(
        train_step, pipeline.sequential(*files), name="sequential", limits={"max_input_bound": 1}
    )
    tf_profile(
        train_step,
        pipeline.parallel(*files),
        name="parallel",
        limits={"max_step_time": before.step_time / 2},
    )


def test_a_parallel_map_of_records_that_are_waited_for_is_several_times_as_fast(tf_profile):
    step = tf.function(lambda batch: tf.reduce_sum(batch * batch))
    data = {
        "sequential": pipeline.records(),
        "parallel": pipeline.records(at_a_time=pipeline.AT_A_TIME),
    }
    found = tf_profile.compare({"sequential": step, "parallel": step}, data)
    print(found)  # noqa: T201, shown by pytest -rP
    assert found.speedup("parallel", over="sequential").low > 5
