"""Remedies of what takes the time of a step, by the type of an op or the library of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_tfperf.recording import StackTime

CALLBACK = (
    "run the callback less often: every n batches or at the end of an epoch (save_freq='epoch', "
    "update_freq=n)"
)
UNROLLED = (
    "a loop of Python is traced and compiled once for each iteration: jax.lax.scan, tf.range or "
    "tf.while_loop (unroll=False) do it once"
)
LAUNCHES = "loop inside one jax.jit function: jax.lax.scan or jax.lax.fori_loop launch it once"
MADE_ANEW = (
    "make the dataset and its iterator once, outside of the step; each predict or evaluate makes "
    "them anew: predict all rows in one call, or call the model itself, model(x)"
)
RUN_EAGERLY = "compile the model with run_eagerly=False and jit_compile='auto'"
WIDE = frozenset({"f64", "float64", "c128", "complex128"})
_NARROW = (
    "compute in float32, which halves the bytes: cast the inputs, and leave jax_enable_x64 off"
)
_DENSE = (
    "the optimizer changes the whole table of an embedding in each step, since its sparse gradient "
    "is made dense: an optimizer with sparse or lazy updates (SGD, Adagrad), or a smaller table"
)
_OPTIMIZERS = re.compile(
    r"(?i)(adam|adamw|nadam|adamax|rmsprop|lion|ftrl|adadelta|adagrad|lamb|muon)"
)
_OPS = (
    (
        r"(Eager)?PyFunc|\w*callback\w*",
        "Python runs inside the graph: write it with TensorFlow ops or jax.numpy, or call it in "
        "each n-th step or iteration alone (tf.cond, jax.lax.cond)",
    ),
    (
        r"While|StatelessWhile|Enter|NextIteration",
        "ops on the whole batch (tf.vectorized_map), jit_compile=True, which makes one program of "
        "the loop, or fewer iterations",
    ),
    (
        r"MakeIterator|AnonymousIterator|\w*Dataset(V\d)?",
        MADE_ANEW,
    ),
    (
        r"SaveV2|RestoreV2|MergeV2Checkpoints|ShardedFilename|WriteFile",
        "save less often: once an epoch (save_freq='epoch')",
    ),
    (r"Write\w*Summary|\w*Summary\w*", "write summaries once in many steps"),
    (r"Print(V2)?|StringFormat", "print once in many steps, or outside of the step"),
    (
        r"String\w+|Regex\w+|\w*Tokeniz\w*|LookupTable\w+|Decode\w+|ParseExample\w*",
        "do it in the input pipeline: dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)",
    ),
    (
        r"Svd|SelfAdjointEig\w*|Eig|Qr|Cholesky|Matrix\w+|LogMatrix\w+|Lu|BatchSvd",
        "a decomposition in each step: power iteration, or once in many steps",
    ),
    (
        r"\w*NonMaxSuppression\w*",
        "give it fewer candidates: tf.math.top_k or a least score before it",
    ),
    (
        r"Extract(Image|Volume)Patches",
        "a convolution (tf.nn.conv2d) computes patches and their product in one op",
    ),
    (
        r"Resize\w+|CropAndResize|ImageProjectiveTransform\w*|Adjust\w+|RGBToHSV|HSVToRGB|Encode\w+",
        "do it in the input pipeline: dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE), on "
        "smaller images or of 8 bits",
    ),
    (
        r"CTC\w+|SparseSoftmax\w+|(Log)?Softmax",
        "fewer classes or a loss of some of them (tf.nn.sampled_softmax_loss), or decode once in "
        "many steps",
    ),
    (
        r"Random\w+|StatelessRandom\w+|\w*TruncatedNormal\w*|StatelessMultinomial|Multinomial|"
        r"rng\S*",
        "draw fewer random numbers, or by a cheaper generator (JAX: jax_default_prng_impl='rbg')",
    ),
    (
        r"Tile|BroadcastTo",
        "let the next op broadcast it: most ops take operands of size 1 in place of copies",
    ),
    (
        r"Sort|TopK(V2)?|Unique\w*|ArgSort|sort|topk|top-k",
        "sort or select less: tf.math.top_k with a small k, on fewer elements, or in the pipeline",
    ),
    (r"Assert|CheckNumerics\w*|VerifyTensorAll\w*", "switch the checks off outside of debugging"),
    (
        r"convolution|dot|dot_general|MatMul|BatchMatMul\w*|_FusedMatMul|Einsum|Conv\w*|_FusedConv\w*|_MklFused\w*|_Mkl\w*|_FusedBatchNorm\w*",
        "it is the arithmetic of the step: smaller layers or fewer elements, or 16-bit types where "
        "the hardware has them",
    ),
    (
        r"Gather\w*|ResourceGather|Scatter\w*|ResourceScatter\w*|UnsortedSegment\w*|SegmentSum\w*",
        "fewer rows, or a table that fits the cache",
    ),
    (
        r"Add(V2|N)?|Sub|Mul|RealDiv|Div\w*|Pow|Square\w*|R?sqrt|Sqrt|Exp|Expm1|Log|Log1p|Tanh|"
        r"Sigmoid|Relu\w*|S?Elu|Gelu|LeakyRelu|Soft(plus|sign)|Neg|Abs|Sign|Maximum|Minimum|"
        r"Select(V2)?|Cast|Sin|Cos|Erf|Reciprocal|Inv|BiasAdd|Sum|Mean|Max|Min|Prod|L2Loss|"
        r"Logical\w+|Greater\w*|Less\w*|Equal|NotEqual|ClipByValue|(Tanh|Sigmoid|Relu|Rsqrt|Sqrt|"
        r"Softplus|Elu|BiasAdd)\w*Grad|_UnaryOpsComposition",
        "compile the ops into one kernel: jit_compile=True on the tf.function or in model.compile",
    ),
)
_PYTHON = (
    (
        r"jax/_src/numpy/array_constructors\.py|jax/_src/dtypes\.py",
        "make one NumPy array first: jnp.asarray(np.asarray(rows))",
    ),
    (
        r"keras/src/.*trainer\.py:.*(predict|evaluate)",
        MADE_ANEW,
    ),
    (r"keras/src/.*trainer\.py:.*fit", "one fit for all data: each call starts a loop of its own"),
    (r"keras/src/.*trainer\.py:.*(compile|Trainer\.compile)", "call model.compile once"),
    (
        r"flax/nnx",
        "split the module once, outside the loop (nnx.split), and jit a function of its state; or "
        "nnx.cached_partial",
    ),
    (
        r"jax/_src/array\.py|\.numpy$|device_get|_value",
        "read results once in many steps, or after the loop",
    ),
    (
        r"tensorflow/python/(data|util/options)|keras/src/trainers/data_adapters",
        "make the dataset once, outside the step",
    ),
    (r"tensorflow/python/saved_model|keras/src/saving", "save less often: once an epoch"),
    (r"(logging|json|csv|pickle|pprint|copy|subprocess|urllib)\b", "run it once in many steps"),
)
_LIBRARIES_OF_OPS = (
    *("tensorflow/python/ops/", "tensorflow/python/framework/", "tensorflow/python/util/"),
    "tensorflow/python/eager/",
    *("keras/src/ops/", "jax/_src/numpy/", "jax/_src/lax/"),
)
_EAGER = "put the step into one tf.function: Python runs its ops one by one"
_EAGER_JAX = "put the step into one jax.jit function: Python runs its ops one by one"
_LESS = "run it less often, for a whole batch at once, or outside the step"


def op_remedy(kind: str, scope: str, kinds: Sequence[str], dtype: str = "") -> str:
    """
    Return the remedy of ops that take the time of a step.

    Args:
        kind: The type of the op that takes most.
        scope: The layer or optimizer in its name, or the loop's name.
        kinds: The types of all ops of the group.
        dtype: The type of the result of the op that takes most, empty if unknown.
    """
    if dtype in WIDE:
        return _NARROW
    if _OPTIMIZERS.search(scope) and any("Segment" in one for one in kinds):
        return _DENSE
    return next((text for pattern, text in _OPS if re.fullmatch(pattern, kind)), "")


def python_remedy(stacks: Iterable[StackTime]) -> str:
    """
    Return the remedy of Python that takes the time of a step.

    Args:
        stacks: Where it was, the longest time first.
    """
    first = next(iter(stacks))
    if first.callback:
        return CALLBACK
    for pattern, text in _PYTHON:
        if first.called and re.search(pattern, f"{first.called} {first.function}"):
            return text
    if runs_eagerly(first):
        return _EAGER_JAX if first.called.startswith("jax/") else _EAGER
    return _LESS


def runs_eagerly(place: StackTime) -> bool:
    """Return whether the user's line calls an op of a framework, outside of any function."""
    is_array = re.match(_PYTHON[0][0], place.called)  # makes arrays of Python's objects
    return place.called.startswith(_LIBRARIES_OF_OPS) and not is_array
