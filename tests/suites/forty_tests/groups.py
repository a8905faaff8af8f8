"""Groups of tests that one worker runs, and a test in a process of its own."""

import pytest
import tensorflow as tf
from steps import ONES, chain, dense


@pytest.mark.xdist_group("one")
@pytest.mark.tfperf(max_retraces=0)
class TestOne:
    def test_first(self, tf_profile):
        tf_profile(*dense(8, 8))

    def test_second(self, tf_profile):
        tf_profile(*dense(4, 8))


@pytest.mark.xdist_group("two")
@pytest.mark.tfperf(eager_ops=1)
def test_other_group(tf_profile):
    tf_profile(lambda x: x + 1, ONES)


@pytest.mark.xdist_group("two")
@pytest.mark.tfperf(autocluster=True, xla_clusters=1, max_retraces=0)
def test_own_process(tf_profile):
    tf_profile(tf.function(chain), [tf.ones((64, 64))] * 4)
