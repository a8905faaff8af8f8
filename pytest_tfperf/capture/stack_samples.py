"""
Sample the Python stack of the steps' thread, to tell which lines of the user take the time.

Samples have lines, which profilers in C have not, and cost a call nothing. They are taken in the
first step and in the warm-up, so that no other time is measured beside them. A signal lets the
thread read its own stack. That of a thread that runs on cannot be read safely: on Python 3.11 both
`frame.f_back` and `faulthandler.dump_traceback` crash beside threads that begin and end.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from _thread import allocate_lock, start_new_thread
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from types import CodeType, FrameType

from pytest_tfperf.compiler.source_lines import CALLBACKS, user_line_of
from pytest_tfperf.machine.calls import function_name
from pytest_tfperf.recording import StackTime

FIRST_S, WARM_S = 0.02, 0.001
"""Seconds between two samples of the first step, which is timed, and of the warm-up."""
_PER_INTERVAL = 1000
"""Samples after which the interval doubles."""
_SWITCH_S = 0.0005
"""
Seconds that a thread runs Python before it lets another one run, 0.005 by default.

Samples would otherwise fall where the thread waits in C anyway.
"""
_PHASES = (
    ("compiling", "jax/_src/compiler.py:"),
    ("lowering", "jax/_src/interpreters/mlir.py:lower_jaxpr_to_module"),
    ("tracing", "jax/_src/interpreters/partial_eval.py:trace_to_jaxpr"),
    ("tracing", "tensorflow/python/framework/func_graph.py:func_graph_from_py_func"),
    ("importing", "<frozen importlib._bootstrap>:_find_and_load"),
)
"""What a framework does in a function of this name, and in all that it calls."""
_FILTER = re.compile(r"(keras/.*|jax/_src/)traceback_utils?\.py:")
"""Decorators of Keras and JAX around the functions that users call."""
_HOOK = re.compile(r"[.:]on_\w+$")
"""End of the name of a callback's method; the list of callbacks calls other functions too."""
_Stack = tuple[tuple[CodeType, int], ...]
Samples = dict[object, tuple[_Stack, float, int]]
"""Stacks with seconds and number, by the identities of their code: it compares slowly by value."""


@contextmanager
def stacks_sampled(interval_s: float) -> Iterator[Samples]:
    """
    Sample this thread's stack; yield each stack with its seconds, innermost frame first.

    Nothing is sampled outside of the main thread, which alone handles signals, and where the user
    handles this signal.
    """
    samples: Samples = {}
    # ignored by default, so that a late one does no harm; Go's runtime chose it for that too
    number = getattr(signal, "SIGURG", None)
    is_main = threading.current_thread() is threading.main_thread()
    if number is None or not is_main or callable(signal.getsignal(number)):
        yield samples
        return
    base, last = set(_outer(sys._getframe())), perf_counter()

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = perf_counter()
        stack = _stack(frame, base)
        key = tuple([(id(code), line) for code, line in stack])
        stack, seconds, n_before = samples.get(key, (stack, 0.0, 0))
        samples[key] = stack, seconds + now - last, n_before + 1
        last = now

    handler = signal.signal(number, sample)
    signal.siginterrupt(number, False)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    end = _signals(number, interval_s)
    try:
        yield samples
    finally:
        end()
        signal.signal(number, handler)
        sys.setswitchinterval(before)
        base.clear()


def _signals(number: int, interval_s: float) -> Callable[[], None]:
    """Send a signal to this thread at intervals; return a function that ends that."""
    stop, ended, ident = allocate_lock(), allocate_lock(), threading.get_ident()
    stop.acquire()
    ended.acquire()

    def send() -> None:
        interval, n_sent = interval_s, 0
        while not stop.acquire(timeout=interval):
            signal.pthread_kill(ident, number)
            n_sent += 1
            if n_sent % _PER_INTERVAL == 0:
                interval *= 2
        ended.release()

    def end() -> None:
        stop.release()
        ended.acquire()

    start_new_thread(send, ())
    return end


def _outer(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _stack(frame: FrameType | None, base: set[FrameType]) -> _Stack:
    """Return the frames that the steps added to those of the base, and the one that they left."""
    stack = []
    for inner in _outer(frame):
        stack.append((inner.f_code, inner.f_lineno))
        if inner in base:
            break
    return tuple(stack)


def stack_times(samples: Samples, n_steps: int) -> tuple[StackTime, ...]:
    """Return where the user's code was in the samples, the longest time first."""
    found: defaultdict[tuple[str, str, str, str, str], tuple[float, int]]
    found = defaultdict(lambda: (0.0, 0))
    for stack, taken, n in samples.values():
        place = _place(stack)
        found[place] = found[place][0] + taken, found[place][1] + n
    ordered = sorted(found.items(), key=lambda one: -one[1][0])
    return tuple(StackTime(*place, taken / n_steps, n) for place, (taken, n) in ordered if place[2])


def _place(stack: _Stack) -> tuple[str, str, str, str, str]:
    """Return the fields of a StackTime but its seconds, all empty within this package alone."""
    named = [(name, code, line) for code, line in stack if (name := function_name(code))]
    names = [name for name, *_ in named]
    if not named:
        return "", "", "", "", ""
    lines = (user_line_of(code.co_filename, line) for _, code, line in named)
    place, line = next(((n, line) for n, line in enumerate(lines) if line), (len(named), ""))
    inside = [name for name in names[:place] if not _FILTER.search(name)] or names[:place]
    called = inside[-1] if inside else ""
    hooks = ((name, by) for name, by in pairwise(names) if _HOOK.search(name))
    callback = next((name for name, by in hooks if by.partition(":")[0].endswith(CALLBACKS)), "")
    phases = (phase for name in names for phase, start in _PHASES if name.startswith(start))
    return line, called, names[0], callback, next(phases, "")
