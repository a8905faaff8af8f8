"""Versions of JAX that are refused, in one sentence that names the version and the remedy."""

import sys
from types import SimpleNamespace

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks import in_use
from pytest_tfperf.frameworks.jax import Jax, loaded_jax, why_refused
from pytest_tfperf.values import Unknown


def test_versions_from_the_oldest_on_are_taken():
    for version in ["0.6.1", "0.6.1.1", "0.6.10", "0.10.2", "1.0.0", "0.11.0.dev2026", "x"]:
        assert why_refused(version) is None, version


@pytest.mark.parametrize("version", ["0.6.0", "0.5.3", "0.4.38"])
def test_an_older_version_is_refused_with_the_remedy(version, monkeypatch):
    said = (
        f"pytest-tfperf needs JAX 0.6.1 or newer, and this is {version}, which lacks options of "
        "the profiler: pip install --upgrade jax"
    )
    assert why_refused(version) == said
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(jit=None, __version__=version))
    with pytest.raises(CaptureError, match=said):
        Jax().start_devices()


def test_a_failed_import_leaves_no_jax(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    assert loaded_jax() is None
    with pytest.raises(CaptureError, match="pip install jax"):
        Jax().version()


def test_the_precision_is_of_the_step_and_not_of_what_the_process_has_loaded(monkeypatch):
    def keras_of(backend, policy):
        named = SimpleNamespace(name=policy)
        return SimpleNamespace(
            config=SimpleNamespace(backend=lambda: backend, dtype_policy=lambda: named)
        )

    cases = [
        (None, {}, ""),
        (keras_of("tensorflow", "float32"), {}, ""),
        (keras_of("tensorflow", "mixed_bfloat16"), {}, ""),  # it is of TensorFlow's models
        (keras_of("jax", "float32"), {}, ""),
        (keras_of("jax", "mixed_bfloat16"), {}, "mixed_bfloat16"),
        (keras_of("jax", "float64"), {"jax_enable_x64": True}, "float64 x64"),
        (None, {"jax_default_matmul_precision": "high"}, "high"),
    ]
    for keras, changed, precision in cases:
        config = {"jax_enable_x64": False, "jax_default_matmul_precision": None, **changed}
        jax = SimpleNamespace(jit=None, __version__="0.10.2", config=SimpleNamespace(**config))
        monkeypatch.setitem(sys.modules, "jax", jax)
        monkeypatch.setitem(sys.modules, "keras", keras)
        assert Jax().precision() == precision, (keras, changed)


def test_the_memory_of_accelerators_is_unknown_without_statistics(monkeypatch):
    def refuse():
        raise RuntimeError("UNIMPLEMENTED")

    def device(platform, read):
        return SimpleNamespace(platform=platform, device_kind="a chip", memory_stats=read)

    def holds(n):
        return lambda: {"bytes_in_use": n}

    untold = Unknown(
        "JAX does not tell the memory that it holds on a chip, as with "
        "XLA_PYTHON_CLIENT_ALLOCATOR=platform"
    )
    monkeypatch.setattr(in_use, "in_use", lambda: (Jax(),))
    for devices, held in [
        ([device("cpu", refuse)], None),
        ([device("gpu", holds(2)), device("gpu", holds(3))], 5),
        ([device("tpu", holds(7))], 7),
        ([device("gpu", holds(2)), device("gpu", lambda: None)], untold),
        ([device("gpu", dict)], untold),
        ([device("METAL", refuse)], untold),
    ]:
        jax = SimpleNamespace(
            jit=None, __version__="0.10.2", local_devices=lambda devices=devices: devices
        )
        monkeypatch.setitem(sys.modules, "jax", jax)
        assert in_use.accelerator_bytes() == held, held


def test_full_gpus_of_jax_have_its_own_remedy(monkeypatch):
    gpu = SimpleNamespace(platform="gpu")
    monkeypatch.setattr(in_use, "in_use", lambda: (Jax(),))
    why = "JAX gives this process most memory of the GPU: set XLA_PYTHON_CLIENT_PREALLOCATE=false"
    for devices, preallocates, allocator, said in [
        ([gpu], None, None, why),
        ([gpu], "true", "default", why),
        ([gpu], "false", None, ""),
        ([gpu], None, "platform", ""),  # it never takes memory ahead
        ([], None, None, ""),
    ]:
        jax = SimpleNamespace(
            jit=None, __version__="0.10.2", local_devices=lambda devices=devices: devices
        )
        monkeypatch.setitem(sys.modules, "jax", jax)
        for name, value in (("PREALLOCATE", preallocates), ("ALLOCATOR", allocator)):
            monkeypatch.delenv(f"XLA_PYTHON_CLIENT_{name}", raising=False)
            if value is not None:
                monkeypatch.setenv(f"XLA_PYTHON_CLIENT_{name}", value)
        assert in_use.why_gpus_are_full() == said, (preallocates, allocator)
