"""Damaged files of others give an answer or one sentence; `benchmarks/fuzz.py` gives many more of them for as long as wanted."""

import json
import random
import re

import pytest
from helpers import fuzz_hlo, fuzz_json
from helpers.fuzz_targets import CORPUS, TARGETS
from helpers.paths import ROOT

N_MUTANTS = {"profiles": 20, "traces": 10, "hlo": 60, "runs": 24, "baselines": 40}


@pytest.mark.parametrize("kind", TARGETS)
def test_mutants(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    target = TARGETS[kind](tmp_path)
    names = list(target.seeds)
    chosen = [(names[n % len(names)], n) for n in range(N_MUTANTS[kind])]
    assert [(chosen[place], text) for place, text in target.faults(chosen)] == []
    assert 0 < target.n_read < len(chosen), "some mutants are read, some are not"


@pytest.mark.parametrize("kind", ["runs", "hlo", "traces", "baselines"])
def test_the_corpus_itself_is_read(kind, tmp_path):
    target = TARGETS[kind](tmp_path)
    target.damage = lambda raw, seed: raw
    assert list(target.faults([(name, 0) for name in target.seeds])) == []
    assert target.n_read == len(target.seeds)


def test_a_fault_is_named_with_its_line(tmp_path, monkeypatch):
    target = TARGETS["hlo"](tmp_path)
    monkeypatch.setattr("pytest_tfperf.cli.padding.read_hlo", lambda *_: 1 // 0)
    [(place, text)] = target.faults([("hlo/dot.txt", 3)])
    assert place == 0
    assert text.startswith("ZeroDivisionError: ")


@pytest.mark.parametrize(
    ("kind", "module", "read"),
    [
        ("runs", fuzz_json, json.loads),
        ("hlo", fuzz_hlo, bytes.decode),
    ],
)
def test_the_damage_is_what_it_says(kind, module, read, tmp_path):
    raw = next(iter(TARGETS[kind](tmp_path).seeds.values()))
    assert module.mutant(raw, 3) == module.mutant(raw, 3)
    assert len({module.mutant(raw, seed) for seed in range(100)}) > 90
    for change in module.CHANGES:
        assert any(
            str(change(random.Random(seed), read(raw))) != str(read(raw)) for seed in range(100)
        ), change


def test_each_part_of_the_corpus_has_a_guided_target(tmp_path):
    """ClusterFuzzLite builds the programs in .clusterfuzzlite, which take their corpus by name."""
    found = {}
    for path in (ROOT / ".clusterfuzzlite").glob("*_fuzzer.py"):
        [call] = re.findall(r'^fuzz\("(\w+)", "(\w+)"\)$', path.read_text("utf-8"), re.MULTILINE)
        found[path.stem.removesuffix("_fuzzer")] = call
    assert set(found) == {path.name for path in CORPUS.iterdir() if path.is_dir()}
    for kind, (name, folder) in found.items():
        assert folder == kind
        (tmp_path / kind).mkdir()
        target = TARGETS[name](tmp_path / kind)
        seed = next(one for one in target.seeds if one.startswith(f"{kind}/"))
        target.take(seed, target.seeds[seed])
