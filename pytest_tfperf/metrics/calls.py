"""
Calls from Python in the steps: eager ops, functions traced again, JAX outside jit, all others.

Their cause is the Python that takes the time of a step and makes its calls. Samples of the stack
tell its lines where the warm-up was long enough for them. Else the functions called in the counted
steps tell by their own time.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_tfperf.advice.by_framework import CALL_FROM_ONE, ONE_FUNCTION, text_for
from pytest_tfperf.advice.step_remedies import (
    ARRAYS,
    CALL_OF_TENSORFLOW,
    CALLBACK,
    COMPARE_LESS,
    FLATTEN_ONCE,
    IS_COMPARED,
    LARGER_EXECUTIONS,
    LAUNCHES,
    LOOP_IN_FUNCTION,
    RUN_EAGERLY,
    eager_cause,
    eager_remedies,
    less_often,
    library_remedy,
    lines_of,
    op_samples,
    overhead_remedy,
    python_remedy,
    tally,
)
from pytest_tfperf.facts.host_activity import (
    JAX,
    NO_RUNTIME,
    TENSORFLOW,
    shows_eager,
    shows_runtime,
)
from pytest_tfperf.facts.op_times import FunctionUse, eager_share, function_table, op_table
from pytest_tfperf.metrics.copies import EXPLICIT_PUT, reads_in_a_step
from pytest_tfperf.metrics.counts import (
    counted_by,
    counted_over,
    per_step,
    retrace_cause,
    why_uncounted,
)
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.validity import why_remote
from pytest_tfperf.quantities import COUNT, SECONDS, SHARE, format_quantity
from pytest_tfperf.recording import UNSEEN, PythonFunction, Recording, StackTime
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.host_events import (
    called_function,
    executing_calls,
    jax_executions,
    shows_jax_calls,
)
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import (
    COUNTED_BY,
    FETCH,
    FETCH_PYTHON,
    Column,
    Source,
    Table,
    Unknown,
    Value,
)

_NO_EAGER = "the trace has no events of TensorFlow's eager runtime that name what it ran"
_READS = re.compile(
    r"tensorflow/python/framework/ops\.py:_EagerTensorBase\."
    r"(numpy|__(float|int|bool|index|array|complex)__)$"
)
"""Functions of TensorFlow with which Python reads a tensor."""
_SILENT = (
    "{} did not report what it traced: it was imported in the first step, or its version differs "
    "from those that do; import it at the top of the test's module"
)
_CALLS = "python_calls"
MOST_FUNCTIONS = 200
"""Functions that a profile and a baseline keep, those with the most calls."""
_NAMED = 3
_NOT_DRIVEN = "only steps that tf_profile drives, or a Keras loop, are counted"
_TOO_FEW = "the data ended before the steps in which they are counted"
_EAGER_OPS = "eager_ops"
_NOT_IN_PROCESS = "a trace does not tell JAX's own functions from the user's; pytest does"
_NO_CALLS = "the trace has no event of JAX's calls and executions, which would show them"
NATIVE = re.compile(
    r"tensorflow/python/(eager/(execute|context)|ops/gen_\w+)\.py:|jax/_src/array\.py:"
)
"""Functions that call the runtime of a framework, and wait in it."""
_HOOK = re.compile(r"\.on_(?:(?:train|test|predict)_)?(?:batch|epoch)_(?:begin|end)$")
_PYTHONS, _OTHERS = "Python's library", "other functions of the project"
_MOST_OWN = 10
"""Functions of the project that a baseline names for reviewers, so that they stay few lines."""
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


def analyse(evidence: Evidence) -> Findings:
    """Find the ops that Python ran eagerly, and the functions that it called and traced."""
    recording, trace = evidence.recording, evidence.trace
    if trace is None:
        untraced = evidence.untraced("eager_ops").values
        return Findings(values={**untraced, "retraces": retraces(evidence, ())})
    uses = evidence.functions
    tables = {}
    if evidence.host_ops:
        ops = op_table(evidence.host_ops, evidence.launched.n_steps)
        tables["host_ops"] = replace(ops, title="ops on the host")
    if uses:
        tables["functions"] = function_table(uses, evidence.launched)
    traces = retraces(evidence, uses)
    if recording.framework == JAX:
        return Findings(
            values={"eager_ops": jax_dispatches(evidence), "retraces": traces}, tables=tables
        )
    if not (evidence.late.traced or uses or shows_runtime(trace)):
        traces = Value.unknown("retraces", traces.why or NO_RUNTIME)
    values = {"eager_ops": _eager_ops(evidence, trace), "retraces": traces}
    return Findings(values=values, tables=tables)


def retraces(evidence: Evidence, uses: Sequence[FunctionUse]) -> Value:
    """Return retraces, with the functions' share of time in calls that traced or ran eagerly."""
    share = _expensive_share(uses)
    detail = {"expensive_share": share} if share else {}
    recording, late, over = evidence.recording, evidence.late, counted_over(evidence)
    traced = late.traced
    if traced is None or not over["n_steps"]:
        is_silent = traced is None and late.compiled is not None and not recording.bare
        why = _SILENT if is_silent else why_uncounted(evidence, "{}'s runtime")
        unknown = Value.unknown("retraces", why.format(recording.framework))
        return unknown.changed(detail=detail)
    source = Source.TRACE if recording.bare else Source.GRAPH
    own = recording.own_functions or ()
    cause = retrace_cause(traced, recording.framework, own) if traced else {}
    counted = counted_by(name for name, *_ in traced)
    return Value.of("retraces", len(traced), source, **over, **cause, **detail, **counted)


