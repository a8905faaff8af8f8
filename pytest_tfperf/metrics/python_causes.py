"""
Name the Python that takes the time of a step, and makes its calls, with the remedy of each cause.

Samples of the stack tell lines where the warm-up was long enough for them. Else the functions
called in the counted steps tell by their own time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from pytest_tfperf.advice.by_framework import CALL_FROM_ONE, ONE_FUNCTION, text_for
from pytest_tfperf.advice.step_remedies import (
    CALL_OF_TENSORFLOW,
    CALLBACK,
    COMPARE_LESS,
    FLATTEN_ONCE,
    IS_COMPARED,
    LARGER_EXECUTIONS,
    LAUNCHES,
    LOOP_IN_FUNCTION,
    RUN_EAGERLY,
    less_often,
    library_remedy,
    lines_of,
    op_samples,
    overhead_remedy,
    python_remedy,
)
from pytest_tfperf.facts.host_activity import JAX, TENSORFLOW
from pytest_tfperf.metrics.dispatches import jax_dispatches
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.quantities import COUNT, format_quantity
from pytest_tfperf.recording import PythonFunction, StackTime
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Unknown

NATIVE = re.compile(
    r"tensorflow/python/(eager/(execute|context)|ops/gen_\w+)\.py:|jax/_src/array\.py:"
)
"""Functions that call the runtime of a framework, and wait in it."""
_HOOK = re.compile(r"\.on_(?:(?:train|test|predict)_)?(?:batch|epoch)_(?:begin|end)$")
_PYTHONS = "Python's library"
_MOST, _SHOWS = 3, 0.5
_LARGE = 0.15
"""Least share of the calls or the time of a group of functions that is named."""
_MANY_LAUNCHES, _MANY_CALLS = 20, 100
_ENOUGH, _FEWEST = 20, 5
"""Least samples of all places together, and of one that is named."""
_AGAIN = 3
"""Least calls of each function that are a loop."""
_EAGER = ("", "", "ops that run eagerly")

Cause = tuple[float, str, str]
"""Share, where, try."""


def timed(stacks: Iterable[StackTime]) -> list[StackTime]:
    """Return the samples in which Python itself ran, and did not wait for a runtime."""
    return [one for one in stacks if not NATIVE.match(one.function)]


def own_time(function: PythonFunction) -> float:
    """Return the seconds in which a function ran itself, and did not wait for a runtime."""
    return 0.0 if NATIVE.match(function.name) else function.self_s


def enough(stacks: Iterable[StackTime]) -> bool:
    """Return whether there are enough samples to tell where the time is."""
    return sum(one.n for one in stacks) >= _ENOUGH


def python_time(stacks: Sequence[StackTime], evidence: Evidence) -> Iterator[Cause]:
    """Divide the time of Python among the user's lines, or else the functions that it calls."""
    yield from by_line(stacks, evidence) if enough(stacks) else by_function(own_time, evidence)


def python_cause(evidence: Evidence) -> dict[str, str]:
    """Return where Python takes most of its time, and what to try; nothing if that is not known."""
    causes = python_time(evidence.recording.stacks, evidence)
    share, where, remedy = next(causes, (0.0, "", ""))
    return {"where": where, "try": remedy} if share >= _SHOWS else {}


