"""
Sample the Python stack of the steps' thread, to tell which lines of the user take the time.

Samples have lines, which profilers in C have not, and cost a call nothing. They are taken in the
first step and in the warm-up, so that no other time is measured beside them. faulthandler reads the
stack, since frames that run on while another thread follows them are not safe to follow: on Python
3.11 that ends in other objects, or in a crash.
"""

from __future__ import annotations

import faulthandler
import re
import sys
import tempfile
from _thread import allocate_lock, start_new_thread
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, takewhile
from threading import get_ident
from time import perf_counter
from typing import BinaryIO

from pytest_tfperf.compiler.source_lines import user_line_of
from pytest_tfperf.machine.code_names import shown_file
from pytest_tfperf.recording import StackTime

FIRST_S, WARM_S = 0.01, 0.002
"""Seconds between two samples of the first step, which is timed, and of the warm-up."""
_PER_INTERVAL = 1000
"""Samples after which the interval doubles."""
_SWITCH_S = 0.001
"""
Seconds that a thread runs Python before it lets another one run, 0.005 by default.

Samples would otherwise fall where the thread waits in C anyway.
"""
_DRIVER = re.compile(r"[\\/](_pytest[\\/]|pytest_tfperf[\\/]capture[\\/](loop\.py|keras_loops))")
"""Files whose functions call the steps."""
_CALLBACK_LISTS = ("keras/src/callbacks/callback_list.py:", "tf_keras/src/callbacks.py:")
_PHASES = (
    ("compiling", "jax/_src/compiler.py:"),
    ("lowering", "jax/_src/interpreters/mlir.py:lower_jaxpr_to_module"),
    ("tracing", "jax/_src/interpreters/partial_eval.py:trace_to_jaxpr"),
    ("tracing", "tensorflow/python/framework/func_graph.py:func_graph_from_py_func"),
    ("importing", "<frozen importlib._bootstrap>:_find_and_load"),
)
"""What a framework does in a function of this name, and in all that it calls."""
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_Frame = tuple[str, int, str]  # file, line, function


@contextmanager
def stacks_sampled(interval_s: float) -> Iterator[Counter[bytes]]:
    """Sample this thread's stack; yield the seconds of each stack, as faulthandler writes them."""
    seconds: Counter[bytes] = Counter()
    title = f"hread 0x{get_ident():016x} ".encode()
    stop, ended = allocate_lock(), allocate_lock()
    stop.acquire()
    ended.acquire()

    def sample(file: BinaryIO) -> None:
        last, interval, n_samples = perf_counter(), interval_s, 0
        while not stop.acquire(timeout=interval):
            file.seek(0)
            file.truncate()
            faulthandler.dump_traceback(file, all_threads=True)
            now = perf_counter()
            file.seek(0)
            stack = file.read().partition(title)[2].partition(b"\n\n")[0]
            seconds[stack] += now - last  # type: ignore[assignment]
            last, n_samples = now, n_samples + 1
            if n_samples % _PER_INTERVAL == 0:
                interval *= 2
        ended.release()

    before = sys.getswitchinterval()
    with tempfile.TemporaryFile(buffering=0) as file:
        sys.setswitchinterval(_SWITCH_S)
        start_new_thread(sample, (file,))
        try:
            yield seconds
        finally:
            stop.release()
            ended.acquire()
            sys.setswitchinterval(before)


def stack_times(seconds: Counter[bytes], n_steps: int) -> tuple[StackTime, ...]:
    """
    Return where the user's code was in the samples, the longest time first.

    Args:
        seconds: Seconds of each stack.
        n_steps: Steps that were sampled.
    """
    found: Counter[tuple[str, str, str, str, str]] = Counter()
    for stack, taken in seconds.items():
        found[_place(stack.decode(errors="replace"))] += taken
    return tuple(
        StackTime(line, called, function, callback, phase, float(taken) / n_steps)
        for (line, called, function, callback, phase), taken in found.most_common()
        if function
    )


def _place(stack: str) -> tuple[str, str, str, str, str]:
    """Return the fields of a StackTime but its seconds, all empty within this package alone."""
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(stack)]
    frames = list(takewhile(lambda frame: not _DRIVER.search(frame[0]), frames))
    frames = [frame for frame in frames if shown_file(frame[0]) is not None]
    if not frames:
        return "", "", "", "", ""
    names = [f"{shown_file(file)}:{name}" for file, _, name in frames]
    lines = (user_line_of(file, line) for file, line, _ in frames)
    place, line = next(((n, line) for n, line in enumerate(lines) if line), (len(frames), ""))
    called = names[place - 1] if place else ""
    phases = (phase for name in names for phase, start in _PHASES if name.startswith(start))
    return line, called, names[0], _callback(frames, names), next(phases, "")


def _callback(frames: Sequence[_Frame], names: Sequence[str]) -> str:
    """Return the method of the Keras callback on a stack with its class, empty without one."""
    for place, (_, by) in enumerate(pairwise(names)):
        if by.startswith(_CALLBACK_LISTS):
            file, line, method = frames[place]
            modules = [one for one in list(sys.modules.values()) if _file_of(one) == file]
            classes = {
                code.co_firstlineno: kind.__name__
                for module in modules
                for kind in vars(module).values()
                if isinstance(kind, type)
                and (code := getattr(vars(kind).get(method), "__code__", None)) is not None
                and code.co_filename == file
                and code.co_firstlineno <= line
            }
            name = classes[max(classes)] if classes else shown_file(file)
            return f"{name}.{method}"
    return ""


def _file_of(module: object) -> object:
    return vars(module).get("__file__") if hasattr(module, "__dict__") else None
