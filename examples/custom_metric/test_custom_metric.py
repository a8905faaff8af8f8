"""Custom metrics have limits, are attributes, and say why they are unknown, as built-in ones do."""

import language
import pytest
import tensorflow as tf

from pytest_tfperf import UnknownMetric


@pytest.fixture(scope="module")
def data():
    return (
        tf.data.Dataset.from_tensor_slices(language.sequences())
        .batch(language.BATCH, drop_remainder=True)
        .cache()
        .prefetch(2)
    )


@pytest.mark.tfperf(min_tokens_per_second=1000, max_flops_per_token="0.1 MFLOP")
def test_a_training_step(tf_profile, data):
    profile = tf_profile(language.training_step(), data)
    # the product with the head and both of its gradients: 2 FLOP an element
    assert profile.flops_per_token >= 3 * 2 * language.WIDTH * language.TOKENS


def test_a_step_without_data_has_no_tokens_that_could_be_counted(tf_profile, data):
    train, batch = language.training_step(), next(iter(data))
    profile = tf_profile(lambda: train(batch))
    with pytest.raises(
        UnknownMetric, match="the step has no batches whose tokens could be counted"
    ):
        _ = profile.tokens_per_second