def by_line(stacks: Iterable[StackTime], evidence: Evidence) -> Iterator[Cause]:
    """Name the user's lines and callbacks whose Python takes the time, by samples of the stack."""
    python = timed(stacks)
    total = sum(one.seconds for one in python)
    n_eager, n_calls = launches(evidence)
    eager: set[StackTime] = set()
    if n_eager >= _MANY_LAUNCHES:
        eager.update(op_samples(python, n_eager, n_calls, evidence.framework))
    groups: dict[tuple[str, str, str], list[StackTime]] = {}
    for one in python:
        called = "" if one.callback else one.called
        key = one.callback, one.line, called.partition(":")[0]
        groups.setdefault(_EAGER if one in eager else key, []).append(one)
    ordered = sorted(groups.items(), key=lambda item: -sum(one.seconds for one in item[1]))
    trees = {one.name for one in _counted(evidence) if one.of_trees}
    for key, group in ordered[:_MOST]:
        first, share = group[0], sum(one.seconds for one in group) / total
        where, remedy = described_python(group, evidence), python_remedy(group)
        if key == _EAGER:
            if first.called.startswith(CALL_OF_TENSORFLOW):
                where = f"Python{lines_of(group)}"
            where = f"{n_eager:.0f} ops run eagerly, one by one: {where}"
            remedy = text_for(ONE_FUNCTION, evidence.framework)
        elif first.callback:
            pass  # as it is described
        elif first.function in trees:
            where, remedy = f"JAX takes a pytree apart: {where}", FLATTEN_ONCE
        elif not first.line:
            where, remedy = _of_libraries(_counted(evidence), own_time, evidence)
        elif first.called.startswith(CALL_OF_TENSORFLOW) and n_calls == 1:
            where = f"{where.partition(' in ')[0]}, which calls a tf.function"
            remedy = overhead_remedy(evidence.framework, is_function=not n_eager)
        elif (not first.called or first.called.startswith(CALL_OF_TENSORFLOW)) and (
            many := _launched(n_eager, n_calls, evidence)
        ):
            where, remedy = f"{where.partition(' in ')[0]}, {many[0]}", many[1]
        if sum(one.n for one in group) >= _FEWEST:
            yield share, where, remedy


def by_function(weight: Callable[[PythonFunction], float], evidence: Evidence) -> Iterator[Cause]:
    """
    Name groups of the functions that a step calls, the largest first.

    Args:
        weight: What is divided among them: their calls, or the time of their own code.
        evidence: The evidence of the steps.
    """
    functions = sorted(_counted(evidence), key=lambda one: -weight(one))
    total = sum(map(weight, functions))
    trees = [one for one in functions if one.of_trees]
    own = [one for one in functions if one.place and not one.of_trees]
    libraries = [one for one in functions if not (one.place or one.of_trees)]
    found = []
    if sum(one.calls for one in trees) >= _SHOWS * sum(one.calls for one in functions) > 0:
        # JAX's C++ goes through the tree between these calls, in the time of the caller
        trees, own = trees + own, []
    for group in (trees, own, libraries):
        share = sum(map(weight, group)) / total if total else 0.0
        where, remedy = _named(group), FLATTEN_ONCE
        if share < _LARGE:
            continue
        if group is libraries:
            where, remedy = _of_libraries(libraries, weight, evidence)
        elif group is own:
            where, remedy = _of_the_user(own, where, evidence)
        else:
            where = f"JAX takes a pytree apart: {where}"
        found.append((share, where, remedy))
    yield from sorted(found, key=lambda one: -one[0])


def _named(functions: Iterable[PythonFunction]) -> str:
    """Return functions with their places and calls, those called most often first."""
    texts = []
    for one in sorted(functions, key=lambda one: -one.calls):
        file, _, name = one.name.rpartition(":")
        times = f" ×{format_quantity(one.calls, COUNT)}" if one.calls > 1 else ""
        texts.append(f"{name}{f' at {one.place}' if one.place else f' of {file}'}{times}")
    return and_more(texts, _MOST)


def _of_the_user(own: Sequence[PythonFunction], where: str, evidence: Evidence) -> tuple[str, str]:
    """Return where and what to try for functions of the user."""
    most = max(own, key=lambda one: one.calls)
    hooks = [one for one in own if _HOOK.search(one.name)]
    if hooks and _in_keras(evidence):
        return f"{where}; in the callback {hooks[0].name.rpartition(':')[2]}", CALLBACK
    many = _launched(*launches(evidence), evidence)
    if many and most.calls < _MANY_CALLS:
        return f"Python of {where}, {many[0]}", many[1]
    if any(map(IS_COMPARED.search, (one.name for one in own[:1]))):
        return f"Python of {where}", COMPARE_LESS
    name = most.name.rpartition(":")[2] if most.calls > 1 else "it"
    return f"Python of {where}", less_often(name)


def _launched(n_eager: float, n_calls: float, evidence: Evidence) -> tuple[str, str] | None:
    """Return what a line launches one by one, and the remedy, if that is much."""
    together = text_for(CALL_FROM_ONE, evidence.framework)
    if evidence.framework == JAX and n_eager + n_calls >= _MANY_LAUNCHES:
        is_loop = n_calls >= _AGAIN * len(evidence.xla.modules)
        remedy = (LAUNCHES if is_loop else together) if n_calls >= n_eager else ONE_FUNCTION[JAX]
        return f"which launches {n_eager + n_calls:.0f} programs a step", remedy
    if evidence.framework == TENSORFLOW and n_calls > 1:
        is_loop = n_calls >= _AGAIN * len(evidence.functions)
        text = f"which calls tf.functions {format_quantity(n_calls, COUNT)} times a step"
        return text, LOOP_IN_FUNCTION if is_loop else together
    return None


