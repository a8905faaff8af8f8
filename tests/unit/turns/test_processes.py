"""In which order the processes of paired runs start, and what becomes of one where the other cannot."""

from types import SimpleNamespace

import pytest

from pytest_tfperf.errors import PairedError
from pytest_tfperf.turns import pairs as processes
from pytest_tfperf.turns import versions
from pytest_tfperf.turns.pairs import VersionProcesses
from pytest_tfperf.turns.worktree import Tree
from pytest_tfperf.values import Unknown

OURS, THEIRS = "the working tree's process", "the process on main"


class Process:
    """Has collected, and knows whether it was ended."""

    has_ended = False
    pid = 0

    def await_collected(self):
        pass

    def dismiss(self):
        pass

    def kill(self):
        self.has_ended = True

    close = interrupt = kill

    def move_to(self, cores):
        self.cores = cores


@pytest.fixture
def started():
    return {}


@pytest.fixture
def sides(tmp_path, monkeypatch, started):
    """Sides whose processes are noted in place of being started; `broken` are those that cannot be."""

    def new(*broken, starts_ahead=False):
        def start(run, _):
            label = run.label
            if label in broken:
                raise PairedError(f"{label} cannot be started")
            started.setdefault(label, []).append(Process())
            order.append(label)
            return started[label][-1]

        order = []
        tree = Tree(tmp_path, tmp_path / "ref", "c" * 40, "main", same=False, listing=None)
        monkeypatch.setattr(processes, "start_pytest", start)
        monkeypatch.setattr(versions, "write_tree", lambda *_: tree)
        cleanup = SimpleNamespace(folder=tmp_path, close=lambda: None)
        monkeypatch.setattr(processes, "Cleanup", lambda: cleanup)
        config = SimpleNamespace(
            invocation_params=SimpleNamespace(dir=tmp_path, args=()),
            option=SimpleNamespace(capture="fd"),
            pluginmanager=SimpleNamespace(hasplugin=lambda name: False),
        )
        return VersionProcesses(config, "main", None, starts_ahead), order

    return new


def test_each_pair_starts_in_the_other_order_than_the_one_before(sides):
    several, order = sides()
    for n in range(3):
        several.pair(False, [], n)
    several.close()
    assert sorted(order[:2]) == [THEIRS, OURS]
    assert order == [*order[:2], *order[1::-1], *order[:2]]


def test_either_side_may_start_first(sides):
    first = set()
    for _ in range(40):  # one in 2 ** 39 runs has the same order each time
        several, order = sides()
        several.pair(False, [])
        several.close()
        first.add(order[0])
    assert first == {OURS, THEIRS}


def test_without_the_ref_the_working_tree_runs_alone(sides, started):
    several, _ = sides(THEIRS)
    pair = several.pair(False, [])
    several.close()
    assert (pair.tree, pair.ref) == (started[OURS][0], Unknown(f"{THEIRS} cannot be started"))


def test_without_the_working_tree_no_ref_goes_on(sides, started):
    several, _ = sides(OURS)
    for n in range(2):  # in either order
        with pytest.raises(PairedError, match=f"{OURS} cannot be started"):
            several.pair(False, [], n)
    several.close()
    [ref] = started[THEIRS]
    assert ref.has_ended


def test_a_second_pair_starts_with_the_first_and_runs_on_the_cores_of_all(sides, started):
    several, order = sides(starts_ahead=True)
    first = several.pair(False, [])
    assert len(order) == 4
    second = several.pair(False, [], 1)
    assert len(order) == 4
    assert (second.tree, second.ref) == (started[OURS][1], started[THEIRS][1])
    assert second.tree.cores == second.ref.cores == several.cores
    assert several.pair(False, []) is first
    several.close()


def test_a_pair_that_is_ended_starts_again_in_its_order(sides):
    several, order = sides(starts_ahead=True)
    pairs = [several.pair(False, [], n) for n in range(3)]
    clustered = several.pair(True, [], 1)
    several.end_pair(False, 1)
    several.end_pair(False, 7)  # there is none
    assert [pair.is_whole for pair in (*pairs, clustered)] == [True, False, True, True]
    assert several.pair(False, [], 1) is not pairs[1]
    assert order[-2:] == order[2:4]
    several.close()


def test_pairs_stay_while_there_is_memory_for_another_one(sides, monkeypatch):
    def ended(available):
        """Numbers of the pairs that end where so much memory is available at each reading."""
        several, _ = sides(starts_ahead=True)
        monkeypatch.setattr(processes, "available_bytes", lambda: 10_000)
        pairs = [several.pair(False, [], n) for n in range(5)]
        left = iter(available)
        monkeypatch.setattr(processes, "available_bytes", lambda: next(left))
        several.make_room()
        found = [n for n, pair in enumerate(pairs) if not pair.is_whole]
        several.close()
        return found

    monkeypatch.setattr(processes, "private_bytes", lambda pids: 500 * len(pids))
    cases = [
        ([1501], []),
        ([1500, 1501], [4]),
        ([0, 1000, 1501], [3, 4]),
        ([0, 0, 0], [2, 3, 4]),  # the first two are needed by most tests
        ([None, None, None], [2, 3, 4]),  # unknown
    ]
    for available, numbers in cases:
        assert ended(available) == numbers, available


def test_a_further_pair_starts_where_others_have_made_room(sides, monkeypatch):
    monkeypatch.setattr(processes, "private_bytes", lambda pids: 1)
    monkeypatch.setattr(processes, "available_bytes", lambda: 0)
    several, _ = sides()
    pairs = [several.pair(False, [], n) for n in range(4)]
    assert [pair.is_whole for pair in pairs] == [True, True, False, True]
    several.close()


def test_a_second_pair_that_cannot_collect_is_tried_again_where_it_is_wanted(
    sides, started, monkeypatch
):
    def collects(self):
        if self is started[OURS][1]:
            raise PairedError("it ran out of memory")

    several, _ = sides(starts_ahead=True)
    monkeypatch.setattr(Process, "await_collected", collects)
    assert several.pair(False, []).is_whole
    assert started[OURS][1].has_ended
    assert several.pair(False, [], 1).tree is started[OURS][2]
    several.close()
