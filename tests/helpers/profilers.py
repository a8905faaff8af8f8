"""A `tf_profile` of this process, without a test of pytest behind it."""


def profiler(arguments=None, child=None, kept_traces=None, **options):
    """Make one with these arguments of the marker and options of the run."""
    from pytest_tfperf.checks.arguments import Wanted
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.plugin.options import Options
    from pytest_tfperf.plugin.profiled_item import ProfiledItem
    from pytest_tfperf.plugin.registry import Registry

    test = ProfiledItem(None, Options(**options), Registry())
    test.wanted = Wanted.read(arguments or {})
    test.child, test.kept_traces = child, kept_traces
    return TfProfile(test)
