"""Notes on errors of kernels that failed beside a profiler; the texts are those of an H200."""

import sys

import pytest

from pytest_tfperf.frameworks.launch_failures import launch_failures_explained

FAILED = (
    "INTERNAL: CUDA error: Failed to check stream capturing status: CUDA_ERROR_LAUNCH_FAILED: "
    "unspecified launch failure [executable_name='jit_train_step']"
)


def notes_of(text):
    with pytest.raises(RuntimeError) as caught, launch_failures_explained():
        raise RuntimeError(text)
    return getattr(caught.value, "__notes__", [])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes from Python 3.11 on")
def test_a_failed_launch_names_the_setting_that_helps(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=4")
    [note] = notes_of(FAILED)
    assert "XLA_FLAGS=--xla_gpu_enable_command_buffer= for this test" in note


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (FAILED, "--xla_gpu_enable_command_buffer= --xla_gpu_autotune_level=4"),
        ("RESOURCE_EXHAUSTED: Out of memory", ""),
    ],
)
def test_other_errors_are_the_user_s_own(monkeypatch, text, flags):
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert notes_of(text) == []
