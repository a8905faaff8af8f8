"""A model that must train in bfloat16: a layer in float32 turns its test red, on any machine."""

import keras
import model
import numpy as np
import pytest


@pytest.fixture
def policy():
    """Set the dtype policy for one test."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


@pytest.fixture
def images():
    random = np.random.default_rng(0)
    return random.random((256, model.SIZE, model.SIZE, 3), "float32"), random.integers(
        0, model.CLASSES, 256
    )


@pytest.mark.tfperf(max_half_precision=0.01)
def test_in_float32_no_product_is_of_half_precision(tf_profile, policy, images):
    policy("float32")
    profile = tf_profile.fit(model.build(), *images, batch_size=32, epochs=20, verbose=0)
    assert advised_to_use_16_bits(profile)


@pytest.mark.tfperf(min_half_precision=0.9)
def test_under_mixed_bfloat16_nearly_all_are(tf_profile, policy, images):
    policy("mixed_bfloat16")
    profile = tf_profile.fit(model.build(), *images, batch_size=32, epochs=20, verbose=0)
    assert not advised_to_use_16_bits(profile)


def advised_to_use_16_bits(profile):
    return any("in 16 bits" in advice.what for advice in profile.advice)