def _eager_ops(evidence: Evidence, trace: Trace) -> Value:
    """Return eager_ops, with the share of the host ops' time that is theirs."""
    share = None if why_remote(evidence) else eager_share(evidence.host_ops)  # of all processes
    detail: dict[str, Any] = {"time_share": share} if share else {}
    if not shows_eager(trace):
        unknown = Value.unknown("eager_ops", _NO_EAGER)
        return unknown.changed(detail=detail)
    counts, types = evidence.eager_ops
    cause = {}
    if types:
        recording = evidence.recording
        n_steps = evidence.launched.n_steps
        n_reads = sum(one.calls for one in recording.called if _READS.match(one.name))
        remedy = eager_remedies(types, n_steps, _into_a_function(evidence), n_reads)
        cause = eager_cause(types, recording.eager, recording.callbacks, remedy, n_steps)
    detail |= counted_by(types)
    return per_step("eager_ops", counts, evidence.launched.sizes, **cause, **detail)


def _into_a_function(evidence: Evidence) -> str:
    """Return the remedy of ops that Python runs one by one, by what the step calls besides."""
    if evidence.functions:
        return "move them into the tf.function that the step calls"
    if evidence.launched.in_keras:
        return "compile the model with run_eagerly=False"
    return "wrap the step in a tf.function: it calls none"


def _expensive_share(uses: Sequence[FunctionUse]) -> float | None:
    total = sum(use.self_s for use in uses)
    return sum(use.expensive_s for use in uses) / total if total > 0 else None


def analyse_python_calls(evidence: Evidence) -> Findings:
    """Find the calls of Python functions in a step, and the functions called most."""
    value, max_rise = _python_calls(evidence), evidence.asked.max_python_calls_regression
    if max_rise is not None:
        value = value.changed(detail={**value.detail, "max_rise": max_rise})
    calls = evidence.recording.python_calls
    tables = {} if isinstance(calls, Unknown) else {_CALLS: _functions_table(calls.functions)}
    return Findings(values={_CALLS: value}, tables=tables)


def _why_unseen(recording: Recording) -> str:
    if recording.bare:
        return _NOT_DRIVEN
    return recording.ended or _TOO_FEW


def _python_calls(evidence: Evidence) -> Value:
    """Return the calls a step, which are known only where all counted steps have as many."""
    recording = evidence.recording
    calls = recording.python_calls
    if isinstance(calls, Unknown):
        why = _why_unseen(recording) if calls is UNSEEN else f"not counted: {calls.why}"
        return Value.unknown(_CALLS, why)
    each = [n_calls / n_steps for n_calls, n_steps in calls.steps]
    low, high = min(each), max(each)
    if low != high:
        shown = " to ".join(format_quantity(number, COUNT) for number in (low, high))
        return Value.unknown(_CALLS, f"it differs from step to step: {shown} in {len(each)} steps")
    functions = [f"{one.name} ×{format_quantity(one.calls, COUNT)}" for one in calls.functions]
    causes = [*by_function(lambda one: one.calls, evidence)] if high else []
    parts = {COUNTED_BY: _by_package(calls.functions)} if calls.functions else {}
    if not causes:
        return Value.of(_CALLS, high, Source.COUNTED, n_steps=len(each), **parts)
    where = [text for _, text, _ in causes]
    if len(where) > 1:
        where = [
            f"{format_quantity(share, SHARE)} of the calls: {text}" for share, text, _ in causes
        ]
    if any(not (one.place or one.of_trees) for one in calls.functions[:_NAMED]):
        where.append(f"called most: {and_more(functions, _NAMED)}")
    remedies = dict.fromkeys(remedy for *_, remedy in causes)
    cause = {"where": "; ".join(where), "try": "; ".join(remedies)}
    return Value.of(_CALLS, high, Source.COUNTED, n_steps=len(each), **cause, **parts)


