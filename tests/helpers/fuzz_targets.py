"""
All that reads files of others, each with its corpus, its damage and what must hold: `TARGETS`.

    target = TARGETS["runs"](folder)          # folder: an empty one
    target.faults([(name, seed), ...])        # [(place in the list, what is wrong), ...]

Every command gives an answer, or refuses the file in one sentence. What it refuses changes no file. Nothing that is written
holds NaN or Infinity, or text that controls a terminal.
"""

import gzip
import json
import shutil
import traceback
from dataclasses import replace
from pathlib import Path

from helpers import fuzz
from helpers.builders import LAPTOP, record_of, run_of, value
from helpers.commands import (
    GOOD,
    USAGE,
    check_answer,
    check_numbers,
    check_terminal,
    contents,
    ran,
    strict_json,
)
from helpers.paths import DATA
from helpers.sample_run import TRAIN

from pytest_tfperf.baseline.store import Place, read_file
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin import decide
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.report.failure import failure_message
from pytest_tfperf.report.run_file import ENDINGS, read_run, write_run
from pytest_tfperf.text import for_terminal
from pytest_tfperf.values import Column, Table

CORPUS = DATA / "fuzz"


class Target:
    """Takes one mutant at a time; a fault names the error and the line of the package."""

    kinds = ()
    """The folders of its corpus."""
    format = ""

    def __init__(self, folder):
        self.folder = Path(folder)
        paths = [path for kind in self.kinds for path in sorted((CORPUS / kind).iterdir())]
        self.seeds = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in paths}
        self.n_taken = self.n_read = 0
        """Mutants, and those of them that were read; the number of a mutant picks the options of a command."""

    def damage(self, raw, seed):
        return fuzz.mutant(raw, seed, self.format)

    def faults(self, chosen):
        for place, (name, seed) in enumerate(chosen):
            try:
                self.take(name, self.damage(self.seeds[name], seed))
            except Exception as error:
                yield place, described(error)

    def runs(self, *words):
        """The exit status of a command, whose answer is as it should be."""
        status, out, err = ran(*words)
        check_answer(status, out, err, as_json="--json" in words)
        return status

    def option(self):
        return [(), ("-v",), ("--json",)][self.n_taken % 3]