def _of_libraries(
    functions: Sequence[PythonFunction],
    weight: Callable[[PythonFunction], float],
    evidence: Evidence,
) -> tuple[str, str]:
    """Return who calls functions of libraries, of which they are, and what to try."""
    packages = Counter[str]()
    for one in functions:
        package, is_package, _ = one.name.partition("/")
        packages[package if is_package else _PYTHONS] += one.calls  # type: ignore[assignment]
    shown = [f"{name} ×{format_quantity(n, COUNT)}" for name, n in packages.most_common()]
    n_eager, n_calls = launches(evidence)
    known = library_remedy(functions, weight, _in_keras(evidence))
    if _in_keras(evidence) and n_eager >= _MANY_LAUNCHES:
        who, remedy = f"Keras runs {n_eager:.0f} ops of the model eagerly", RUN_EAGERLY
    elif known:
        who, remedy = known
    elif _in_keras(evidence):
        who, remedy = "Keras calls its compiled step for each batch", LARGER_EXECUTIONS
    elif n_eager >= _MANY_LAUNCHES or (n_eager and not n_calls):
        who = f"{n_eager:.0f} ops run eagerly, one by one"
        remedy = text_for(ONE_FUNCTION, evidence.framework)
    elif many := _launched(n_eager, n_calls, evidence):
        who, remedy = f"the step's own loop, {many[0]}", many[1]
    elif evidence.framework not in (JAX, TENSORFLOW):
        who, remedy = "functions of libraries", less_often("the step's Python code")
    else:
        who = "the calls of compiled functions" if n_calls else "functions of libraries"
        remedy = overhead_remedy(evidence.framework, is_function=n_calls == 1 and not n_eager)
    return f"{who} ({and_more(shown, _MOST)})" if shown else who, remedy


def launches(evidence: Evidence) -> tuple[float, float]:
    """Return the ops that Python runs one by one in a step, and its calls of other functions."""
    if evidence.trace is None or not len(evidence.launched):
        return 0.0, 0.0
    if evidence.framework == JAX:
        n_eager, n_all = jax_dispatches(evidence).number or 0.0, evidence.xla.launches
        return n_eager, max(float(n_all.mean()) - n_eager, 0.0)
    n_calls = sum(sum(use.calls.values()) for use in evidence.functions)
    counts = evidence.eager_ops[0]
    return float(counts.mean()) if len(counts) else 0.0, n_calls / evidence.launched.n_steps


def _in_keras(evidence: Evidence) -> bool:
    return evidence.trace is not None and evidence.launched.in_keras


def _counted(evidence: Evidence) -> tuple[PythonFunction, ...]:
    calls = evidence.recording.python_calls
    return () if isinstance(calls, Unknown) else calls.functions


def called_from(stacks: Iterable[StackTime]) -> str:
    """Return the line of the user that most of the time is called from."""
    lines = Counter[str]()
    for one in stacks:
        lines[one.line] += one.seconds  # type: ignore[assignment]
    (line, seconds), *_ = lines.most_common(1) or [("", 0)]
    return f", called at {line}" if line and seconds > _SHOWS * lines.total() else ""


def described_python(group: Sequence[StackTime], evidence: Evidence) -> str:
    """Describe samples of some lines or one callback, with the function that it calls most."""
    first, lines = group[0], dict.fromkeys(one.line for one in group if one.line)
    at = f" at {and_more(list(lines), _MOST)}" if lines else ""
    if first.callback:
        file, _, method = first.callback.rpartition(":")
        return f"Keras callback {method}{at or f' of {file}'}"
    most = ""
    package = first.called.partition("/")[0]
    inside = next(
        (one for one in _counted(evidence) if one.name.partition("/")[0] == package), None
    )
    if first.called and inside is not None and inside.calls >= _MANY_CALLS:
        most = f"; called most there: {inside.name} ×{format_quantity(inside.calls, COUNT)}"
    if not first.called:
        return f"Python{at or ' of ' + first.function}{most}"
    return f"Python{at} in {first.called}{most}"
