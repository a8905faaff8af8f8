"""The backends that are compared: those asked for, if they are known and installed."""

import pytest

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.plugin import compare
from pytest_tfperf.plugin.compare import chosen_backends


@pytest.fixture
def installed(monkeypatch):
    names = ["tensorflow", "jax"]
    monkeypatch.setattr(compare, "is_installed", names.__contains__)
    return names


def test_those_that_are_installed_are_the_default(installed):
    assert chosen_backends(None) == ("tensorflow", "jax")


def test_those_asked_for_keep_their_order_and_come_once(installed):
    assert chosen_backends(["jax", "tensorflow", "jax"]) == ("jax", "tensorflow")


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        (["jax", "openvino"], "Keras has no backend 'openvino'"),
        (["jax", "torch"], "the backend 'torch' is not installed: pip install torch"),
        ([], "got no backend; it knows tensorflow, jax, torch"),
    ],
)
def test_others_are_refused_in_one_sentence(installed, backends, message):
    with pytest.raises(CaptureError, match=message):
        chosen_backends(backends)


def test_one_that_is_installed_is_compared_only_if_it_is_asked_for(installed):
    installed.remove("tensorflow")
    with pytest.raises(CaptureError, match=r"no backend beside jax: .* give backends=\['jax'\]"):
        chosen_backends(None)
    assert chosen_backends(["jax"]) == ("jax",)
