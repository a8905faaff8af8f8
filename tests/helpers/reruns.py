"""A conftest.py that runs each test again, as rerun plugins do."""

AGAIN = """
import pytest
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for outcome in ("rerun", None):  # as pytest-rerunfailures does
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if outcome and report.failed:
                report.outcome = outcome
            item.ihook.pytest_runtest_logreport(report=report)
        item._initrequest()
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""
