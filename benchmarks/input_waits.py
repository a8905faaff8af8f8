"""
Compare input_bound with waits that are built into the input pipeline.

    python benchmarks/input_waits.py [PROFILES] [--busy]

Profiles a step of about 2 ms (one XLA executable) on input that is always ready: a limit of 5 % has to pass. Then a step of about
8 ms on a pipeline without a prefetch that sleeps for 10, 30 and 60 % of the loop, and counts how long it slept: input_bound has to
be within 5 points of that. Each share takes a fresh process. Shown is in how many profiles that holds, and the largest difference;
UNKNOWN counts as wrong. With --busy two other processes keep two cores busy.
"""

import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

WORDS, LENGTH, WIDTH, BATCH = 5000, 48, 64, 64
SHARES = (0, 10, 30, 60)
POINTS = 5.0


def bag_of_words():
    """A training step of embeddings and two dense layers, in one executable."""
    import tensorflow as tf

    made = tf.random.Generator.from_seed(0)
    shapes = [(WORDS, WIDTH), (WIDTH, 128), (128, 8)]
    weights = [tf.Variable(made.normal(shape, stddev=0.1)) for shape in shapes]

    @tf.function(jit_compile=True)
    def step(words, labels):
        with tf.GradientTape() as tape:
            bag = tf.reduce_mean(tf.gather(weights[0], words), 1)
            logits = tf.nn.relu(bag @ weights[1]) @ weights[2]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        return loss

    return step


def products():
    """A step of matrix products."""
    import tensorflow as tf

    weights = tf.random.stateless_normal((700, 700), (1, 2)) / 26

    @tf.function
    def step(words, labels):
        x = tf.cast(words[0, 0], tf.float32) + weights
        for _ in range(3):
            x = tf.tanh(x @ weights)
        return tf.reduce_mean(x)

    return step


def a_batch():
    import tensorflow as tf

    words = tf.random.uniform((BATCH, LENGTH), 1, WORDS, tf.int32)
    return words, tf.random.uniform((BATCH,), 0, 8, tf.int32)


def ready():
    """Input that is always ready."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(a_batch()).repeat()


def sleeping(seconds, slept):
    """Input whose pipeline sleeps for each batch, in the thread of the steps, and notes how long."""
    import tensorflow as tf

    words, labels = (tensor.numpy() for tensor in a_batch())

    def make(_):
        begun = time.perf_counter()
        time.sleep(seconds)
        slept.append(time.perf_counter() - begun)
        return words

    def element(number):
        made = tf.numpy_function(make, [number], tf.int32)
        return tf.ensure_shape(made, (BATCH, LENGTH)), labels

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return tf.data.Dataset.range(10**9).map(element).with_options(options)


def profiled(step, data):
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.plugin.options import Options
    from pytest_tfperf.plugin.profiled_item import ProfiledItem
    from pytest_tfperf.plugin.registry import Registry

    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    found = profiler(step, data)
    profiler.close()
    return found


def period(step, data):
    """Seconds of a step of a bare loop, in the median."""
    iterator, times = iter(data), []
    for _ in range(50):
        begun = time.perf_counter()
        step(*next(iterator))
        times.append(time.perf_counter() - begun)
    return statistics.median(times[10:])


def measure(percent, n_profiles):
    """Print the difference of each profile in points, and `nan` where the share is unknown."""
    for _ in range(n_profiles):
        if not percent:
            found, truth = profiled(bag_of_words(), ready().prefetch(8)), 0.0
        else:
            step, slept = products(), []
            seconds = period(step, ready()) * percent / (100 - percent)
            found = profiled(step, sleeping(seconds, slept))
            in_windows = slept[
                len(slept) // 4 : -len(slept) // 4
            ]  # without first and counted steps
            truth = 100 * statistics.median(in_windows) / found.step_time
        share = found.value("input_bound").number
        print("nan" if share is None else f"{100 * share - truth:.2f}", flush=True)
    os._exit(0)


def main():
    n_profiles = next((int(each) for each in sys.argv[1:] if each.isdigit()), 40)
    burn = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(burn) for _ in range(2 * ("--busy" in sys.argv))]
    print("waits        within 5 points   largest difference")
    try:
        for percent in SHARES:
            command = [sys.executable, __file__, "--measure", str(percent), str(n_profiles)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = [float(line) for line in done.stdout.split()[-n_profiles:]]
            right = sum(abs(points) <= POINTS for points in found)
            largest = max(found, key=abs)
            print(
                f"{percent or 'ready':>5}{' %' if percent else '  '}      {right:2} of {n_profiles}          {largest:+.1f}"
            )
    finally:
        for burner in burners:
            burner.kill()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure(int(sys.argv[-2]), int(sys.argv[-1]))
    main()
