"""The local index of a history: its file, and the objects that are read into it."""

from pytest_tfperf.run_history.index_tables import OpenIndex


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
