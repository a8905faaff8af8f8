"""One Keras model under each installed backend, in a process of its own."""

from importlib.util import find_spec

import numpy as np

X, Y = np.random.default_rng(0).random((256, 32)).astype("float32"), np.arange(256) % 10


def build():
    import keras

    model = keras.Sequential([keras.layers.Input((32,)), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_the_table_has_times_and_what_the_loop_adds(tf_profile):
    found = tf_profile.compare_backends(build, (X, Y))
    rows = {row[0]: row[1:] for row in found.table().rows}
    backends = ("tensorflow", "jax", "torch") if find_spec("torch") else ("tensorflow", "jax")
    assert found.variants == tuple(variant for one in backends for variant in (one, f"{one} bare"))
    assert [cell is not None for cell in rows["Keras' loop adds"]] == [True, False] * len(backends)
    assert rows["xla_launches"][2:] == ("1", "1", None, None)[: 2 * len(backends) - 2]
    assert None not in rows["first_step_time"]
    assert set(rows["retraces"]) == {"0"}
    assert set(tf_profile.profiles) == set(found.variants)
    # the same work, but for the metrics that Keras counts in its loop
    work = [found.profiles[name].value("flops").detail for name in ("jax", "jax bare")]
    assert work[0]["matmul_and_convolution"] == work[1]["matmul_and_convolution"]
