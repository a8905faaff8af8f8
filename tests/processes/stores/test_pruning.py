"""Queries of a history that another process prunes."""

import subprocess
import sys
from datetime import datetime

import pytest
from helpers.histories import run_at, store_of

from pytest_tfperf.stores.history import open_store
from pytest_tfperf.stores.rows import Selection

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

PRUNER = """
import sys
from datetime import datetime
from pytest_tfperf.stores.history import open_store

store = open_store(sys.argv[1])
for minute in map(int, sys.stdin):
    print(store.prune("demo", datetime(2026, 1, 1, 0, minute), dry=False), flush=True)
"""


def test_a_query_has_no_error_and_loses_no_other_run(tmp_path):
    n, n_pruned = 40, 30
    folder = str(tmp_path / "store")
    store = store_of(*map(run_at, range(n)), store=open_store(folder))
    pruner = subprocess.Popen(
        [sys.executable, "-c", PRUNER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with pruner:
        pruner.stdin.writelines(f"{minute}\n" for minute in range(n_pruned + 1))
        pruner.stdin.close()
        while True:
            has_ended = pruner.poll() is not None
            rows = store.rows(Selection(project="demo", metrics=("step_time",)))
            minutes = [(row.created - datetime(2026, 1, 1)).seconds // 60 for row in rows]
            assert minutes == list(range(minutes[0], n))
            assert minutes[0] <= n_pruned
            assert not store.unread
            if has_ended:
                break
        assert pruner.stdout.read().split() == ["0", *["1"] * n_pruned]
    assert pruner.returncode == 0
    assert minutes[0] == n_pruned