def described(error):
    """The error, and the last line of the package that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "pytest_tfperf" in frame.filename] or frames
    where = f"{ours[-1].filename}:{ours[-1].lineno}: {ours[-1].line}"
    return f"{type(error).__name__}: {str(error)[:300]}\n  at {where}"


class Profiles(Target):
    """Traces to profiles: each is sound, and so are its steps."""

    kinds, format = ("trace",), "trace"

    def take(self, name, raw):
        self.n_read += fuzz.found(raw) is not None


class Traces(Target):
    """Traces to every export, and to the commands in turn."""

    kinds, format = ("trace",), "trace"
    commands = (
        ("analyze", "-vv"),
        ("analyze", "--json"),
        ("check", "-v", "--max-input-bound=5%", "--max-step-time=1ms", "--max-retraces=0"),
        ("padding", "-v"),
    )

    def take(self, name, raw):
        good, mutant = self.folder / "good.xplane.pb", self.folder / "mutant.xplane.pb"
        good.write_bytes(self.seeds[name])
        mutant.write_bytes(raw)
        before = contents(self.folder)
        command, *options = self.commands[self.n_taken % len(self.commands)]
        self.n_read += self.runs(command, mutant, *options) != USAGE
        self.runs("compare", *(good, mutant)[:: (1, -1)[self.n_taken % 2]], *self.option())
        assert contents(self.folder) == before, "a command wrote a file"
        for ending in (".json", ".json.gz", ".txt", ".dot"):
            self.exports(mutant, ending)
        if self.n_taken % 8 == 0:
            self.writes_page(mutant)
        assert contents(self.folder) == before, "another file was written"
        self.n_taken += 1

    def exports(self, mutant, ending):
        path = self.folder / f"out{ending}"
        status = self.runs("export", mutant, "-o", path)
        assert path.exists() == (status == GOOD), "what failed left a file"
        if path.exists() and ".json" in ending:
            content = path.read_bytes()
            strict_json((gzip.decompress(content) if ending == ".json.gz" else content).decode())
        path.unlink(missing_ok=True)

    def writes_page(self, mutant):
        path = self.folder / "page.html"
        status = self.runs("analyze", mutant, "-o", path)
        assert path.exists() == (status != USAGE)
        if path.exists():
            check_numbers(path.read_text("utf-8"))
            path.unlink()


class Hlo(Target):
    """HLO text to `tfperf padding`, as text and as JSON."""

    kinds, format = ("hlo",), "hlo"

    def take(self, name, raw):
        path = self.folder / "mutant.txt"
        path.write_bytes(raw)
        self.n_read += self.runs("padding", path, ("-v", "--json")[self.n_taken % 2]) != USAGE
        self.n_taken += 1


class Runs(Target):
    """Run files to `tfperf show`, `report`, `compare` and `accept`, in a folder of its own so that writing elsewhere shows."""

    kinds, format = ("run",), "json"

    def take(self, name, raw):
        root = self.folder / "project"
        root.mkdir()
        good, mutant = root / "good.json", root / "mutant.json"
        good.write_bytes(self.seeds[name])
        for test in read_run(good).tests:
            (root / test.file).write_text("")
        ran("accept", good, "--rootdir", root)
        mutant.write_bytes(raw)
        before = contents(self.folder)
        try:
            is_read = self.runs("show", mutant, *self.option()) != USAGE
            self.n_read += is_read
            self.runs("compare", *(good, mutant)[:: (1, -1)[self.n_taken % 2]], *self.option())
            assert contents(self.folder) == before, "a command wrote a file"
            ending = ENDINGS[self.n_taken % len(ENDINGS)]
            for one in ENDINGS if is_read else [ending]:
                self.reports(before, root / f"out{one}", "report", mutant)
            self.reports(before, root / f"out{ending}", "compare", good, mutant)
            self.accepts(before, "accept", mutant, "--rootdir", root)
        finally:
            shutil.rmtree(root)
            self.n_taken += 1

    def reports(self, before, path, *words):
        status = self.runs(*words, "-o", path)
        written = contents(self.folder)
        text = written.pop(path, b"").decode("utf-8")
        assert written == before, f"{words[0]} wrote another file"
        assert bool(text) == (status != USAGE), "a refused file left a report"
        check_numbers(text)
        if path.suffix == ".json" and text:
            strict_json(text)
            read_run(path)
        path.unlink(missing_ok=True)

    def accepts(self, before, *words):
        """Whatever is accepted can be read again, and does not count twice."""
        status = self.runs(*words)
        written = contents(self.folder)
        if status != GOOD:
            assert written == before, "what was not accepted changed a file"
            return
        for path, content in written.items():
            if content != before.get(path):
                assert "__tfperf__" in path.parts, path
                strict_json(content.decode("utf-8"))
        assert self.runs(*words) != USAGE, "what was accepted cannot be read again"
        assert contents(self.folder) == written, "a run counts twice"


METRICS = {"graph_ops": 4, "python_calls": 120, "input_python_stages": 1}
CALLS = [Column("function", "function"), Column("calls", "calls", "count"), Column("self_s", "self", "s")]  # fmt: skip
TABLES = {
    "graph": ([Column("type", "op"), Column("after", "after", "count")], [("MatMul", 3)]),
    "pipeline": ([Column("stage", "stage")], [("Range",), ("Map at model.py:3",)]),
    "python_calls": (CALLS, [("model.py:step", 2, 0.001)]),
}
PROFILE = replace(
    TRAIN,
    metrics={**TRAIN.metrics, **{name: value(name, n) for name, n in METRICS.items()}},
    tables={name: Table.of(name, columns, rows) for name, (columns, rows) in TABLES.items()},
)


class Baselines(Target):
    """
    Baselines to the comparison of a test, and to `tfperf accept` of a run over them.

    A baseline gives checks, or a check of one sentence that is UNKNOWN. It is replaced as a whole, or stays as it is.
    """

    kinds, format = ("structure", "detail", "timing"), "json"

    def take(self, name, raw):
        root, kind, file = self.folder / "project", name.partition("/")[0], "test_model.py"
        place = Place.of(file, root, None)
        place.timing.mkdir(parents=True)
        place.detail.parent.mkdir()
        (root / file).write_text("")
        paths = {
            "structure": place.structure,
            "detail": place.detail,
            "timing": place.timing_file(LAPTOP["machine"]),
        }
        for one, path in paths.items():
            path.write_bytes(raw if one == kind else self.seeds[f"{one}/seven_runs.json"])
        try:
            options = Options(rootdir=root, baseline=True)
            checks = decide.decide(
                [(PROFILE, ())], Wanted.read({}), file, "test_step", options, LAPTOP
            )
            assert checks, "no check"
            message = failure_message("test_step", checks)
            is_read = not any(str(path) in message for path in paths.values())
            self.n_read += is_read
            json.dumps([check.to_json() for check in checks], allow_nan=False)
            check_terminal(for_terminal(message))
            if is_read:
                check_numbers(message)
            self.accepts(root, file)
        finally:
            shutil.rmtree(root)

    def accepts(self, root, file):
        run = self.folder / "good.json"
        write_run(run_of(record_of(PROFILE, file=file)), run)
        before = contents(root)
        status, out, err = ran("accept", run, "--rootdir", root)
        check_terminal(out + err)
        check_numbers(out)
        after = contents(root)
        assert status != USAGE or err.startswith("tfperf: baseline "), err
        assert status == GOOD or after == before, "what was not accepted changed a file"
        for path in (path for path in after if after[path] != before.get(path)):
            assert path.parent.name in ("__tfperf__", "detail", "timing"), path
            if path.name == ".gitattributes":
                continue
            strict_json(path.read_text("utf-8"))
            read_file(path)


TARGETS = {
    "profiles": Profiles,
    "traces": Traces,
    "hlo": Hlo,
    "runs": Runs,
    "baselines": Baselines,
}
