"""The local index of a history: its file, and the objects that are read into it."""

from helpers.histories import run_at, store_of

from pytest_tfperf.run_history.index_tables import OpenIndex
from pytest_tfperf.run_history.opening import open_store


def cache_in(folder, monkeypatch):
    """Let indexes lie in a folder; return theirs in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "cache" / "pytest-tfperf" / "history"


def three_runs(folder):
    """Address of a history of three runs in a folder."""
    store_of(run_at(0), run_at(1), run_at(2), store=open_store(str(folder / "store")))
    return str(folder / "store")


def index_of(cache):
    """The only index in a folder of the cache."""
    (found,) = cache.glob("*.duckdb")
    return found


def added(monkeypatch):
    """Lists of the objects that are read into indexes from now on; an empty one is left out."""
    lists, add = [], OpenIndex.add

    def noted(self, projects, *rest):
        if projects:
            lists.append(sorted(projects))
        return add(self, projects, *rest)

    monkeypatch.setattr(OpenIndex, "add", noted)
    return lists
