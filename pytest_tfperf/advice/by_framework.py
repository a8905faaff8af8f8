"""Remedies that name a framework's own means, each by framework."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_tfperf.advice.changes import PREFETCH
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW

ANY = ""
"""Key of a text that names no means of any framework."""

# of the step
ONE_FUNCTION = {
    TENSORFLOW: "put the step into one tf.function: Python runs its ops one by one",
    JAX: "put the step into one jax.jit function: Python runs its ops one by one",
}
ONE_PROGRAM = {
    TENSORFLOW: "put the whole step into one tf.function(jit_compile=True); compile Keras models "
    "with jit_compile=True",
    JAX: "put the whole step into one jax.jit function; compile Keras models with jit_compile=True",
}
CALL_FROM_ONE = {
    TENSORFLOW: "call them from one tf.function",
    JAX: "call them from one jax.jit function",
}
LESS_PYTHON = {
    TENSORFLOW: "move the step's Python code into a tf.function, run it less often, or loop over "
    "several steps inside one (steps_per_execution in Keras)",
    JAX: "move the step's Python code into one jax.jit function, loop over several steps inside it "
    "(jax.lax.scan), or load the input ahead (Grain)",
}
MORE_IN_EACH_CALL = {
    TENSORFLOW: "do more in each call of the tf.function (larger batches, or a loop over several "
    "steps: steps_per_execution in Keras), and run less Python between the calls",
    JAX: "do more in each call of the jax.jit function (larger batches, or several steps in a "
    "jax.lax.scan), or load the input ahead (Grain)",
}
LAUNCH_LESS = {
    TENSORFLOW: "launch fewer and larger kernels: jit_compile=True, larger batches; with tf.data "
    "set TF_GPU_THREAD_MODE=gpu_private",
    JAX: "launch fewer and larger kernels: one jax.jit around the whole step, several steps in one "
    "jax.lax.scan, larger batches",
}
REDUCE_LESS = {
    ANY: "overlap or shrink the collectives: larger batches a device, 16-bit gradients, fewer and "
    "larger buckets"
}
KEEP_IN_PLACE = {
    TENSORFLOW: "keep tensors on the device that uses them",
    JAX: "keep arrays on the device that uses them: jax.device_put once, not each step",
}
FETCH_LESS = {
    TENSORFLOW: "fetch results less often: log every n steps, return tensors instead of numbers",
    JAX: "fetch results less often: log every n steps, keep jax.Arrays instead of calling float() "
    "or numpy.asarray()",
}

OF_PARTS = {
    "output": FETCH_LESS,
    "kernel_launch": LAUNCH_LESS,
    "collective": REDUCE_LESS,
    "device_to_device": KEEP_IN_PLACE,
}
"""Remedies of the parts of a step that have one cause."""

# of tracing and compilation
CONSTANT = {
    TENSORFLOW: "keep shapes and Python arguments constant, so that nothing is compiled after the "
    "first step",
    JAX: "keep shapes, types and static arguments of jax.jit functions constant, so that nothing "
    "is compiled after the first step",
}
ONE_LENGTH = {
    TENSORFLOW: "pass {of} as one tensor, since the number of items is a part of the signature: "
    "tf.stack them, padded to one length or under an input_signature with None there, or make a "
    "tf.RaggedTensor",
    JAX: "pass {of} as one array, padded to one length (jnp.stack): jax.jit compiles anew for each "
    "number of items",
}
UNROLLED = {
    TENSORFLOW: "a loop of Python puts them into the graph once for each iteration: tf.range or "
    "tf.while_loop do it once, and in Keras unroll=False, or no wrapper (TimeDistributed) around a "
    "layer that takes sequences, as Dense does",
    JAX: "a loop of Python puts them into the program once for each iteration: jax.lax.scan or "
    "jax.lax.fori_loop do it once",
}

# of the input
LOAD_AHEAD = {
    TENSORFLOW: f"feed the step from a tf.data.Dataset that ends in .{PREFETCH}",
    JAX: "load ahead: Grain's DataLoader with workers and a read buffer, then device_put",
}
COPY_AHEAD = {
    TENSORFLOW: "copy ahead: tf.data.experimental.prefetch_to_device as the last stage",
    JAX: "jax.device_put the next element before the step that works on this one",
}
NO_PYTHON_STAGE = {
    TENSORFLOW: "write it with TensorFlow ops, or prepare the data before the training; one thread "
    "at a time runs Python, so parallel calls do not help",
    JAX: "load ahead in processes of their own (Grain's DataLoader with workers), or prepare the "
    "data before the training; one thread at a time runs Python",
    ANY: "prepare the data before the training",
}

# of matrix products
HALVE = {
    TENSORFLOW: "compute matmuls and convolutions in 16 bits: "
    "keras.mixed_precision.set_global_policy('mixed_bfloat16') on TPUs, recent GPUs and CPUs "
    "with bfloat16 instructions, 'mixed_float16' with loss scaling on older GPUs",
    JAX: "compute matmuls and convolutions in 16 bits: cast parameters and inputs to jnp.bfloat16, "
    "or to jnp.float16 with loss scaling on older GPUs",
}
IN_16_BITS = {
    TENSORFLOW: "keras.mixed_precision.set_global_policy('mixed_bfloat16'), or cast the operands",
    JAX: "cast parameters and inputs to jnp.bfloat16; in Keras, "
    "keras.mixed_precision.set_global_policy('mixed_bfloat16')",
}
LOOK_UP_ROWS = {
    TENSORFLOW: "look up the rows by tf.gather(weights, ids) or a keras.layers.Embedding, in place "
    "of the product with one-hot rows",
    JAX: "look up the rows by weights[ids] or a keras.layers.Embedding, in place of the product "
    "with one-hot rows",
}

# of memory
GROWS = {
    TENSORFLOW: "look for what keeps tensors from step to step: a list of losses, a cache, a "
    "tf.function or dataset made in each step",
    JAX: "look for what keeps jax.Arrays from step to step: a list of losses, a cache, a jax.jit "
    "function made in each step",
}
KEEPS_OBJECTS = {
    TENSORFLOW: "look for what keeps objects from step to step: a list of losses that are tensors, "
    "a cache, a tf.function or dataset made in each step, a tf.GradientTape that stays open over "
    "many steps",
    JAX: "look for what keeps objects from step to step: a list of losses that are jax.Arrays, a "
    "cache, a jax.jit function made in each step",
    ANY: "look for what keeps objects from step to step: a list of losses, a cache",
}
FULL = {
    TENSORFLOW: "a smaller batch, 16-bit types, or activations computed again (tf.recompute_grad)",
    JAX: "a smaller batch, 16-bit types, or activations computed again (jax.checkpoint)",
}
PIECES = {
    TENSORFLOW: "TF_GPU_ALLOCATOR=cuda_malloc_async, or batches of one shape, so that freed memory "
    "fits again",
    JAX: "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async, or batches of one shape",
}


def text_for(texts: Mapping[str, str], framework: str) -> str:
    """Return the text of a framework, else that of any or of TensorFlow."""
    return texts.get(framework) or texts.get(ANY) or texts[TENSORFLOW]
