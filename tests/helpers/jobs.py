"""Profiles of the hosts of one job."""

from pytest_tfperf.metrics.multi_host import analyse_job


def profiles_of_job(traces):
    """The profiles of one run's traces, and the errors of those that cannot be read."""
    analysed, errors = analyse_job(traces)
    return [one.profile for one in analysed], errors
