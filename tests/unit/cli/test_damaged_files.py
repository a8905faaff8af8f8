"""Damaged files of others give an answer or one sentence; `benchmarks/fuzz.py` gives many more of them for as long as wanted."""

import re

import pytest
from helpers.fuzz import FORMATS, mutant
from helpers.fuzz_targets import CORPUS, TARGETS
from helpers.paths import ROOT

FEW = {"profiles": 90, "traces": 2, "hlo": 20, "runs": 6, "baselines": 12}
MANY = {"profiles": 300, "traces": 30, "hlo": 300, "runs": 60, "baselines": 100}


def faults_of(kind, folder, n):
    """The faults of a good file and of n mutants, with their name and seed; and how many mutants were read."""
    target = TARGETS[kind](folder)
    names = list(target.seeds)
    chosen = [(names[seed % len(names)], seed) for seed in range(n)]
    faults = [(chosen[place], text) for place, text in target.faults(chosen)]
    return faults, target.n_read


@pytest.mark.parametrize("numbers", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", TARGETS)
def test_mutants(kind, numbers, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    faults, n_read = faults_of(kind, tmp_path, numbers[kind])
    assert faults == []
    assert numbers[kind] == 2 or 0 < n_read < numbers[kind], "some are read, some are not"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["runs", "hlo", "traces", "baselines"])
def test_the_corpus_itself_is_read(kind, tmp_path):
    target = TARGETS[kind](tmp_path)
    target.damage = lambda raw, seed: raw
    assert list(target.faults([(name, 0) for name in target.seeds])) == []
    assert target.n_read == len(target.seeds)


def test_a_fault_is_named_with_its_line(tmp_path, monkeypatch):
    target = TARGETS["hlo"](tmp_path)
    target.damage = lambda raw, seed: raw
    monkeypatch.setattr("pytest_tfperf.cli.padding.read_hlo", lambda *_: 1 // 0)
    [(place, text)] = target.faults([("hlo/dot.txt", 3)])
    assert place == 0
    assert text.startswith("ZeroDivisionError: ")


def test_a_seed_gives_the_same_mutant_and_others_give_others():
    files = {"trace": "trace/pipeline.xplane.pb", "json": "run/sample.json", "hlo": "hlo/step.txt"}
    for format, file in files.items():
        raw = (CORPUS / file).read_bytes()
        read, write = FORMATS[format]
        assert read(write(read(raw))) == read(raw), format
        mutants = [mutant(raw, seed, format) for seed in range(50)]
        assert mutants[3] == mutant(raw, 3, format)
        assert len(set(mutants)) > 35, format


def test_each_part_of_the_corpus_has_a_guided_target():
    """ClusterFuzzLite builds the programs in .clusterfuzzlite, which take their corpus by name."""
    found = {}
    for path in (ROOT / ".clusterfuzzlite").glob("*_fuzzer.py"):
        [call] = re.findall(r'^fuzz\("(\w+)", "(\w+)"\)$', path.read_text("utf-8"), re.MULTILINE)
        found[path.stem.removesuffix("_fuzzer")] = call
    assert set(found) == {path.name for path in CORPUS.iterdir() if path.is_dir()}
    for kind, (name, folder) in found.items():
        assert folder == kind
        assert kind in TARGETS[name].kinds
