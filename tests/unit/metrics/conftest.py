from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
def hosts_in_this_process(monkeypatch):
    """Analyse the hosts of a job in threads: a process of their own for each takes a second to start."""
    monkeypatch.setattr(
        "concurrent.futures.ProcessPoolExecutor", lambda n, _: ThreadPoolExecutor(n)
    )
