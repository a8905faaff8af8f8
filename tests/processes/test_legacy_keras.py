"""TF_USE_LEGACY_KERAS=1, with which `tf.keras` is Keras 2: TensorFlow reads it once in a process."""

import pytest

pytestmark = pytest.mark.nightly
pytest.importorskip(
    "tf_keras", reason="Keras 2 is not installed: pip install --no-deps 'tf_keras==2.21.*'"
)


def test_loops_are_followed_under_the_marker_alone(pytester, monkeypatch, processes):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    pytester.makepyfile(
        """
        import numpy as np
        import pytest
        import tensorflow as tf

        X, Y = np.ones((64, 3), "float32"), np.ones((64, 1), "float32")

        @pytest.mark.tfperf(max_retraces=0)
        def test_loops():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            assert len(model.fit(X, Y, batch_size=8, epochs=3, verbose=0).epoch) == 3
            assert model.predict(X, batch_size=8, verbose=0).shape == (64, 1)
        """
    )
    result = pytester.runpytest_subprocess("-v", "-Wignore", "--tfperf-report=run.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["tfperf: 2 checks passed*"])
    report = (pytester.path / "run.json").read_text()
    assert '"fit"' in report
    assert '"predict"' in report
