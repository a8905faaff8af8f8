"""
All that reads files of others, each with its corpus, its damage and what must hold: `TARGETS`.

    target = TARGETS["runs"](folder)          # folder: an empty one
    target.faults([(name, seed), ...])        # [(place in the list, what is wrong), ...]
"""

import traceback
from pathlib import Path

from helpers import fuzz, fuzz_hlo, fuzz_json
from helpers.fuzz_baselines import KINDS, Baselines
from helpers.fuzz_hlo import HloTexts
from helpers.fuzz_runs import RunFiles
from helpers.fuzz_traces import TraceCommands
from helpers.paths import DATA

CORPUS = DATA / "fuzz"


def corpus(kind):
    """The files of a kind: their contents by name."""
    return {f"{kind}/{path.name}": path.read_bytes() for path in sorted((CORPUS / kind).iterdir())}


class _OneByOne:
    """A target that takes one mutant at a time; a fault names the error and the line of the package."""

    kind = ""
    batch = 1

    def __init__(self, folder):
        self._folder = Path(folder)
        self.seeds = corpus(self.kind)
        self._takers = {}

    def faults(self, chosen):
        for place, (name, seed) in enumerate(chosen):
            raw = self.damage(self.seeds[name], seed)
            try:
                self.take(name, raw)
            except Exception as error:
                yield place, described(error)

    def take(self, name, raw):
        if name not in self._takers:
            folder = self._folder / name.replace("/", "_")
            folder.mkdir()
            self._takers[name] = self.taker(folder, self.seeds[name])
        self._takers[name].take(raw)

    @property
    def n_read(self):
        return sum(taker.n_read for taker in self._takers.values())


class Profiles(_OneByOne):
    """Traces to profiles: each is sound, and so are its steps."""

    kind, n_read = "trace", 0
    damage = staticmethod(fuzz.mutant)

    def take(self, name, raw):
        self.n_read += fuzz.found(raw) is not None


class Traces(_OneByOne):
    """Traces to the commands and exports."""

    kind = "trace"
    damage = staticmethod(fuzz.mutant)
    taker = TraceCommands


class Hlo(_OneByOne):
    """HLO text to `tfperf padding`."""

    kind = "hlo"
    damage = staticmethod(fuzz_hlo.mutant)

    @staticmethod
    def taker(folder, raw):
        return HloTexts(folder)


class Runs(_OneByOne):
    """Run files to `tfperf show`, `report`, `compare` and `accept`."""

    kind = "run"
    damage = staticmethod(fuzz_json.mutant)
    taker = RunFiles


class StoredBaselines:
    """Baselines to `pytest --tfperf-baseline`, `--tfperf-update` and `tfperf accept`."""

    batch = 100
    damage = staticmethod(fuzz_json.mutant)

    def __init__(self, folder):
        self.seeds = {name: raw for kind in KINDS for name, raw in corpus(kind).items()}
        self._project = Baselines(Path(folder))

    def faults(self, chosen):
        return self._project.take(
            [(name.partition("/")[0], self.damage(self.seeds[name], seed)) for name, seed in chosen]
        )

    def take(self, name, raw):
        """Give one baseline to the comparison and to `tfperf accept`, without a run of pytest."""
        self._project.compare(name.partition("/")[0], raw)

    @property
    def n_read(self):
        return self._project.n_read


TARGETS = {
    "profiles": Profiles,
    "traces": Traces,
    "hlo": Hlo,
    "runs": Runs,
    "baselines": StoredBaselines,
}


def described(error):
    """The error, and the last line of the package that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "pytest_tfperf" in frame.filename] or frames
    where = f"{ours[-1].filename}:{ours[-1].lineno}: {ours[-1].line}"
    return f"{type(error).__name__}: {str(error)[:300]}\n  at {where}"
