"""
Find the range of each threshold over which no verdict and no advice on the stored traces changes.

    TFPERF_TRACES=FOLDER python benchmarks/thresholds.py [--markdown]

The corpus is all stored traces of the tests, those of the folder that TFPERF_TRACES names, recorded
pipelines (benchmarks/record_pipelines.py) and profiles of a recorded run. Each trace is analysed
once. Then each threshold is moved alone, down and up, by bisection: as far as all verdicts, named
ops and pieces of advice, and their order, stay the same. The bounds are exact to one part in a
million. `any` means that nothing changes up to the end of the scale.
"""

import argparse
import gzip
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

from tabulate import tabulate

from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.facts.host_activity import TENSORFLOW
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.pipeline_advice import (
    LimitingPipeline,
    limiting_pipeline,
    pipeline_advice,
)
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.metrics.step_advice import advise, by_saving
from pytest_tfperf.recording import Recording
from pytest_tfperf.report.run_file import read_run
from pytest_tfperf.report.step_verdict import top_ops, verdict
from pytest_tfperf.results import Profile
from pytest_tfperf.trace.xspace import decode_trace
from pytest_tfperf.values import Value

ROOT = Path(__file__).parent.parent
STORED = (ROOT / "tests/data/traces", ROOT / "benchmarks/data/pipelines")
RUNS = (ROOT / "tests/data/previous_version/run.json",)
LEAST = 1e-6
SCALES = {"cheap_call_s": (LEAST * LEAST, 1.0), "straggling": (LEAST, 1 / LEAST)}
"""Ends of the scales that are no shares."""
PRECISION = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One profile of the corpus."""

    name: str
    """Name of its file."""
    profile: Profile
    """The profile."""
    framework: str = TENSORFLOW
    """The framework whose terms the advice uses."""
    pipeline: LimitingPipeline | None = None
    """The pipeline that its steps wait for, None if a stored run holds no trace."""

    def outcome(self, thresholds):
        """Return all that the thresholds decide."""
        advice = advise(self.profile, self.framework, thresholds)
        if self.pipeline is not None:
            advice = by_saving((*advice, *pipeline_advice(self.pipeline, thresholds)))
        named = top_ops(self.profile, thresholds)
        said = [(one.what, one.because) for one in advice]
        return verdict(self.profile, "", thresholds), named, said


def traces():
    """Yield the names and bytes of the stored traces, each content once."""
    folders, seen = [*STORED], set()
    if given := os.environ.get("TFPERF_TRACES"):
        folders += [Path(given), Path(given) / "synthetic"]
    for path in sorted(path for folder in folders for path in folder.glob("*.pb*")):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        if content not in seen:
            seen.add(content)
            yield path.name, content


def cases():
    """Yield the corpus, and say which traces give no profile."""
    for name, content in traces():
        recording = Recording(name=name, trace=None, workload={}, bare=True)
        try:
            evidence = Evidence(recording, decode_trace(content))
            profile = profile_of(evidence)
        except TfperfError as error:
            print(f"{name} has no profile: {error!s:.80}")
            continue
        pipeline = limiting_pipeline(evidence)
        yield Case(name=name, profile=profile, framework=evidence.framework, pipeline=pipeline)
    for path in RUNS:
        for test in read_run(path).tests:
            yield from (Case(name=test.key, profile=complete(one)) for one in test.profiles)


def complete(profile):
    """Return a profile of an earlier version with the metrics that it lacks, as unknown ones."""
    lacking = {name: Value.unknown(name, "not in the file") for name in METRICS}
    return replace(profile, metrics={**lacking, **profile.metrics})


def edge(holds, inside, outside):
    """Return the last value that holds on the way from one that does to the end of the scale."""
    if holds(outside):
        return None
    while abs(outside - inside) > PRECISION * max(abs(inside), PRECISION):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def changed(corpus, before, thresholds):
    return [case.name for case in corpus if case.outcome(thresholds) != before[case.name]]


def row(name, corpus, before):
    """Return a threshold with its range, and the traces that bound it."""
    value, (least, most) = getattr(THRESHOLDS, name), SCALES.get(name, (LEAST, 1.0))

    def changes(at):
        return changed(corpus, before, replace(THRESHOLDS, **{name: at}))

    ends, bounds = [], []
    for outside in (least, most):
        end = edge(lambda at: not changes(at), value, outside)
        ends.append(end)
        beyond = None if end is None else end + (outside - end) * 2 * PRECISION
        bounds += [] if beyond is None else changes(beyond) or changes(outside)
    shown = ["any" if end is None else f"{end:.3g}" for end in ends]
    decides = len(set(changes(least)) | set(changes(most)))
    return f"`{name}`", f"{value:g}", *shown, decides, ", ".join(short(bounds))


def short(names):
    """Return a few names, without their endings."""
    plain = (name.partition(":")[2].partition(".xplane.pb")[0] for name in names)
    found = list(dict.fromkeys(plain))
    return found[:2] + ([f"{len(found) - 2} more"] if len(found) > 2 else [])


def main(style):
    corpus = list(cases())
    corpus = [replace(case, name=f"{number}:{case.name}") for number, case in enumerate(corpus)]
    before = {case.name: case.outcome(THRESHOLDS) for case in corpus}
    rows = [row(field.name, corpus, before) for field in fields(THRESHOLDS)]
    print(f"{len(corpus)} profiles")
    headers = ("threshold", "value", "from", "to", "profiles", "bounded by")
    print(tabulate(rows, headers, tablefmt=style, disable_numparse=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Find the ranges of the thresholds.")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    main("github" if parser.parse_args().markdown else "simple")
