"""Training steps of a Keras model written in its backend's own words, without Keras' loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

BareStep = Callable[[], Any]


def bare_step(model: Any, x: Any, y: Any) -> BareStep:
    """
    Return a training step of a model on one batch, as Keras' guides write it for each backend.

    The sources are the guides "Writing a training loop from scratch" for TensorFlow, JAX and
    PyTorch (keras.io/guides).

    Args:
        model: A compiled model that has been trained on such a batch.
        x: Inputs of the batch, as NumPy arrays.
        y: Targets of the batch.
    """
    backend = str(sys.modules["keras"].config.backend())
    return {"tensorflow": _of_tensorflow, "jax": _of_jax, "torch": _of_torch}[backend](model, x, y)


def _of_tensorflow(model: Any, x: Any, y: Any) -> BareStep:
    tf: Any = sys.modules["tensorflow"]
    x, y = tf.nest.map_structure(tf.convert_to_tensor, (x, y))

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    compiled = tf.function(train, jit_compile=bool(model.jit_compile), reduce_retracing=True)
    return lambda: compiled(x, y)


def _of_jax(model: Any, x: Any, y: Any) -> BareStep:
    jax = sys.modules["jax"]
    x, y = jax.tree_util.tree_map(jax.numpy.asarray, (x, y))

    def loss_of(trained: Any, others: Any, x: Any, y: Any) -> Any:
        outputs, others = model.stateless_call(trained, others, x, training=True)
        return model.compute_loss(x, y, outputs), others

    def train(state: Any, x: Any, y: Any) -> Any:
        trained, others, optimizer = state
        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained, others, x, y)
        trained, optimizer = model.optimizer.stateless_apply(optimizer, gradients, trained)
        return loss, (trained, others, optimizer)

    compiled = jax.jit(train) if model.jit_compile else train
    state = [
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
        )
    ]

    def step() -> Any:
        loss, state[:] = compiled(tuple(state), x, y)
        return loss

    return step


def _of_torch(model: Any, x: Any, y: Any) -> BareStep:
    torch, keras = sys.modules["torch"], sys.modules["keras"]
    x, y = keras.tree.map_structure(keras.ops.convert_to_tensor, (x, y))
    trained = model.trainable_weights

    def step() -> Any:
        model.zero_grad()
        loss = model.compute_loss(x, y, model(x, training=True))
        loss.backward()
        with torch.no_grad():
            model.optimizer.apply([weight.value.grad for weight in trained], trained)
        return loss

    return step
