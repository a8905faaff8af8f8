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


def test_graphs_of_recurrent_layers_are_known(pytester, monkeypatch, processes):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    pytester.makepyfile(
        """
        import numpy as np
        import pytest
        import tensorflow as tf

        X, Y = np.ones((320, 12, 4), "float32"), np.ones((320, 1), "float32")

        @pytest.mark.parametrize("cell", ["GRU", "LSTM"])
        @pytest.mark.tfperf(min_graph_ops=100, max_xla_coverage=1)
        def test_fit(tf_profile, cell):
            layers = [getattr(tf.keras.layers, cell)(8), tf.keras.layers.Dense(1)]
            model = tf.keras.Sequential(layers)
            model.compile("sgd", "mse")
            tf_profile.fit(model, X, Y, batch_size=32, epochs=8, verbose=0)
        """
    )
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=2)
