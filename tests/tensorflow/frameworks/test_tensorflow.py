"""What TensorFlow tells of its devices."""

from types import SimpleNamespace

from pytest_tfperf.frameworks import tensorflow
from pytest_tfperf.frameworks.tensorflow import TensorFlow


def test_a_gpu_that_is_hidden_from_tensorflow_is_none_of_it(monkeypatch):
    """Projects of JAX hide it with `tf.config.set_visible_devices([], "GPU")`."""
    gpu = SimpleNamespace(device_type="GPU")
    for visible, parts, n_gpus, held in [
        ([], None, 0, None),
        ([gpu], None, 1, 10),
        ([gpu, gpu], None, 2, 30),
        ([gpu], ["1 GiB", "2 GiB"], 1, 30),
    ]:
        config = SimpleNamespace(
            get_visible_devices=lambda kind=None, visible=visible: [] if kind == "TPU" else visible,
            get_logical_device_configuration=lambda _, parts=parts: parts,
            experimental=SimpleNamespace(
                get_memory_info=lambda name: {"current": {"GPU:0": 10, "GPU:1": 20}[name]},
                get_device_details=lambda _: {"device_name": "H100"},
                get_memory_growth=lambda _: False,
            ),
        )
        given = SimpleNamespace(config=config)
        monkeypatch.setattr(tensorflow, "load_tensorflow", lambda tf=given: tf)
        monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
        found = TensorFlow()
        assert (found.n_gpus(), found.accelerator_bytes()) == (n_gpus, held), (visible, parts)
        assert found.accelerators() == ["H100"] * n_gpus
        assert bool(found.why_gpus_are_full()) == (n_gpus > 0 and parts is None)
