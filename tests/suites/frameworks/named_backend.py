"""A test that imports no framework before the fixture."""


def test_a_step(tf_profile):
    import keras

    assert tf_profile(lambda: keras.ops.ones(3), warmup=1, steps=2, trace_steps=2).step_time > 0