def _by_package(functions: Sequence[PythonFunction]) -> dict[str, float]:
    """Return the calls of the project's functions, most frequent first, and those by package."""
    own = [one.name for one in functions if one.place]
    found: dict[str, float] = {}
    for one in functions:
        package = _package(one.name)
        name = _PYTHONS if package in sys.stdlib_module_names else package
        if one.place:
            name = one.name if one.name in own[:_MOST_OWN] else _OTHERS
        found[name] = found.get(name, 0) + one.calls
    return found


def _package(name: str) -> str:
    package, is_package, _ = name.partition("/")
    return package if is_package else _PYTHONS


def _functions_table(functions: tuple[PythonFunction, ...]) -> Table:
    return Table.of_each(
        "Python functions that a step calls",
        functions,
        [
            (Column("function", "function"), lambda one: one.name),
            (Column("line", "line"), lambda one: one.line),
            (Column("calls", "calls a step", COUNT), lambda one: one.calls),
            (Column("self_s", "self time while counted", SECONDS), lambda one: one.self_s),
        ],
        limit=MOST_FUNCTIONS,
    )


def jax_dispatches(evidence: Evidence) -> Value:
    """
    Return eager_ops of a step of JAX: calls of functions that JAX itself compiles for ops outside
    `jax.jit`, known by name; a call that puts an array on a device is no op.
    """
    own = evidence.recording.own_functions
    if own is None or evidence.trace is None:
        return Value.unknown(_EAGER_OPS, _NOT_IN_PROCESS)
    own = {name: is_users_too for name, is_users_too in own.items() if name != EXPLICIT_PUT}
    host = Events.of(evidence.trace.plane(HOST))
    if not shows_jax_calls(host) or not len(jax_executions(host)):
        return Value.unknown(_EAGER_OPS, _NO_CALLS)
    calls = executing_calls(host)
    calls = calls.where(enclosing(host.called(FETCH, FETCH_PYTHON), calls) < 0)
    calls = calls.where(evidence.launched.of(calls.start) >= 0)
    names = [called_function(name) for name in calls.names]
    if shared := sorted({name for name in names if own.get(name)}):
        return Value.unknown(
            _EAGER_OPS,
            f"JAX and the step both compile a function named {and_more(shared, 3)}, and a trace "
            "tells them apart by name only; rename yours",
        )
    counted = np.array([name in own for name in names], bool)
    step = evidence.launched.of(calls.where(counted).start)
    counts = np.bincount(step, minlength=len(evidence.launched))
    called = Counter(name for name in names if name in own)
    detail = _dispatched(evidence, called, n_calls=len(names) - called.total()) if called else {}
    detail |= counted_by(called)
    return per_step(_EAGER_OPS, counts, evidence.launched.sizes, **(detail if counts.any() else {}))


def _dispatched(evidence: Evidence, called: Counter[str], n_calls: int) -> dict[str, Any]:
    """Return where JAX's own functions are called, and what to try."""
    recording, n_steps = evidence.recording, evidence.launched.n_steps
    remedy = "wrap the step in jax.jit: it calls no such function"
    if n_calls:
        remedy = "move them into the jax.jit function that the step calls"
    if evidence.launched.in_keras:
        remedy = "compile the model with jit_compile=True, and run_eagerly=False"
    arrays_s = sum(one.self_s for one in recording.called if ARRAYS.match(one.name))
    makes_arrays = arrays_s > sum(one.self_s for one in recording.called) / 2
    remedies = eager_remedies(called, n_steps, remedy, reads_in_a_step(evidence), makes_arrays)
    samples = op_samples(recording.stacks, called.total() / n_steps, n_calls / n_steps, JAX)
    if makes_arrays:
        samples += [one for one in recording.stacks if ARRAYS.match(one.called)]
    lines = lines_of(samples)
    callers = f", called{lines}" if lines else _users(recording.called)
    where = f"outside jax.jit: {tally(called, n_steps)}{callers}"
    return {"where": where, "try": remedies}


