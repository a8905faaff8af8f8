"""The step of the project's own training loop must be one tf.function."""

import classifier
import pytest


@pytest.mark.tfperf(max_eager_ops=0, max_retraces=0)
def test_the_step_is_one_function(tf_profile):
    tf_profile(classifier.train_step, [classifier.batch()])