def _users(functions: Sequence[PythonFunction]) -> str:
    """Return the user's functions in which a step's Python takes its time, if it calls some."""
    own = sorted((one for one in functions if one.place), key=lambda one: -one.self_s)
    least_s = sum(one.self_s for one in own) / 4
    named = [
        f"{one.name.rpartition(':')[2]} at {one.place}" for one in own if one.self_s >= least_s
    ]
    return f"; the step runs {and_more(named, 3)}" if named else ""


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
    python = timed(stacks)
    yield from by_line(python, evidence) if enough(python) else by_function(own_time, evidence)


def python_cause(evidence: Evidence) -> dict[str, str]:
    """Return where Python takes the time, and the remedy of most of it; nothing if none is."""
    causes = [*python_time(evidence.recording.stacks, evidence)]
    if not causes:
        return {}
    _, where, remedy = causes[0]
    of_remedy = sum(share for share, _, its in causes if its == remedy)
    return {"where": where, "try": remedy} if of_remedy >= _SHOWS else {}


def by_line(python: Sequence[StackTime], evidence: Evidence) -> Iterator[Cause]:
    """Name the user's lines and callbacks whose Python takes the time, by samples of the stack."""
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
    trees, are_most = _of_trees(evidence.recording.called)
    names = {one.name for one in trees}
    for key, group in ordered[:_MOST]:
        first, share = group[0], sum(one.seconds for one in group) / total
        where, remedy = described_python(group, evidence), python_remedy(group)
        if key == _EAGER:
            if first.called.startswith(CALL_OF_TENSORFLOW):
                where = f"Python{lines_of(group)}"
            where = f"{format_quantity(n_eager, COUNT)} ops run eagerly, one by one: {where}"
            remedy = text_for(ONE_FUNCTION, evidence.framework)
        elif first.callback:
            pass  # as it is described
        elif first.function in names:
            where, remedy = f"JAX takes a pytree apart: {_named(trees)}", FLATTEN_ONCE
        elif are_most and first.line and not first.called:
            # JAX's C++ goes through the tree between these calls, in the time of the caller
            where += f", in a step in which JAX takes a pytree apart: {_named(trees)}"
            remedy = FLATTEN_ONCE
        elif not first.line:
            where, remedy = _of_libraries(evidence.recording.called, own_time, evidence)
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
    """Name the groups of a step's functions, the largest first; `weight` is calls or own time."""
    functions = sorted(evidence.recording.called, key=lambda one: -weight(one))
    total = sum(map(weight, functions))
    trees, are_most = _of_trees(functions)
    own = [one for one in functions if one.place and not one.of_trees]
    libraries = [one for one in functions if not (one.place or one.of_trees)]
    found = []
    if are_most:  # as in by_line
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


def _of_trees(functions: Sequence[PythonFunction]) -> tuple[list[PythonFunction], bool]:
    """Return those that take pytrees apart, and whether most calls of a step are theirs."""
    trees = [one for one in functions if one.of_trees]
    n_calls = sum(one.calls for one in functions)
    return trees, sum(one.calls for one in trees) >= _SHOWS * n_calls > 0


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
        return f"which launches {format_quantity(n_eager + n_calls, COUNT)} programs a step", remedy
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
        packages[_package(one.name)] += one.calls  # type: ignore[assignment]
    shown = [f"{name} ×{format_quantity(n, COUNT)}" for name, n in packages.most_common()]
    n_eager, n_calls = launches(evidence)
    known = library_remedy(functions, weight, _in_keras(evidence))
    if _in_keras(evidence) and n_eager >= _MANY_LAUNCHES:
        who = f"Keras runs {format_quantity(n_eager, COUNT)} ops of the model eagerly"
        remedy = RUN_EAGERLY
    elif known:
        who, remedy = known
    elif _in_keras(evidence):
        who, remedy = "Keras calls its compiled step for each batch", LARGER_EXECUTIONS
    elif n_eager >= _MANY_LAUNCHES or (n_eager and not n_calls):
        who = f"{format_quantity(n_eager, COUNT)} ops run eagerly, one by one"
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
        (one for one in evidence.recording.called if one.name.partition("/")[0] == package), None
    )
    if first.called and inside is not None and inside.calls >= _MANY_CALLS:
        most = f"; called most there: {inside.name} ×{format_quantity(inside.calls, COUNT)}"
    if not first.called:
        return f"Python{at or ' of ' + first.function}{most}"
    return f"Python{at} in {first.called}{most}"
